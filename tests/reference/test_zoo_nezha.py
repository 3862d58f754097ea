"""The NEZHA reference against outputs that transformers 4.38.2 made (tests/data/nezha)."""

import json

import numpy as np
import pytest

from fixtures import DATA
from reference.zoo import run

TOLERANCE = 1e-5  # float32 against float64

HEADS = {
    "cls.predictions.transform.dense": "cls/predictions/transform/dense",
    "cls.predictions.transform.LayerNorm": "cls/predictions/transform/LayerNorm",
    "cls.predictions.bias": "cls/predictions/output_bias",
    "cls.seq_relationship.weight": "cls/seq_relationship/output_weights",
    "cls.seq_relationship.bias": "cls/seq_relationship/output_bias",
}


def checkpoint_names(state):
    """Rename a PyTorch state dict of BERT's kind to TensorFlow 1 names; kernels are turned."""
    arrays = {}
    for name, value in state.items():
        for theirs, ours in HEADS.items():
            name = name.replace(theirs, ours)
        name = name.replace("nezha.", "bert.").replace("layer.", "layer_").replace(".", "/")
        if "/LayerNorm/" in name:
            name = name.replace("/weight", "/gamma").replace("/bias", "/beta")
        elif name.endswith("_embeddings/weight"):
            name = name.removesuffix("/weight")
        elif name.endswith("/weight"):
            name, value = name.removesuffix("weight") + "kernel", value.T
        arrays[name] = value
    return arrays


@pytest.fixture(scope="module")
def nezha():
    """Config, variables by their TensorFlow names, inputs and outputs."""
    numpy_files = pytest.importorskip("safetensors.numpy")
    folder = DATA / "nezha"
    config = json.loads((folder / "config.json").read_text("utf-8"))
    state = numpy_files.load_file(folder / "model.safetensors")
    return config, checkpoint_names(state), numpy_files.load_file(folder / "outputs.safetensors")


def run_batch(nezha, batch, **options):
    config, arrays, recorded = nezha
    ids, segments = recorded[f"{batch}_input_ids"], recorded[f"{batch}_segment_ids"]
    # "gelu" is the one with erf there.
    out = run("nezha", arrays, config, ids, segments, activation="gelu_erf", **options)
    return out | {f"hidden_{i}": state for i, state in enumerate(out["hidden_states"])}


def largest_difference(nezha, batch, out):
    """Over all that was recorded of the batch."""
    recorded = {
        name.removeprefix(f"{batch}_"): value
        for name, value in nezha[2].items()
        if name.startswith(batch) and not name.endswith("_ids")
    }
    return max(float(np.abs(out[name] - value).max()) for name, value in recorded.items())


@pytest.mark.parametrize("batch", ["short", "long"])
def test_every_output_agrees(nezha, batch):
    assert largest_difference(nezha, batch, run_batch(nezha, batch)) < TOLERANCE


def test_another_largest_distance_shows(nezha):
    """The long batch has distances beyond 64, so that it also shows where they are clipped."""
    assert nezha[2]["long_input_ids"].shape == (1, 80)
    other = run_batch(nezha, "long", max_distance=63)
    assert largest_difference(nezha, "long", other) > 100 * TOLERANCE


def test_the_other_gelu_shows(nezha):
    config, arrays, recorded = nezha
    ids, segments = recorded["short_input_ids"], recorded["short_segment_ids"]
    out = run("nezha", arrays, config, ids, segments)
    assert np.abs(out["mlm_logits"] - recorded["short_mlm_logits"]).max() > 5 * TOLERANCE

"""The NEZHA that transformers 4.38.2 wrote and ran (tests/data/nezha), opened as a folder."""

import json

import numpy as np
import pytest
from families import family_of, outputs_of

from fixtures import DATA
from harness import refused, silent
from kerasbert import build_transformer_model, convert, model_report, save_pretrained
from kerasbert.errors import ConfigError, WeightMismatchError

numpy_files = pytest.importorskip("safetensors.numpy")

FOLDER = DATA / "nezha"
STATES = [f"hidden_{i}" for i in range(4)]
TOLERANCE = 1e-5
FILES = {"config": FOLDER / "config.json", "checkpoint": FOLDER / "model.safetensors"}


@pytest.fixture(scope="module")
def recorded():
    return numpy_files.load_file(FOLDER / "outputs.safetensors")


def build(**options):
    return silent(build_transformer_model, **FILES, verbose=0, **options)


def largest_difference(recorded, batch, names, model):
    inputs = [recorded[f"{batch}_{part}_ids"].astype("int32") for part in ("input", "segment")]
    found = outputs_of(model, inputs)
    return max(
        np.abs(ours - recorded[f"{batch}_{name}"]).max()
        for ours, name in zip(found, names, strict=True)
        if f"{batch}_{name}" in recorded
    )


@pytest.mark.backends
@pytest.mark.parametrize("batch", ["short", "long"])
def test_every_output_agrees(recorded, batch):
    model = build(with_nsp="linear", with_mlm="linear", hidden_states=True)
    assert family_of(model) == "nezha"
    report = model_report(model)
    assert not report.missing and not report.unused and not report.unused_heads
    assert "Hugging Face nezha" in report.headline()
    names = ["nsp_logits", "mlm_logits", *STATES]
    assert largest_difference(recorded, batch, names, model) < TOLERANCE
    assert largest_difference(recorded, batch, ["pooled_output"], build(with_pool=True)) < TOLERANCE


@pytest.mark.parametrize(
    ("batch", "wrong"),
    [("long", {"max_relative_position": 63}), ("short", {"hidden_act": "gelu_tanh"})],
)
def test_another_convention_shows(recorded, batch, wrong):
    model = build(with_nsp="linear", with_mlm="linear", hidden_states=True, **wrong)
    names = ["nsp_logits", "mlm_logits", *STATES]
    assert largest_difference(recorded, batch, names, model) > 5 * TOLERANCE


def test_written_in_every_form(recorded, tmp_path):
    model = build(with_nsp="linear", with_mlm="linear", hidden_states=True)
    save_pretrained(model, tmp_path / "again", verbose=0)
    ours, theirs = (
        numpy_files.load_file(folder / "model.safetensors")
        for folder in (tmp_path / "again", FOLDER)
    )
    np.testing.assert_equal(ours, theirs)
    keys = json.loads((tmp_path / "again" / "config.json").read_text())
    wanted = json.loads((FOLDER / "config.json").read_text())
    assert {key: wanted[key] for key in wanted.keys() & keys.keys()} == {
        key: keys[key] for key in wanted.keys() & keys.keys()
    }
    assert keys["max_relative_position"] == 64
    convert(FOLDER / "model.safetensors", tmp_path / "google", "google", verbose=0)
    again = silent(
        build_transformer_model,
        tmp_path / "google",
        with_nsp="linear",
        with_mlm="linear",
        hidden_states=True,
        verbose=0,
    )
    assert family_of(again) == "nezha"
    for old, new in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    names = ["nsp_logits", "mlm_logits", *STATES]
    assert largest_difference(recorded, "short", names, again) < TOLERANCE


def test_tables_that_old_releases_wrote_are_no_weights():
    arrays = numpy_files.load_file(FOLDER / "model.safetensors")
    name = "nezha.encoder.layer.0.attention.self.relative_positions_encoding.positions_encoding"
    arrays[name] = np.zeros((4, 4, 6), "float32")
    model = silent(build_transformer_model, FOLDER / "config.json", arrays, verbose=0)
    assert model_report(model).buffers == [name]


def test_what_names_without_a_prefix_tell():
    arrays = numpy_files.load_file(FOLDER / "model.safetensors")
    base = {
        name.removeprefix("nezha."): value
        for name, value in arrays.items()
        if name.startswith("nezha.")
    }
    config = json.loads((FOLDER / "config.json").read_text())
    assert family_of(build_transformer_model(config, base, verbose=0)) == "nezha"
    del config["model_type"], config["max_relative_position"]
    # RoFormer has no pooler there, and BERT has positions.
    assert family_of(build_transformer_model(config, base, verbose=0)) == "nezha"
    base = {name: value for name, value in base.items() if not name.startswith("pooler.")}
    with refused(ConfigError, "may hold a model of the families: nezha, roformer"):
        build_transformer_model(config, base, verbose=0)


def test_what_nezha_cannot_have():
    with refused(ConfigError, "custom_position_ids", "distances"):
        build(custom_position_ids=True)
    with refused(ConfigError, "attention_key_size=8", "attention_head_size=6"):
        build(attention_key_size=8)
    arrays = numpy_files.load_file(FILES["checkpoint"])
    sizes = json.loads(FILES["config"].read_text())
    for model in ("bert", "roformer"):
        config = {key: value for key, value in sizes.items() if key != "model_type"}
        with refused(WeightMismatchError, f"asks for the {model} family", "model='nezha'"):
            build_transformer_model(config, arrays, model=model, verbose=0)

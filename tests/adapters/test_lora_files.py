"""Adapters alone in a file: small, and only for the model they were trained on."""

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from devices.models import batch, build, classifier, difference, outputs
from harness import refused, to_numpy
from kerasbert import unshare
from kerasbert.adapters import add_lora, load_lora, save_lora
from kerasbert.errors import CheckpointError, ConfigError, KerasbertError, WeightMismatchError


def trained(model, **options):
    """Adapters with other numbers than new ones."""
    lora = add_lora(model, 2, verbose=0, **options)
    rng = np.random.default_rng(5)
    for weight in lora.trainable_weights:
        weight.assign(rng.normal(0, 0.2, weight.shape))
    return lora


@pytest.mark.backends
# A shared block, and two stacks of blocks of their own.
@pytest.mark.parametrize("kind", ["albert", "t5.1.0"])
def test_there_and_back(kind, tmp_path):
    model = build(kind)
    lora = trained(model, train_heads=False, layers=[1], alpha=4.0)
    path = save_lora(lora, tmp_path / "adapters")
    arrays = load_file(path)
    assert path.endswith("adapters.safetensors")
    assert sum(a.size for a in arrays.values()) == sum(
        int(np.prod(w.shape)) for w in lora.trainable_weights
    )
    assert "encoder/1/attention/query/a" in arrays
    again = load_lora(build(kind), path, verbose=0)
    inputs = batch(model)
    assert difference(outputs(again, inputs), outputs(lora, inputs)) == 0
    assert load_lora(again, path) is again


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model, the same with adapters, and the file of these."""
    model = build("albert")
    lora = trained(model, train_heads=False)
    return model, lora, save_lora(lora, tmp_path_factory.mktemp("saved") / "adapters.safetensors")


def test_of_a_shared_block_into_its_unshared_twin(saved):
    model, lora, path = saved
    wider = load_lora(unshare(model), path, verbose=0)
    inputs = batch(model)
    assert difference(outputs(wider, inputs), outputs(lora, inputs)) < 1e-5


def test_with_heads(tmp_path):
    bare = {"with_mlm": False, "with_nsp": False}
    model = classifier(build("albert", **bare))
    lora = trained(model)
    inputs = batch(model)
    alone = save_lora(lora, tmp_path / "alone")
    assert not [name for name in load_file(alone) if name.startswith("heads/")]
    path = save_lora(lora, tmp_path / "whole", heads=True)
    fresh = classifier(build("albert", **bare))
    again = load_lora(fresh, path, verbose=0)
    assert difference(outputs(again, inputs), outputs(lora, inputs)) == 0
    np.testing.assert_array_equal(
        to_numpy(load_lora(fresh, alone, verbose=0).get_layer("labels").kernel),
        to_numpy(fresh.get_layer("labels").kernel),
    )
    with refused(WeightMismatchError, "heads/labels/kernel", "Build the heads"):
        load_lora(build("albert", **bare), path)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "bfloat16", "int8"])
def test_into_the_base_at_another_precision(dtype, saved):
    base = build("albert") if dtype == "int8" else build("albert", dtype=dtype)
    if dtype == "int8":
        base.quantize("int8")
    load_lora(base, saved[2], verbose=0)


def test_wrong_bases(tmp_path):
    path = save_lora(trained(build("bert")), tmp_path / "adapters")
    with refused(WeightMismatchError, "adapters.safetensors", "encoder/0/attention", "other num"):
        load_lora(build("bert", seed=2), path)
    with refused(WeightMismatchError, "encoder/1/attention/query", "no dense layer"):
        load_lora(build("bert", num_hidden_layers=1), path)
    with refused(WeightMismatchError, "[32, 32]", "[24, 24]"):
        load_lora(build("nezha"), path)
    with refused(WeightMismatchError, "no dense layer"):
        load_lora(build("gau_alpha"), path)
    other = add_lora(build("bert"), 3, verbose=0)
    with refused(ConfigError, "'rank': 3", "'rank': 2", "without adapters"):
        load_lora(other, path)


def test_wrong_files(tmp_path):
    model = build("bert")
    with refused(CheckpointError, "missing.safetensors", "save_lora"):
        load_lora(model, tmp_path / "missing.safetensors")
    (tmp_path / "text").write_text("no tensors")
    with refused(CheckpointError, "text", "save_lora"):
        load_lora(model, tmp_path / "text")
    save_file({"a": np.zeros(3)}, tmp_path / "other.safetensors")
    with refused(CheckpointError, "holds no adapters", "load_weights_from_checkpoint"):
        load_lora(model, tmp_path / "other.safetensors")
    with refused(KerasbertError, "no adapters", "model.save"):
        save_lora(model, tmp_path / "adapters")
    (tmp_path / "file").write_text("")
    with refused(CheckpointError, "Cannot write"):
        save_lora(trained(model), tmp_path / "file" / "adapters")

"""The synthetic checkpoints have the names and shapes of real ones, and show mistakes."""

import itertools
import json

import numpy as np
import pytest
import tensorflow as tf

from fixtures import (
    DATA,
    FAST_CASES,
    GOLDEN_CASES,
    KINDS,
    golden_case,
    keras_made_albert_names,
    make_arrays,
    object_checkpoint,
    random_batch,
    read_checkpoint,
    tiny_config,
    variable_shapes,
    write_checkpoint,
    write_config,
)
from reference.forward import forward

SLOTS = ("/adam_m", "/adam_v", "/lamb_m", "/lamb_v")
RUNNABLE = [kind for kind in KINDS if kind != "electra"]


def kind_of(name):
    if name.startswith("bert"):
        return "google_bert"
    if name == "albert_zh_unshared":
        return name
    early = name.startswith("albert_zh") and not name.startswith("albert_zh_google")
    return "albert_zh" if early else "google_albert"


def shapes_in(prefix):
    """Names and shapes of a checkpoint but for optimizer state; the .index file is enough."""
    found = tf.train.load_checkpoint(str(prefix)).get_variable_to_shape_map()
    return {
        name: tuple(shape)
        for name, shape in found.items()
        if not name.endswith(SLOTS) and name != "global_step"
    }


def run(kind, config, arrays, seed=0, **options):
    ids, segments = random_batch(np.random.default_rng(seed), config["vocab_size"], 3, 9)
    return forward(arrays, config, ids, segments, ids > 0, **options)


def furthest(a, b):
    return max(np.abs(a[key] - b[key]).max() for key in a)


# ---- names and shapes, against files the original programs wrote -----------------------------


@pytest.mark.parametrize("name", [name for name in GOLDEN_CASES if name not in FAST_CASES])
def test_names_and_shapes_of_golden_cases(name):
    case = golden_case(name)
    assert variable_shapes(kind_of(name), case.config) == shapes_in(case.checkpoint)


@pytest.mark.parametrize(
    ("kind", "folder", "model"),
    [
        ("google_bert", "google-research+bert", "bert"),
        ("google_albert", "hellonlp+classifier_multi_label", "albert"),
    ],
)
def test_names_and_shapes_of_released_files(kind, folder, model):
    folder = DATA / "index_only" / folder
    config = json.loads((folder / f"{model}_config.json").read_text("utf-8"))
    assert variable_shapes(kind, config) == shapes_in(folder / f"{model}_model.ckpt")


@pytest.mark.parametrize("name", ["electra", "electra_same_dim"])
def test_names_and_shapes_of_electra(shared_dir, name):
    folder = shared_dir / "golden" / name
    config = json.loads((folder / "config.json").read_text("utf-8"))
    assert variable_shapes("electra", config) == shapes_in(folder / "model.ckpt")


@pytest.mark.parametrize("name", ["albert_groups", "albert_zh", "bert"])
def test_config_keys_are_the_original_ones(name):
    kind = kind_of(name)
    ours, real = set(tiny_config(kind)), set(golden_case(name).config)
    assert ours == real


def test_config_overrides():
    config = tiny_config("albert_zh", ln_type=..., hidden_size=64)
    assert "ln_type" not in config
    assert config["hidden_size"] == 64
    with pytest.raises(ValueError, match="unknown kind"):
        tiny_config("albert")


def test_groups_without_layers_have_no_variables():
    config = tiny_config("google_albert", num_hidden_layers=4, num_hidden_groups=12)
    groups = {n.split("/")[3] for n in variable_shapes("google_albert", config) if "group_" in n}
    assert groups == {"group_0", "group_3", "group_6", "group_9"}


# ---- values ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_are_reproducible(kind):
    config = tiny_config(kind)
    first, again, other = (make_arrays(kind, config, seed) for seed in (1, 1, 2))
    assert {name: a.shape for name, a in first.items()} == variable_shapes(kind, config)
    for name, array in first.items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, again[name])
        assert not np.array_equal(array, other[name])


@pytest.mark.parametrize("kind", RUNNABLE)
def test_outputs_are_of_order_one(kind):
    config = tiny_config(kind)
    for seed in range(5):
        outputs = run(kind, config, make_arrays(kind, config, seed), seed)
        for name, value in outputs.items():
            assert 0.1 < value.std() < 6, name


@pytest.mark.parametrize("kind", RUNNABLE)
def test_mistakes_are_visible(kind):
    config = tiny_config(kind)
    arrays = make_arrays(kind, config, 0)
    right = run(kind, config, arrays)
    for wrong in ({"activation": "gelu_erf"}, {"epsilon": 1e-3}):
        assert furthest(right, run(kind, config, arrays, **wrong)) > 1e-4


@pytest.mark.parametrize("kind", RUNNABLE)
def test_every_variable_but_key_biases_matters(kind):
    config = tiny_config(kind)
    arrays = make_arrays(kind, config, 0)
    right = run(kind, config, arrays)
    for name in arrays:
        noise = np.random.default_rng(1).standard_normal(arrays[name].shape)
        change = furthest(right, run(kind, config, arrays | {name: arrays[name] + 0.1 * noise}))
        assert (change < 1e-9) == name.endswith("/key/bias"), (name, change)
        assert change < 1e-9 or change > 1e-3, (name, change)


@pytest.mark.parametrize("kind", RUNNABLE)
def test_every_swap_is_visible(kind):
    config = tiny_config(kind, num_hidden_layers=2)
    arrays = make_arrays(kind, config, 0)
    right = run(kind, config, arrays)
    for a, b in itertools.combinations(arrays, 2):
        both_key_biases = a.endswith("/key/bias") and b.endswith("/key/bias")
        if arrays[a].shape != arrays[b].shape or both_key_biases:
            continue
        swapped = run(kind, config, arrays | {a: arrays[b], b: arrays[a]})
        assert furthest(right, swapped) > 1e-3, (a, b)


def test_slots_and_heads():
    config = tiny_config("google_albert")
    plain = make_arrays("google_albert", config, 0)
    full = make_arrays("google_albert", config, 0, slots=True)
    extra = {f"{name}/{slot}" for name in plain for slot in ("adam_m", "adam_v")}
    assert set(full) == set(plain) | extra | {"global_step"}
    assert full["global_step"].dtype == np.int64
    assert full["global_step"].shape == ()
    for name, array in plain.items():
        np.testing.assert_array_equal(array, full[name])
        assert full[f"{name}/adam_v"].shape == array.shape
        assert (full[f"{name}/adam_v"] >= 0).all()
    bare = make_arrays("google_albert", config, 0, heads=False)
    assert not [name for name in bare if name.startswith(("cls/", "bert/pooler/"))]
    assert set(run("google_albert", config, bare)) == {
        "embedding_norm",
        "embedding_output",
        *(f"layer_{i}" for i in range(3)),
        "sequence_output",
    }


def test_module_prefix():
    config = tiny_config("google_albert")
    plain = make_arrays("google_albert", config, 0)
    hub = make_arrays("google_albert", config, 0, module_prefix=True)
    assert set(hub) == {f"module/{name}" for name in plain}
    assert furthest(run("google_albert", config, plain), run("google_albert", config, hub)) == 0


def test_keras_made_names():
    config = tiny_config("google_albert", num_hidden_layers=12)
    arrays = make_arrays("google_albert", config, 0, slots=True)
    renamed = keras_made_albert_names(arrays, config)
    block = "bert/encoder/transformer"
    for target, source in {
        "bert/embeddings/layer_normalization/beta": "bert/embeddings/LayerNorm/beta",
        f"{block}/group_0/layer_0/inner_group_0/layer_normalization_1/beta": (
            f"{block}/group_0/inner_group_0/LayerNorm/beta"
        ),
        f"{block}/group_0_9/layer_9/inner_group_0/layer_normalization_19/gamma": (
            f"{block}/group_0/inner_group_0/LayerNorm/gamma"
        ),
        f"{block}/group_0_11/layer_11/inner_group_0/layer_normalization_24/gamma": (
            f"{block}/group_0/inner_group_0/LayerNorm_1/gamma"
        ),
    }.items():
        np.testing.assert_array_equal(renamed[target], arrays[source])
    assert not [name for name in renamed if "LayerNorm" in name or "adam" in name]
    norms = [name for name in renamed if "layer_normalization" in name]
    assert len(norms) == 2 * (1 + 2 * 12 + 1)
    shared = f"{block}/group_0/inner_group_0/attention_1/self/query/kernel"
    np.testing.assert_array_equal(renamed[shared], arrays[shared])


# ---- files -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_written_checkpoint_reads_back(tmp_path, kind):
    arrays = make_arrays(kind, tiny_config(kind), 0, slots=True)
    prefix = write_checkpoint(tmp_path / "new folder" / "模型.ckpt", arrays)
    assert prefix == str(tmp_path / "new folder" / "模型.ckpt")
    files = {path.name for path in (tmp_path / "new folder").iterdir()}
    assert files == {"模型.ckpt.index", "模型.ckpt.data-00000-of-00001"}
    read = read_checkpoint(prefix)
    assert set(read) == set(arrays)
    for name, array in arrays.items():
        assert read[name].dtype == array.dtype
        np.testing.assert_array_equal(read[name], array)


def test_object_checkpoint(tmp_path):
    names = set(read_checkpoint(object_checkpoint(tmp_path / "object.ckpt")))
    assert "_CHECKPOINTABLE_OBJECT_GRAPH" in names
    assert "model/layers/1/kernel/.ATTRIBUTES/VARIABLE_VALUE" in names


def test_write_config(tmp_path):
    config = tiny_config("albert_zh", ln_type=None)
    path = write_config(tmp_path / "config.json", config)
    assert json.loads((tmp_path / "config.json").read_text("utf-8")) == config
    assert path == str(tmp_path / "config.json")


def test_random_batch():
    rng = np.random.default_rng(0)
    for _ in range(20):
        ids, segments = random_batch(rng, 100, 4, 10)
        assert ids.dtype == segments.dtype == np.int32
        assert ids.shape == segments.shape == (4, 10)
        lengths = (ids > 0).sum(axis=1)
        assert lengths[0] == 10
        assert (lengths[1:] >= 2).all()
        assert (lengths[1:] < 10).all()
        for row in range(4):
            assert (ids[row, : lengths[row]] > 0).all()
            assert segments[row, 0] == 0
            assert not segments[row, lengths[row] :].any()
            assert (np.diff(segments[row, : lengths[row]]) >= 0).all()
        assert ids.max() < 100
    assert random_batch(rng, 100, 2, 1)[0].shape == (2, 1)

"""Checkpoints written and read back: identical bits under the original names, or a refusal."""

import json
import os
import re

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import (
    golden_case,
    make_arrays,
    random_batch,
    read_checkpoint,
    tiny_config,
    variable_shapes,
)
from harness import default_and_slow, refused, to_numpy
from kerasbert import (
    build_transformer_model,
    load_weights_from_checkpoint,
    model_report,
    save_weights_as_checkpoint,
    unshare,
)
from kerasbert.errors import CheckpointError, WeightMismatchError
from reference.forward import forward

V = 100
HEADS = {"with_nsp": "linear", "with_mlm": "linear", "hidden_states": True}
SLOT = re.compile(r"/(adam|lamb)_[mv]$|^global_step$")
GROUPS = {"num_hidden_groups": 2, "inner_group_num": 2}


def scramble(model, seed=0):
    """Give every variable new numbers, so that no two copies of a block stay equal."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        shape = tuple(weight.shape)
        deviation = 0.5 / np.sqrt(shape[0]) if len(shape) == 2 else 0.3
        weight.assign(rng.normal(float(weight.path.endswith("gamma")), deviation, shape))
    return model


def bits(model):
    return {weight.path: to_numpy(weight) for weight in model.weights}


def assert_same_bits(found, expected):
    assert found.keys() == expected.keys()
    for key in expected:
        assert found[key].dtype == expected[key].dtype, key
        np.testing.assert_array_equal(found[key], expected[key], err_msg=key)


def run(model):
    """Outputs on a fixed batch: sentence logits, word logits, last hidden state."""
    sentence, words, states = model(list(random_batch(np.random.default_rng(1), V, 3, 9)))
    return [to_numpy(output) for output in (sentence, words, states[-1])]


def judged(arrays, config):
    """The same from the independent forward pass."""
    ids, segments = random_batch(np.random.default_rng(1), V, 3, 9)
    out = forward(arrays, config, ids, segments, ids > 0)
    return [out[name] for name in ("nsp_logits", "mlm_logits", "sequence_output")]


def close(found, expected, atol=1e-5):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=atol, rtol=0)


def written(model, prefix):
    """Save; return (paths, arrays of the file, its config)."""
    paths = save_weights_as_checkpoint(model, prefix, verbose=0)
    with open(paths["config"], encoding="utf-8") as file:
        config = json.load(file)
    return paths, read_checkpoint(paths["checkpoint"]), config


# ---- every dialect, every un-sharing ---------------------------------------------------------

FEW = {"unshare": "attention", "unshare_layers": [0, 2]}
PRE = {"ln_type": "preln"}
SAME = {"embedding_size": 32}

# (dialect, model=, changes of the config, un-sharing)
FORMS = [
    ("google_bert", "bert", {"hidden_act": "relu"}, {}),
    ("google_albert", "albert", {}, {}),
    ("google_albert", "albert", GROUPS, {}),
    ("google_albert", "albert", SAME, {"unshare": "attention"}),
    ("google_albert", "albert", {}, {"unshare_layers": [1]}),
    ("google_albert", "albert", GROUPS, FEW),
    ("albert_zh", "albert", {}, {}),
    ("albert_zh", "albert", PRE, {"unshare": "feed_forward"}),
    ("albert_zh", "albert_unshared", PRE, {}),
]
OTHER_FORMS = [
    ("google_albert", "albert_unshared", SAME, {}),
    ("google_albert", "albert", {}, {"unshare_layers": []}),
    ("google_albert", "albert_unshared", GROUPS, {}),
    ("albert_zh", "albert", PRE, {}),
    ("albert_zh", "albert", SAME, FEW),
    ("google_albert", "albert", {}, {"unshare": "feed_forward"}),
    ("google_albert", "albert", {"hidden_act": "gelu_erf"}, {"unshare": "all"}),
    ("google_albert", "albert", GROUPS, {"unshare": "feed_forward"}),
    ("albert_zh", "albert", {}, {"unshare": "attention"}),
    ("albert_zh", "albert_unshared", {"hidden_act": "relu"}, {}),
]


@pytest.mark.parametrize(
    ("dialect", "model", "changes", "unsharing"), default_and_slow([*FORMS, *OTHER_FORMS], FORMS)
)
def test_written_and_read(dialect, model, changes, unsharing, tmp_path):
    config = tiny_config(dialect, **changes)
    first = scramble(build_transformer_model(config, model=model, **HEADS, **unsharing))
    paths, arrays, keys = written(first, tmp_path / "new" / "model.ckpt")

    unshared = model == "albert_unshared" or unsharing
    kind = "albert_zh_unshared" if dialect == "albert_zh" and unshared else dialect
    assert {n: a.shape for n, a in arrays.items()} == variable_shapes(kind, keys)
    assert all(array.dtype == np.float32 for array in arrays.values())
    if unshared and dialect == "google_albert":
        assert keys["num_hidden_groups"] == keys["num_hidden_layers"]
    changed = {key for key in keys.keys() & config.keys() if keys[key] != config[key]}
    assert changed <= ({"num_hidden_groups"} if unshared else set())

    expected = run(first)
    close(expected, judged(arrays, keys), 1e-5 if config.get("ln_type") != "preln" else 2e-5)
    again = build_transformer_model(paths["config"], paths["checkpoint"], model, verbose=0, **HEADS)
    assert_same_bits(bits(again), bits(first))
    close(run(again), expected, 0)
    again, _, _ = written(again, tmp_path / "second")
    assert_same_bits(read_checkpoint(again["checkpoint"]), arrays)


@pytest.mark.parametrize(
    "layers", [22, *(pytest.param(n, marks=pytest.mark.slow) for n in (23, 26, 39))]
)
def test_depths_at_which_the_floats_skip_groups(layers, tmp_path):
    sizes = {"hidden_size": 8, "intermediate_size": 8, "embedding_size": 4}
    config = tiny_config("google_albert", num_hidden_layers=layers, **sizes)
    first = scramble(build_transformer_model(config, model="albert", unshare="attention", **HEADS))
    paths, arrays, keys = written(first, tmp_path / "model.ckpt")
    found = {int(n.split("group_")[1].split("/")[0]) for n in arrays if "/group_" in n}
    groups = keys["num_hidden_groups"]
    assert found == {int(i / layers * groups) for i in range(layers)}
    assert len(found) == layers < groups
    close(run(first), judged(arrays, keys), 1e-4)
    again = build_transformer_model(paths["config"], paths["checkpoint"], "albert", **HEADS)
    assert_same_bits(bits(again), bits(first))


@pytest.mark.parametrize(
    ("dialect", "places"),
    [("google_albert", ("group_0", "group_1")), ("albert_zh", ("layer_0", "layer_1"))],
)
def test_a_shared_model_takes_equal_copies_only(dialect, places, tmp_path):
    config = tiny_config(dialect, num_hidden_layers=2)
    model = scramble(build_transformer_model(config, model="albert", **HEADS))
    copies = unshare(model)
    for equal in (True, False):
        if not equal:
            gamma = copies.get_layer("Transformer-1-FeedForward").norm.gamma
            gamma.assign(to_numpy(gamma) + np.float32(1e-6))
        paths, _, keys = written(copies, tmp_path / f"{equal}")
        shared = {key: value for key, value in keys.items() if key != "unshare"}
        if equal:
            again = build_transformer_model(shared, paths["checkpoint"], "albert", **HEADS)
            assert_same_bits(bits(again), bits(model))
            continue
        with refused(WeightMismatchError, *places, "gamma", "albert_unshared"):
            build_transformer_model(shared, paths["checkpoint"], "albert", **HEADS)
        before = bits(model)
        with refused(WeightMismatchError, paths["checkpoint"]):
            load_weights_from_checkpoint(model, paths["checkpoint"], verbose=0)
        assert_same_bits(bits(model), before)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        *(("lora", n) for n in ("Pooler-Dense", "MLM-Dense", "Embedding-Token")),
        ("int8", "NSP-Proba"),
    ],
)
def test_what_no_name_can_hold_is_never_dropped(change, name, tmp_path):
    """Low-rank updates and quantised kernels outside the blocks: refused, or written in full."""
    config = tiny_config("google_bert", num_hidden_layers=1)
    model = scramble(build_transformer_model(config, **HEADS))
    layer = model.get_layer(name)
    layer.enable_lora(2) if change == "lora" else layer.quantize("int8")
    for weight in layer.weights[1:]:
        weight.assign(weight + 0.1)
    try:
        _, arrays, keys = written(model, tmp_path / "model.ckpt")
    except WeightMismatchError as error:
        assert name in str(error)
    else:
        close(judged(arrays, keys), run(model))


# ---- the originals ---------------------------------------------------------------------------


ORIGINALS = ["bert", "bert_relu", "albert", "albert_groups", "albert_same_dim"]
ORIGINALS += [f"albert_zh{form}" for form in ("", "_preln", "_same_dim", "_unshared")]


@pytest.mark.parametrize("name", ORIGINALS)
def test_a_rewritten_original_is_the_original(name, tmp_path):
    case = golden_case(name)
    model = "albert_unshared" if name == "albert_zh_unshared" else name.split("_")[0]
    heads = {"with_nsp": True, "with_mlm": True}
    made = build_transformer_model(case.config_path, case.checkpoint, model, verbose=0, **heads)
    paths, arrays, keys = written(made, tmp_path / "model.ckpt")
    own = {n: a for n, a in case.variables.items() if not SLOT.search(n)}
    assert_same_bits(arrays, own)
    listed = tf.train.list_variables(paths["checkpoint"])
    assert listed == [x for x in tf.train.list_variables(case.checkpoint) if x[0] in own]
    for key, value in keys.items():
        if key not in ("unshare", "unshare_layers", "sharing_groups"):
            assert case.config[key] == value, key
    assert "ln_type" in keys or not name.startswith("albert_zh")


@pytest.mark.parametrize("name", ["bert_relu", "albert_zh_same_dim", "keras-bert-test-ckpt"])
def test_what_training_left_in_a_file(name, request):
    if name.startswith("keras"):
        folder = request.getfixturevalue("shared_dir") / "weights" / name
        config, checkpoint = folder / "bert_config.json", folder / "bert_model.ckpt"
    else:
        case = golden_case(name)
        config, checkpoint = case.config_path, case.checkpoint
    variables = read_checkpoint(checkpoint)
    slots = {variable for variable in variables if SLOT.search(variable)}
    assert len(slots) >= 2 * (len(variables) - len(slots)) > 40
    family = name.partition("_")[0].replace("keras-bert-test-ckpt", "bert")
    made = build_transformer_model(config, checkpoint, family, verbose=0, **HEADS)
    report = model_report(made)
    assert set(report.optimizer_slots) == slots
    assert set(report.read) == variables.keys() - slots
    assert not (report.missing or report.unused or report.unused_heads or report.skipped_layers)
    assert len(report.loaded) == len(made.weights)
    assert f"{len(slots)} slots skipped" in str(report) and "adam_" not in str(report)


@pytest.mark.parametrize("dialect", ["google_albert", "albert_zh", "google_bert"])
def test_a_cut_and_extended_vocabulary(dialect, tmp_path):
    config = tiny_config(dialect, num_hidden_layers=1)
    arrays = make_arrays(dialect, config, 5)
    family = "bert" if dialect == "google_bert" else "albert"
    options = {"keep_tokens": [0, 5, 7, 3], "compound_tokens": [[1, 2], ([1, 3], [3, 1])]}
    made = build_transformer_model(config, arrays, family, verbose=0, **options, **HEADS)
    paths, found, keys = written(made, tmp_path / "model.ckpt")
    assert keys["vocab_size"] == 6
    for name in ("bert/embeddings/word_embeddings", "cls/predictions/output_bias"):
        kept = arrays.pop(name)[[0, 5, 7, 3]]
        means = [(kept[1] + kept[2]) / 2, (3 * kept[1] + kept[3]) / 4]
        np.testing.assert_array_equal(found[name][:4], kept)
        np.testing.assert_allclose(found.pop(name), [*kept, *means], rtol=1e-6)
    assert_same_bits({name: found[name] for name in arrays}, arrays)
    again = build_transformer_model(paths["config"], paths["checkpoint"], family, **HEADS)
    assert_same_bits(bits(again), bits(made))


@pytest.mark.parametrize(
    ("error", "moment"),
    [
        *((OSError("disk full"), moment) for moment in ("SaveV2", "replace 1", "replace 3")),
        (KeyboardInterrupt(), "SaveV2"),
        (KeyboardInterrupt(), "replace 2"),
    ],
)
def test_a_crash_leaves_the_old_files(moment, error, tmp_path, monkeypatch):
    config = tiny_config("google_albert", num_hidden_layers=2)
    old = scramble(build_transformer_model(config, model="albert"))
    written(old, tmp_path / "model.ckpt")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    save, replace, calls = tf.raw_ops.SaveV2, os.replace, []

    def broken_save(**kwargs):
        save(**kwargs)
        raise error

    def broken_replace(*args):
        calls.append(args)
        if moment == f"replace {len(calls)}":
            raise error
        replace(*args)

    new = scramble(build_transformer_model(config, model="albert_unshared"), seed=2)
    monkeypatch.setattr(os, "replace", broken_replace)
    if moment == "SaveV2":
        monkeypatch.setattr(tf.raw_ops, "SaveV2", broken_save)
    with pytest.raises(CheckpointError if isinstance(error, OSError) else KeyboardInterrupt):
        save_weights_as_checkpoint(new, tmp_path / "model.ckpt", verbose=0)
    monkeypatch.undo()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


# ---- any small model -------------------------------------------------------------------------


@st.composite
def small_models(draw):
    """(dialect, config) of a shared ALBERT, or (rarely) a BERT."""
    dialect = draw(st.sampled_from(["google_albert"] * 3 + ["albert_zh"] * 2 + ["google_bert"]))
    heads = draw(st.sampled_from([1, 2, 3]))
    hidden = heads * draw(st.sampled_from([2, 4]))
    layers = draw(st.integers(1, 4))
    changes = {
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "hidden_size": hidden,
        "intermediate_size": draw(st.integers(1, 12)),
        "hidden_act": draw(st.sampled_from(["gelu", "relu", "gelu_erf", "swish", "tanh"])),
        "type_vocab_size": draw(st.integers(2, 3)),
        "max_position_embeddings": draw(st.integers(9, 12)),
    }
    if dialect != "google_bert":
        changes["embedding_size"] = draw(st.sampled_from([hidden, 3, 16]))
    if dialect == "google_albert":
        changes["num_hidden_groups"] = draw(st.integers(1, layers + 1))
        changes["inner_group_num"] = draw(st.integers(1, 2))
    if dialect == "albert_zh":
        changes["ln_type"] = draw(st.sampled_from(["postln", "preln", None]))
    return dialect, tiny_config(dialect, **changes)


any_model = given(small_models(), st.integers(0, 1000), st.booleans())


@settings(max_examples=8)
@any_model
def test_any_small_model(tmp_path_factory, made, seed, hub):
    check_there_and_back(tmp_path_factory, made, seed, hub)


@pytest.mark.slow
@settings(max_examples=30)
@any_model
def test_many_small_models(tmp_path_factory, made, seed, hub):
    check_there_and_back(tmp_path_factory, made, seed, hub)


def check_there_and_back(tmp_path_factory, made, seed, hub):
    dialect, config = made
    folder = tmp_path_factory.mktemp("any")
    bare = make_arrays(dialect, config, seed)
    arrays = make_arrays(dialect, config, seed, module_prefix=hub, slots=hub)
    names = ("bert", "roberta") if dialect == "google_bert" else ("albert", "albert_unshared")
    one, other = (
        build_transformer_model(config, arrays, name, verbose=0, **HEADS) for name in names
    )
    found, expected = run(one), judged(arrays, config)
    scale = max(1.0, *(np.abs(output).max() for output in expected))
    close(found, expected, 1e-5 * scale)
    assert_same_bits(written(one, folder / "one")[1], bare)

    paths, _, _ = written(other, folder / "other")
    again = build_transformer_model(
        paths["config"], paths["checkpoint"], names[1], verbose=0, **HEADS
    )
    assert_same_bits(bits(again), bits(other))
    close(run(again), found, 1e-6 * scale)

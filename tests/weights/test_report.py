"""The account of a load: every variable and every name in one list, said in few words."""

import re

import keras
import numpy as np
import pytest

from fixtures import make_arrays, tiny_config, variable_shapes, write_checkpoint
from harness import refused, silent, to_numpy
from kerasbert import (
    build_transformer_model,
    hidden_state,
    load_weights_from_checkpoint,
    model_report,
)
from kerasbert.errors import CheckpointError, KerasbertError, WeightMismatchError
from kerasbert.weights import LoadReport

CONFIG = tiny_config("google_albert")
NAMES = sorted(variable_shapes("google_albert", CONFIG))
HEADS = [name for name in NAMES if name.startswith(("cls/", "bert/pooler/"))]
BLOCK = [name for name in NAMES if "inner_group_0" in name]
TOP = [name for name in NAMES if name not in HEADS + BLOCK]
FOREIGN = {
    name: np.zeros(2, "float32")
    for name in (
        "classifier/output_bias",
        "my_output_weights",
        "start_logits/dense/kernel",
        "my_head/layer_normalization_3/gamma",
        "my_head/layer_3/dense/kernel",
        "cls/other/output_weights",
        "<script>alert('x')</script>",
    )
}
SLOTS = {
    f"{base}/{slot}": np.zeros(2, "float32")
    for base, slot in (
        ("bert/pooler/dense/kernel", "lamb_m"),
        ("bert/pooler/dense/kernel", "lamb_v"),
        ("bert/embeddings/word_embeddings", "Adam"),
        ("bert/embeddings/word_embeddings", "Adam_1"),
        ("classifier/output_bias", "adam_m"),
        ("bert/embeddings/LayerNorm/beta", "Momentum"),
    )
} | {name: np.float32(1) for name in ("beta1_power", "beta2_power", "learning_rate")}


def build(arrays, model="albert", **options):
    return build_transformer_model(CONFIG, arrays, model=model, **{"verbose": 0, **options})


def full(**options):
    return make_arrays("google_albert", CONFIG, 1, **options)


def accounted(report, model, arrays):
    """Every model variable and every name stands in exactly one list."""
    paths = [*report.loaded, *report.missing]
    assert len(paths) == len(set(paths)) == len(model.weights)
    names = [
        *report.read,
        *report.unused_heads,
        *report.unused,
        *report.skipped_layers,
        *report.optimizer_slots,
    ]
    return sorted(names) == sorted(arrays)


# ---- the lists -------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["albert", "albert_unshared"])
def test_slots_and_foreign_names(model):
    arrays = full(slots=True) | FOREIGN | SLOTS
    made = silent(build, arrays, model)
    report = model_report(made)
    assert report.read == sorted(TOP + BLOCK)
    assert report.missing == report.skipped_layers == report.notes == []
    assert sorted(report.unused_heads) == HEADS
    assert sorted(report.unused) == sorted(FOREIGN)
    trained = {f"{name}/{slot}" for name in NAMES for slot in ("adam_m", "adam_v")}
    assert set(report.optimizer_slots) == trained | set(SLOTS) | {"global_step"}
    assert accounted(report, made, arrays)


@pytest.mark.parametrize(
    ("options", "count", "unused"),
    [
        ({}, 0, 9),
        ({"with_pool": True}, 2, 7),
        ({"with_nsp": True}, 4, 5),
        ({"with_mlm": True}, 5, 4),
        ({"with_nsp": True, "with_mlm": True}, 9, 0),
    ],
)
def test_heads(options, count, unused):
    made = build(full(), **options)
    report = model_report(made)
    assert len(report.loaded) == len(TOP) + len(BLOCK) + count
    assert len(report.unused_heads) == len(HEADS) - count == unused
    assert accounted(report, made, full())


def test_every_model_variable_is_named_with_its_source():
    made = build(full(), "albert_unshared", with_pool=True)
    loaded = model_report(made).loaded
    sources = {
        "Pooler-Dense/kernel": "bert/pooler/dense/kernel",
        "Embedding-Norm/gamma": "bert/embeddings/LayerNorm/gamma",
        "Transformer-2-FeedForward/norm/beta": BLOCK[0].split("inner_group_0")[0]
        + "inner_group_0/LayerNorm_1/beta",
    }
    for path, name in sources.items():
        assert loaded[path] == [name]


def test_fan_out():
    assert model_report(build(full())).fan_out == 1
    report = model_report(build(full(), "albert_unshared"))
    assert report.fan_out == 3
    assert len(report.loaded) == len(TOP) + 3 * len(BLOCK)
    assert re.search(r"\b3 blocks", str(report))
    half = model_report(build(full(), unshare="attention"))
    assert half.fan_out == 3
    assert len(half.loaded) == len(TOP) + 3 * 10 + 6
    assert LoadReport("x", "y").fan_out == 0


def test_notes():
    config = {key: value for key, value in CONFIG.items() if key != "embedding_size"}
    made = build_transformer_model(config, full(), model="albert", verbose=0)
    assert "embedding_size=16" in model_report(made).notes[0]
    assert "embedding_size=16" in str(model_report(made))


@pytest.mark.parametrize("absent", [["ln_type"], ["embedding_size"], ["ln_type", "embedding_size"]])
def test_what_old_configs_leave_out_comes_from_the_file(absent):
    config = tiny_config("albert_zh")
    arrays = make_arrays("albert_zh", config, 1)
    outputs = []
    for leave_out in ([], absent):
        keys = tiny_config("albert_zh", **dict.fromkeys(leave_out, ...))
        model = build_transformer_model(keys, arrays, model="albert", with_mlm=True, verbose=0)
        outputs.append(to_numpy(model([np.array([[2, 7, 9]]), np.array([[0, 0, 1]])])))
    np.testing.assert_array_equal(*outputs)


def test_the_last_load_counts(tmp_path):
    made = build(full(), with_pool=True)
    first = model_report(made)
    prefix = write_checkpoint(tmp_path / "other.ckpt", full())
    second = load_weights_from_checkpoint(made, prefix, verbose=0)
    assert model_report(made) is second
    assert second is not first
    assert (second.source, second.missing) == (prefix, [])
    made.save(tmp_path / "model.keras")
    with refused(CheckpointError, "report"):
        model_report(keras.models.load_model(tmp_path / "model.keras"))


# ---- nothing stays random --------------------------------------------------------------------


@pytest.mark.backends
@pytest.mark.parametrize("model", ["albert", "albert_unshared"])
def test_two_seeds_give_the_same_bits(model):
    made = []
    for seed in (1, 2):
        keras.utils.set_random_seed(seed)
        made.append(build(full(), model, with_nsp=True, with_mlm=True))
    for one, other in zip(*(m.weights for m in made), strict=True):
        assert to_numpy(one).tobytes() == to_numpy(other).tobytes(), one.path
    keras.utils.set_random_seed(1)
    random = build_transformer_model(CONFIG, model=model, with_nsp=True, with_mlm=True)
    for one, other in zip(made[0].weights, random.weights, strict=True):
        assert np.abs(to_numpy(one) - to_numpy(other)).max() > 0, f"{one.path} was not loaded"


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_number_types(dtype):
    arrays = {name: value.astype(dtype) for name, value in full().items()}
    made = build(arrays)
    assert {weight.dtype for weight in made.weights} == {"float32"}
    kernel = made.get_layer("Transformer-FeedForward").intermediate.kernel
    name = next(n for n in BLOCK if n.endswith("ffn_1/intermediate/dense/kernel"))
    np.testing.assert_array_equal(to_numpy(kernel), arrays[name].astype("float32"))


def test_frozen_layers_are_loaded_too():
    made = build_transformer_model(CONFIG, model="albert")
    made.trainable = False
    report = load_weights_from_checkpoint(made, full(), verbose=0)
    assert len(report.loaded) == len(made.weights)
    np.testing.assert_array_equal(
        to_numpy(made.get_layer("Embedding-Token").embeddings),
        full()["bert/embeddings/word_embeddings"],
    )


# ---- what is said ----------------------------------------------------------------------------


def crowded():
    """A report with something in every list."""
    arrays = (
        full(slots=True, heads=False) | FOREIGN | {f"stray/{i}": np.zeros(1) for i in range(99)}
    )
    arrays |= {name: value for name, value in full().items() if name.startswith("cls/pred")}
    with pytest.warns(UserWarning, match="initial values"):
        return model_report(build(arrays, "albert_unshared", with_nsp=True, strict=False))


def test_one_screen():
    report = crowded()
    report.skipped_layers = ["bert/encoder/layer_11/x"] * 16
    report.notes = ["embedding_size=16 was taken from the file."]
    lines = str(report).splitlines()
    assert 5 <= len(lines) <= 10
    assert max(map(len, lines)) < 300
    for fact in ("Google ALBERT", "dict of arrays", "106", "NSP-Proba/kernel", "slots"):
        assert str(fact) in str(report)
    assert len(str(model_report(build(full()))).splitlines()) <= 6
    assert len(str(LoadReport("x", "y")).splitlines()) <= 10


def test_table_for_notebooks_is_escaped(tmp_path):
    prefix = write_checkpoint(tmp_path / "a&b<c>'d" / "model.ckpt", full() | FOREIGN)
    table = model_report(build(prefix))._repr_html_()
    assert "<script>" not in table
    assert "a&amp;b&lt;c&gt;" in table
    assert set(re.findall(r"</?(\w+)", table)) <= {"table", "tbody", "tr", "th", "td"}
    for label, text in model_report(build(prefix)).rows():
        assert label in table
        assert text.split("&")[0][:20] in table or "<" in text[:20]


@pytest.mark.parametrize("how", ["build", "load"])
def test_verbose(capfd, how):
    made = build(full())
    capfd.readouterr()

    def printed(verbose):
        options = {} if verbose is None else {"verbose": verbose}
        if how == "build":
            build_transformer_model(CONFIG, full(), model="albert", **options)
        else:
            load_weights_from_checkpoint(made, full(), **options)
        return capfd.readouterr()

    assert printed(0) == ("", "")
    for verbose in (None, 1, True):
        out, err = printed(verbose)
        assert err == ""
        assert len(out.splitlines()) == 1
        for fact in ("Google ALBERT", f"{len(TOP + BLOCK)} variables", f"{len(HEADS)} unused"):
            assert fact in out
    out, err = printed(2)
    assert (out, err) == (f"{model_report(made)}\n", "")


def test_no_checkpoint_no_word(capfd):
    silent(build_transformer_model, CONFIG, model="albert", with_mlm=True)
    assert capfd.readouterr() == ("", "")


def test_the_warning_points_at_the_call():
    with pytest.warns(UserWarning, match="MLM") as caught:
        build(full(heads=False), with_mlm=True, strict=False)
    with pytest.warns(UserWarning, match="MLM") as again:
        made = build_transformer_model(CONFIG, model="albert", with_mlm=True)
        load_weights_from_checkpoint(made, full(heads=False), strict=False, verbose=0)
    assert {warning.filename for warning in (*caught, *again)} == {__file__}


def test_a_failed_load_prints_nothing(capfd):
    with pytest.raises(WeightMismatchError):
        build_transformer_model(CONFIG, full(heads=False), model="albert", with_mlm=True)
    assert capfd.readouterr() == ("", "")


def test_a_model_built_on_top_has_the_report_too():
    made = build(full())
    top = keras.Model(made.inputs, keras.layers.Dense(2)(made.output))
    assert model_report(top) is model_report(made)
    cut = keras.Model(made.inputs, hidden_state(made, 1))
    assert model_report(cut) is model_report(made)
    with refused(CheckpointError, "No checkpoint was loaded"):
        model_report(build_transformer_model(CONFIG, model="albert"))
    for stranger in (None, keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])):
        with refused(KerasbertError, "Expected a"):
            model_report(stranger)

"""Weights of other widths: what resizing keeps, what it refuses, what the report says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import make_arrays, tiny_config, write_checkpoint
from harness import refused, silent, to_numpy
from kerasbert import build_transformer_model, load_weights_from_checkpoint, model_report
from kerasbert.errors import ConfigError, WeightMismatchError
from kerasbert.weights import orthogonally_resize

KINDS = {"google_bert": "bert", "google_albert": "albert", "albert_zh": "albert"}
IDS = np.array([[2, 7, 9, 3, 11, 0, 0], [5, 4, 1, 8, 6, 2, 3]], "int32")
BATCH = [IDS, (np.arange(7) > 3).astype("int32")[None].repeat(2, 0)]


def small_config(kind, **changes):
    return tiny_config(kind, num_hidden_layers=2, **changes)


# ---- the array ---------------------------------------------------------------------------------


def by_loops(array, shape):
    """The definition, number by number: block b, copy c, place r within it."""
    out = np.zeros(shape)
    for index in np.ndindex(*shape):
        source = []
        for axis, k in enumerate(index):
            times = -(-shape[axis] // array.shape[axis])
            if times > 1:
                block, within = divmod(k, 2)
                k = (block // times) * 2 + within
            source.append(k)
        out[index] = array[tuple(source)]
    return out / np.linalg.norm(out) * np.linalg.norm(array)


@given(
    shape=st.lists(st.sampled_from([2, 4, 6]), min_size=1, max_size=3),
    new=st.lists(st.integers(1, 13), min_size=3, max_size=3),
)
def test_resizing_is_what_its_definition_says(shape, new):
    array = np.random.default_rng(0).normal(size=shape)
    found = orthogonally_resize(array, new[: len(shape)])
    np.testing.assert_allclose(found, by_loops(array, tuple(new[: len(shape)])), atol=1e-12)


def test_a_grown_orthogonal_matrix_keeps_inner_products():
    q, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))
    x, y = np.random.default_rng(1).normal(size=(2, 6))
    wide = orthogonally_resize(q, (12, 12))
    big_x, big_y = (orthogonally_resize(v, (12,)) for v in (x, y))
    np.testing.assert_allclose(big_x @ big_y, x @ y)
    np.testing.assert_allclose((big_x @ wide) @ (big_y @ wide), x @ y)
    np.testing.assert_allclose(np.linalg.norm(wide), np.linalg.norm(q))


def test_zeros_stay_zeros_and_types_stay():
    zeros = orthogonally_resize(np.zeros(4, "float32"), (8,))
    assert zeros.tolist() == [0.0] * 8
    assert zeros.dtype == "float32"
    # The squares of these overflow in float16.
    large = orthogonally_resize(np.full((4, 4), 3e4, "float16"), (8, 8))
    assert large.dtype == "float32" and np.isfinite(large).all()


def test_an_odd_axis_cannot_grow():
    with refused(ConfigError, "an axis of 5 grows to 10", "multiple", 2):
        orthogonally_resize(np.ones(5), (10,))
    with refused(ConfigError, "2 axes against 1"):
        orthogonally_resize(np.ones((2, 2)), (4,))
    assert orthogonally_resize(np.ones(5), (3,)).shape == (3,)


# ---- the model ---------------------------------------------------------------------------------


def pair(kind, factors, act="gelu", **heads):
    """A small model, and one whose widths are multiples, both from one file."""
    config = small_config(kind, hidden_act=act)
    arrays = make_arrays(kind, config, 1)
    wider = {key: config[key] * n for key, n in factors.items() if key in config}
    options = {"model": KINDS[kind], "verbose": 0, "hidden_states": True, **heads}
    small = build_transformer_model(config, arrays, **options)
    large = build_transformer_model({**config, **wider}, arrays, autoresize_weights=True, **options)
    return small, large


WIDER = [
    ("google_bert", {"hidden_size": 2, "intermediate_size": 3}, "gelu"),
    ("google_bert", {"hidden_size": 3}, "relu"),
    ("google_albert", {"hidden_size": 2, "intermediate_size": 2, "embedding_size": 3}, "relu"),
    ("google_albert", {"embedding_size": 3}, "gelu"),
    ("albert_zh", {"hidden_size": 3, "intermediate_size": 2, "embedding_size": 2}, "gelu"),
]


@pytest.mark.parametrize(("kind", "factors", "act"), WIDER)
def test_a_wider_network_computes_what_the_small_one_does(kind, factors, act):
    """Hidden states are repeated and divided by the root of how often; probabilities are equal."""
    times = factors.get("hidden_size", 1)
    small, large = pair(kind, factors, act, with_nsp=True, with_mlm=True)
    *heads, states = small(BATCH)
    *wide_heads, wide_states = large(BATCH)
    for one, other in zip(heads, wide_heads, strict=True):
        np.testing.assert_allclose(to_numpy(other), to_numpy(one), rtol=0, atol=1e-5)
    for one, other in zip(states, wide_states, strict=True):
        expected = to_numpy(one).reshape(*one.shape[:2], -1, 2)
        expected = np.repeat(expected, times, axis=2)
        expected = expected.reshape(other.shape) / times**0.5
        np.testing.assert_allclose(to_numpy(other), expected, rtol=0, atol=1e-4)


def test_every_resized_variable_is_in_the_report(tmp_path, capsys):
    config = small_config("google_bert")
    arrays = make_arrays("google_bert", config, 1)
    prefix = write_checkpoint(tmp_path / "bert_model.ckpt", arrays)
    wide = {**config, "intermediate_size": 96}
    model = build_transformer_model(wide, prefix, autoresize_weights=True)
    report = model_report(model)
    assert report.resized == {
        f"Transformer-{n}-FeedForward/{name}": shapes
        for n in range(2)
        for name, shapes in {
            "intermediate/kernel": ((32, 64), (32, 96)),
            "intermediate/bias": ((64,), (96,)),
            "output/kernel": ((64, 32), (96, 32)),
        }.items()
    }
    assert "6 resized" in capsys.readouterr().out
    assert "Transformer-0-FeedForward/intermediate/bias (64,) -> (96,)" in str(report)
    untouched = model.get_layer("Transformer-1-MultiHeadSelfAttention").query.kernel
    np.testing.assert_array_equal(
        to_numpy(untouched), arrays["bert/encoder/layer_1/attention/self/query/kernel"]
    )


@pytest.mark.backends
def test_a_narrower_network_is_cut():
    config = small_config("google_bert")
    arrays = make_arrays("google_bert", config, 1)
    narrow = {**config, "hidden_size": 16, "intermediate_size": 30}
    model = build_transformer_model(narrow, arrays, autoresize_weights=True, verbose=0)
    table = arrays["bert/embeddings/word_embeddings"]
    cut = table[:, :16] * np.linalg.norm(table) / np.linalg.norm(table[:, :16])
    np.testing.assert_allclose(
        to_numpy(model.get_layer("Embedding-Token").embeddings), cut, rtol=1e-5
    )
    assert np.isfinite(to_numpy(model(BATCH))).all()


def test_loading_into_a_finished_model():
    config = small_config("google_albert")
    arrays = make_arrays("google_albert", config, 1)
    model = build_transformer_model({**config, "hidden_size": 64}, model="albert_unshared")
    with refused(WeightMismatchError, "hidden_size is 64 in the configuration, 32"):
        load_weights_from_checkpoint(model, arrays)
    report = load_weights_from_checkpoint(model, arrays, autoresize_weights=True, verbose=0)
    assert len(report.resized) > 30
    assert report.resized["Embedding-Mapping/kernel"] == ((16, 32), (16, 64))


# ---- what it does not do -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"vocab_size": 104}, ["vocab_size", 104, 100]),
        ({"type_vocab_size": 4}, ["type_vocab_size", 4, 2]),
        ({"max_position_embeddings": 64}, ["max_position_embeddings", 64, 32]),
        ({"num_hidden_layers": 3}, ["num_hidden_layers", 3, 2]),
        ({"num_hidden_layers": 1}, ["num_hidden_layers", 1, 2]),
    ],
)
def test_rows_and_layers_are_not_resized(changes, facts):
    config = small_config("google_bert")
    arrays = make_arrays("google_bert", config, 1)
    changed = {**config, "hidden_size": 64, **changes}
    with refused(WeightMismatchError, *facts):
        build_transformer_model(changed, arrays, autoresize_weights=True)
    model = build_transformer_model(changed)
    with refused(WeightMismatchError, "dict of arrays"):
        load_weights_from_checkpoint(model, arrays, autoresize_weights=True)


def test_an_odd_width_is_refused_by_name():
    config = small_config("google_bert", intermediate_size=63)
    arrays = make_arrays("google_bert", config, 1)
    with refused(WeightMismatchError, "intermediate/dense", "63", "126", "no multiple of 2"):
        build_transformer_model(
            {**config, "intermediate_size": 126}, arrays, autoresize_weights=True
        )


@pytest.mark.parametrize("option", ["autoresize_weights", "ignore_invalid_weights"])
@pytest.mark.parametrize(
    ("kind", "model"),
    [
        ("google_bert", "albert"),
        ("google_albert", "bert"),
        ("electra", "bert"),
        ("google_bert", "electra"),
    ],
)
def test_neither_option_hides_a_wrong_model(option, kind, model):
    config = small_config(kind)
    with refused(WeightMismatchError, "model="):
        build_transformer_model(config, make_arrays(kind, config, 1), model=model, **{option: True})


def test_neither_option_mixes_the_two_alberts():
    config = small_config("google_albert")
    with refused(WeightMismatchError, "albert_zh", "Google"):
        build_transformer_model(
            config,
            make_arrays("albert_zh", small_config("albert_zh"), 1),
            model="albert",
            autoresize_weights=True,
            ignore_invalid_weights=True,
        )


@pytest.mark.parametrize("option", ["autoresize_weights", "ignore_invalid_weights"])
def test_both_are_switches(option):
    with refused(ConfigError, f"{option}='yes'", "bool"):
        build_transformer_model(small_config("google_bert"), **{option: "yes"})


# ---- gaps ----------------------------------------------------------------------------------------


def gaps(changes=None, without=(), kind="google_bert", **options):
    config = small_config(kind)
    arrays = make_arrays(kind, config, 1)
    arrays = {n: a for n, a in arrays.items() if not n.endswith(tuple(without) or ("?",))}
    options = {"model": KINDS[kind], "ignore_invalid_weights": True, "verbose": 0, **options}
    return arrays, lambda: build_transformer_model({**config, **(changes or {})}, arrays, **options)


def test_missing_variables_keep_their_initial_values():
    name = "bert/encoder/layer_1/intermediate/dense/kernel"
    arrays, build = gaps(without=[name])
    with pytest.warns(UserWarning, match="1 variables are not in .*FeedForward/intermediate/ker"):
        model = build()
    report = model_report(model)
    assert report.missing == ["Transformer-1-FeedForward/intermediate/kernel"]
    kernel = to_numpy(model.get_layer("Transformer-1-FeedForward").intermediate.kernel)
    assert 0.015 < kernel.std() < 0.025, "zeros are no initial values"
    other = to_numpy(model.get_layer("Transformer-0-FeedForward").intermediate.kernel)
    np.testing.assert_array_equal(other, arrays[name.replace("layer_1", "layer_0")])


def test_misshapen_variables_keep_their_initial_values(capsys):
    arrays, build = gaps({"intermediate_size": 96, "vocab_size": 120}, verbose=1)
    with pytest.warns(UserWarning, match="7 variables have another shape"):
        model = build()
    report = model_report(model)
    assert "Embedding-Token/embeddings" in report.misshapen
    assert report.missing == []
    assert len(report.misshapen) == 7
    assert not set(report.misshapen) & report.loaded.keys()
    assert "7 missing" in capsys.readouterr().out
    table = to_numpy(model.get_layer("Embedding-Token").embeddings)
    assert table.shape == (120, 32) and 0.015 < table.std() < 0.025
    np.testing.assert_array_equal(
        to_numpy(model.get_layer("Transformer-1-FeedForward").norm.gamma),
        arrays["bert/encoder/layer_1/output/LayerNorm/gamma"],
    )


def test_more_layers_than_the_file_has():
    _, build = gaps({"num_hidden_layers": 3})
    with pytest.warns(UserWarning, match="16 variables are not in"):
        model = build()
    assert all(path.startswith("Transformer-2-") for path in model_report(model).missing)


def test_heads_and_resizing_together():
    _, build = gaps(
        {"hidden_size": 64},
        without=["cls/predictions/output_bias", "attention/self/query/bias"],
        with_mlm=True,
        autoresize_weights=True,
    )
    with pytest.warns(UserWarning, match="3 variables are not in"):
        model = build()
    report = model_report(model)
    assert report.missing[0] == "MLM-Bias/bias"
    assert report.misshapen == []
    assert report.resized.keys() < report.loaded.keys()
    assert "MLM-Dense/kernel" in report.resized


@pytest.mark.parametrize("table", ["word_embeddings", "position_embeddings"])
def test_a_file_without_a_table_is_another_model(table):
    _, build = gaps(without=[table])
    with refused(WeightMismatchError, table if table.startswith("pos") else "dict of arrays"):
        silent(build)


def test_a_file_that_fits_no_block_is_refused():
    _, build = gaps({"hidden_size": 64, "intermediate_size": 128})
    with refused(WeightMismatchError, "fits no variable of the blocks", "config"):
        silent(build)


def test_fewer_layers_are_still_to_be_asked_for():
    _, build = gaps({"num_hidden_layers": 1})
    with refused(WeightMismatchError, "num_hidden_layers"):
        silent(build)
    _, build = gaps(num_hidden_layers=1)
    assert len(model_report(silent(build)).skipped_layers) == 16


@pytest.mark.parametrize("family", ["nezha", "roformer"])
def test_positions_inside_heads_are_not_resized(family):
    small = tiny_config("google_bert")
    arrays = {k: v for k, v in make_arrays("google_bert", small, 1).items() if "position" not in k}
    wide = {**small, "hidden_size": 2 * small["hidden_size"]}
    with refused(WeightMismatchError, "autoresize_weights", family, "position"):
        build_transformer_model(wide, arrays, model=family, autoresize_weights=True, verbose=0)

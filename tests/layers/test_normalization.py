"""Layer normalisation in all its forms: through the harness, and against loops in float64."""

import keras
import numpy as np
import pytest

from harness import (
    BuiltByName,
    LayerCase,
    by_name,
    check_gradient_numbers,
    functional,
    in_float64,
    refused,
    saved_and_loaded,
    to_numpy,
    weights_of,
)
from kerasbert.errors import ConfigError
from kerasbert.layers import Embedding, LayerNormalization
from reference import loops

B, L, H, C, W = 3, 5, 8, 4, 6
RNG = np.random.default_rng(17)
# Far from mean 0 and deviation 1, row by row.
X = RNG.normal(1.5, 2.0, size=(B, L, H)).astype("float32")
ONE = RNG.normal(size=(B, C)).astype("float32")
MANY = RNG.normal(size=(B, L, C)).astype("float32")
GAMMA, BETA = {"gamma": (H,)}, {"beta": (H,)}


def shifts(width=C, *names):
    return {f"{name}_dense/kernel": (width, H) for name in names or ("gamma", "beta")}


def conditional(name, weights, condition=ONE, **arguments):
    inputs = {"inputs": X, "condition": condition}
    return BuiltByName(
        name, LayerNormalization, {"conditional": True, **arguments}, inputs, weights
    )


def plain(name, weights, **arguments):
    return LayerCase(name, LayerNormalization, arguments, {"inputs": X}, weights)


HIDDEN = {"hidden_units": W, "hidden_activation": "tanh"}
CASES = [
    plain("plain", GAMMA | BETA),
    plain("epsilon", GAMMA | BETA, epsilon=0.5),
    plain("rms", GAMMA, zero_mean=False, offset=False),
    plain("rms_offset", GAMMA | BETA, zero_mean=False, epsilon=1e-6),
    plain("centred", GAMMA | BETA, unit_variance=False),
    plain("affine", GAMMA | BETA, zero_mean=False, unit_variance=False),
    plain("offset_only", BETA, scale=False),
    plain("bare", {}, scale=False, offset=False),
    conditional("one", GAMMA | BETA | shifts()),
    conditional("many", GAMMA | BETA | shifts(), MANY),
    conditional("hidden", GAMMA | BETA | shifts(W) | {"hidden_dense/kernel": (C, W)}, **HIDDEN),
    conditional(
        "hidden_many",
        GAMMA | shifts(W, "gamma") | {"hidden_dense/kernel": (C, W)},
        MANY,
        zero_mean=False,
        offset=False,
        **HIDDEN,
    ),
    conditional("shifted_offset", BETA | shifts(C, "beta"), scale=False),
]
each = pytest.mark.parametrize("case", CASES, ids=str)
of = by_name(CASES)
ON_BACKENDS = {str(case) for case in {c.layer: c for c in CASES if c.weights}.values()} | {"rms"}
trainable = pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=str(case), marks=[pytest.mark.backends] * (str(case) in ON_BACKENDS))
        for case in CASES
        if case.weights
    ],
)


def in_loops(case, v):
    names = ("zero_mean", "unit_variance")
    inputs = in_float64(case.inputs)
    return loops.norm(
        v,
        inputs["inputs"],
        inputs.get("condition"),
        epsilon=case.arguments.get("epsilon", 1e-7),
        activation=case.arguments.get("hidden_activation", "linear"),
        **{name: case.arguments[name] for name in names if name in case.arguments},
    )


# ---- numbers ---------------------------------------------------------------------------------


@pytest.mark.backends
@each
def test_against_loops(case):
    layer = case.filled()
    expected = in_loops(case, in_float64(weights_of(layer)))
    np.testing.assert_allclose(to_numpy(case.call(layer)), expected, atol=1e-5, rtol=0)


@trainable
def test_gradients_against_differences(case):
    check_gradient_numbers(case, lambda v: in_loops(case, v))


@pytest.mark.parametrize("zero_mean", [True, False])
@pytest.mark.parametrize("dtype", ["float16", "mixed_float16", "bfloat16"])
def test_squares_beyond_the_range_of_float16(dtype, zero_mean):
    # Of 300 already; and an epsilon of 1e-12 is zero there.
    layer = LayerNormalization(epsilon=1e-12, zero_mean=zero_mean, dtype=dtype)
    large = np.array([[3000.0, -2000.0, 1000.0, 500.0]])
    expected = loops.norm({}, large, zero_mean=zero_mean)
    np.testing.assert_allclose(to_numpy(layer(large)), expected, atol=0.02)
    small = np.full((1, 4), 1e-4)
    assert np.isfinite(to_numpy(layer(small))).all()


@pytest.mark.parametrize("zero_mean", [True, False])
def test_a_row_of_zeros_gives_beta(zero_mean):
    layer = plain("", {}, zero_mean=zero_mean, epsilon=1e-12).filled()
    found = to_numpy(layer(np.zeros((1, 2, H))))
    np.testing.assert_allclose(found[0], [to_numpy(layer.beta)] * 2, atol=1e-6)


def test_a_new_condition_changes_nothing():
    expected = to_numpy(LayerNormalization()(X))
    layer = LayerNormalization(conditional=True, hidden_units=W)
    np.testing.assert_allclose(to_numpy(layer([X, ONE])), expected, atol=1e-6)
    with_mean = keras.layers.LayerNormalization(epsilon=keras.config.epsilon())
    np.testing.assert_allclose(to_numpy(with_mean(X)), expected, atol=1e-6)


def test_the_condition_in_a_list_is_the_condition_by_name():
    layer = of("many").filled()
    np.testing.assert_array_equal(to_numpy(layer([X, MANY])), to_numpy(layer(X, condition=MANY)))


def test_a_condition_for_all_is_that_condition_everywhere():
    layer = of("one").filled()
    everywhere = np.repeat(ONE[:, None], L, axis=1)
    np.testing.assert_allclose(
        to_numpy(layer([X, ONE])), to_numpy(layer([X, everywhere])), atol=1e-6
    )


@pytest.mark.parametrize("conditioned", [False, True])
def test_the_mask_of_the_input_is_passed_on(conditioned):
    ids = np.array([[3, 4, 0], [5, 0, 0], [0, 0, 0]], "int32")
    hidden = Embedding(9, H)(ids, mask=ids)
    condition = Embedding(9, C)(ids, mask=np.ones_like(ids))
    layer = LayerNormalization(conditional=conditioned)
    output = layer([hidden, condition]) if conditioned else layer(hidden)
    assert to_numpy(output._keras_mask).astype(bool).tolist() == (ids != 0).tolist()


# ---- state of sub-layers ---------------------------------------------------------------------


def test_quantised_and_frozen_sublayers_come_back(tmp_path):
    model, layer, batch = functional(of("hidden"))
    exact = to_numpy(model(batch))
    layer.hidden_dense.quantize("int8")
    layer.beta_dense.quantize("int8")
    layer.gamma_dense.trainable = False
    again = saved_and_loaded(model, tmp_path)
    np.testing.assert_array_equal(to_numpy(again(batch)), to_numpy(model(batch)))
    assert 0 < np.abs(to_numpy(again(batch)) - exact).max() < 0.3
    subject = again.get_layer("subject")
    assert [layer.dtype_policy.name for layer in subject._sublayers()] == [
        layer.dtype_policy.name for layer in layer._sublayers()
    ]
    assert subject.beta_dense.dtype_policy.name == "int8_from_float32"
    assert subject.gamma_dense.dtype_policy.name == "float32"
    assert not subject.gamma_dense.trainable and subject.beta_dense.trainable


# ---- refusals --------------------------------------------------------------------------------


def test_condition_and_argument_belong_together():
    with refused(ConfigError, "conditional=True", "1 tensors", "condition"):
        LayerNormalization(conditional=True)(X)
    with refused(ConfigError, "conditional=False", "2 tensors"):
        LayerNormalization()([X, ONE])
    with refused(ConfigError, "3 axes", "2"):
        LayerNormalization(conditional=True)([X[:, 0], MANY])


@pytest.mark.parametrize("units", [0, -2, 2.5, "8", True])
def test_wrong_hidden_units(units):
    with refused(ConfigError, "hidden_units", repr(units)):
        LayerNormalization(conditional=True, hidden_units=units)


def test_wrong_hidden_activation():
    with refused(ConfigError, "gelu_tanh", "gelu_erf"):
        LayerNormalization(conditional=True, hidden_activation="gelu")

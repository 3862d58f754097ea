"""The affine layer and its condition, through the harness and against plain numpy loops."""

import keras
import numpy as np
import pytest

from harness import (
    LayerCase,
    check_precision,
    default_and_slow,
    fill,
    refused,
    to_numpy,
    weights_of,
)
from kerasbert.errors import ConfigError
from kerasbert.layers import Embedding, ScaleOffset
from kerasbert.layers.scale_offset import ConditionalLayer

B, L, H, C, W = 3, 5, 8, 4, 6
RNG = np.random.default_rng(5)
X = RNG.normal(size=(B, L, H)).astype("float32")
ONE = RNG.normal(size=(B, C)).astype("float32")
MANY = RNG.normal(size=(B, L, C)).astype("float32")
VECTORS = {"beta": (H,), "gamma": (H,)}
SHIFTS = {"beta_dense/kernel": (C, H), "gamma_dense/kernel": (C, H)}
HIDDEN = {
    "hidden_dense/kernel": (C, W),
    "beta_dense/kernel": (W, H),
    "gamma_dense/kernel": (W, H),
}


class Conditional(LayerCase):
    """A case whose layer is built for two shapes."""

    def shape(self):
        return [value.shape for value in self.inputs.values()]


class Listed(Conditional):
    """A case whose layer takes its tensors as one list."""

    def call(self, layer, **inputs):
        return layer(list((inputs or self.inputs).values()))


def conditional(name, arguments, condition, weights, kind=Conditional):
    arguments = {"conditional": True, **arguments}
    return kind(name, ScaleOffset, arguments, {"inputs": X, "condition": condition}, weights)


CASES = [
    LayerCase("plain", ScaleOffset, {}, {"inputs": X}, VECTORS),
    LayerCase("gamma", ScaleOffset, {"offset": False}, {"inputs": X}, {"gamma": (H,)}),
    LayerCase("constant", ScaleOffset, {"scale": 2.0, "offset": -1.0}, {"inputs": X}, {}),
    conditional("one", {}, ONE, VECTORS | SHIFTS),
    conditional("many", {}, MANY, VECTORS | SHIFTS),
    conditional("list", {}, ONE, VECTORS | SHIFTS, Listed),
    conditional("shifted_constant", {"scale": 2.0, "offset": -1.0}, MANY, SHIFTS),
    conditional(
        "beta_only", {"scale": False}, ONE, {"beta": (H,), "beta_dense/kernel": (C, H)}, Listed
    ),
    conditional("hidden", {"hidden_units": W, "hidden_activation": "tanh"}, ONE, VECTORS | HIDDEN),
]
# Checks that this file makes in its own way, see test_every_layer.
OWN = ["precision"]
each = pytest.mark.parametrize("case", CASES, ids=str)


# ---- the harness -----------------------------------------------------------------------------


# The harness asks a layer for its output by the names of tensors, which a list hides.
@pytest.mark.parametrize("case", [c for c in CASES if not isinstance(c, Listed)], ids=str)
@pytest.mark.parametrize(
    "policy",
    default_and_slow(["float16", "bfloat16", "mixed_bfloat16", "mixed_float16"], ["mixed_float16"]),
)
def test_low_precision(case, policy):
    check_precision(case, policy, to_numpy(case.call(case.filled())))


# ---- numbers ---------------------------------------------------------------------------------


def reference(weights, x, condition, scale=True, offset=True):
    """The affine map by loops over single numbers, in float64."""
    v = {path: to_numpy(weight).astype("float64") for path, weight in weights.items()}
    y = np.zeros(x.shape)
    for b, i, j in np.ndindex(*x.shape):
        gamma = v["gamma"][j] if scale is True else scale
        beta = v["beta"][j] if offset is True else offset
        if condition is not None:
            seen = condition[b] if condition.ndim == 2 else condition[b, i]
            if "hidden_dense/kernel" in v:
                seen = np.tanh(seen @ v["hidden_dense/kernel"])
            gamma += seen @ v["gamma_dense/kernel"][:, j] if "gamma_dense/kernel" in v else 0
            beta += seen @ v["beta_dense/kernel"][:, j] if "beta_dense/kernel" in v else 0
        y[b, i, j] = x[b, i, j] * gamma + beta
    return y


@pytest.mark.backends
@each
def test_against_loops(case):
    layer = case.filled()
    # No scale is a scale of 1, no offset one of 0.
    scale = {False: 1.0}.get(layer.scale, layer.scale)
    condition = case.inputs.get("condition")
    expected = reference(weights_of(layer), X.astype("float64"), condition, scale, layer.offset)
    np.testing.assert_allclose(to_numpy(case.call(layer)), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("scale", [True, 3.0])
def test_a_new_condition_changes_nothing(scale):
    plain = ScaleOffset(scale=scale)(X)
    np.testing.assert_array_equal(
        to_numpy(ScaleOffset(scale=scale, conditional=True, hidden_units=W)([X, ONE])),
        to_numpy(plain),
    )


def test_one_is_a_number_and_true_is_a_vector():
    assert not ScaleOffset(scale=1, offset=0).build((None, H))
    layer = ScaleOffset(scale=1, offset=None)
    np.testing.assert_array_equal(to_numpy(layer(X)), X)
    assert not layer.weights and layer.get_config()["scale"] == 1.0
    assert layer.get_config()["offset"] is False


def test_more_axes_than_three():
    layer = ScaleOffset(conditional=True)
    layer.build([(B, 2, L, H), (B, C)])
    fill(layer)
    x = np.stack([X, 2 * X], axis=1)
    both = to_numpy(layer([x, ONE]))
    for i in range(2):
        single = to_numpy(layer([x[:, i], ONE]))
        np.testing.assert_allclose(both[:, i], single, atol=1e-6)


@pytest.mark.parametrize("by_name", [False, True])
def test_only_the_mask_of_the_input_is_passed_on(by_name):
    ids = np.array([[3, 4, 0], [5, 0, 0]], "int32")
    hidden = Embedding(9, H)(ids, mask=ids)
    condition = Embedding(9, C)(ids, mask=np.ones_like(ids))
    layer = ScaleOffset(conditional=True)
    y = layer(hidden, condition=condition) if by_name else layer([hidden, condition])
    assert to_numpy(y._keras_mask).astype(bool).tolist() == (ids != 0).tolist()


# ---- the helper class ------------------------------------------------------------------------


def test_freezing_and_types_of_sublayers_survive():
    layer = ScaleOffset(conditional=True, sublayer_dtypes={"beta_dense": "mixed_bfloat16"})
    layer.build([(B, L, H), (B, C)])
    layer.gamma_dense.trainable = False
    again = ScaleOffset.from_config(layer.get_config())
    again.build([(B, L, H), (B, C)])
    assert again.beta_dense.dtype_policy.name == "mixed_bfloat16"
    assert not again.gamma_dense.trainable and again.beta_dense.trainable


def test_the_helper_goes_before_a_layer_of_keras():
    class Normalization(ConditionalLayer, keras.layers.LayerNormalization):
        def build(self, inputs_shape, condition_shape=None):
            inputs_shape, condition_shape = self.separate_shapes(inputs_shape, condition_shape)
            super().build(inputs_shape)
            self.build_condition(condition_shape, inputs_shape[-1])

        def call(self, inputs, condition=None):
            inputs, condition = self.separate(inputs, condition)
            gamma, beta = self.shifts(condition, len(inputs.shape))
            return super().call(inputs) * (1 + gamma) + beta

    layer = Normalization(conditional=True, epsilon=1e-5, hidden_units=W)
    expected = to_numpy(keras.layers.LayerNormalization(epsilon=1e-5)(X))
    np.testing.assert_array_equal(to_numpy(layer([X, ONE])), expected)
    assert {"epsilon", "conditional", "hidden_units"} <= set(layer.get_config())


# ---- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["2", [1.0], 1j])
@pytest.mark.parametrize("name", ["scale", "offset"])
def test_wrong_constants(name, value):
    with refused(ConfigError, name, repr(value), "number"):
        ScaleOffset(**{name: value})


@pytest.mark.parametrize("units", [0, -2, 2.5, "8", True])
def test_wrong_hidden_units(units):
    with refused(ConfigError, "hidden_units", repr(units)):
        ScaleOffset(conditional=True, hidden_units=units)


def test_wrong_hidden_activation():
    with refused(ConfigError, "gelu_tanh"):
        ScaleOffset(conditional=True, hidden_activation="gelu")


def test_condition_and_argument_belong_together():
    with refused(ConfigError, "conditional=True", "1 tensors", "condition"):
        ScaleOffset(conditional=True)(X)
    with refused(ConfigError, "conditional=False", "2 tensors"):
        ScaleOffset()(X, condition=ONE)
    with refused(ConfigError, "conditional=False", "2 tensors"):
        ScaleOffset()([X, ONE])
    with refused(ConfigError, "conditional=True", "3 tensors"):
        ScaleOffset(conditional=True)([X, ONE], condition=ONE)


def test_a_condition_longer_than_the_input():
    with refused(ConfigError, "3 axes", "2"):
        ScaleOffset(conditional=True)([X[:, 0], MANY])

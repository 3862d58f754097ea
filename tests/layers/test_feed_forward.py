"""The feed-forward layer: through the harness, and against numpy in float64."""

import keras
import numpy as np
import pytest
from keras import ops

from harness import (
    STEP_BY_STEP,
    LayerCase,
    by_name,
    check_gradient_numbers,
    fill,
    functional,
    in_float64,
    refused,
    saved_and_loaded,
    to_numpy,
    weights_of,
)
from kerasbert.errors import ConfigError
from kerasbert.layers import Embedding, FeedForward, ResidualFeedForward, SelfAttention
from reference import forward, loops

B, L, H, INNER = 3, 5, 6, 7
X = np.random.default_rng(23).normal(size=(B, L, H)).astype("float32")


def shapes(*names, bias=True):
    sizes = dict.fromkeys(names or ("intermediate",), (H, INNER)) | {"output": (INNER, H)}
    found = {f"{name}/kernel": shape for name, shape in sizes.items()}
    return {**found, **{f"{name}/bias": shape[1:] for name, shape in sizes.items() if bias}}


def case(name, activation, weights=None, **more):
    arguments = {"units": INNER, "activation": activation, **more}
    return LayerCase(name, FeedForward, arguments, {"inputs": X}, weights or shapes())


PAIR = ("intermediate_0", "intermediate_1")
CASES = [
    case("plain", "gelu_tanh"),
    case("bare", "relu", shapes(bias=False), use_bias=False),
    case("gated", ["gelu_tanh", "linear"], shapes(*PAIR)),
    case("gated_bare", ["swish", "linear"], shapes(*PAIR, bias=False), use_bias=False),
    case("list_of_one", ["tanh"], shapes("intermediate_0")),
    case("three", ["gelu_erf", "sigmoid", "linear"], shapes(*PAIR, "intermediate_2")),
]
each = pytest.mark.parametrize("case", CASES, ids=str)
of = by_name(CASES)


def in_loops(case, v):
    return loops.feed_forward(v, X.astype("float64"), case.arguments["activation"])


# ---- numbers ---------------------------------------------------------------------------------


@pytest.mark.backends
@each
def test_against_loops(case):
    layer = case.filled()
    expected = in_loops(case, in_float64(weights_of(layer)))
    np.testing.assert_allclose(to_numpy(case.call(layer)), expected, atol=1e-5, rtol=0)


@pytest.mark.backends
@each
def test_gradients_against_differences(case):
    check_gradient_numbers(case, lambda v: in_loops(case, v))


@pytest.mark.parametrize("placement", ["post", "pre"])
@pytest.mark.parametrize("activation", ["gelu_tanh", "gelu_erf", "relu", "swish", "tanh"])
def test_with_residual_connection_against_the_reference_of_models(placement, activation):
    layer = ResidualFeedForward(64, activation, norm={"placement": placement, "epsilon": 1e-3})
    layer.build((None, None, H))
    v = {f"f/{path}": value for path, value in in_float64(weights_of(fill(layer))).items()}
    x = X.astype("float64")
    seen = forward.layer_norm(v, "f/norm", x, 1e-3) if placement == "pre" else x
    inner = forward.ACTIVATIONS[activation](forward.dense(v, "f/intermediate", seen))
    y = x + forward.dense(v, "f/output", inner)
    expected = y if placement == "pre" else forward.layer_norm(v, "f/norm", y, 1e-3)
    np.testing.assert_allclose(to_numpy(layer(X)), expected, atol=1e-5, rtol=0)


def test_the_default_epsilon_is_googles():
    # A nearly constant row makes any other epsilon visible.
    row = (1.0 + 1e-5 * np.arange(32)).astype("float32")[None, None]
    layer = ResidualFeedForward(INNER, "linear")
    layer.build((None, None, 32))
    for weight in (*layer.intermediate.weights, *layer.output_dense.weights):
        weight.assign(ops.zeros(weight.shape))
    assert layer.norm.epsilon == SelfAttention(2).norm_arguments["epsilon"] == 1e-12
    assert to_numpy(layer(row)).std() == pytest.approx(1.0, abs=2e-2)


def test_the_mask_is_passed_on():
    ids = np.array([[3, 4, 0], [0, 5, 0]], "int32")
    output = of("gated").filled()(Embedding(9, H)(ids, mask=ids))
    assert to_numpy(output._keras_mask).astype(bool).tolist() == (ids != 0).tolist()


# ---- state of sub-layers ---------------------------------------------------------------------


def test_quantised_and_frozen_sublayers_come_back(tmp_path):
    model, layer, batch = functional(of("gated"))
    exact = to_numpy(model(batch))
    layer.intermediates[1].quantize("int8")
    layer.intermediates[0].trainable = False
    again = saved_and_loaded(model, tmp_path)
    np.testing.assert_array_equal(to_numpy(again(batch)), to_numpy(model(batch)))
    assert 0 < np.abs(to_numpy(again(batch)) - exact).max() < 0.1
    subject = again.get_layer("subject")
    types = [dense.dtype_policy.name for dense in subject.intermediates]
    assert types == ["float32", "int8_from_float32"]
    assert [dense.trainable for dense in subject.intermediates] == [False, True]


def test_lora_in_a_gated_unit(tmp_path):
    model, layer, batch = functional(of("gated"))
    exact = to_numpy(model(batch))
    layer.intermediates[1].enable_lora(2)
    model.compile(keras.optimizers.SGD(1.0), "mse", **STEP_BY_STEP)
    model.fit(batch, np.zeros_like(exact), epochs=2, verbose=0)
    trained = to_numpy(model(batch))
    assert np.abs(trained - exact).max() > 0.01
    again = saved_and_loaded(keras.Model(model.inputs, model.outputs), tmp_path)
    np.testing.assert_allclose(to_numpy(again(batch)), trained, atol=1e-5)


def test_kernels_of_one_shape_start_differently():
    initializer = keras.initializers.RandomNormal()
    layer = FeedForward(H, ["relu", "linear"], kernel_initializer=initializer)
    layer.build(X.shape)
    kernels = [to_numpy(dense.kernel) for dense in (*layer.intermediates, layer.output_dense)]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert np.abs(kernels[one] - kernels[other]).max() > 0.01


# ---- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, -1, "64", None, 6.5, True])
def test_wrong_units(value):
    with refused(ConfigError, "units", repr(value)):
        FeedForward(value)


def test_wrong_activations():
    with refused(ConfigError, "gelu_tanh", "gelu_erf"):
        FeedForward(INNER, ["gelu", "linear"])
    with refused(ConfigError, "'linaer'", "linear"):
        FeedForward(INNER, ("gelu_tanh", "linaer"))
    with refused(ConfigError, "activation=[]", "at least one"):
        FeedForward(INNER, [])

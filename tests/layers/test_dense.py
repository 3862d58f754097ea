"""The dense sub-layer gives what Keras' own does, for a single token too."""

import keras
import numpy as np
import pytest

from harness import fill, to_numpy
from kerasbert.layers.dense import Dense

SINGLE = [(1, 1, 8), (1, 8), (1, 1, 1, 8)]


def pair(width=8, **arguments):
    """Keras' layer and this one, with the same numbers in them."""
    layers = [cls(6, **arguments) for cls in (keras.layers.Dense, Dense)]
    for layer in layers:
        layer.build((None, width))
    fill(layers[0])
    layers[1].set_weights(layers[0].get_weights())
    return layers


def compare(layers, shape, atol=1e-6):
    inputs = np.random.default_rng(0).normal(size=shape).astype("float32")
    expected, found = (to_numpy(layer(inputs)).astype("float32") for layer in layers)
    assert expected.shape == found.shape
    np.testing.assert_allclose(found, expected, atol=atol)


@pytest.mark.backends
@pytest.mark.parametrize("shape", [*SINGLE, (2, 1, 8), (1, 3, 8)])
@pytest.mark.parametrize(
    "arguments",
    [{}, {"use_bias": False}, {"activation": "tanh"}, {"bias_initializer": "ones"}],
    ids=str,
)
def test_as_in_keras(shape, arguments):
    compare(pair(**arguments), shape)


def test_a_width_that_has_no_parts():
    compare(pair(width=7), (1, 1, 7))


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_low_precision(policy):
    layers = pair(dtype=policy)
    assert keras.backend.standardize_dtype(layers[1](np.ones((1, 1, 8))).dtype) == policy[6:]
    compare(layers, (1, 1, 8), atol=2e-2)


def test_with_lora():
    layers = pair()
    for layer in layers:
        layer.enable_lora(2)
    fill(layers[0])
    layers[1].set_weights(layers[0].get_weights())
    compare(layers, (1, 1, 8))


def test_quantized():
    layers = pair()
    for layer in layers:
        keras.Sequential([keras.Input((1, 8)), layer]).quantize("int8")
        assert layer.quantization_mode == "int8"
    compare(layers, (1, 1, 8))


@pytest.mark.parametrize("shape", SINGLE)
def test_gradients_of_a_single_token(shape):
    tf = pytest.importorskip("tensorflow", reason="takes gradients with TensorFlow")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("takes gradients with TensorFlow")
    inputs = tf.constant(np.random.default_rng(0).normal(size=shape), "float32")
    found = []
    for layer in pair():
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss = tf.reduce_sum(layer(inputs) ** 2)
        found.append(tape.gradient(loss, [inputs, layer.kernel, layer.bias]))
    for expected, ours in zip(*found, strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-5)

"""Pooling over real tokens, through the harness and against loops."""

import keras
import numpy as np
import pytest
from keras import ops

from harness import STEP_BY_STEP, LayerCase, to_numpy
from kerasbert.layers import Embedding, GlobalAveragePooling1D, GlobalMaxPooling1D

B, L, H = 4, 5, 6
RNG = np.random.default_rng(2)
X = RNG.normal(size=(B, L, H)).astype("float32")
X[1] -= 9.0  # every real number is below the zero of padding
# All real; padded; padded on the left and in between; nothing but padding.
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 1, 0, 1, 1], [0, 0, 0, 0, 0]], bool)
BOTH = {"inputs": X, "mask": MASK}
POOLINGS = {GlobalAveragePooling1D: np.mean, GlobalMaxPooling1D: np.max}
CASES = [
    case
    for pooling in POOLINGS
    for case in (
        LayerCase(f"{pooling.__name__}", pooling, {}, {"inputs": X}, {}),
        LayerCase(f"{pooling.__name__}_masked", pooling, {}, BOTH, {}),
        LayerCase(f"{pooling.__name__}_kept", pooling, {"keepdims": True}, BOTH, {}),
    )
]
each = pytest.mark.parametrize("case", CASES, ids=str)
each_pooling = pytest.mark.parametrize("pooling", POOLINGS)


def reference(function, x, mask):
    pooled = np.zeros((B, H))
    for b, j in np.ndindex(B, H):
        real = [float(x[b, i, j]) for i in range(L) if mask[b, i]]
        pooled[b, j] = function(real) if real else 0.0
    return pooled


@pytest.mark.backends
@each_pooling
@pytest.mark.parametrize("padding", [0.0, 1e6, -1e6, np.nan, np.inf])
def test_padding_never_leaks(pooling, padding):
    x = X.copy()
    x[~MASK] = padding
    expected = reference(POOLINGS[pooling], X, MASK)
    for mask in (MASK, MASK.astype("int32")):
        found = to_numpy(pooling()(x, mask=mask))
        np.testing.assert_allclose(found, expected, atol=1e-6, rtol=0)
        assert not found[3].any()
    kept = to_numpy(pooling(keepdims=True)(x, mask=MASK))
    np.testing.assert_array_equal(kept, found[:, None])
    turned = pooling(data_format="channels_first")(x.transpose(0, 2, 1), mask=MASK)
    np.testing.assert_allclose(to_numpy(turned), found, atol=1e-6)


@pytest.mark.backends
@each_pooling
def test_without_a_mask_it_is_keras_own(pooling):
    own = getattr(keras.layers, pooling.__name__)
    assert issubclass(pooling, own)
    np.testing.assert_array_equal(to_numpy(pooling()(X)), to_numpy(own()(X)))


@each_pooling
def test_the_mask_comes_with_the_input_and_ends_there(pooling):
    ids = np.array([[3, 4, 0], [5, 0, 0]], "int32")
    hidden = Embedding(9, H)(ids, mask=ids)
    pooled = pooling()(hidden)
    assert getattr(pooled, "_keras_mask", None) is None
    single = to_numpy(pooling()(Embedding(9, H)(ids[:1, :2])))
    assert single.shape == (1, H)
    np.testing.assert_allclose(to_numpy(pooled)[1], to_numpy(hidden)[1, 0], atol=1e-7)


def test_float16_does_not_overflow_where_the_mean_is_small():
    x = ops.cast(np.full((1, 2000, 1), 100.0), "float16")
    pooled = GlobalAveragePooling1D(dtype="float16")(x, mask=np.ones((1, 2000), bool))
    assert float(to_numpy(pooled)[0, 0]) == 100.0


@pytest.mark.backends
@each_pooling
def test_gradients_reach_real_tokens_only(pooling):
    inputs, mask = keras.Input((L, H)), keras.Input((L,), dtype="bool")
    layer = keras.layers.Dense(H, kernel_initializer="identity", use_bias=False)
    model = keras.Model([inputs, mask], pooling()(layer(inputs), mask=mask))
    model.compile(keras.optimizers.SGD(1.0), "mse", **STEP_BY_STEP)
    model.train_on_batch([X, MASK], np.ones((B, H), "float32"))
    first = to_numpy(layer.kernel)
    assert np.isfinite(first).all() and np.abs(first - np.eye(H)).max() > 1e-3
    layer.kernel.assign(np.eye(H))
    other = X.copy()
    other[~MASK] = 77.0
    model.train_on_batch([other, MASK], np.ones((B, H), "float32"))
    np.testing.assert_allclose(to_numpy(layer.kernel), first, atol=1e-6)

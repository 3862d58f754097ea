"""Scores of spans, through the harness and against loops over single numbers."""

import math

import keras
import numpy as np
import pytest

from harness import (
    WITHOUT_XLA,
    LayerCase,
    check_precision,
    default_and_slow,
    fill,
    refused,
    to_numpy,
    weights_of,
)
from kerasbert.errors import ConfigError
from kerasbert.layers import EfficientGlobalPointer, Embedding, GlobalPointer
from kerasbert.losses import MASKED_SCORE, global_pointer_crossentropy

B, L, H, N, D = 3, 5, 12, 4, 6
RNG = np.random.default_rng(21)
X = RNG.normal(size=(B, L, H)).astype("float32")
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0]], bool)
BOTH = {"inputs": X, "mask": MASK}
SIZES = {"heads": N, "head_size": D}
FULL = {"dense/kernel": (H, 2 * N * D), "dense/bias": (2 * N * D,)}
LEAN = {
    "p_dense/kernel": (H, 2 * D),
    "p_dense/bias": (2 * D,),
    "q_dense/kernel": (2 * D, 2 * N),
    "q_dense/bias": (2 * N,),
}


def no_bias(weights):
    return {path: shape for path, shape in weights.items() if "bias" not in path}


BARE = {"RoPE": False, "tril_mask": False, "use_bias": False, **SIZES}
ODD = {"heads": N, "head_size": 5, "RoPE": False}
CASES = [
    LayerCase("full", GlobalPointer, SIZES, BOTH, FULL),
    LayerCase("full_bare", GlobalPointer, BARE, {"inputs": X}, no_bias(FULL)),
    LayerCase("lean", EfficientGlobalPointer, SIZES, BOTH, LEAN),
    LayerCase("lean_bare", EfficientGlobalPointer, BARE, {"inputs": X}, no_bias(LEAN)),
    LayerCase(
        "lean_odd",
        EfficientGlobalPointer,
        ODD,
        {"inputs": X},
        {
            "p_dense/kernel": (H, 10),
            "p_dense/bias": (10,),
            "q_dense/kernel": (10, 2 * N),
            "q_dense/bias": (2 * N,),
        },
    ),
]
# Checks that this file makes in its own way, see test_every_layer.
OWN = ["precision"]
each = pytest.mark.parametrize("case", CASES, ids=str)
POINTERS = pytest.mark.parametrize("pointer", [GlobalPointer, EfficientGlobalPointer])


def possible(layer, mask=None):
    """Which spans (B, N, L, L) may be entities."""
    spans = np.zeros((B, N, L, L), bool)
    for b, start, end in np.ndindex(B, L, L):
        real = mask is None or (mask[b, start] and mask[b, end])
        spans[b, :, start, end] = real and (start <= end or not layer.tril_mask)
    return spans


# ---- the harness -----------------------------------------------------------------------------


@each
@pytest.mark.parametrize(
    "policy",
    default_and_slow(["float16", "bfloat16", "mixed_bfloat16", "mixed_float16"], ["mixed_float16"]),
)
def test_low_precision(case, policy):
    exact = to_numpy(case.call(case.filled()))
    check_precision(case, policy, exact)
    # The harness measures by the largest number, which is the mask's.
    found = to_numpy(case.call(case.filled(dtype=policy)))
    spans = possible(case.make(), case.inputs.get("mask"))
    assert (found[~spans] == MASKED_SCORE).all()
    tolerance = 0.06 if "bfloat16" in policy else 0.01
    assert np.abs(found - exact)[spans].max() < tolerance * max(1, np.abs(exact[spans]).max())


# ---- numbers ---------------------------------------------------------------------------------


def turned(vector, position):
    """A vector after rotation, as complex numbers; the product of two is Re(a conj(b))."""
    pairs = vector[::2] + 1j * vector[1::2]
    frequencies = 10000.0 ** (-2 * np.arange(len(pairs)) / len(vector))
    return pairs * np.exp(1j * position * frequencies)


def inner_product(start, end, m, n, rope):
    product = (turned(start, m) * turned(end, n).conj()).real.sum() if rope else (start * end).sum()
    return product / math.sqrt(len(start))


def reference(layer, x):
    """Scores of all spans, one by one, in float64."""
    v = {path: to_numpy(weight).astype("float64") for path, weight in weights_of(layer).items()}
    d, rope = layer.head_size, layer.RoPE
    scores = np.zeros((B, N, L, L))
    for b, n, start, end in np.ndindex(scores.shape):
        if isinstance(layer, EfficientGlobalPointer):
            s, e = (x[b, i] @ v["p_dense/kernel"] + v.get("p_dense/bias", 0) for i in (start, end))
            of_s, of_e = (h @ v["q_dense/kernel"] + v.get("q_dense/bias", 0) for h in (s, e))
            types = (of_e[2 * n] + of_s[2 * n + 1]) / 2
            scores[b, n, start, end] = inner_product(s[::2], e[1::2], start, end, rope) + types
        else:
            s, e = (x[b, i] @ v["dense/kernel"] + v.get("dense/bias", 0) for i in (start, end))
            of_type = slice(2 * n * d, 2 * (n + 1) * d)
            scores[b, n, start, end] = inner_product(
                s[of_type][:d], e[of_type][d:], start, end, rope
            )
    return scores


@pytest.mark.backends
@each
def test_against_loops(case):
    layer = case.filled()
    expected = reference(layer, X.astype("float64"))
    for mask in (None, MASK, MASK.astype("int32")):
        found = to_numpy(layer(X, mask=mask))
        spans = possible(layer, mask)
        np.testing.assert_allclose(found[spans], expected[spans], atol=2e-5, rtol=0)
        assert (found[~spans] == MASKED_SCORE).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_the_masked_score_is_a_number_of_every_type(dtype):
    kept = keras.ops.cast(keras.ops.cast(MASKED_SCORE, dtype), "float32")
    assert float(kept) == MASKED_SCORE


@POINTERS
def test_the_mask_comes_with_the_input_and_ends_there(pointer):
    ids = np.array([[3, 4, 5, 0], [6, 0, 0, 0]], "int32")
    hidden = Embedding(9, H)(ids, mask=ids)
    layer = pointer(**SIZES)
    scores = layer(hidden)
    assert getattr(scores, "_keras_mask", None) is None
    real = (to_numpy(scores) > MASKED_SCORE)[:, 0]
    assert real.sum(axis=(1, 2)).tolist() == [6, 1]
    # What stands at padding changes nothing.
    other = to_numpy(hidden).copy()
    other[ids == 0] = 1e4
    again = to_numpy(layer(other, mask=ids != 0))
    np.testing.assert_array_equal(again, to_numpy(scores))


@POINTERS
def test_long_spans_differ_from_short_ones_only_by_rotation(pointer):
    same = np.ones((1, L, H), "float32")
    flat = to_numpy(fill(_of(pointer, RoPE=False))(same))[0, 0]
    bent = to_numpy(fill(_of(pointer))(same))[0, 0]
    upper = np.triu(np.ones((L, L), bool))
    assert np.ptp(flat[upper]) < 1e-5 < 1e-2 < np.ptp(bent[upper])
    for distance in range(L):
        assert np.ptp(np.diagonal(bent, distance)) < 1e-4


def _of(pointer, **more):
    layer = pointer(**SIZES, **more)
    layer.build((1, L, H))
    return layer


def test_two_kernels_start_with_different_numbers():
    layer = EfficientGlobalPointer(heads=4, head_size=4, kernel_initializer="glorot_uniform")
    layer.build((None, None, 8))
    first, second = (to_numpy(d.kernel) for d in (layer.p_dense, layer.q_dense))
    assert first.shape == second.shape and np.abs(first - second).max() > 0.01


def test_frozen_sublayers_stay_frozen():
    layer = _of(EfficientGlobalPointer)
    layer.p_dense.trainable = False
    again = EfficientGlobalPointer.from_config(layer.get_config())
    again.build((None, None, H))
    assert [w.path.split("/")[-2] for w in again.trainable_weights] == ["q_dense", "q_dense"]


@pytest.mark.slow
@pytest.mark.backends
@POINTERS
@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_learns_nested_spans(pointer, policy, tmp_path):
    ids = np.array([[2, 3, 4, 5, 0], [5, 2, 3, 0, 0], [7, 6, 5, 6, 8]], "int32")
    labels = np.zeros((3, 2, 5, 5), "float32")
    # One inside the other, of either type: 2345 and 4; 23 in both texts.
    labels[0, 0, 0, 3] = labels[0, 0, 2, 2] = labels[0, 1, 0, 1] = labels[1, 1, 1, 2] = 1
    inputs = keras.Input((None,), dtype="int32")
    hidden = keras.layers.Embedding(9, 16, mask_zero=True, dtype=policy)(inputs)
    model = keras.Model(inputs, pointer(2, 8, dtype=policy)(hidden))
    model.compile(keras.optimizers.Adam(0.03), global_pointer_crossentropy, **WITHOUT_XLA)
    history = model.fit(ids, labels, epochs=60, batch_size=3, verbose=0).history["loss"]
    assert np.isfinite(history).all() and history[-1] < 0.2 < history[0]
    np.testing.assert_array_equal(to_numpy(model(ids)) > 0, labels > 0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.loss is global_pointer_crossentropy
    np.testing.assert_array_equal(to_numpy(again(ids)), to_numpy(model(ids)))


# ---- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["heads", "head_size"])
@pytest.mark.parametrize("value", [0, -1, 2.0, "4", None, True])
def test_wrong_sizes(name, value):
    with refused(ConfigError, name, repr(value)):
        GlobalPointer(**{**SIZES, name: value})


def test_pairs_need_an_even_size():
    with refused(ConfigError, "head_size=5", "RoPE", "head_size=6"):
        EfficientGlobalPointer(heads=2, head_size=5)

"""The layers that make masks: through the harness, and against loops over positions."""

import keras
import numpy as np
import pytest
from keras import ops

from harness import (
    LayerCase,
    fill,
    in_float64,
    refused,
    saved_and_loaded,
    silent,
    to_numpy,
    weights_of,
)
from kerasbert.errors import ConfigError
from kerasbert.layers import (
    AttentionMask,
    Embedding,
    PaddingMask,
    SelfAttention,
    VectorMask,
    ZeroPadding,
)
from reference import loops

# Padding on the right, on the left, in the middle, everywhere, nowhere.
IDS = np.array(
    [
        [7, 3, 9, 0, 0],
        [0, 0, 4, 5, 6],
        [2, 0, 0, 8, 0],
        [0, 0, 0, 0, 0],
        [1, 2, 3, 4, 5],
        [0, 6, 7, 8, 9],
    ],
    "int32",
)
SEGMENTS = np.array(
    [
        [0, 0, 1, 0, 0],
        [0, 0, 0, 1, 1],
        [0, 1, 0, 1, 1],
        [0, 0, 0, 0, 0],
        [0, 0, 1, 1, 1],
        [1, 1, 1, 1, 1],
    ],
    "int32",
)
B, L, H = *IDS.shape, 4
HIDDEN = np.random.default_rng(4).normal(size=(B, L, H)).astype("float32") * (IDS != 0)[..., None]

CASES = [
    LayerCase("encoder", AttentionMask, {"label": {"config": {"vocab": 7}}}, {"inputs": IDS}, {}),
    LayerCase("lm", AttentionMask, {"application": "lm"}, {"inputs": IDS}, {}),
    LayerCase(
        "unilm", AttentionMask, {"application": "unilm"}, {"inputs": IDS, "segments": SEGMENTS}, {}
    ),
    LayerCase("padding", PaddingMask, {"pad_token_id": 4}, {"inputs": IDS}, {}),
    LayerCase("all_real", PaddingMask, {}, {"inputs": IDS}, {}),
    LayerCase(
        "decoder_padding",
        PaddingMask,
        {"pad_token_id": 0, "starts_with_padding": True},
        {"inputs": IDS},
        {},
    ),
    LayerCase("vectors", VectorMask, {}, {"inputs": HIDDEN}, {}),
    LayerCase("zeros", ZeroPadding, {}, {"inputs": HIDDEN, "padding": IDS}, {}),
]
each = pytest.mark.parametrize("case", CASES, ids=str)


def found(layer, *arguments, **options):
    return ops.convert_to_numpy(layer(*arguments, **options))


# ---- the attention mask ----------------------------------------------------------------------


def sees(application, segments, i, j):
    """Whether position i may look at position j, padding aside, as the papers tell it."""
    if application == "lm":
        return j <= i
    if application == "unilm":
        # What j waits for has been said at i: the ones among the segments up to there.
        return sum(segments[: j + 1]) <= sum(segments[: i + 1])
    return True


def mask_in_loops(application):
    mask = np.zeros((B, L, L), bool)
    for b, i, j in np.ndindex(B, L, L):
        real = IDS[b, j] != 0 or not IDS[b].any()
        mask[b, i, j] = real and sees(application, SEGMENTS[b].tolist(), i, j)
    return mask[:, :1] if application == "encoder" else mask


def mask_of(application, ids=IDS):
    segments = {"segments": SEGMENTS} if application == "unilm" else {}
    return found(AttentionMask(application), ids, **segments)


@pytest.mark.backends
@pytest.mark.parametrize("application", ["encoder", "lm", "unilm"])
@pytest.mark.parametrize("ids", ["int32", "int8", "uint8", "int64"])
def test_mask_against_loops(application, ids):
    mask = mask_of(application, IDS.astype(ids))
    assert mask.dtype == bool
    np.testing.assert_array_equal(mask, mask_in_loops(application))


@pytest.mark.backends
def test_some_masks_by_hand():
    rows = np.array([[5, 0, 0], [0, 0, 0], [0, 2, 0]])
    mask = found(AttentionMask(), rows).tolist()
    assert mask == [[[True, False, False]], [[True] * 3], [[False, True, False]]]
    # The text to read is seen by all and from all sides, the text to write up to itself.
    segments = np.array([[0, 0, 1, 1]])
    mask = found(AttentionMask("unilm"), np.ones((1, 4), "int32"), segments=segments)
    assert mask[0].astype(int).tolist() == [
        [1, 1, 0, 0],
        [1, 1, 0, 0],
        [1, 1, 1, 0],
        [1, 1, 1, 1],
    ]
    mask = found(AttentionMask("lm"), np.array([[0, 4, 5]]))
    assert mask[0].astype(int).tolist() == [[0, 0, 0], [0, 1, 0], [0, 1, 1]]


@pytest.mark.backends
@pytest.mark.parametrize("application", ["encoder", "lm", "unilm"])
def test_attention_under_every_mask_against_loops(application):
    # Causal with padding on the left leaves queries without any key.
    layer = SelfAttention(2, norm={"placement": "none"})
    layer.build((B, L, H))
    fill(layer)
    x = np.random.default_rng(9).normal(size=(B, L, H)).astype("float32")
    wide = x.astype("float64")
    mask = mask_of(application)
    v = in_float64(weights_of(layer))
    expected = wide + loops.attention(v, wide, wide, wide, 2, mask_in_loops(application))[0]
    output = to_numpy(layer(x, attention_mask=mask))
    np.testing.assert_allclose(output, expected, atol=1e-5, rtol=0)
    low = SelfAttention.from_config({**layer.get_config(), "dtype": "mixed_float16"})
    low.build((B, L, H))
    output = to_numpy(fill(low)(x, attention_mask=mask))
    np.testing.assert_allclose(output, expected, atol=0.01, rtol=0)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtype", [None, "mixed_float16", "mixed_bfloat16"])
def test_causal_rows_do_not_depend_on_their_padding(side, dtype):
    layer = SelfAttention(2, dtype=dtype)
    layer.build((B, L, H))
    fill(layer)
    x = np.random.default_rng(9).normal(size=(1, 3, H)).astype("float32")
    ids = np.ones((1, 3), "int32")
    before = 2 if side == "left" else 0
    both = np.full((1, L, H), 7.0, "float32")
    both[:, before : before + 3] = x
    padded = np.zeros((1, L), "int32")
    padded[:, before : before + 3] = 1
    mask = AttentionMask("lm")
    output = to_numpy(layer(both, attention_mask=mask(padded)))
    alone = to_numpy(layer(x, attention_mask=mask(ids)))
    assert np.isfinite(output).all()
    atol = 1e-6 if dtype is None else 0.02
    np.testing.assert_allclose(output[:, before : before + 3], alone, atol=atol)


def test_wrong_applications():
    with refused(ConfigError, "'unilmm'", "unilm", "encoder"):
        AttentionMask("unilmm")
    with refused(ConfigError, "unilm", "segment ids"):
        AttentionMask("unilm")(IDS)


# ---- padding ---------------------------------------------------------------------------------


@pytest.mark.backends
@pytest.mark.parametrize("starts_with_padding", [False, True])
@pytest.mark.parametrize("pad", [None, 0, 4])
def test_padding_against_loops(pad, starts_with_padding):
    mask = found(PaddingMask(pad, starts_with_padding), IDS)
    expected = np.zeros(IDS.shape, int)
    for b, i in np.ndindex(B, L):
        expected[b, i] = IDS[b, i] != pad or (starts_with_padding and i == 0)
    assert mask.dtype == np.int32
    np.testing.assert_array_equal(mask, expected)


@pytest.mark.backends
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_vectors_against_loops(dtype):
    hidden = HIDDEN.copy()
    # Sums and products of a vector that is not zero may be.
    hidden[0, 0] = [1, -1, 0, 0]
    hidden[0, 1] = [0, 0, 0, -2]
    hidden[0, 3] = -0.0
    mask = found(VectorMask(dtype=dtype), hidden)
    np.testing.assert_array_equal(mask, (IDS != 0).astype(int))


@pytest.mark.backends
@pytest.mark.parametrize("padding", [7.0, np.nan, np.inf])
def test_zero_padding(padding):
    hidden = np.full((B, L, H), padding, "float32")
    hidden[IDS != 0] = HIDDEN[IDS != 0]
    np.testing.assert_array_equal(to_numpy(ZeroPadding()(hidden, padding=IDS)), HIDDEN)


@pytest.mark.backends
def test_keras_masks_go_through_zero_padding_and_end_at_vector_masks(tmp_path):
    ids = keras.Input((None,), dtype="int32")
    hidden = Embedding(12, H)(ids, mask=ids)
    cleared = ZeroPadding()(hidden, padding=ids)
    mask = silent(VectorMask(), cleared)
    assert cleared._keras_mask is not None and getattr(mask, "_keras_mask", None) is None
    model = keras.Model(ids, [cleared, mask])
    again = saved_and_loaded(model, tmp_path)
    np.testing.assert_array_equal(to_numpy(again(IDS)[1]), (IDS != 0).astype(int))
    np.testing.assert_array_equal(to_numpy(again(IDS)[0]), to_numpy(model(IDS)[0]))
    kept = ZeroPadding()(Embedding(12, H)(IDS, mask=IDS), padding=np.ones_like(IDS))
    assert to_numpy(kept._keras_mask).astype(bool).tolist() == (IDS != 0).tolist()

"""Every public layer through the harness, and its numbers against plain numpy in float64."""

import keras
import numpy as np
import pytest

from harness import (
    LayerCase,
    by_name,
    fill,
    to_numpy,
    weights_of,
)
from kerasbert.layers import (
    BiasAdd,
    Embedding,
    FirstToken,
    LowRankAdapter,
    PositionEmbedding,
    PositionsOfTokens,
    ResidualFeedForward,
    SelfAttention,
    SingleSegmentEmbedding,
    TakeFeature,
    TiedProjection,
    TransformerBlock,
)
from kerasbert.layers.composite import CompositeLayer
from kerasbert.layers.residual import ResidualLayer

B, L, H, INNER, V = 3, 5, 32, 64, 20
RNG = np.random.default_rng(11)
HIDDEN = RNG.normal(size=(B, L, H)).astype("float32")
IDS = np.array([[7, 3, 9, 1, 19], [4, 4, 0, 0, 0], [2, 5, 6, 0, 0]], "int32")
X = {"inputs": HIDDEN}
MASK = (IDS != 0)[:, None, :]

CASES = [
    LayerCase(
        "low_rank",
        LowRankAdapter,
        {"units": 6, "rank": 2, "alpha": 3},
        X,
        {"lora_a": (H, 2), "lora_b": (2, 6)},
        weights_dtype="float32",
    ),
    LayerCase(
        "embedding",
        Embedding,
        {"input_dim": V, "output_dim": H},
        {"inputs": IDS},
        {"embeddings": (V, H)},
    ),
    LayerCase(
        "embedding_masked",
        Embedding,
        {"input_dim": V, "output_dim": H},
        {"inputs": IDS, "mask": IDS},
        {"embeddings": (V, H)},
    ),
    LayerCase("position", PositionEmbedding, {"input_dim": 8}, X, {"embeddings": (8, H)}),
    LayerCase(
        "position_given",
        PositionEmbedding,
        {"input_dim": 20},
        {"inputs": HIDDEN, "positions": IDS},
        {"embeddings": (20, H)},
    ),
    LayerCase("position_ids", PositionsOfTokens, {"pad_token_id": 1}, {"inputs": IDS}, {}),
    LayerCase("segment", SingleSegmentEmbedding, {"input_dim": 2}, X, {"embeddings": (2, H)}),
    LayerCase("projection", TiedProjection, {"units": INNER}, X, {"kernel": (H, INNER)}),
    LayerCase("bias", BiasAdd, {}, X, {"bias": (H,)}),
    LayerCase("first_token", FirstToken, {}, X, {}),
    LayerCase("feature", TakeFeature, {"index": 2}, X, {}),
]
each = pytest.mark.parametrize("case", CASES, ids=str)
of = by_name(CASES)
trainable = pytest.mark.parametrize("case", [c for c in CASES if c.weights], ids=str)


def filled(name, **more):
    return of(name).filled(**more)


def attention(**more):
    layer = SelfAttention(4, **more)
    layer.build((None, None, H))
    return fill(layer)


def feed_forward():
    layer = ResidualFeedForward(INNER, "gelu_tanh")
    layer.build((None, None, H))
    return fill(layer)


# ---- the harness -----------------------------------------------------------------------------


@pytest.mark.parametrize("make", [attention, feed_forward])
def test_names_that_optimizers_exclude_by(make):
    # Weight decay is switched off by these words.
    layer = make()
    words = {path.rpartition("/")[2] for path in weights_of(layer)}
    assert words == {"kernel", "bias", "gamma", "beta"}
    optimizer = keras.optimizers.AdamW(weight_decay=0.01)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    optimizer.build(layer.trainable_weights)
    decayed = [w.path for w in layer.trainable_weights if optimizer._use_weight_decay(w)]
    assert len(decayed) == sum(path.endswith("kernel") for path in weights_of(layer))


# ---- numbers ---------------------------------------------------------------------------------


@pytest.mark.backends
def test_small_layers_against_numpy():
    table = filled("embedding")
    rows = to_numpy(table.embeddings)
    np.testing.assert_array_equal(to_numpy(table(IDS)), rows[IDS])
    dense = to_numpy(table(HIDDEN, mode="dense"))
    np.testing.assert_allclose(dense, HIDDEN @ rows.T, atol=1e-5)
    position = filled("position")
    expected = HIDDEN + to_numpy(position.embeddings)[:L]
    np.testing.assert_array_equal(to_numpy(position(HIDDEN)), expected)
    projection = filled("projection")
    there = to_numpy(projection(HIDDEN))
    kernel = to_numpy(projection.kernel)
    np.testing.assert_allclose(there, HIDDEN @ kernel, atol=1e-5)
    back = to_numpy(projection(there, transpose=True))
    np.testing.assert_allclose(back, there @ kernel.T, atol=1e-4)
    np.testing.assert_array_equal(to_numpy(FirstToken()(HIDDEN)), HIDDEN[:, 0])


@pytest.mark.parametrize("ids", ["int8", "uint8", "int64", "int32"])
def test_masks_are_carried_on(ids):
    table = filled("embedding")
    hidden = table(IDS, mask=IDS.astype(ids))
    assert to_numpy(hidden._keras_mask).astype(bool).tolist() == (IDS != 0).tolist()
    for layer in (attention(), feed_forward(), filled("position"), filled("bias")):
        hidden = layer(hidden)
        assert to_numpy(hidden._keras_mask).astype(bool).tolist() == (IDS != 0).tolist()
    assert getattr(FirstToken()(hidden), "_keras_mask", None) is None


def test_output_of_a_shared_layer_is_its_last_call():
    layer = SelfAttention(4)
    first = layer(keras.Input((None, H)))
    last = layer(layer(first))
    assert layer.output is last
    with pytest.raises(AttributeError):
        SelfAttention(4).output  # noqa: B018


def test_a_block_is_its_two_halves():
    first, second = attention(), feed_forward()
    block = TransformerBlock(first, second)
    expected = second(first(HIDDEN, attention_mask=MASK))
    np.testing.assert_array_equal(
        to_numpy(block(HIDDEN, {"attention_mask": MASK})[0]), to_numpy(expected)
    )
    assert (block.attention, block.feed_forward) == (first, second)


def test_one_sublayer_policy_survives():
    layer = attention(sublayer_dtypes={"query": "mixed_bfloat16"})
    again = SelfAttention.from_config(layer.get_config())
    again.build((None, None, H))
    assert again.query.dtype_policy.name == "mixed_bfloat16"
    assert again.key.dtype_policy.name == "float32"
    assert issubclass(SelfAttention, ResidualLayer) and issubclass(ResidualLayer, CompositeLayer)

"""Every public layer through the harness, and its numbers against plain numpy in float64."""

import importlib
import inspect
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

from harness import (
    LayerCase,
    check_builds,
    check_config,
    check_gradients,
    check_precision,
    check_saving,
    fill,
    to_numpy,
    weights_of,
)
from kerasbert import layers
from kerasbert.layers import (
    AttentionMask,
    BiasAdd,
    Embedding,
    FeedForward,
    FirstToken,
    PaddingMask,
    PositionEmbedding,
    PositionsOfTokens,
    SelfAttention,
    SingleSegmentEmbedding,
    TakeFeature,
    TiedProjection,
    TransformerBlock,
)
from kerasbert.layers.composite import CompositeLayer, ResidualLayer
from reference import forward

POLICIES = [
    "float16",
    "bfloat16",
    "mixed_bfloat16",
    pytest.param("mixed_float16", marks=pytest.mark.backends),
]

B, L, H, INNER, V = 3, 5, 32, 64, 20
RNG = np.random.default_rng(11)
HIDDEN = RNG.normal(size=(B, L, H)).astype("float32")
IDS = np.array([[7, 3, 9, 1, 19], [4, 4, 0, 0, 0], [2, 5, 6, 0, 0]], "int32")
MASK = (IDS != 0)[:, None, :]
ATTENTION = {
    f"{name}/{part}": shape
    for name in ("query", "key", "value", "output")
    for part, shape in (("kernel", (H, H)), ("bias", (H,)))
} | {"norm/gamma": (H,), "norm/beta": (H,)}
FEED_FORWARD = {
    "intermediate/kernel": (H, INNER),
    "intermediate/bias": (INNER,),
    "output/kernel": (INNER, H),
    "output/bias": (H,),
    "norm/gamma": (H,),
    "norm/beta": (H,),
}
X, X_AND_MASK = {"inputs": HIDDEN}, {"inputs": HIDDEN, "attention_mask": MASK}
KEY_BIAS = ("key/bias",)

CASES = [
    LayerCase("attention", SelfAttention, {"num_heads": 4}, X, ATTENTION, flat=KEY_BIAS),
    LayerCase(
        "attention_masked", SelfAttention, {"num_heads": 4}, X_AND_MASK, ATTENTION, flat=KEY_BIAS
    ),
    LayerCase(
        "attention_preln",
        SelfAttention,
        {"num_heads": 2, "norm_first": True, "epsilon": 1e-6, "initializer_range": 0.5},
        X_AND_MASK,
        ATTENTION,
        flat=KEY_BIAS,
    ),
    LayerCase(
        "feed_forward", FeedForward, {"units": INNER, "activation": "gelu_tanh"}, X, FEED_FORWARD
    ),
    LayerCase(
        "feed_forward_preln",
        FeedForward,
        {"units": INNER, "activation": "gelu_erf", "norm_first": True},
        X,
        FEED_FORWARD,
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
    LayerCase("padding", PaddingMask, {"pad_token_id": 4}, {"inputs": IDS}, {}),
    LayerCase("mask", AttentionMask, {"label": {"config": {"vocab_size": 7}}}, {"inputs": IDS}, {}),
]
each = pytest.mark.parametrize("case", CASES, ids=str)
trainable = pytest.mark.parametrize("case", [c for c in CASES if c.weights], ids=str)


def of(name):
    return next(case for case in CASES if case.name == name)


def filled(name, **more):
    layer = of(name).make(**more)
    layer.build(of(name).shape())
    return fill(layer)


# ---- the harness -----------------------------------------------------------------------------


def test_no_public_layer_is_left_out():
    # Cases stand here and in the files beside this one.
    files = Path(__file__).parent.glob("test_*.py")
    lists = [getattr(importlib.import_module(file.stem), "CASES", ()) for file in files]
    tried = {case.layer for cases in lists for case in cases if isinstance(case, LayerCase)}
    public = {getattr(layers, name) for name in layers.__all__}
    assert public - {TransformerBlock} == tried


@each
def test_configuration_survives_json(case):
    check_config(case)


@each
def test_arguments_are_in_the_configuration(case):
    config = case.make(name="layer").get_config()
    assert {name: config[name] for name in case.arguments} == case.arguments
    named = {
        name
        for cls in case.layer.__mro__
        if cls.__module__.startswith("kerasbert")
        for name, parameter in inspect.signature(cls.__init__).parameters.items()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    }
    assert named - {"self", "sublayer_dtypes"} <= set(config)


@pytest.mark.backends
@each
def test_the_ways_to_build_agree(case):
    check_builds(case)


@each
@pytest.mark.parametrize("policy", POLICIES)
def test_low_precision(case, policy):
    layer = case.make()
    layer.build(case.shape())
    check_precision(case, policy, to_numpy(case.call(fill(layer))))


@pytest.mark.backends
@each
def test_saves_inside_a_functional_model(case, tmp_path):
    check_saving(case, tmp_path)


@pytest.mark.backends
@trainable
def test_a_gradient_reaches_every_weight(case):
    check_gradients(case)


@pytest.mark.parametrize("name", ["attention", "feed_forward", "attention_preln"])
def test_names_that_optimizers_exclude_by(name):
    # Weight decay is switched off by these words.
    layer = filled(name)
    words = {path.rpartition("/")[2] for path in weights_of(layer)}
    assert words == {"kernel", "bias", "gamma", "beta"}
    optimizer = keras.optimizers.AdamW(weight_decay=0.01)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    optimizer.build(layer.trainable_weights)
    decayed = [w.path for w in layer.trainable_weights if optimizer._use_weight_decay(w)]
    assert len(decayed) == sum(path.endswith("kernel") for path in weights_of(layer))


@each
def test_no_more_than_twelve_arguments(case):
    own = [c for c in case.layer.__mro__ if c.__module__.startswith("kerasbert")]
    names = set().union(*(inspect.signature(cls.__init__).parameters for cls in own))
    assert len(names - {"self", "args", "kwargs"}) <= 12


# ---- numbers ---------------------------------------------------------------------------------


def reference_attention(weights, x, mask, heads, epsilon=1e-12, norm_first=False):
    v = {f"a/{path}": to_numpy(weight).astype("float64") for path, weight in weights.items()}
    seen = forward.layer_norm(v, "a/norm", x, epsilon) if norm_first else x
    query, key, value = (
        forward.dense(v, f"a/{name}", seen).reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)
        for name in ("query", "key", "value")
    )
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    scores = np.where(mask[:, None], scores, -np.inf)
    context = (forward.softmax(scores) @ value).transpose(0, 2, 1, 3).reshape(x.shape)
    y = x + forward.dense(v, "a/output", context)
    return y if norm_first else forward.layer_norm(v, "a/norm", y, epsilon)


@pytest.mark.backends
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("heads", [1, 4, 32])
@pytest.mark.parametrize("kind", ["padding", "square", "none"])
def test_attention_against_numpy(norm_first, heads, kind):
    mask = {"padding": MASK, "square": np.tril(np.ones((B, L, L), bool)), "none": None}[kind]
    layer = SelfAttention(num_heads=heads, norm_first=norm_first, epsilon=1e-3)
    layer.build((None, None, H))
    fill(layer)
    expected = reference_attention(
        weights_of(layer),
        HIDDEN.astype("float64"),
        np.ones((B, 1, L), bool) if mask is None else mask,
        heads,
        1e-3,
        norm_first,
    )
    found = to_numpy(layer(HIDDEN, attention_mask=mask))
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)


@pytest.mark.backends
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["gelu_tanh", "gelu_erf", "relu", "swish", "tanh"])
def test_feed_forward_against_numpy(norm_first, activation):
    layer = FeedForward(INNER, activation, norm_first=norm_first, epsilon=1e-3)
    layer.build((None, None, H))
    v = {
        f"f/{path}": to_numpy(weight).astype("float64")
        for path, weight in weights_of(fill(layer)).items()
    }
    x = HIDDEN.astype("float64")
    seen = forward.layer_norm(v, "f/norm", x, 1e-3) if norm_first else x
    inner = forward.ACTIVATIONS[activation](forward.dense(v, "f/intermediate", seen))
    y = x + forward.dense(v, "f/output", inner)
    expected = y if norm_first else forward.layer_norm(v, "f/norm", y, 1e-3)
    np.testing.assert_allclose(to_numpy(layer(HIDDEN)), expected, atol=1e-5, rtol=0)


def test_the_default_epsilon_is_googles():
    # A nearly constant row makes any other epsilon visible.
    row = (1.0 + 1e-5 * np.arange(H)).astype("float32")[None, None]
    layer = FeedForward(INNER, "linear")
    layer.build((None, None, H))
    for weight in (*layer.intermediate.weights, *layer.output_dense.weights):
        weight.assign(ops.zeros(weight.shape))
    assert layer.epsilon == SelfAttention(2).epsilon == 1e-12
    assert to_numpy(layer(row)).std() == pytest.approx(1.0, abs=2e-2)


@pytest.mark.parametrize("dtype", [None, "mixed_float16", "mixed_bfloat16", "float16"])
def test_hidden_keys_do_not_matter_and_nothing_is_nan(dtype):
    layer = filled("attention_masked", dtype=dtype)
    other = HIDDEN.copy()
    other[~MASK[:, 0]] = 50.0
    first, second = (to_numpy(layer(x, attention_mask=MASK)) for x in (HIDDEN, other))
    np.testing.assert_array_equal(first[MASK[:, 0]], second[MASK[:, 0]])
    nothing = to_numpy(layer(HIDDEN, attention_mask=np.zeros((B, 1, L), bool)))
    assert np.isfinite(nothing).all()


def test_attention_dropout_only_in_training():
    layer = filled("attention", attention_rate=0.5, rate=0.0)
    np.testing.assert_array_equal(to_numpy(layer(HIDDEN)), to_numpy(layer(HIDDEN, training=False)))
    assert np.abs(to_numpy(layer(HIDDEN, training=True)) - to_numpy(layer(HIDDEN))).max() > 0.01
    still = filled("attention")
    np.testing.assert_array_equal(to_numpy(still(HIDDEN, training=True)), to_numpy(still(HIDDEN)))


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
    mask = ops.convert_to_numpy(AttentionMask()(np.array([[5, 0, 0], [0, 0, 0], [0, 2, 0]])))
    assert mask.tolist() == [[[True, False, False]], [[True] * 3], [[False, True, False]]]


@pytest.mark.parametrize("ids", ["int8", "uint8", "int64", "int32"])
def test_masks_are_carried_on(ids):
    table = filled("embedding")
    hidden = table(IDS, mask=IDS.astype(ids))
    assert to_numpy(hidden._keras_mask).astype(bool).tolist() == (IDS != 0).tolist()
    for layer in (filled("attention"), filled("feed_forward"), filled("position"), filled("bias")):
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
    attention, feed_forward = filled("attention"), filled("feed_forward")
    block = TransformerBlock(attention, feed_forward)
    expected = feed_forward(attention(HIDDEN, attention_mask=MASK))
    np.testing.assert_array_equal(to_numpy(block(HIDDEN, MASK)), to_numpy(expected))
    assert (block.attention, block.feed_forward) == (attention, feed_forward)


def test_one_sublayer_policy_survives():
    layer = filled("attention", sublayer_dtypes={"query": "mixed_bfloat16"})
    again = SelfAttention.from_config(layer.get_config())
    again.build((None, None, H))
    assert again.query.dtype_policy.name == "mixed_bfloat16"
    assert again.key.dtype_policy.name == "float32"
    assert issubclass(SelfAttention, ResidualLayer) and issubclass(ResidualLayer, CompositeLayer)

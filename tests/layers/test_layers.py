"""Every public layer through the harness, and its numbers against plain numpy in float64."""

import importlib
import inspect
from pathlib import Path

import keras
import numpy as np
import pytest

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
    BiasAdd,
    Embedding,
    FirstToken,
    Loss,
    PositionEmbedding,
    PositionsOfTokens,
    ResidualFeedForward,
    SelfAttention,
    SingleSegmentEmbedding,
    SinusoidalRelativePositionEmbedding,
    TakeFeature,
    TiedProjection,
    TransformerBlock,
)
from kerasbert.layers.composite import CompositeLayer
from kerasbert.layers.residual import ResidualLayer

# Arguments that only get_config writes.
STATE = {"sublayer_dtypes", "frozen_sublayers"}

POLICIES = [
    pytest.param("float16", marks=pytest.mark.slow),
    pytest.param("bfloat16", marks=pytest.mark.slow),
    "mixed_bfloat16",
    pytest.param("mixed_float16", marks=pytest.mark.backends),
]

B, L, H, INNER, V = 3, 5, 32, 64, 20
RNG = np.random.default_rng(11)
HIDDEN = RNG.normal(size=(B, L, H)).astype("float32")
IDS = np.array([[7, 3, 9, 1, 19], [4, 4, 0, 0, 0], [2, 5, 6, 0, 0]], "int32")
X = {"inputs": HIDDEN}
MASK = (IDS != 0)[:, None, :]

CASES = [
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
trainable = pytest.mark.parametrize("case", [c for c in CASES if c.weights], ids=str)


def of(name):
    return next(case for case in CASES if case.name == name)


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


def cases_of_all_files():
    files = Path(__file__).parent.glob("test_*.py")
    lists = [getattr(importlib.import_module(file.stem), "CASES", ()) for file in files]
    return [case for cases in lists for case in cases if isinstance(case, LayerCase)]


# ---- the harness -----------------------------------------------------------------------------


def test_no_public_layer_is_left_out():
    # Cases stand here and in the files beside this one.
    public = {getattr(layers, name) for name in layers.__all__}
    assert public - {TransformerBlock, Loss} == {case.layer for case in cases_of_all_files()}


@each
def test_configuration_survives_json(case):
    check_config(case)


def test_arguments_are_in_the_configuration():
    for case in cases_of_all_files():
        config = case.make(name="layer").get_config()
        given = {name: config[name] for name in case.arguments if name != "norm"}
        assert given == {n: v for n, v in case.arguments.items() if n != "norm"}, case
        named = {
            name
            for cls in case.layer.__mro__
            if cls.__module__.startswith("kerasbert")
            for name, parameter in inspect.signature(cls.__init__).parameters.items()
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        }
        if case.layer is SinusoidalRelativePositionEmbedding:
            # An argument of its base, which has a table.
            named.remove("embeddings_initializer")
        assert named - {"self", "sublayer_dtypes"} <= set(config), case


@pytest.mark.backends
@each
def test_the_ways_to_build_agree(case):
    check_builds(case)


@each
@pytest.mark.parametrize("policy", POLICIES)
def test_low_precision(case, policy):
    check_precision(case, policy, to_numpy(case.call(case.filled())))


@pytest.mark.backends
@each
def test_saves_inside_a_functional_model(case, tmp_path):
    check_saving(case, tmp_path)


@pytest.mark.backends
@trainable
def test_a_gradient_reaches_every_weight(case):
    check_gradients(case)


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


@pytest.mark.parametrize("name", sorted(set(layers.__all__) - {"TransformerBlock"}))
def test_no_more_than_twelve_arguments(name):
    mro = getattr(layers, name).__mro__
    own = [cls for cls in mro if cls.__module__.startswith("kerasbert")]
    names = set().union(*(inspect.signature(cls.__init__).parameters for cls in own))
    assert len(names - {"self", "args", "kwargs"} - STATE) <= 12


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

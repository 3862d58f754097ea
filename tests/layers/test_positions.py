"""Positions in all their forms: through the harness, and against loops in float64."""

import math

import keras
import numpy as np
import pytest
from keras import ops

from harness import (
    LayerCase,
    by_name,
    check_gradients,
    fill,
    gradients,
    numeric_gradients,
    refused,
    silent,
    to_numpy,
    weights_of,
)
from kerasbert.errors import ConfigError
from kerasbert.layers import (
    Embedding,
    PositionEmbedding,
    RelativePositionEmbedding,
    RelativePositionEmbeddingT5,
    SingleSegmentEmbedding,
    SinusoidalPositionEmbedding,
)
from kerasbert.layers.composite import TruncatedNormal
from kerasbert.layers.sinusoidal import Sinusoidal

B, L, K, E, D, ROWS = 3, 7, 4, 8, 6, 4
RNG = np.random.default_rng(23)
X = RNG.normal(size=(B, L, E)).astype("float32")
Y = RNG.normal(size=(B, K, E)).astype("float32")
PLACES = RNG.integers(0, ROWS, size=(B, L)).astype("int32")
FAR = RNG.integers(0, ROWS**2, size=(B, L)).astype("int32")


class Listed(LayerCase):
    """A case whose layer takes its tensors as one list."""

    def shape(self):
        return [value.shape for value in self.inputs.values()]

    def call(self, layer, **inputs):
        return layer(list((inputs or self.inputs).values()))

    def spec(self, layer):
        tensors = [keras.KerasTensor(v.shape, str(v.dtype)) for v in self.inputs.values()]
        return layer.compute_output_spec(tensors)


def table(name, arguments, positions=None, kind=LayerCase, size=E):
    inputs = {"inputs": X} if positions is None else {"inputs": X, "positions": positions}
    arguments = {"input_dim": L, **arguments}
    weights = {"embeddings": (arguments["input_dim"], size)}
    return kind(name, PositionEmbedding, arguments, inputs, weights)


def waves(name, mode, positions=None, kind=LayerCase, **arguments):
    inputs = {"inputs": X} if positions is None else {"inputs": X, "positions": positions}
    arguments = {"output_dim": E if mode in ("add", "mul") else D, "merge_mode": mode, **arguments}
    return kind(name, SinusoidalPositionEmbedding, arguments, inputs, {})


T5 = {"input_dim": 6, "output_dim": E, "max_distance": 5}
ONE_WAY = {**T5, "bidirectional": False}
ADDING = [
    table("table", {"output_dim": E}),
    table("table_given", {}, PLACES),
    table("table_list", {"input_dim": ROWS, "custom_position_ids": True}, PLACES, Listed),
    table("table_mul", {"merge_mode": "mul"}),
    table("table_mul_given", {"merge_mode": "mul"}, PLACES),
    table("table_concat", {"merge_mode": "concat", "output_dim": D}, size=D),
    table("table_concat_given", {"merge_mode": "concat", "output_dim": D}, PLACES, size=D),
    table("table_zero_given", {"merge_mode": "zero", "output_dim": D}, PLACES, size=D),
    table("nested", {"hierarchical": True, "input_dim": ROWS}),
    table("nested_given", {"hierarchical": 0.3, "input_dim": ROWS}, FAR),
    table(
        "nested_mul",
        {"hierarchical": 0.6, "merge_mode": "mul", "input_dim": ROWS},
        FAR,
        Listed,
    ),
    waves("waves", "add"),
    waves("waves_given", "add", FAR, custom_position_ids=True),
    waves("waves_mul", "mul", FAR, Listed),
    waves("waves_concat", "concat"),
    waves("waves_concat_given", "concat", FAR),
    waves("waves_zero", "zero"),
    waves("waves_zero_given", "zero", FAR),
    # Training wants as many outputs as inputs, which this one has not.
    table("table_zero", {"merge_mode": "zero", "output_dim": D}, size=D),
]
PAIR = {"queries": X, "keys": Y}
RELATIVE = [
    kind(name, layer, arguments, inputs, {"embeddings": (arguments["input_dim"], E)})
    for name, layer, arguments, inputs, kind in [
        ("clipped", RelativePositionEmbedding, {"input_dim": 5, "output_dim": E}, PAIR, LayerCase),
        ("even", RelativePositionEmbedding, {"input_dim": 6, "output_dim": E}, PAIR, Listed),
        ("one", RelativePositionEmbedding, {"input_dim": 1, "output_dim": E}, PAIR, Listed),
        ("self", RelativePositionEmbedding, {"input_dim": 9, "output_dim": E}, {"queries": X},
         LayerCase),
        ("t5", RelativePositionEmbeddingT5, T5, PAIR, LayerCase),
        ("t5_one_way", RelativePositionEmbeddingT5, ONE_WAY, PAIR, Listed),
        ("t5_self", RelativePositionEmbeddingT5, {**T5, "input_dim": 32, "max_distance": 128},
         {"queries": X}, LayerCase),
    ]
]  # fmt: skip
CASES = ADDING + RELATIVE
# Checks that this file makes in its own way, see test_every_layer.
OWN = ["gradients"]
each = pytest.mark.parametrize("case", CASES, ids=str)
of = by_name(CASES)


# ---- the harness -----------------------------------------------------------------------------


@pytest.mark.backends
@pytest.mark.parametrize(
    "case", [c for c in ADDING if c.weights and c.name != "table_zero"], ids=str
)
def test_a_gradient_reaches_every_weight(case):
    check_gradients(case)


# ---- references ------------------------------------------------------------------------------


def rows_in_loops(table, positions, alpha=None):
    """The vectors (B, L, D) of positions, one number at a time."""
    n = len(table)
    vectors = np.zeros((*positions.shape, table.shape[1]))
    for b, i, d in np.ndindex(*vectors.shape):
        p = positions[b, i]
        if alpha is None:
            vectors[b, i, d] = table[p, d]
            continue
        outer, inner = ((table[row, d] - alpha * table[0, d]) / (1 - alpha) for row in divmod(p, n))
        vectors[b, i, d] = alpha * outer + (1 - alpha) * inner
    return vectors


def waves_in_loops(positions, size):
    vectors = np.zeros((*positions.shape, size))
    for b, i, d in np.ndindex(*vectors.shape):
        angle = positions[b, i] / 10000 ** (2 * (d // 2) / size)
        vectors[b, i, d] = math.cos(angle) if d % 2 else math.sin(angle)
    return vectors


def merged(x, vectors, mode):
    return {
        "add": lambda: x + vectors,
        "mul": lambda: x * (1 + vectors),
        "concat": lambda: np.concatenate([x, vectors], axis=-1),
        "zero": lambda: vectors,
    }[mode]()


def bucket_in_loops(distance, buckets, max_distance, bidirectional=True):
    """T5's bucket of key minus query, with borders in exact whole numbers.

    Bucket e + t of n with e = n/2 begins where (d/e)^(n-e) >= (max/e)^t.
    """
    start = 0
    if bidirectional:
        buckets //= 2
        start = buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return start + distance
    size, best = buckets - exact, 0
    for t in range(size):
        if distance**size * exact**t >= max_distance**t * exact**size:
            best = t
    return start + exact + best


def relative_in_loops(case, table, queries, keys):
    vectors = np.zeros((queries, keys, table.shape[1]))
    largest = (len(table) - 1) // 2
    for q, k in np.ndindex(queries, keys):
        if case.layer is RelativePositionEmbeddingT5:
            row = bucket_in_loops(
                k - q,
                len(table),
                case.arguments["max_distance"],
                case.arguments.get("bidirectional", True),
            )
        else:
            row = min(max(k - q, -largest), largest) + largest
        vectors[q, k] = table[row]
    return vectors


def reference(case, weights):
    """The output of a case, from {path: float64 array}."""
    if case in RELATIVE:
        keys = case.inputs.get("keys", X).shape[1]
        return relative_in_loops(case, weights["embeddings"], L, keys)
    mode = case.arguments.get("merge_mode", "add")
    # Vectors alone have a batch only where the positions have one.
    batch = 1 if mode == "zero" else B
    positions = case.inputs.get("positions", np.arange(L)[None].repeat(batch, axis=0))
    if case.layer is SinusoidalPositionEmbedding:
        vectors = waves_in_loops(positions, case.arguments["output_dim"])
    else:
        alpha = case.arguments.get("hierarchical")
        alpha = 0.4 if alpha is True else alpha
        vectors = rows_in_loops(weights["embeddings"], positions, alpha)
    return merged(X.astype("float64"), vectors, mode)


def in_float64(layer):
    return {path: to_numpy(w).astype("float64") for path, w in weights_of(layer).items()}


# ---- numbers ---------------------------------------------------------------------------------


@pytest.mark.backends
@each
def test_against_loops(case):
    layer = case.filled()
    expected = reference(case, in_float64(layer))
    found = to_numpy(case.call(layer))
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=2e-6, rtol=0)


ON_BACKENDS = {str(case) for case in {c.layer: c for c in CASES if c.weights}.values()}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=str(case), marks=[pytest.mark.backends] * (str(case) in ON_BACKENDS))
        for case in CASES
        if case.weights
    ],
)
def test_gradients_against_differences(case):
    inputs = case.symbolic()
    layer = case.make()
    output = case.call(layer, **inputs)
    # What has no batch gets the one of a factor.
    if case in RELATIVE:
        output = ops.einsum("bqe,qke->bqk", next(iter(inputs.values())), output)
    elif case.name == "table_zero":
        output = inputs["inputs"][..., :D] * output
    model = keras.Model(list(inputs.values()), output)
    fill(layer)

    def function(weights):
        found = reference(case, weights)
        if case in RELATIVE:
            return np.einsum("bqe,qke->bqk", X.astype("float64"), found)
        return X[..., :D] * found if case.name == "table_zero" else found

    weights = in_float64(layer)
    upstream = np.random.default_rng(1).normal(size=function(weights).shape)
    expected = numeric_gradients(function, weights, upstream)["embeddings"]
    (found,) = gradients(model, list(case.inputs.values()), upstream).values()
    assert np.abs(expected).max() > 0.5
    np.testing.assert_allclose(found, expected, atol=3e-4, rtol=0)


def test_the_first_positions_of_a_nested_table_are_its_rows():
    layer = of("nested").filled()
    first = X[:, :ROWS]
    expected = first + to_numpy(layer.embeddings)
    np.testing.assert_allclose(to_numpy(layer(first)), expected, atol=1e-6)
    default = PositionEmbedding(ROWS, hierarchical=0.4)
    default.build(X.shape)
    default.embeddings.assign(layer.embeddings)
    np.testing.assert_array_equal(to_numpy(default(X)), to_numpy(layer(X)))


def test_a_length_of_one_graph_is_not_that_of_the_next():
    for name in ("table", "nested", "waves", "waves_concat", "self", "t5_self"):
        case, tensor = of(name), keras.Input((None, E))
        layer = case.make()
        model = keras.Model(tensor, case.call(layer, **{next(iter(case.inputs)): tensor}))
        for length in (2, 5):
            np.testing.assert_allclose(
                to_numpy(model(X[:, :length])), to_numpy(layer(X[:, :length])), atol=1e-6
            )


def test_positions_of_a_nested_table_may_be_floats():
    # An input of Keras is one unless told otherwise; bert4keras took them so.
    layer = of("nested_given").filled()
    exact = to_numpy(layer(X, positions=FAR))
    np.testing.assert_array_equal(to_numpy(layer(X, positions=FAR.astype("float32"))), exact)


def test_positions_between_positions():
    layer = SinusoidalPositionEmbedding(E)
    places = FAR + np.float32(0.5)
    expected = X + waves_in_loops(places.astype("float64"), E)
    np.testing.assert_allclose(to_numpy(layer(X, positions=places)), expected, atol=2e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "mixed_float16"])
def test_angles_do_not_round_with_the_policy(dtype):
    places = np.array([[2049, 4097, 30001]], "int32")
    layer = SinusoidalPositionEmbedding(64, "zero", dtype=dtype)
    found = layer(np.zeros((1, 3, 1), "float32"), positions=places)
    assert keras.backend.standardize_dtype(found.dtype) == dtype.removeprefix("mixed_")
    tolerance = 0.005 if dtype == "bfloat16" else 0.003
    np.testing.assert_allclose(to_numpy(found), waves_in_loops(places, 64), atol=tolerance)


def test_a_table_may_start_as_waves(tmp_path):
    inputs = keras.Input((None, D))
    layer = RelativePositionEmbedding(
        9, D, embeddings_initializer=Sinusoidal(), trainable=False, name="subject"
    )
    model = keras.Model(inputs, layer(inputs))
    expected = waves_in_loops(np.arange(9)[None], D)[0]
    np.testing.assert_allclose(to_numpy(layer.embeddings), expected, atol=1e-6)
    assert not layer.trainable_weights
    silent(model.save, tmp_path / "model.keras")
    again = silent(keras.models.load_model, tmp_path / "model.keras").get_layer("subject")
    assert type(again.embeddings_initializer) is Sinusoidal
    assert not again.trainable_weights
    half = Sinusoidal()((3000, 4), dtype="float16")
    assert keras.backend.standardize_dtype(half.dtype) == "float16"
    with refused(ConfigError, "5", "even"):
        Sinusoidal()((3, 5))


@pytest.mark.parametrize("layer", [PositionEmbedding, SingleSegmentEmbedding])
def test_what_a_table_starts_with(layer):
    usual = layer(50)
    usual.build((None, None, 64))
    assert type(usual.embeddings_initializer) is TruncatedNormal
    rows = to_numpy(usual.embeddings)
    assert 0.01 < rows.std() < 0.025 and np.abs(rows).max() < 0.041
    zeros = layer.from_config(layer(50, embeddings_initializer="zeros").get_config())
    zeros.build((None, None, 64))
    assert not to_numpy(zeros.embeddings).any()


# ---- buckets ---------------------------------------------------------------------------------

BUCKETS = [
    (buckets, max_distance, both)
    for buckets, max_distance in [(32, 128), (32, 20), (16, 64), (64, 512), (128, 1000), (4, 3)]
    for both in (True, False)
]


@pytest.mark.backends
@pytest.mark.parametrize(("buckets", "max_distance", "both"), BUCKETS)
def test_buckets_against_whole_numbers(buckets, max_distance, both):
    layer = RelativePositionEmbeddingT5(buckets, 1, max_distance, both)
    reach = 4 * max_distance
    distances = np.arange(-reach, reach + 1).astype("int32")
    found = ops.convert_to_numpy(layer.rows_of(ops.convert_to_tensor(distances)))
    expected = [bucket_in_loops(int(d), buckets, max_distance, both) for d in distances]
    assert found.tolist() == expected
    assert set(expected) <= set(range(buckets))


@pytest.mark.parity
@pytest.mark.parametrize(("buckets", "max_distance", "both"), BUCKETS)
def test_buckets_against_transformers(buckets, max_distance, both):
    torch = pytest.importorskip("torch", reason="needs torch, on which transformers computes")
    pytest.importorskip("transformers", reason="needs transformers, to compare with")
    from transformers.models.t5.modeling_t5 import T5Attention

    layer = RelativePositionEmbeddingT5(buckets, 1, max_distance, both)
    distances = np.arange(-4 * max_distance, 4 * max_distance + 1)
    found = ops.convert_to_numpy(layer.rows_of(ops.convert_to_tensor(distances.astype("int32"))))
    expected = T5Attention._relative_position_bucket(
        torch.from_numpy(distances), both, buckets, max_distance
    )
    assert found.tolist() == expected.tolist()


# ---- masks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["table", "table_given", "table_list", "nested", "waves_mul"])
def test_the_mask_of_the_inputs_is_carried_on(name):
    case = of(name)
    hidden = Embedding(5, E)(PLACES, mask=PLACES)
    output = case.call(case.filled(), **{**case.inputs, "inputs": hidden})
    assert to_numpy(output._keras_mask).tolist() == (PLACES != 0).tolist()


@pytest.mark.parametrize("name", ["waves_zero", "table_zero_given", "clipped", "t5_one_way"])
def test_vectors_alone_have_no_mask(name):
    case = of(name)
    hidden = Embedding(5, E)(PLACES, mask=PLACES)
    first = next(iter(case.inputs))
    output = silent(case.call, case.filled(), **{**case.inputs, first: hidden})
    assert getattr(output, "_keras_mask", None) is None


# ---- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", [PositionEmbedding, SinusoidalPositionEmbedding])
def test_wrong_modes_and_widths(layer):
    with refused(ConfigError, "'ad'", "add", "concat"):
        layer(E, merge_mode="ad")
    for mode in ("add", "mul"):
        with refused(ConfigError, "output_dim=6", E, mode):
            layer(output_dim=D, merge_mode=mode, **of_table(layer))(X)


def of_table(layer):
    return {"input_dim": L} if layer is PositionEmbedding else {}


@pytest.mark.parametrize("layer", [PositionEmbedding, SinusoidalPositionEmbedding])
def test_positions_that_are_missing_or_rounded(layer):
    arguments = {"output_dim": E, **of_table(layer)}
    with refused(ConfigError, "positions", "custom_position_ids=True"):
        layer(custom_position_ids=True, **arguments)(X)
    for dtype in ("mixed_float16", "bfloat16"):
        with refused(ConfigError, dtype.removeprefix("mixed_"), "int32"):
            layer(dtype=dtype, **arguments)(X, positions=FAR.astype("float32"))


@pytest.mark.parametrize("alpha", [0, 1, 1.0, -0.4, 1.5, "0.4", float("nan")])
def test_wrong_alpha(alpha):
    with refused(ConfigError, f"hierarchical={alpha!r}", "0.4"):
        PositionEmbedding(ROWS, hierarchical=alpha)


def test_longer_than_a_nested_table():
    layer = PositionEmbedding(3, hierarchical=0.5)
    assert tuple(layer(np.zeros((1, 9, E), "float32")).shape) == (1, 9, E)
    with refused(ConfigError, "10", "9", "max_position_embeddings=3", "squared"):
        layer(np.zeros((1, 10, E), "float32"))
    assert PositionEmbedding(3, hierarchical=False).get_config()["hierarchical"] is False
    four = np.zeros((1, 4, E), "float32")
    for positions in (None, np.zeros((1, 4), "int32")):
        with refused(ConfigError, "4", "at most 3"):
            PositionEmbedding(3, hierarchical=False)(four, positions=positions)
    # Whoever numbers the tokens may use a number twice.
    packed = PositionEmbedding(3, custom_position_ids=True)
    found = to_numpy(packed(four, positions=np.array([[0, 1, 0, 1]], "int32")))
    np.testing.assert_array_equal(found[0], to_numpy(packed.embeddings)[[0, 1, 0, 1]])


@pytest.mark.parametrize("value", [0, -2, 2.5, "8", True, None])
def test_wrong_sizes(value):
    with refused(ConfigError, "output_dim", repr(value)):
        RelativePositionEmbedding(5, value)
    with refused(ConfigError, "input_dim", repr(value)):
        RelativePositionEmbeddingT5(value, 5)
    with refused(ConfigError, "max_distance", repr(value)):
        RelativePositionEmbeddingT5(8, 5, max_distance=value)
    with refused(ConfigError, "output_dim", repr(value)):
        SinusoidalPositionEmbedding(value)


def test_odd_waves_and_senseless_buckets():
    with refused(ConfigError, "7", "even"):
        SinusoidalPositionEmbedding(7, "zero")(X)
    with refused(ConfigError, "input_dim=3", "at least 4"):
        RelativePositionEmbeddingT5(3, 5)
    with refused(ConfigError, "input_dim=1", "at least 2"):
        RelativePositionEmbeddingT5(1, 5, bidirectional=False)
    with refused(ConfigError, "max_distance=8", "32", "more than 8"):
        RelativePositionEmbeddingT5(32, 5, max_distance=8)

"""Multi-head attention: through the harness, and against loops in float64."""

from itertools import product

import keras
import numpy as np
import pytest

from harness import (
    STEP_BY_STEP,
    LayerCase,
    check_gradient_numbers,
    default_and_slow,
    functional,
    in_float64,
    refused,
    saved_and_loaded,
    to_numpy,
    weights_of,
)
from kerasbert.errors import ConfigError
from kerasbert.layers import Embedding, MultiHeadAttention
from kerasbert.layers.scores import attention_weights
from reference import loops

# No two sizes are the same, but batch and queries: a position bias (Q, K, ·) has no batch.
B, Q, K, N, D, S, H, OUT = 3, 3, 5, 2, 4, 6, 8, 7
RNG = np.random.default_rng(31)
X = RNG.normal(size=(B, Q, H)).astype("float32")
KEYS = RNG.normal(size=(B, K, 9)).astype("float32")
VALUES = RNG.normal(size=(B, K, 10)).astype("float32")
THREE = {"queries": X, "keys": KEYS, "values": VALUES}
SAME = {"queries": X, "keys": KEYS[:, :Q], "values": VALUES[:, :Q]}
ANGLES = RNG.uniform(0, 6, size=(B, Q, S // 2))
WAVES = np.stack([np.sin(ANGLES), np.cos(ANGLES)], -1).reshape(B, Q, S).astype("float32")
VECTORS = RNG.normal(size=(Q, K, D)).astype("float32")
NUMBERS = RNG.normal(size=(Q, K, N)).astype("float32")
SEEN = RNG.random((B, Q, K)) < 0.6
SEEN[..., 0] = True
SEEN_BY_HEAD = RNG.random((B, N, Q, K)) < 0.6
ADDED = RNG.normal(size=(B, Q, K)).astype("float32")
ADDED_BY_HEAD = RNG.normal(size=(B, N, Q, K)).astype("float32")


def shapes(inputs, key_size=D, size=D, out=N * D, bias=True):
    query, key, value = (tensor.shape[-1] for tensor in list(inputs.values())[:3])
    sizes = {
        "query": (query, N * key_size),
        "key": (key, N * key_size),
        "value": (value, N * size),
        "output": (N * size, out),
    }
    found = {f"{name}/kernel": shape for name, shape in sizes.items()}
    return {**found, **{f"{name}/bias": shape[1:] for name, shape in sizes.items() if bias}}


class Listed(LayerCase):
    """A case whose layer takes all its tensors as one list."""

    def shape(self):
        return [value.shape for value in self.inputs.values()]

    def call(self, layer, **inputs):
        return layer(list((inputs or self.inputs).values()), **self.options)

    def spec(self, layer):
        tensors = [keras.KerasTensor(v.shape, str(v.dtype)) for v in self.inputs.values()]
        return layer.compute_output_spec(tensors, **self.options)


def mha(name, inputs=None, options=None, weights=None, flat=("key/bias",), of=THREE, **arguments):
    """A case; `flat` is the bias of the keys, which adds the same to all scores of a query."""
    arguments = {"heads": N, "head_size": D, **arguments}
    return Listed(
        name,
        MultiHeadAttention,
        arguments,
        {**of, **(inputs or {})},
        weights or shapes(of),
        options=options or {},
        flat=flat,
    )


A_BIAS = {"a_bias": True}
CASES = [
    mha("plain"),
    mha("bare", weights=shapes(THREE, bias=False), flat=(), use_bias=False),
    mha("divided", head_size=None),
    mha("sizes", weights=shapes(THREE, S, D, OUT), key_size=S, out_dim=OUT),
    mha("unscaled", attention_scale=False),
    mha("bool_bias", {"a": SEEN}, A_BIAS),
    mha("bool_bias_of_heads", {"a": SEEN_BY_HEAD}, A_BIAS),
    mha("float_bias", {"a": ADDED}, A_BIAS),
    mha("float_bias_of_heads", {"a": ADDED_BY_HEAD}, A_BIAS),
    mha(
        "rotary",
        {"p": WAVES},
        {"p_bias": "rotary"},
        shapes(SAME, S),
        flat=(),
        of=SAME,
        key_size=S,
    ),
    mha("typical", {"p": VECTORS}, {"p_bias": "typical_relative"}),
    mha("t5", {"p": NUMBERS}, {"p_bias": "t5_relative"}),
    mha("t5_unscaled", {"p": NUMBERS}, {"p_bias": "t5_relative"}, attention_scale=False),
    mha("two_biases", {"a": SEEN, "p": NUMBERS}, {"a_bias": True, "p_bias": "t5_relative"}),
    mha("squared", {"a": SEEN}, A_BIAS, flat=(), normalization="squared_relu"),
    mha("plus", {"a": SEEN}, A_BIAS, normalization="softmax_plus"),
]
PLAIN = CASES[0]


def in_loops(case, v):
    """Output and scores of a case for some weights."""
    inputs = in_float64(case.inputs)
    bias = inputs.get("a")
    is_bool = bias is not None and bias.dtype == bool
    return loops.attention(
        v,
        inputs["queries"],
        inputs["keys"],
        inputs["values"],
        N,
        visible=bias if is_bool else None,
        added=None if is_bool else bias,
        p_bias=case.options.get("p_bias"),
        position=inputs.get("p"),
        scaled=case.arguments.get("attention_scale", True),
        normalization=case.arguments.get("normalization", "softmax"),
    )


# ---- numbers ---------------------------------------------------------------------------------


# What the arguments change is either a tensor that is added or hidden, or one of these.
ON_BACKENDS = ("plain", "bool_bias_of_heads", "rotary", "typical", "t5", "squared", "plus")


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=str(case), marks=[pytest.mark.backends] * (str(case) in ON_BACKENDS))
        for case in CASES
    ],
)
def test_against_loops(case):
    layer = case.filled(return_attention_scores=True)
    output, scores = map(to_numpy, case.call(layer))
    expected, expected_scores = in_loops(case, in_float64(weights_of(layer)))
    assert np.abs(expected).max() > 0.2
    np.testing.assert_allclose(output, expected, atol=1e-5, rtol=0)
    # Whatever bias of the attention there is, the scores are those without it.
    np.testing.assert_allclose(scores, expected_scores, atol=1e-5, rtol=0)


# A bias of the attention is added as that of T5 is.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("sizes", marks=pytest.mark.backends),
        *default_and_slow(["rotary", "typical", "t5", "squared", "plus"], ["typical", "plus"]),
    ],
)
def test_gradients_against_differences(name):
    case = next(case for case in CASES if case.name == name)
    check_gradient_numbers(case, lambda v: in_loops(case, v)[0])


@pytest.mark.parametrize("normalization", ["softmax", "squared_relu", "softmax_plus"])
@pytest.mark.parametrize("keys", [3, 40])
def test_weights_against_loops(normalization, keys):
    # So many keys that softmax_plus tells rows with more of them from those with fewer.
    rng = np.random.default_rng(keys)
    scores = rng.normal(scale=3, size=(2, 4, keys)).astype("float32")
    mask = rng.random((2, 4, keys)) < 0.7
    mask[0, 0], mask[0, 1] = False, True
    for visible in (mask, mask[:, 1:2], None):
        found = to_numpy(attention_weights(scores, visible, normalization))
        full = np.broadcast_to(True if visible is None else visible, scores.shape)
        for place in np.ndindex(2, 4):
            row = scores[place].astype("float64")
            expected = loops.weights_of_scores(row, full[place], normalization)
            np.testing.assert_allclose(found[place], expected, atol=2e-6, rtol=1e-5)


LOWEST = (-1e9, -1e12, -np.inf, False)


@pytest.mark.parametrize(
    ("normalization", "lowest", "dtype"),
    [
        *product(("softmax", "squared_relu", "softmax_plus"), LOWEST, ["mixed_float16"]),
        *product(["softmax"], (-1e12, False), (None, "float16", "mixed_bfloat16")),
    ],
)
def test_a_query_without_any_key_gives_numbers(normalization, lowest, dtype):
    bias = np.full((B, 1, K), lowest)
    bias = bias if lowest is False else bias.astype("float32")
    bias[1:] = lowest is False
    layer = PLAIN.filled(dtype=dtype, normalization=normalization)
    found = to_numpy(layer([X, KEYS, VALUES, bias], a_bias=True))
    seen = to_numpy(layer([X, KEYS, VALUES]))
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found[1:], seen[1:])


@pytest.mark.parametrize("dtype", [None, "mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("as_float", [False, True])
def test_hidden_keys_do_not_matter(as_float, dtype):
    layer = PLAIN.filled(dtype=dtype)
    # The last key of the first row and the first two of the second are hidden from all queries.
    seen = SEEN.copy()
    seen[0, :, 4] = seen[1, :, :2] = False
    seen[1, :, 2] = True
    bias = np.where(seen, 0.0, -1e9).astype("float32") if as_float else seen
    keys, values = KEYS.copy(), VALUES.copy()
    for tensor in (keys, values):
        tensor[0, 4] = tensor[1, :2] = 50.0
    np.testing.assert_array_equal(
        to_numpy(layer([X, keys, values, bias], a_bias=True)),
        to_numpy(layer([X, KEYS, VALUES, bias], a_bias=True)),
    )


# ---- masks of Keras --------------------------------------------------------------------------

IDS = np.array([[7, 3, 9], [4, 4, 0], [5, 0, 0]], "int32")
CONTEXT = np.array([[1, 2, 3, 4, 5], [1, 2, 0, 0, 0], [0, 0, 3, 4, 5]], "int32")


def by_loops(layer, query, value, visible):
    tensors = [to_numpy(tensor).astype("float64") for tensor in (query, KEYS, value)]
    return loops.attention(in_float64(weights_of(layer)), *tensors, N, visible=visible)[0]


@pytest.mark.backends
def test_the_mask_of_the_values_hides_keys_and_that_of_the_queries_is_passed_on():
    layer = PLAIN.filled()
    query, value = Embedding(12, H)(IDS, mask=IDS), Embedding(12, 10)(CONTEXT, mask=CONTEXT)
    # The keys have no mask: only that of the values counts.
    output = layer([query, KEYS, value])
    assert to_numpy(output._keras_mask).astype(bool).tolist() == (IDS != 0).tolist()
    expected = by_loops(layer, query, value, (CONTEXT != 0)[:, None])
    np.testing.assert_allclose(to_numpy(output), expected, atol=1e-5, rtol=0)
    # Together with a bool bias.
    output = layer([query, KEYS, value, SEEN_BY_HEAD], a_bias=True)
    expected = by_loops(layer, query, value, (CONTEXT != 0)[:, None, None] & SEEN_BY_HEAD)
    np.testing.assert_allclose(to_numpy(output), expected, atol=1e-5, rtol=0)


@pytest.mark.backends
def test_masks_in_a_functional_model(tmp_path):
    ids, context = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    query, value = Embedding(12, H)(ids, mask=ids), Embedding(12, 9)(context, mask=context)
    layer = MultiHeadAttention(N, D, return_attention_scores=True)
    output, scores = layer([query, value, value])
    assert output._keras_mask is not None
    assert (output.shape, scores.shape) == ((None, None, N * D), (None, N, None, None))
    model = keras.Model([ids, context], [output, scores])
    again = saved_and_loaded(model, tmp_path)
    longer = np.concatenate([CONTEXT, np.zeros((B, 2), "int32")], axis=1)
    expected = to_numpy(model([IDS, CONTEXT])[0])
    for found in (model([IDS, longer]), again([IDS, CONTEXT])):
        np.testing.assert_allclose(to_numpy(found[0]), expected, atol=1e-6, rtol=0)


# ---- state of sub-layers ---------------------------------------------------------------------


def test_quantised_frozen_and_adapted_sublayers_come_back(tmp_path):
    model, layer, batch = functional(PLAIN)
    exact = to_numpy(model(batch))
    layer.value.quantize("int8")
    layer.key.trainable = False
    again = saved_and_loaded(model, tmp_path)
    np.testing.assert_array_equal(to_numpy(again(batch)), to_numpy(model(batch)))
    assert 0 < np.abs(to_numpy(again(batch)) - exact).max() < 0.1
    subject = again.get_layer("subject")
    assert subject.value.dtype_policy == layer.value.dtype_policy
    assert subject.value.dtype_policy.name == "int8_from_float32"
    assert subject.query.dtype_policy.name == "float32"
    assert not subject.key.trainable and subject.query.trainable
    assert subject.get_config() == layer.get_config()


def test_lora_on_query_and_value(tmp_path):
    model, layer, batch = functional(PLAIN)
    exact = to_numpy(model(batch))
    for dense in (layer.query, layer.value):
        dense.enable_lora(2)
    np.testing.assert_allclose(to_numpy(model(batch)), exact, atol=1e-6)
    kernel = to_numpy(layer.query.kernel)
    model.compile(keras.optimizers.SGD(1.0), "mse", **STEP_BY_STEP)
    model.fit(batch, np.zeros_like(exact), epochs=2, verbose=0)
    trained = to_numpy(model(batch))
    assert np.abs(trained - exact).max() > 0.01
    assert {w.path.rpartition("/")[2] for w in layer.query.trainable_weights} == {
        "bias",
        "lora_kernel_a",
        "lora_kernel_b",
    }
    assert np.abs(to_numpy(layer.query.kernel) - kernel).max() > 0.001
    again = saved_and_loaded(keras.Model(model.inputs, model.outputs), tmp_path)
    np.testing.assert_allclose(to_numpy(again(batch)), trained, atol=1e-5)


def test_kernels_of_one_shape_start_differently():
    layer = MultiHeadAttention(N, D, kernel_initializer=keras.initializers.RandomNormal())
    layer.build([(B, Q, N * D)] * 3)
    kernels = [layer.query, layer.key, layer.value, layer.output_dense]
    kernels = [to_numpy(dense.kernel) for dense in kernels]
    for one in range(4):
        for other in range(one):
            assert np.abs(kernels[one] - kernels[other]).max() > 0.01


def test_attention_dropout_only_in_training():
    layer = PLAIN.filled(attention_dropout=0.5)
    still = to_numpy(PLAIN.call(layer))
    np.testing.assert_array_equal(still, to_numpy(layer([X, KEYS, VALUES], training=False)))
    assert np.abs(to_numpy(layer([X, KEYS, VALUES], training=True)) - still).max() > 0.01
    plain = PLAIN.filled()
    np.testing.assert_array_equal(
        to_numpy(plain([X, KEYS, VALUES], training=True)), to_numpy(PLAIN.call(plain))
    )


# ---- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, -2, 2.5, "8", True])
@pytest.mark.parametrize("name", ["heads", "head_size", "out_dim", "key_size"])
def test_wrong_sizes(name, value):
    with refused(ConfigError, name, repr(value)):
        MultiHeadAttention(**{"heads": N, name: value})


def test_wrong_names():
    with refused(ConfigError, "'softmaxplus'", "softmax_plus"):
        MultiHeadAttention(N, normalization="softmaxplus")
    with pytest.raises(ValueError, match=r"rate.*1\.5"):
        MultiHeadAttention(N, attention_dropout=1.5).build([X.shape] * 3)
    with refused(ConfigError, "8 wide", "heads=3", "head_size"):
        MultiHeadAttention(3).build([X.shape] * 3)


@pytest.mark.parametrize("symbolic", [False, True])
def test_wrong_inputs(symbolic):
    x = keras.Input((Q, H)) if symbolic else X
    with refused(ConfigError, "'rotery'", "rotary"):
        MultiHeadAttention(N)([x, x, x, x], p_bias="rotery")
    for inputs, options in [
        ([x, x], {}),
        ([x, x, x, x], {}),
        ([x, x, x], {"a_bias": True}),
        ([x, x, x], {"p_bias": "rotary"}),
        ([x, x, x, x], {"a_bias": True, "p_bias": "rotary"}),
    ]:
        layer = MultiHeadAttention(N)
        layer.build([(B, Q, H)] * 3)
        with refused(ConfigError, f"inputs {len(inputs)}", "queries, keys, values"):
            layer(inputs, **options)


def test_a_mask_without_an_axis_of_queries():
    with refused(ConfigError, "(3, 5)", "mask[:, None]"):
        PLAIN.filled()([X, KEYS, VALUES, SEEN[:, 0]], a_bias=True)


@pytest.mark.parametrize("kind", ["rotary", "typical_relative"])
def test_a_position_bias_of_another_size(kind):
    layer = MultiHeadAttention(N, D, key_size=S)
    vectors = {"rotary": WAVES[..., :D], "typical_relative": RNG.normal(size=(Q, Q, D))}
    with refused(ConfigError, str(S), str(D)):
        layer([X, X, X, vectors[kind].astype("float32")], p_bias=kind)

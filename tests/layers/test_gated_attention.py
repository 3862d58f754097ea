"""The gated attention unit: through the harness, and against loops in float64."""

import keras
import numpy as np
import pytest

from harness import (
    LayerCase,
    by_name,
    default_and_slow,
    fill,
    gradients,
    numeric_gradients,
    refused,
    silent,
    to_numpy,
    weights_of,
)
from kerasbert.errors import ConfigError
from kerasbert.layers import Embedding, GatedAttentionUnit, SinusoidalPositionEmbedding
from reference import forward

B, L, K, H, U, S = 2, 5, 3, 6, 7, 4
RNG = np.random.default_rng(29)
X = RNG.normal(size=(B, L, H)).astype("float32")
KEYS = RNG.normal(size=(B, K, H)).astype("float32")
VALUES = RNG.normal(size=(B, K, H)).astype("float32")
IDS = np.array([[7, 3, 9, 1, 5], [4, 4, 0, 0, 0]], "int32")
PADDING = (IDS != 0)[:, None]
CAUSAL = np.tril(np.ones((B, L, L), bool))
WAVES = RNG.uniform(0, 6, size=(B, L, S // 2))
WAVES = np.stack([np.sin(WAVES), np.cos(WAVES)], -1).reshape(B, L, S).astype("float32")


def dense(name, inputs, outputs, bias=True):
    kernel = {f"{name}/kernel": (inputs, outputs)}
    return {**kernel, f"{name}/bias": (outputs,)} if bias else kernel


SELF = {
    **dense("i_dense", H, 2 * U + S),
    **dense("o_dense", U, H),
    **{f"{name}_scaleoffset/{part}": (S,) for name in "qk" for part in ("gamma", "beta")},
}
THREE = {
    **dense("uq_dense", H, U + S),
    **dense("k_dense", H, S),
    **dense("v_dense", H, U),
    **dense("o_dense", U, H),
}
BARE = {path: shape for path, shape in SELF.items() if not path.endswith(("bias", "beta"))}
SIZES = {"units": U, "key_size": S}


class Three(LayerCase):
    """A case of queries, keys and values, which the layer takes as one list."""

    def shape(self):
        return [value.shape for value in list(self.inputs.values())[:3]]

    def gathered(self, tensors):
        query, key, value = (tensors[name] for name in ("queries", "keys", "values"))
        return {"inputs": [query, key, value]} | {
            name: tensor for name, tensor in tensors.items() if name == "attention_mask"
        }

    def call(self, layer, **inputs):
        return layer(**self.gathered(inputs or self.inputs), **self.options)

    def spec(self, layer):
        tensors = {n: keras.KerasTensor(v.shape, str(v.dtype)) for n, v in self.inputs.items()}
        return layer.compute_output_spec(**self.gathered(tensors))


def gau(name, weights=SELF, inputs=None, flat=(), **arguments):
    inputs = {"inputs": X, **(inputs or {})}
    return LayerCase(name, GatedAttentionUnit, {**SIZES, **arguments}, inputs, weights, flat=flat)


def three(name, flat=(), **arguments):
    inputs = {"queries": X, "keys": KEYS, "values": VALUES}
    if "softmax" in name:
        inputs["attention_mask"] = np.array([[[True] * 3], [[True, True, False]]])
    arguments = {**SIZES, "self_attention": False, **arguments}
    return Three(name, GatedAttentionUnit, arguments, inputs, THREE, flat=flat)


# A softmax does not see what all scores of a query have in common.
Q_BETA = ("k_scaleoffset/beta",)
CASES = [
    gau("plain"),
    gau("bare", BARE, use_bias=False),
    gau("padded", inputs={"attention_mask": PADDING}),
    gau("causal", inputs={"attention_mask": CAUSAL}, attention_scale=False),
    gau("rotary", inputs={"attention_mask": PADDING, "position_bias": WAVES}),
    gau("softmax", inputs={"attention_mask": CAUSAL}, normalization="softmax", flat=Q_BETA),
    gau("plus", normalization="softmax_plus", inputs={"attention_mask": PADDING}, flat=Q_BETA),
    gau(
        "softmax_rotary",
        inputs={"position_bias": WAVES},
        normalization="softmax",
        activation="tanh",
    ),
    three("three"),
    three("three_softmax", normalization="softmax", activation="linear", flat=("k_dense/bias",)),
]
each = pytest.mark.parametrize("case", CASES, ids=str)
of = by_name(CASES)


# ---- the harness -----------------------------------------------------------------------------


# ---- numbers ---------------------------------------------------------------------------------


def rotated(vector, waves):
    """Pairs as complex numbers, turned by the angles whose sines and cosines are given."""
    turned = (vector[::2] + 1j * vector[1::2]) * (waves[1::2] + 1j * waves[::2])
    return np.stack([turned.real, turned.imag], -1).reshape(-1)


def weights_in_loops(scores, visible, normalization):
    """The weights of one query's keys."""
    count = visible.sum()
    if normalization == "squared_relu":
        return np.where(visible, np.maximum(scores, 0) ** 2 / max(count, 1), 0)
    if normalization == "softmax_plus":
        scores = scores * np.log(max(count, 16)) / np.log(512)
    return forward.softmax(np.where(visible, scores, -np.inf)[None])[0]


def unit_in_loops(case, v, inputs):
    """The paper's unit, one query at a time, from {path: float64 array}."""
    arguments = case.arguments
    activation = forward.ACTIVATIONS[arguments.get("activation", "swish")]

    def project(name, x):
        return activation(x @ v[f"{name}/kernel"] + v.get(f"{name}/bias", 0))

    if arguments.get("self_attention", True):
        x = inputs["inputs"]
        gate, value, shared = np.split(project("i_dense", x), [U, 2 * U], axis=-1)
        query, key = (
            shared * v[f"{name}_scaleoffset/gamma"] + v.get(f"{name}_scaleoffset/beta", 0)
            for name in "qk"
        )
    else:
        gate, query = np.split(project("uq_dense", inputs["queries"]), [U], axis=-1)
        key, value = project("k_dense", inputs["keys"]), project("v_dense", inputs["values"])
    mask, waves = inputs.get("attention_mask"), inputs.get("position_bias")
    mask = np.ones((B, 1, key.shape[1]), bool) if mask is None else mask.astype(bool)
    output = np.zeros((B, L, H))
    for b, q in np.ndindex(B, L):
        scores = np.zeros(key.shape[1])
        for k in range(key.shape[1]):
            one, other = query[b, q], key[b, k]
            if waves is not None:
                one, other = rotated(one, waves[b, q]), rotated(other, waves[b, k])
            scores[k] = one @ other
        if arguments.get("attention_scale", True):
            scores = scores / np.sqrt(S)
        visible = np.broadcast_to(mask, (B, L, key.shape[1]))[b, q]
        weights = weights_in_loops(scores, visible, arguments.get("normalization", "squared_relu"))
        context = sum(weights[k] * value[b, k] for k in range(key.shape[1]))
        output[b, q] = (gate[b, q] * context) @ v["o_dense/kernel"] + v.get("o_dense/bias", 0)
    return output


def in_float64(values):
    return {name: to_numpy(value).astype("float64") for name, value in values.items()}


@pytest.mark.backends
@each
def test_against_loops(case):
    layer = case.filled()
    expected = unit_in_loops(case, in_float64(weights_of(layer)), in_float64(case.inputs))
    assert np.abs(expected).max() > 0.2
    np.testing.assert_allclose(to_numpy(case.call(layer)), expected, atol=3e-6, rtol=0)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("rotary", marks=pytest.mark.backends),
        *default_and_slow(["causal", "softmax_rotary", "plus", "three"], ["plus"]),
    ],
)
def test_gradients_against_differences(name):
    case = of(name)
    inputs = case.symbolic()
    layer = case.make()
    model = keras.Model(list(inputs.values()), case.call(layer, **inputs))
    fill(layer)
    upstream = np.random.default_rng(2).normal(size=(B, L, H))
    tensors = in_float64(case.inputs)
    expected = numeric_gradients(
        lambda weights: unit_in_loops(case, weights, tensors),
        in_float64(weights_of(layer)),
        upstream,
    )
    found = gradients(model, list(case.inputs.values()), upstream)
    assert {path.partition("/")[2] for path in found} == set(expected)
    for path, value in found.items():
        np.testing.assert_allclose(
            value, expected[path.partition("/")[2]], atol=5e-4, rtol=0, err_msg=path
        )


@pytest.mark.backends
def test_only_distances_matter_to_rotary_positions(tmp_path):
    hidden, places = keras.Input((None, H)), keras.Input((None,), dtype="int32")
    waves = SinusoidalPositionEmbedding(S, "zero")
    layer = GatedAttentionUnit(U, S)
    model = keras.Model([hidden, places], layer(hidden, position_bias=waves(hidden, places)))
    fill(layer)
    counted = keras.Model(hidden, layer(hidden, position_bias=waves(hidden)))
    first = np.arange(L)[None].repeat(B, axis=0).astype("int32")
    near, far, other = (to_numpy(model([X, p])) for p in (first, first + 40, first * 3))
    np.testing.assert_allclose(near, far, atol=1e-5)
    np.testing.assert_allclose(to_numpy(counted(X)), near, atol=1e-6)
    assert np.abs(near - other).max() > 1e-3
    silent(counted.save, tmp_path / "model.keras")
    again = silent(keras.models.load_model, tmp_path / "model.keras")
    np.testing.assert_array_equal(to_numpy(again(X)), to_numpy(counted(X)))


@pytest.mark.parametrize("normalization", ["squared_relu", "softmax", "softmax_plus"])
@pytest.mark.parametrize("dtype", [None, "mixed_float16", "bfloat16"])
def test_hidden_keys_do_not_matter_and_nothing_is_nan(dtype, normalization):
    layer = of("padded").filled(dtype=dtype, normalization=normalization)
    other = X.copy()
    other[~PADDING[:, 0]] = 50.0
    first, second = (to_numpy(layer(x, attention_mask=PADDING)) for x in (X, other))
    np.testing.assert_array_equal(first[PADDING[:, 0]], second[PADDING[:, 0]])
    nothing = to_numpy(layer(X, attention_mask=np.zeros((B, 1, L), bool)))
    assert np.isfinite(nothing).all()


# ---- the Keras mask --------------------------------------------------------------------------


def masked():
    numbers = keras.initializers.RandomNormal(stddev=3.0)
    return Embedding(10, H, embeddings_initializer=numbers)(IDS, mask=IDS)


@pytest.mark.backends
def test_the_mask_of_the_input_hides_keys():
    layer, hidden = of("plain").filled(), masked()
    bare = to_numpy(hidden)
    alone = layer(hidden)
    np.testing.assert_allclose(
        to_numpy(alone), to_numpy(layer(bare, attention_mask=PADDING)), rtol=1e-5
    )
    assert to_numpy(alone._keras_mask).tolist() == (IDS != 0).tolist()
    with_waves = to_numpy(layer(hidden, position_bias=WAVES))
    expected = to_numpy(layer(bare, attention_mask=PADDING, position_bias=WAVES))
    np.testing.assert_allclose(with_waves, expected, rtol=1e-5)
    both = to_numpy(layer(hidden, attention_mask=CAUSAL))
    np.testing.assert_allclose(
        both, to_numpy(layer(bare, attention_mask=CAUSAL & PADDING)), rtol=1e-5
    )
    assert np.abs(to_numpy(alone) - to_numpy(layer(bare))).max() > 1e-3


@pytest.mark.backends
def test_the_mask_of_the_keys_is_that_of_the_keys():
    layer, keys = of("three").filled(), masked()
    bare = to_numpy(keys)
    output = layer([X, keys, keys])
    expected = layer([X, bare, bare], attention_mask=PADDING)
    np.testing.assert_allclose(to_numpy(output), to_numpy(expected), rtol=1e-5)
    assert getattr(output, "_keras_mask", None) is None
    queries = layer([keys, KEYS, VALUES])
    np.testing.assert_allclose(to_numpy(queries), to_numpy(layer([bare, KEYS, VALUES])), rtol=1e-5)
    assert to_numpy(queries._keras_mask).tolist() == (IDS != 0).tolist()


# ---- sub-layers ------------------------------------------------------------------------------


def test_dropout_only_in_training():
    layer = of("plain").filled(attention_dropout=0.5)
    still = of("plain").filled()
    np.testing.assert_array_equal(to_numpy(layer(X)), to_numpy(still(X, training=True)))
    assert np.abs(to_numpy(layer(X, training=True)) - to_numpy(layer(X))).max() > 0.01


def test_kernels_of_one_shape_start_differently():
    layer = GatedAttentionUnit(S, S, self_attention=False)
    layer.build([X.shape, KEYS.shape, VALUES.shape])
    assert np.abs(to_numpy(layer.k_dense.kernel) - to_numpy(layer.v_dense.kernel)).max() > 0.1
    ones = GatedAttentionUnit(U, S, kernel_initializer=lambda shape, dtype=None: np.ones(shape))
    ones.build(X.shape)
    assert to_numpy(ones.o_dense.kernel).min() == to_numpy(ones.i_dense.kernel).max() == 1


def test_types_and_freezing_of_sublayers_survive():
    layer = of("plain").filled(sublayer_dtypes={"i_dense": "mixed_bfloat16"})
    layer.k_scaleoffset.trainable = False
    again = GatedAttentionUnit.from_config(layer.get_config())
    again.build(X.shape)
    assert again.i_dense.dtype_policy.name == "mixed_bfloat16"
    assert again.o_dense.dtype_policy.name == "float32"
    frozen = {weight.path.partition("/")[2] for weight in again.non_trainable_weights}
    assert frozen == {"k_scaleoffset/gamma", "k_scaleoffset/beta"}


# ---- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, -2, 2.5, "8", True, None])
def test_wrong_sizes(value):
    with refused(ConfigError, "units", repr(value)):
        GatedAttentionUnit(value, S)
    with refused(ConfigError, "key_size", repr(value)):
        GatedAttentionUnit(U, value)


def test_wrong_names():
    with refused(ConfigError, "'relu_squared'", "squared_relu"):
        GatedAttentionUnit(U, S, normalization="relu_squared")
    with refused(ConfigError, "'swich'", "swish"):
        GatedAttentionUnit(U, S, activation="swich")
    with pytest.raises(ValueError, match=r"rate.*1\.5"):
        GatedAttentionUnit(U, S, attention_dropout=1.5).build(X.shape)


def test_one_input_or_three():
    for inputs, found in [([X], "list of 1"), ([X, KEYS, VALUES], "list of 3")]:
        with refused(ConfigError, "self_attention=True", found, "[queries, keys, values]"):
            GatedAttentionUnit(U, S)(inputs)
    for inputs, found in [(X, "one tensor"), ([X, KEYS], "list of 2")]:
        with refused(ConfigError, "self_attention=False", found):
            GatedAttentionUnit(U, S, self_attention=False)(inputs)


def test_angles_of_another_size():
    with refused(ConfigError, f"[{S}, {S}]", H):
        GatedAttentionUnit(U, S)(X, position_bias=X)

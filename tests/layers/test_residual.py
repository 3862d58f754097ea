"""The halves of Transformer blocks: through the harness, and against loops in float64."""

import json

import keras
import numpy as np
import pytest

from harness import (
    STEP_BY_STEP,
    BuiltByName,
    by_name,
    check_gradient_numbers,
    default_and_slow,
    fill,
    functional,
    in_float64,
    refused,
    saved_and_loaded,
    to_numpy,
    weights_of,
)
from kerasbert.errors import ConfigError
from kerasbert.layers import (
    CrossAttention,
    GatedAttentionUnit,
    ResidualFeedForward,
    ResidualGatedAttention,
    SelfAttention,
)
from reference import loops

# A position bias (L, L, ·) has no batch, for which a model takes its first axis.
B, L, K, N, D, H, CONTEXT, INNER, C, W = 3, 3, 5, 2, 4, 8, 9, 11, 6, 7
RNG = np.random.default_rng(43)


def normal(*shape):
    return RNG.normal(size=shape).astype("float32")


X, LONG = {"inputs": normal(B, L, H)}, {"inputs": normal(B, K, H)}
BOTH = {**X, "context": normal(B, K, CONTEXT)}
MASK = {"attention_mask": np.array([[[1, 1, 0]], [[0, 1, 1]], [[0, 0, 0]]], bool)}
CAUSAL = {"attention_mask": np.tril(np.ones((B, K, K), bool))}
CROSS_MASK = {"attention_mask": RNG.random((B, L, K)) < 0.6}
ANGLES = RNG.uniform(0, 6, size=(B, K, D // 2))
WAVES = {"position_bias": np.stack([np.sin(ANGLES), np.cos(ANGLES)], -1).reshape(B, K, D)}
WAVES["position_bias"] = WAVES["position_bias"].astype("float32")
VECTORS = {"position_bias": normal(L, L, D)}
NUMBERS, CROSS_NUMBERS = {"position_bias": normal(L, L, N)}, {"position_bias": normal(L, K, N)}
SCORES = {"previous_scores": normal(B, N, L, L)}
ONE, MANY = {"condition": normal(B, C)}, {"condition": normal(B, L, C)}
HIDDEN = {"conditional": True, "hidden_units": W, "hidden_activation": "tanh"}
RMS = {"placement": "pre", "epsilon": 1e-6, "zero_mean": False, "offset": False}


def dense(name, inputs, outputs, bias=True):
    kernel = {f"{name}/kernel": (inputs, outputs)}
    return {**kernel, f"{name}/bias": (outputs,)} if bias else kernel


def attention_shapes(context=H, key_size=D, bias=True):
    return (
        dense("query", H, N * key_size, bias)
        | dense("key", context, N * key_size, bias)
        | dense("value", context, N * D, bias)
        | dense("output", N * D, H, bias)
    )


def feed_forward_shapes(*names, bias=True):
    inner = [dense(name, H, INNER, bias) for name in names or ("intermediate",)]
    return {
        path: shape
        for part in (*inner, dense("output", INNER, H, bias))
        for path, shape in part.items()
    }


def norm_shapes(placement="post", conditional=False, hidden_units=None, offset=True, **_):
    names = {"none": (), "both": ("norm", "inner_norm")}.get(placement, ("norm",))
    found = {}
    for name in names:
        found[f"{name}/gamma"] = (H,)
        if offset:
            found[f"{name}/beta"] = (H,)
        if conditional:
            shifts = {
                f"{name}/{part}_dense/kernel": (hidden_units or C, H) for part in ("beta", "gamma")
            }
            found.update(shifts)
        if hidden_units:
            found[f"{name}/hidden_dense/kernel"] = (C, hidden_units)
    return found


def case(name, layer, arguments, inputs, weights, p_bias=None, flat=(), **norm):
    arguments = {**arguments, "norm": norm} if norm else arguments
    options = {"p_bias": p_bias} if p_bias else {}
    weights = weights | norm_shapes(**norm)
    return BuiltByName(name, layer, arguments, inputs, weights, options=options, flat=flat)


def self_attention(
    name, inputs=X, p_bias=None, weights=None, norm=None, flat=("key/bias",), **more
):
    """A case; `flat` is the bias of the keys, which adds the same to all scores of a query."""
    arguments = {"heads": N, **more}
    weights = weights or attention_shapes()
    return case(name, SelfAttention, arguments, inputs, weights, p_bias, flat, **(norm or {}))


def cross(name, inputs=BOTH, p_bias=None, norm=None, flat=("key/bias",)):
    weights = attention_shapes(CONTEXT)
    return case(name, CrossAttention, {"heads": N}, inputs, weights, p_bias, flat, **(norm or {}))


def feed_forward(name, activation="gelu_tanh", inputs=X, weights=None, norm=None, **more):
    arguments = {"units": INNER, "activation": activation, **more}
    weights = weights or feed_forward_shapes()
    return case(name, ResidualFeedForward, arguments, inputs, weights, **(norm or {}))


def gated(name, inputs, **norm):
    weights = dense("i_dense", H, 2 * INNER + D) | dense("o_dense", INNER, H)
    for part in ("gamma", "beta"):
        weights |= {f"{half}_scaleoffset/{part}": (D,) for half in "qk"}
    arguments = {"units": INNER, "key_size": D}
    return case(name, ResidualGatedAttention, arguments, inputs, weights, **norm)


ATTENTION_CASES = [
    self_attention("post"),
    self_attention("pre", X | MASK, norm={"placement": "pre", "epsilon": 1e-3}),
    self_attention("both", X | MASK, norm={"placement": "both", "epsilon": 1e-3}),
    self_attention("none", norm={"placement": "none"}),
    self_attention("causal", LONG | CAUSAL, rate=0.1, attention_dropout=0.1),
    self_attention(
        "rotary", LONG | WAVES, "rotary", attention_shapes(bias=False), flat=(), use_bias=False
    ),
    self_attention("typical", X | MASK | VECTORS, "typical_relative"),
    self_attention(
        "t5",
        X | MASK | NUMBERS,
        "t5_relative",
        attention_shapes(bias=False),
        RMS,
        flat=(),
        use_bias=False,
        attention_scale=False,
    ),
    self_attention("realformer", X | MASK | SCORES),
    self_attention("key_size", LONG, None, attention_shapes(key_size=6), key_size=6),
    self_attention("plus", X | MASK, normalization="softmax_plus"),
    self_attention("conditional", X | MASK | ONE, norm={"conditional": True}),
    self_attention("conditional_pre", X | MANY, norm={**HIDDEN, "placement": "pre"}),
    self_attention("conditional_both", X | ONE, norm={**HIDDEN, "placement": "both"}),
    cross("cross"),
    cross("cross_masked", BOTH | CROSS_MASK, norm={"placement": "pre", "epsilon": 1e-3}),
    cross("cross_t5", BOTH | CROSS_NUMBERS, "t5_relative"),
    cross("cross_conditional", BOTH | MANY, norm={"conditional": True, "placement": "both"}),
]
FEED_FORWARD_CASES = [
    feed_forward("inner_post", rate=0.1),
    feed_forward("inner_pre", "gelu_erf", norm={"placement": "pre", "epsilon": 1e-3}),
    feed_forward("inner_both", "relu", norm={"placement": "both", "epsilon": 1e-3}),
    feed_forward("inner_none", "swish", norm={"placement": "none"}),
    feed_forward(
        "inner_t5",
        ["gelu_tanh", "linear"],
        weights=feed_forward_shapes("intermediate_0", "intermediate_1", bias=False),
        norm=RMS,
        use_bias=False,
    ),
    feed_forward("inner_conditional", inputs=X | ONE, norm=HIDDEN),
    feed_forward("inner_conditional_both", inputs=X | MANY, norm={**HIDDEN, "placement": "both"}),
]
CASES = [
    *ATTENTION_CASES,
    *FEED_FORWARD_CASES,
    gated("gated", X | MASK),
    gated("gated_conditional", LONG | CAUSAL | WAVES | ONE, conditional=True, placement="pre"),
]
of = by_name(CASES)


def in_loops(case, v):
    """The output of a case for some weights, and the scores of its attention."""
    inputs, arguments = in_float64(case.inputs), case.arguments
    scores = None

    def transform(hidden):
        nonlocal scores
        if case.layer is ResidualFeedForward:
            return loops.feed_forward(v, hidden, arguments["activation"])
        if case.layer is ResidualGatedAttention:
            return gated_unit(case, v, hidden)
        context = inputs.get("context", hidden)
        output, scores = loops.attention(
            v,
            hidden,
            context,
            context,
            N,
            visible=inputs.get("attention_mask"),
            added=inputs.get("previous_scores"),
            p_bias=case.options.get("p_bias"),
            position=inputs.get("position_bias"),
            scaled=arguments.get("attention_scale", True),
            normalization=arguments.get("normalization", "softmax"),
        )
        return output

    norm = dict(arguments.get("norm", {}))
    placement = norm.pop("placement", "post")
    known = {name: norm[name] for name in ("epsilon", "zero_mean") if name in norm}
    known["activation"] = norm.get("hidden_activation", "linear")
    condition = inputs.get("condition")
    output = loops.residual(v, inputs["inputs"], transform, placement, condition=condition, **known)
    return output, scores


def gated_unit(case, v, hidden):
    """The layer without residual connection, whose own tests have the loops."""
    unit = GatedAttentionUnit(INNER, D)
    unit.build(hidden.shape)
    for path, weight in weights_of(unit).items():
        weight.assign(v[path])
    names = ("attention_mask", "position_bias")
    given = {name: case.inputs[name] for name in names if name in case.inputs}
    return to_numpy(unit(hidden.astype("float32"), **given)).astype("float64")


# ---- numbers ---------------------------------------------------------------------------------


ON_BACKENDS = ("pre", "causal", "rotary", "t5", "realformer", "conditional", "cross_masked")
ON_BACKENDS += ("inner_both", "inner_t5", "inner_conditional", "gated")


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=str(case), marks=[pytest.mark.backends] * (str(case) in ON_BACKENDS))
        for case in CASES
    ],
)
def test_against_loops(case):
    layer = case.filled()
    expected, _ = in_loops(case, in_float64(weights_of(layer)))
    # The squares of a gated unit get large.
    atol = 2e-5 * max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(to_numpy(case.call(layer)), expected, atol=atol, rtol=0)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("realformer", marks=pytest.mark.backends),
        *default_and_slow(
            ["t5", "conditional_both", "cross_masked", "inner_t5", "inner_conditional"],
            ["inner_t5"],
        ),
    ],
)
def test_gradients_against_differences(name):
    check_gradient_numbers(of(name), lambda v: in_loops(of(name), v)[0])


WIDE = normal(B, K, 32)
PADDING = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0]], bool)[:, None]


@pytest.mark.parametrize(
    ("placement", "heads", "kind"),
    [("post", 1, "padding"), ("pre", 1, "none"), ("pre", 32, "square"), ("post", 4, "none")],
)
def test_numbers_of_heads_and_kinds_of_masks(placement, heads, kind):
    mask = {"padding": PADDING, "square": np.tril(np.ones((B, K, K), bool)), "none": None}[kind]
    layer = SelfAttention(heads=heads, norm={"placement": placement, "epsilon": 1e-3})
    layer.build((None, None, 32))
    v, wide = in_float64(weights_of(fill(layer))), WIDE.astype("float64")
    expected = loops.residual(
        v,
        wide,
        lambda x: loops.attention(v, x, x, x, heads, visible=mask)[0],
        placement,
        epsilon=1e-3,
    )
    found = to_numpy(layer(WIDE, attention_mask=mask))
    np.testing.assert_allclose(found, expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("dtype", [None, "mixed_float16", "mixed_bfloat16", "float16"])
def test_hidden_keys_do_not_matter_and_nothing_is_nan(dtype):
    layer = SelfAttention(4, dtype=dtype)
    layer.build(WIDE.shape)
    fill(layer)
    other = WIDE.copy()
    other[~PADDING[:, 0]] = 50.0
    first, second = (to_numpy(layer(x, attention_mask=PADDING)) for x in (WIDE, other))
    np.testing.assert_array_equal(first[PADDING[:, 0]], second[PADDING[:, 0]])
    nothing = to_numpy(layer(WIDE, attention_mask=np.zeros((B, 1, K), bool)))
    assert np.isfinite(nothing).all()


@pytest.mark.backends
@pytest.mark.parametrize("dtype", ["float32", "mixed_float16", "bfloat16"])
def test_scores_are_those_with_the_ones_of_the_block_before(dtype):
    case = of("realformer")
    layer = case.filled(return_attention_scores=True, dtype=dtype)
    output, scores = case.call(layer)
    expected, own = in_loops(case, in_float64(weights_of(layer)))
    atol = 1e-5 if dtype == "float32" else 0.06
    total = own + SCORES["previous_scores"]
    np.testing.assert_allclose(to_numpy(scores), total, atol=atol, rtol=0)
    np.testing.assert_allclose(to_numpy(output), expected, atol=atol, rtol=0)
    assert keras.backend.standardize_dtype(scores.dtype) == "float32"
    # The first block has none before it, and the mask is never among them.
    _, scores = layer(X["inputs"], **MASK)
    np.testing.assert_allclose(to_numpy(scores), own, atol=atol, rtol=0)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_scores_add_up_through_a_model(dtype, tmp_path):
    inputs = keras.Input((None, H))
    layers = [SelfAttention(N, return_attention_scores=True, dtype=dtype) for _ in range(3)]
    hidden, scores = layers[0](inputs)
    totals = [scores]
    for layer in layers[1:]:
        hidden, scores = layer(hidden, previous_scores=scores)
        totals.append(scores)
        assert (scores.shape, scores.dtype) == ((None, N, None, None), "float32")
    model = keras.Model(inputs, [hidden, *totals])
    again = saved_and_loaded(model, tmp_path)
    for one, other in zip(model(X["inputs"]), again(X["inputs"]), strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))
    if dtype != "float32":
        return
    hidden, total = X["inputs"].astype("float64"), np.zeros((B, N, L, L))
    for layer, found in zip(layers, model(X["inputs"])[1:], strict=True):
        v = in_float64(weights_of(layer))
        output, own = loops.attention(v, hidden, hidden, hidden, N, added=total)
        hidden, total = loops.norm(v, hidden + output, name="norm/"), total + own
        np.testing.assert_allclose(to_numpy(found), total, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "name, options",
    [("post", {"rate": 0.5}), ("post", {"attention_dropout": 0.5}), ("inner_post", {})],
)
def test_dropout_only_in_training(name, options):
    layer = of(name).filled(**options)
    still = to_numpy(layer(X["inputs"]))
    np.testing.assert_array_equal(still, to_numpy(layer(X["inputs"], training=False)))
    assert np.abs(to_numpy(layer(X["inputs"], training=True)) - still).max() > 0.01
    without = of("inner_none").filled()
    np.testing.assert_array_equal(
        to_numpy(without(X["inputs"], training=True)), to_numpy(without(X["inputs"]))
    )


# ---- state of sub-layers ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    default_and_slow(
        ["conditional_both", "conditional_pre", "inner_conditional"], ["conditional_both"]
    ),
)
def test_the_state_inside_norms_comes_back(name, tmp_path):
    model, layer, batch = functional(of(name))
    exact = to_numpy(model(batch))
    changed = layer.inner_norm if layer.placement == "both" else layer.norm
    changed.beta_dense.quantize("int8")
    changed.gamma_dense.trainable = False
    layer.output_dense.quantize("int8")
    if layer.placement == "both":
        layer.norm.hidden_dense.quantize("int8")
        layer.norm.beta_dense.trainable = False
    expected = to_numpy(model(batch))
    assert 0 < np.abs(expected - exact).max() < 0.3
    for _ in range(2 if name == "conditional_both" else 1):
        # What was loaded is saved again.
        model = saved_and_loaded(model, tmp_path)
        np.testing.assert_array_equal(to_numpy(model(batch)), expected)
        subject = model.get_layer("subject")
        assert state_of(subject) == state_of(layer)
        assert subject.get_config() == layer.get_config()
        names = {weight.path for weight in subject.trainable_weights}
        assert names == {weight.path for weight in layer.trainable_weights}
    clone = type(layer).from_config(json.loads(json.dumps(layer.get_config())))
    # Not lost before there is anything to have a state.
    assert clone.get_config() == layer.get_config()


def state_of(layer):
    found = [part for part in layer._flatten_layers() if isinstance(part, keras.layers.Dense)]
    return [(part.name, part.dtype_policy.name, part.trainable) for part in found]


def test_quantised_and_frozen_sublayers_come_back(tmp_path):
    model, layer, batch = functional(of("cross"))
    layer.key.quantize("int8")
    layer.norm.trainable = layer.query.trainable = False
    again = saved_and_loaded(model, tmp_path)
    np.testing.assert_array_equal(to_numpy(again(batch)), to_numpy(model(batch)))
    subject = again.get_layer("subject")
    assert subject.key.dtype_policy.name == "int8_from_float32"
    frozen = {weight.path for weight in layer.non_trainable_weights}
    assert {weight.path for weight in subject.non_trainable_weights} == frozen
    assert {"subject/norm/gamma", "subject/query/kernel"} <= frozen


@pytest.mark.parametrize("name", ["post", "cross"])
def test_lora_on_query_and_value(name, tmp_path):
    model, layer, batch = functional(of(name))
    exact = to_numpy(model(batch))
    for dense_layer in (layer.query, layer.value):
        dense_layer.enable_lora(2)
    model.compile(keras.optimizers.SGD(1.0), "mse", **STEP_BY_STEP)
    model.fit(batch, np.zeros_like(exact), epochs=2, verbose=0)
    trained = to_numpy(model(batch))
    assert np.abs(trained - exact).max() > 0.01
    assert np.abs(to_numpy(layer.value.lora_kernel_b)).max() > 0
    again = saved_and_loaded(keras.Model(model.inputs, model.outputs), tmp_path)
    np.testing.assert_allclose(to_numpy(again(batch)), trained, atol=1e-5)


# ---- refusals --------------------------------------------------------------------------------


def test_wrong_placements():
    with refused(ConfigError, "'posst'", "post, pre, both, none"):
        SelfAttention(N, norm={"placement": "posst"})
    with pytest.raises(ValueError, match="epsilom"):
        ResidualFeedForward(INNER, norm={"epsilom": 1e-6}).build((B, L, H))


def test_arguments_that_mean_nothing_here():
    with refused(ConfigError, "out_dim=6", "SelfAttention"):
        SelfAttention(N, out_dim=6)
    with refused(ConfigError, "out_dim=6", "CrossAttention"):
        CrossAttention(N, out_dim=6)
    with refused(ConfigError, "return_attention_scores=True", "CrossAttention"):
        CrossAttention(N, return_attention_scores=True)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", ["post", "cross"])
def test_position_bias_and_its_kind_belong_together(name, symbolic):
    inputs = of(name).symbolic() if symbolic else of(name).inputs
    layer = of(name).filled()
    with refused(ConfigError, "p_bias=None", "a position bias"):
        layer(**inputs, position_bias=NUMBERS["position_bias"])
    with refused(ConfigError, "p_bias='t5_relative'", "no position bias"):
        layer(**inputs, p_bias="t5_relative")
    with refused(ConfigError, "'t5relative'", "t5_relative"):
        layer(**inputs, **NUMBERS, p_bias="t5relative")


def test_a_condition_that_is_missing_or_not_asked_for():
    for name in ("conditional", "inner_conditional"):
        with refused(ConfigError, "conditional=True", "1 tensors"):
            of(name).make()(X["inputs"])
    for name in ("post", "inner_pre", "cross"):
        with refused(ConfigError, "conditional=False", "2 tensors"):
            of(name).make()(**of(name).inputs, **ONE)


def test_a_mask_without_an_axis_of_queries():
    with refused(ConfigError, "(3, 3)", "mask[:, None]"):
        of("post").filled()(X["inputs"], attention_mask=MASK["attention_mask"][:, 0])

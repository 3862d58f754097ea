"""The references of ``zoo``: options, and the pieces they are made of, checked by hand."""

import numpy as np
import pytest

from fixtures import make_arrays, tiny_config
from reference.forward import dense, forward, gelu_tanh, layer_norm, softmax, swish
from reference.test_zoo import assert_causal, inputs_for, model_for, states_of
from reference.zoo import run
from reference.zoo_parts import (
    as_float64,
    bucket_bias,
    bucket_of,
    conditional_norm,
    hierarchical_table,
    relative_vectors,
    rotate,
    sinusoids,
    visible_keys,
)
from reference.zoo_t5 import LAYOUTS
from reference.zoo_weights import norm_shapes

# ---- BERT's options ----------------------------------------------------------------------------


def test_bert_is_what_the_golden_reference_says():
    config = tiny_config("google_bert")
    arrays = make_arrays("google_bert", config, seed=0)
    ids, segments = inputs_for("bert", length=12)
    ours = run("bert", arrays, config, ids, segments)
    theirs = forward(arrays, config, ids, segments, ids != 0)
    states = [theirs["embedding_output"], *(theirs[f"layer_{i}"] for i in range(3))]
    np.testing.assert_allclose(ours["hidden_states"], states, atol=1e-10)
    for name in ("pooled_output", "mlm_logits", "nsp_logits"):
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-10)


def test_language_model_mask():
    config, arrays = model_for("bert")
    ids, segments = inputs_for("bert")
    assert_causal(
        lambda i: states_of(run("bert", arrays, config, i, segments, application="lm")), ids
    )


def test_unified_mask_matrix():
    seen = visible_keys(np.ones((1, 5), bool), segments=[[0, 0, 1, 1, 1]])[0].astype(int)
    expected = [[1, 1, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1] * 5]
    np.testing.assert_array_equal(seen, expected)


def test_unified_mask_with_one_segment_is_no_mask():
    config, arrays = model_for("bert")
    ids, segments = inputs_for("bert")
    plain = run("bert", arrays, config, ids, 0 * segments)["mlm"]
    unified = run("bert", arrays, config, ids, 0 * segments, application="unilm")["mlm"]
    np.testing.assert_array_equal(plain, unified)


def test_hidden_and_causal_keys():
    seen = visible_keys([[0, 1, 1, 0]], causal=True)[0].astype(int)
    # The first token would see nothing but padding: it attends to everything.
    np.testing.assert_array_equal(seen, [[1] * 4, [0, 1, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0]])
    assert visible_keys([[0, 0]]).all()


def test_hierarchical_positions_keep_the_old_ones():
    table = np.random.default_rng(0).standard_normal((4, 6))
    longer = hierarchical_table(table, 16)
    np.testing.assert_allclose(longer[:4], table, atol=1e-12)
    u = (table - 0.4 * table[0]) / 0.6
    np.testing.assert_allclose(longer[2 * 4 + 3], 0.4 * u[2] + 0.6 * u[3])
    config, arrays = model_for("bert", {"max_position_embeddings": 5})
    ids, segments = inputs_for("bert", length=12)
    out = run("bert", arrays, config, ids, segments, hierarchical=True)
    assert out["mlm"].shape == (3, 12, 60)
    with pytest.raises(ValueError, match="12 tokens"):
        run("bert", arrays, config, ids, segments)


@pytest.mark.parametrize("hidden", [None, 7])
def test_conditional_normalisation(hidden):
    config, arrays = model_for("bert", condition=5, hidden=hidden)
    ids, segments = inputs_for("bert")
    rng = np.random.default_rng(1)
    condition = rng.standard_normal((3, 5))
    options = {"condition_act": "tanh" if hidden else "linear"}
    plain = run("bert", arrays, config, ids, segments)["mlm_logits"]
    given = run("bert", arrays, config, ids, segments, condition=condition, **options)
    spread = np.repeat(condition[:, None], 9, axis=1)
    same = run("bert", arrays, config, ids, segments, condition=spread, **options)
    np.testing.assert_allclose(given["mlm_logits"], same["mlm_logits"], atol=1e-12)
    assert np.abs(given["mlm_logits"] - plain).max() > 0.1
    nothing = {k: 0 * a if "_dense/" in k else a for k, a in arrays.items()}
    zero = run("bert", nothing, config, ids, segments, condition=condition, **options)
    np.testing.assert_allclose(zero["mlm_logits"], plain, atol=1e-12)


def test_conditional_normalisation_by_hand():
    rng = np.random.default_rng(0)
    shapes = norm_shapes("n", 4, condition=3)
    v = as_float64({name: rng.standard_normal(shape) for name, shape in shapes.items()})
    x, c = rng.standard_normal((1, 2, 4)), rng.standard_normal((1, 3))
    got = conditional_norm(v, "n", x, 1e-12, c)[0, 1]
    normal = (x[0, 1] - x[0, 1].mean()) / x[0, 1].std()
    gamma, beta = (v[f"n/{p}"] + c[0] @ v[f"n/{p}_dense/kernel"] for p in ("gamma", "beta"))
    np.testing.assert_allclose(got, normal * gamma + beta)


def test_shared_segments():
    config, arrays = model_for("bert", shared_segments=True)
    assert "bert/embeddings/token_type_embeddings" not in arrays
    ids, segments = inputs_for("bert")
    shared = run("bert", arrays, config, ids, segments, shared_segments=True)["mlm"]
    table = {"bert/embeddings/token_type_embeddings": arrays["bert/embeddings/word_embeddings"][:2]}
    own = run("bert", arrays | table, config, ids, segments)["mlm"]
    np.testing.assert_array_equal(shared, own)


def test_residual_scores_add_up():
    """The last layer again, from the states: its scores are the sum of all layers' own."""
    config, arrays = model_for("bert")
    v, (ids, segments) = as_float64(arrays), inputs_for("bert")
    states = run("bert", arrays, config, ids, segments, residual_scores=True)["hidden_states"]
    scores = np.where(ids == 0, -np.inf, 0.0)[:, None, None, :]
    for i in range(3):
        q, k, value = (
            dense(v, f"bert/encoder/layer_{i}/attention/self/{n}", states[i]).reshape(3, 9, 4, 6)
            for n in ("query", "key", "value")
        )
        scores = scores + np.einsum("bind,bjnd->bnij", q, k) / 6**0.5
    context = np.einsum("bnij,bjnd->bind", softmax(scores), value).reshape(3, 9, 24)
    scope = "bert/encoder/layer_2"
    x = states[2] + dense(v, f"{scope}/attention/output/dense", context)
    x = layer_norm(v, f"{scope}/attention/output/LayerNorm", x, 1e-12)
    wide = gelu_tanh(dense(v, f"{scope}/intermediate/dense", x))
    x = layer_norm(
        v, f"{scope}/output/LayerNorm", x + dense(v, f"{scope}/output/dense", wide), 1e-12
    )
    np.testing.assert_allclose(states[3], x, rtol=0, atol=1e-10)
    plain = run("bert", arrays, config, ids, segments)["hidden_states"]
    np.testing.assert_array_equal(plain[1], states[1])
    assert np.abs(plain[2] - states[2]).max() > 1e-3


@pytest.mark.parametrize("family", ["bert", "roformer", "roformer_v2", "gpt", "gpt2_ml", "t5.1.1"])
def test_head_sizes_of_their_own(family):
    sizes = {"attention_head_size": 5, "attention_key_size": 8}
    config, arrays = model_for(family, sizes)
    ids, second = inputs_for(family)
    out = run(family, arrays, config, ids, second)
    assert all(value.shape[0] == 3 for value in states_of(out).values())


# ---- positions ---------------------------------------------------------------------------------


def test_sinusoids():
    table = sinusoids(129, 6)
    np.testing.assert_allclose(table[0], [0, 1, 0, 1, 0, 1])
    np.testing.assert_allclose(
        table[7, 2:4], [np.sin(7 / 1e4 ** (1 / 3)), np.cos(7 / 1e4 ** (1 / 3))]
    )
    np.testing.assert_allclose(table[:, 0::2] ** 2 + table[:, 1::2] ** 2, 1.0)


def test_relative_vectors_are_clipped():
    vectors, table = relative_vectors(9, 9, 4, max_distance=3), sinusoids(7, 4)
    np.testing.assert_array_equal(vectors[5, 5], table[3])
    np.testing.assert_array_equal(vectors[5, 4], table[2])  # the key before the query
    np.testing.assert_array_equal(vectors[0, 8], table[6])
    np.testing.assert_array_equal(vectors[8, 0], table[0])


def test_rotation_keeps_lengths_and_depends_on_distance():
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 8))
    turned_q, turned_k = (rotate(np.tile(y, (1, 12, 1, 1)))[0, :, 0] for y in (q, k))
    np.testing.assert_array_equal(turned_q[0], q)
    np.testing.assert_allclose((turned_q**2).sum(-1), (q**2).sum())
    np.testing.assert_allclose(turned_q[3] @ turned_k[7], turned_q[6] @ turned_k[10])
    pair = q[2] + 1j * q[3]  # a pair turns like a complex number, by p 10000^(-2i/d)
    turn = pair * np.exp(5j * 10000 ** (-2 / 8))
    np.testing.assert_allclose(turned_q[5, 2:4], [turn.real, turn.imag])


def test_buckets():
    both = [bucket_of(d, True) for d in (0, -1, 1, -7, -8, -15, -16, 16, -127, -128, 999)]
    assert both == [0, 1, 17, 7, 8, 9, 10, 26, 15, 15, 31]
    past = [bucket_of(d, False) for d in (3, 0, -1, -15, -16, -127, -128, -999)]
    assert past == [0, 0, 1, 15, 16, 31, 31, 31]


# ---- T5 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_t5_decoder_is_causal(layout):
    config, arrays = model_for(layout)
    ids, decoder_ids = inputs_for(layout)
    kept = ("decoder_output", "lm_logits")

    def call(i):
        out = run(layout, arrays, config, ids, i)
        return {name: out[name] for name in kept}

    assert_causal(call, decoder_ids)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_t5_options(layout):
    config, arrays = model_for(layout)
    ids, decoder_ids = inputs_for(layout)
    outs = [run(layout, arrays, config, ids, decoder_ids, scale_output=s) for s in (0, 1, None)]
    whole, scaled, default = (out["lm_logits"] for out in outs)
    np.testing.assert_allclose(whole * 24**-0.5, scaled)
    np.testing.assert_array_equal(default, scaled if layout == "t5.1.0" else whole)
    crossed = run(layout, arrays, config, ids, decoder_ids, cross_position_bias=True)
    assert np.abs(crossed["lm_logits"] - default).max() > 1e-3
    assert np.array_equal(crossed["encoder_output"], outs[0]["encoder_output"])


def test_a_table_becomes_a_bias():
    table = np.arange(64.0).reshape(2, 32)
    both, past = (bucket_bias(table, 3, 4, bidirectional) for bidirectional in (True, False))
    np.testing.assert_array_equal(both[0], [[0, 17, 18, 19], [1, 0, 17, 18], [2, 1, 0, 17]])
    np.testing.assert_array_equal(past[0], [[0, 0, 0, 0], [1, 0, 0, 0], [2, 1, 0, 0]])
    np.testing.assert_array_equal(both[1], both[0] + 32)


# ---- single blocks -----------------------------------------------------------------------------


def weighted(q, k, value, hidden):
    """Heads of [B, S, N, D] together; q and k may be complex. [B, S, N * D]."""
    scores = np.einsum("bind,bjnd->bnij", q, k.conj()).real
    weights = softmax(np.where(hidden, -np.inf, scores))
    return np.einsum("bnij,bjnd->bind", weights, value).reshape(*q.shape[:2], -1)


def test_roformer_v2_block_by_hand():
    config, arrays = model_for("roformer_v2")
    v, (ids, segments) = as_float64(arrays), inputs_for("roformer_v2")
    states = run("roformer_v2", arrays, config, ids, segments)["hidden_states"]
    x, scope = states[0], "bert/encoder/layer_0"
    np.testing.assert_allclose((x**2).mean(-1), 1.0, atol=1e-5)
    turn = np.exp(1j * np.outer(np.arange(9), 10000.0 ** (-np.arange(0, 6, 2) / 6)))[:, None]
    q, k, value = (
        (x @ v[f"{scope}/attention/self/{n}/kernel"]).reshape(3, 9, 4, 6)
        for n in ("query", "key", "value")
    )
    q, k = ((y[..., 0::2] + 1j * y[..., 1::2]) * turn for y in (q / 6**0.5, k))
    context = weighted(q, k, value, (ids == 0)[:, None, None, :])
    x = x + context @ v[f"{scope}/attention/output/dense/kernel"]
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-7)
    wide = np.maximum(x @ v[f"{scope}/intermediate/dense/kernel"], 0)
    x = x + wide @ v[f"{scope}/output/dense/kernel"]
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-7)
    np.testing.assert_allclose(states[1], x, rtol=0, atol=1e-10)


def test_gpt2_ml_block_by_hand():
    config, arrays = model_for("gpt2_ml")
    v, (ids, _) = as_float64(arrays), inputs_for("gpt2_ml")
    states = run("gpt2_ml", arrays, config, ids)["hidden_states"]
    x, scope = states[0], "newslm/layer00"
    q, k, value = (
        dense(v, f"{scope}/{n}_layer", x).reshape(3, 9, 4, 6) for n in ("query", "key", "value")
    )
    hidden = (ids == 0)[:, None, None, :] | (np.arange(9) > np.arange(9)[:, None])
    x = x + dense(v, f"{scope}/context_projection_layer", weighted(q / 6**0.5, k, value, hidden))
    y = layer_norm(v, f"{scope}/LayerNorm_mlp_ln0", x, 1e-5)
    y = dense(v, f"{scope}/output", gelu_tanh(dense(v, f"{scope}/intermediate", y)))
    x = layer_norm(v, f"{scope}/LayerNorm_mlp_ln1", x + y, 1e-5)
    np.testing.assert_allclose(states[1], x, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("length", "factor"), [(12, 4 / 9), (32, 5 / 9), (64, 6 / 9)])
def test_gau_block_by_hand(length, factor):
    """log(n)/log(512) is log2(n)/9; fewer than 16 keys count as 16; padding does not count."""
    config, arrays = model_for("gau_alpha")
    v = as_float64(arrays)
    ids = np.random.default_rng(0).integers(1, 60, (1, length))
    padded = np.concatenate([ids, np.zeros((1, 9), int)], axis=1)
    states = [x[0, :length] for x in run("gau_alpha", v, config, padded)["hidden_states"]]
    scope = "GAU_alpha/encoder/layer_0/gau"
    u, value, z = np.split(swish(states[0] @ v[f"{scope}/i_dense/kernel"]), [40, 80], axis=-1)
    turn = np.exp(1j * np.outer(np.arange(length), 10000.0 ** (-np.arange(0, 8, 2) / 8)))
    q, k = (z * v[f"{scope}/{n}_scaleoffset/gamma"] for n in "qk")
    q, k = ((y[:, 0::2] + 1j * y[:, 1::2]) * turn for y in (q, k))
    weights = softmax((q @ k.conj().T).real / 8**0.5 * factor)
    x = states[0] + (u * (weights @ value)) @ v[f"{scope}/o_dense/kernel"]
    x = x / np.sqrt((x**2).mean(-1, keepdims=True))
    np.testing.assert_allclose(states[1], x, rtol=0, atol=1e-5)  # they differ by the epsilon

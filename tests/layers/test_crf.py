"""Layers over label sequences: their numbers against loops over all label sequences."""

from itertools import pairwise, product

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from harness import (
    LayerCase,
    check_builds,
    check_config,
    check_precision,
    check_saving,
    default_and_slow,
    fill,
    refused,
    to_numpy,
)
from kerasbert.errors import ConfigError
from kerasbert.layers import ConditionalRandomField, MaximumEntropyMarkovModel

B, L, K, D = 3, 5, 4, 2
RNG = np.random.default_rng(5)
SCORES = RNG.normal(size=(B, L, K)).astype("float32")
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 1, 0, 1, 1]], "int32")
X, X_AND_MASK = {"inputs": SCORES}, {"inputs": SCORES, "mask": MASK}
SQUARE, FACTORS = {"trans": (K, K)}, {"l_trans": (K, D), "r_trans": (K, D)}


def case(name, layer, arguments, inputs, weights):
    # The output alone does not depend on the transitions; a loss does.
    return LayerCase(name, layer, arguments, inputs, weights, flat=tuple(weights))


CASES = [
    case("crf", ConditionalRandomField, {}, X, SQUARE),
    case("crf_masked", ConditionalRandomField, {"lr_multiplier": 100}, X_AND_MASK, SQUARE),
    case("memm", MaximumEntropyMarkovModel, {"lr_multiplier": 0.5}, X, SQUARE),
    case("memm_factors", MaximumEntropyMarkovModel, {"hidden_dim": D}, X_AND_MASK, FACTORS),
]
# Checks that this file makes in its own way, see test_every_layer.
OWN = ["arguments", "builds", "config", "gradients", "precision", "saving"]
each = pytest.mark.parametrize("case", CASES, ids=str)
KINDS = {"crf": {}, "memm": {}, "memm_factors": {"hidden_dim": D}}
every_kind = pytest.mark.parametrize("kind", KINDS)


def make(kind, labels=K, seed=0, **more):
    """A built layer with new weights."""
    cls = ConditionalRandomField if kind == "crf" else MaximumEntropyMarkovModel
    layer = cls(**KINDS[kind], **more)
    layer.build((None, None, labels))
    return fill(layer, seed)


# ---- plain numpy in float64 ------------------------------------------------------------------


def log_softmax(x):
    return x - np.log(np.exp(x - x.max()).sum()) - x.max()


def crf_score(scores, trans, path):
    """Score of one label sequence; scores (L, K), no padding."""
    unary = sum(row[label] for row, label in zip(scores, path, strict=True))
    return unary + sum(trans[i, j] for i, j in pairwise(path))


def crf_reference(scores, trans, path):
    everything = [
        crf_score(scores, trans, other)
        for other in product(range(scores.shape[1]), repeat=len(scores))
    ]
    return crf_score(scores, trans, path) - np.logaddexp.reduce(everything)


def memm_reference(scores, trans, path):
    total = 0.0
    for order, table in ((range(len(path)), trans), (range(len(path))[::-1], trans.T)):
        neighbour = None
        for t in order:
            logits = scores[t] if neighbour is None else (scores[t] + table[neighbour]) / 2
            total += log_softmax(logits)[path[t]] / 2
            neighbour = path[t]
    return total


def reference(kind, scores, trans, labels, mask):
    """Log-likelihood of one sequence, from its tokens alone."""
    real = np.flatnonzero(np.asarray(mask, bool) & (np.asarray(labels) >= 0))
    if not len(real):
        return 0.0
    function = crf_reference if kind == "crf" else memm_reference
    return function(
        np.asarray(scores, "float64")[real], np.asarray(trans, "float64"), np.asarray(labels)[real]
    )


@st.composite
def batches(draw):
    """Scores, labels and masks of any form."""
    # Few shapes, which other backends compile.
    b, length, k = draw(st.sampled_from([(3, 5, 3), (2, 2, 2), (1, 1, 1)]))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    cells = st.lists(st.booleans(), min_size=b * length, max_size=b * length)
    mask = np.array(draw(cells)).reshape(b, length)
    labels = rng.integers(-1, k, (b, length))
    scale = draw(st.sampled_from([0.1, 1.0, 30.0]))
    return scale * rng.normal(size=(b, length, k)).astype("float32"), labels, mask


# ---- the harness -----------------------------------------------------------------------------


@each
def test_configuration(case):
    check_config(case)
    config = case.make(name="layer").get_config()
    assert {name: config[name] for name in case.arguments} == case.arguments


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=str(case), marks=[pytest.mark.backends] * ("masked" in str(case)))
        for case in CASES
    ],
)
def test_ways_to_build_and_to_save(case, tmp_path):
    check_builds(case)
    check_saving(case, tmp_path)


@each
@pytest.mark.parametrize(
    "policy",
    default_and_slow(["float16", "bfloat16", "mixed_float16", "mixed_bfloat16"], ["mixed_float16"]),
)
def test_low_precision(case, policy):
    layer = case.make()
    layer.build(case.shape())
    check_precision(case, policy, to_numpy(case.call(fill(layer))))


# ---- numbers ---------------------------------------------------------------------------------


@pytest.mark.backends
@every_kind
@settings(max_examples=6)
@given(batch=batches())
def test_log_likelihood_against_all_sequences(kind, batch):
    scores, labels, mask = batch
    layer = make(kind, scores.shape[-1])
    trans = to_numpy(layer.trans)
    expected = [reference(kind, s, trans, y, m) for s, y, m in zip(*batch, strict=True)]
    marked = layer(scores, mask=mask)
    for found in (layer.log_likelihood(scores, labels, mask), layer.log_likelihood(marked, labels)):
        np.testing.assert_allclose(to_numpy(found), expected, atol=2e-4, rtol=1e-5)
    tokens = 1 if kind == "crf" else np.maximum((mask & (labels >= 0)).sum(1), 1)
    loss = to_numpy(layer.sequence_loss(marked, labels)) * tokens
    np.testing.assert_allclose(-loss, expected, atol=2e-4, rtol=1e-5)


@pytest.mark.backends
@every_kind
@settings(max_examples=5)
@given(batch=batches())
def test_decode_finds_the_best_of_all_sequences(kind, batch):
    scores, _, mask = batch
    layer = make(kind, scores.shape[-1])
    trans = to_numpy(layer.trans)
    found = ops.convert_to_numpy(layer.decode(scores, mask))
    marked = ops.convert_to_numpy(layer.decode(layer(scores, mask=mask)))
    np.testing.assert_array_equal(found, marked)
    assert found.dtype == "int32" and not found[~mask].any()
    for row, path, real in zip(scores, found, mask, strict=True):
        everything = product(range(scores.shape[-1]), repeat=int(real.sum()))
        rows, ones = row[real], np.ones(real.sum())
        best = max(reference(kind, rows, trans, other, ones) for other in everything)
        assert reference(kind, rows, trans, path[real], ones) == pytest.approx(best, abs=1e-4)


@every_kind
def test_padding_does_not_matter(kind):
    layer = make(kind)
    labels = RNG.integers(0, K, (B, L))
    expected = to_numpy(layer.log_likelihood(SCORES, labels, MASK))
    path = to_numpy(layer.decode(SCORES, MASK))
    for there in (1e30, -np.inf, np.inf, np.nan):
        scores = np.where(MASK[..., None] == 1, SCORES, there).astype("float32")
        other = np.where(MASK == 1, labels, [-100, 77, 3, 0, -1])
        assert np.isfinite(to_numpy(layer(scores, mask=MASK))).all()
        for found in (
            layer.log_likelihood(scores, other, MASK),
            layer.log_likelihood(layer(scores, mask=MASK), other),
        ):
            np.testing.assert_array_equal(to_numpy(found), expected)
        np.testing.assert_array_equal(to_numpy(layer.decode(scores, MASK)), path)
    # A label below 0 says the same as a mask.
    signed = np.where(MASK == 1, labels, -1)
    np.testing.assert_array_equal(to_numpy(layer.log_likelihood(SCORES, signed)), expected)


@every_kind
def test_a_sequence_does_not_depend_on_its_batch(kind):
    layer = make(kind)
    labels = RNG.integers(0, K, (B, L))
    together = to_numpy(layer.log_likelihood(SCORES, labels, MASK))
    paths = to_numpy(layer.decode(SCORES, MASK))
    for row in range(B):
        real = MASK[row] == 1
        alone = layer.log_likelihood(SCORES[row : row + 1, real], labels[row : row + 1, real])
        np.testing.assert_allclose(to_numpy(alone)[0], together[row], rtol=1e-5)
        path = to_numpy(layer.decode(SCORES[row : row + 1, real]))[0]
        np.testing.assert_array_equal(path, paths[row, real])


@every_kind
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_low_precision_scores_are_computed_in_float32(kind, dtype):
    layer = make(kind, dtype=f"mixed_{dtype}")
    scores = layer(30 * SCORES, mask=MASK)
    assert keras.backend.standardize_dtype(scores.dtype) == dtype
    labels = RNG.integers(0, K, (B, L))
    found = layer.log_likelihood(scores, labels)
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    trans, rounded = to_numpy(layer.trans), to_numpy(scores)
    expected = [
        reference(kind, s, trans, y, m) for s, y, m in zip(rounded, labels, MASK, strict=True)
    ]
    np.testing.assert_allclose(to_numpy(found), expected, rtol=1e-5)
    # Padding is still known after a change of type.
    np.testing.assert_array_equal(to_numpy(layer.log_likelihood(rounded, labels)), to_numpy(found))


@every_kind
def test_what_no_label_can_be_and_broken_scores_are_seen(kind):
    layer = make(kind)
    labels = np.zeros((B, L), "int32")
    labels[0, 3] = K
    found = to_numpy(layer.log_likelihood(SCORES, labels, MASK))
    assert np.isnan(found).tolist() == [True, False, False]
    scores = SCORES.copy()
    scores[1, 0, 2] = np.nan
    found = to_numpy(layer.log_likelihood(layer(scores, mask=MASK), np.zeros((B, L))))
    assert np.isnan(found).tolist() == [False, True, False]


@every_kind
def test_very_low_scores_are_not_padding(kind):
    layer = make(kind)
    marked = to_numpy(layer(np.full((1, 2, K), -1e30, "float32"), mask=np.array([[1, 0]])))
    assert (marked[0, 0] == -32752).all() and (marked[0, 1] == -65504).all()
    # All labels are as good as each other.
    found = to_numpy(layer.log_likelihood(marked, np.zeros((1, 2))))
    np.testing.assert_allclose(found, [-np.log(K)], atol=0.01)


def test_transitions_are_stored_divided():
    for multiplier in (1, 0.1, 1000):
        keras.utils.set_random_seed(1)
        crf = ConditionalRandomField(multiplier)
        crf.build((None, None, K))
        keras.utils.set_random_seed(1)
        plain = to_numpy(keras.initializers.GlorotUniform()((K, K)))
        np.testing.assert_allclose(to_numpy(crf.trans), plain, rtol=1e-6)
        np.testing.assert_allclose(to_numpy(crf.weights[0]), plain / multiplier, rtol=1e-6)
    memm = make("memm_factors", lr_multiplier=10)
    left, right = (to_numpy(weight) for weight in memm.weights)
    np.testing.assert_allclose(to_numpy(memm.trans), 100 * left @ right.T, rtol=1e-5)


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "10", None, True])
def test_wrong_multipliers(value):
    with refused(ConfigError, "lr_multiplier", repr(value)):
        ConditionalRandomField(value)


@pytest.mark.parametrize("value", [0, -3, 2.5, "8"])
def test_wrong_factors(value):
    with refused(ConfigError, "hidden_dim", repr(value)):
        MaximumEntropyMarkovModel(hidden_dim=value)

"""Scores to choose by, against plain loops."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodings import nothing_before
from kerasbert.errors import ConfigError
from kerasbert.generation.distributions import (
    draw,
    keep_top_k,
    keep_top_p,
    largest,
    log_softmax,
)
from kerasbert.generation.processors import Processors
from kerasbert.generation.settings import SearchSettings

RANDOM = np.random.default_rng(3)
PROMPTS = [np.array([1, 2, 3, 1, 2]), np.zeros(0, int), np.array([9])]
TEXTS = np.array([[[5, 1, 2], [3, 3, 1]], [[1, 1, 1], [2, 1, 2]], [[9, 8, 9], [8, 9, 8]]])
LOGITS = RANDOM.normal(0, 2, (3, 2, 12)).astype("float32")


def scores(logits=LOGITS, texts=TEXTS, live=None, rows=None, prompts=PROMPTS, **options):
    settings = SearchSettings(**{"max_new_tokens": 9, "method": "greedy", **options})
    live = np.ones(texts.shape[:2], bool) if live is None else live
    rows = np.arange(len(logits)) if rows is None else rows
    return Processors(settings, prompts, logits.shape[-1])(logits, rows, texts, live)


def slots():
    """Place, whole text and logits of every slot."""
    for place in itertools.product(range(3), range(2)):
        yield place, [*PROMPTS[place[0]], *TEXTS[place]], LOGITS[place].copy()


@pytest.mark.parametrize("penalty", [1.3, 0.7])
def test_repetition_penalty(penalty):
    before = LOGITS.copy()
    found = scores(repetition_penalty=penalty)
    for place, text, wanted in slots():
        for token in set(text):
            wanted[token] *= penalty if wanted[token] < 0 else 1 / penalty
        np.testing.assert_allclose(found[place], wanted, rtol=1e-6)
    np.testing.assert_array_equal(LOGITS, before)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 20])
def test_no_repeat_ngrams(size):
    found = scores(no_repeat_ngram_size=size)
    for place, text, wanted in slots():
        ngrams = {tuple(text[i : i + size]) for i in range(len(text) - size + 1)}
        for token in range(12):
            if tuple([*text, token][-size:]) in ngrams:
                wanted[token] = -np.inf
        np.testing.assert_array_equal(found[place], wanted)


def test_min_length():
    for shortest in (3, 4):
        found = scores(min_length=shortest, end_id=[2, 7])
        assert np.isneginf(found[..., [2, 7]]).all() == (shortest == 4)
        rest = np.delete(np.arange(12), [2, 7])
        np.testing.assert_array_equal(found[..., rest], LOGITS[..., rest])


def test_allowed_tokens_are_asked_for_each_live_slot():
    asked = []

    def allowed(row, new_tokens):
        asked.append((row, new_tokens.tolist()))
        assert type(row) is int and new_tokens.dtype == "int32"
        new_tokens[:] = 0  # it is given a copy
        return {0: [3, 4], 4: np.array([7]), 5: None}[row]

    live = np.array([[True, False], [True, True], [True, False]])
    prompts = nothing_before(6)
    found = scores(live=live, rows=np.array([0, 4, 5]), prompts=prompts, allowed_tokens=allowed)
    assert asked == [(0, [5, 1, 2]), (4, [1, 1, 1]), (4, [2, 1, 2]), (5, [9, 8, 9])]
    for place, ids in [((0, 0), [3, 4]), ((1, 0), [7]), ((1, 1), [7]), ((2, 0), range(12))]:
        assert np.flatnonzero(np.isfinite(found[place])).tolist() == list(ids)
        np.testing.assert_array_equal(found[place][ids], LOGITS[place][ids])


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([], r"Row 0: no token may follow the text \[5, 1, 2\]"),
        (set(), "no token may follow"),
        ([2, 12], r"row 0 after the text \[5, 1, 2\] holds the ids 12"),
        ([-1], "Expected ids from 0 to 11"),
        ([1.0], "Expected integers"),
        ([True], "Expected integers"),
        ([[1], [2]], "one dimension"),
        ([[1], [2, 3]], "Expected a collection"),
        (3, "Expected a collection"),
        ("ab", "Expected integers"),
    ],
)
def test_allowed_tokens_that_are_none(returned, message):
    with pytest.raises(ConfigError, match=message):
        scores(allowed_tokens=lambda row, new_tokens: returned)


def test_all_rules_together_may_leave_nothing():
    with pytest.raises(ConfigError, match=r"Row 1: no token may follow the text \[1, 1, 1\]"):
        scores(
            allowed_tokens=lambda row, text: [4] if row == 1 else [0],
            end_id=4,
            min_length=5,
        )
    live = np.array([[True, True], [False, False], [True, True]])
    scores(live=live, allowed_tokens=lambda row, text: [0])


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("method", ["greedy", "beam", "sample"])
def test_logits_that_are_no_numbers(value, method):
    logits = LOGITS.copy()
    logits[1, 1, 5] = value
    options = {"num_return": 2} if method == "sample" else {}
    with pytest.raises(ConfigError, match=r"Row 1: the logits after the text \[2, 1, 2\]"):
        scores(logits, method=method, **options)
    # What a slot does that has ended is nobody's business.
    live = np.array([[True, True], [True, False], [True, True]])
    scores(logits, live=live, method=method, **options)


def test_ids_outside_the_vocabulary():
    with pytest.raises(ConfigError, match="prompt of row 1 holds the ids 12"):
        scores(prompts=[PROMPTS[0], np.array([3, 12]), PROMPTS[2]])
    with pytest.raises(ConfigError, match="end_id=12 for a model that predicts 12"):
        scores(end_id=12)


def test_beams_have_log_probabilities_before_the_rules():
    found = scores(method="beam", repetition_penalty=2.0)
    wanted = LOGITS - np.log(np.exp(LOGITS).sum(-1, keepdims=True))
    for place, text, _ in slots():
        wanted[place][sorted(set(text))] *= 2
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_order_of_temperature_top_k_and_top_p():
    """A temperature below 1 leaves top_p fewer tokens; top_k makes the rest more probable."""
    logits = np.log(np.array([[[0.4, 0.3, 0.2, 0.1]]], "float32"))
    texts = np.zeros((1, 1, 0), int)

    def kept(**options):
        found = scores(logits, texts, prompts=nothing_before(1), method="sample", **options)
        return np.flatnonzero(np.isfinite(found[0, 0])).tolist()

    assert kept(top_p=0.65) == [0, 1]
    assert kept(top_p=0.65, temperature=0.4) == [0, 1]
    assert kept(top_p=0.5, temperature=0.4) == [0]
    assert kept(top_p=0.5) == [0, 1]
    assert kept(top_p=0.55, top_k=2) == [0]
    assert kept(top_k=3) == [0, 1, 2]
    assert kept(top_k=300) == [0, 1, 2, 3]


# ---- arithmetic ------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(1, 3000), st.integers(1, 80), st.booleans())
def test_largest(seed, size, count, coarse):
    random = np.random.default_rng(seed)
    values = random.normal(0, 3, size).astype("float32")
    values = values.round() if coarse else values
    values[random.random(size) < random.choice([0, 0.3, 0.99, 1])] = -np.inf
    wanted = sorted(np.flatnonzero(values > -np.inf), key=lambda i: (-values[i], i))[:count]
    assert largest(values, count).tolist() == wanted


@given(st.integers(0, 10**6), st.integers(1, 3000), st.integers(1, 80), st.booleans())
def test_top_k(seed, size, top_k, coarse):
    values = np.random.default_rng(seed).normal(0, 3, (2, 2, size))
    values = values.round() if coarse else values
    last = np.sort(values, axis=-1)[..., -min(top_k, size), None]
    wanted = np.where(values < last, -np.inf, values)
    np.testing.assert_array_equal(keep_top_k(values, top_k), wanted)


@given(st.integers(0, 10**6), st.integers(1, 3000), st.floats(0.01, 1))
def test_top_p(seed, size, top_p):
    values = np.random.default_rng(seed).normal(0, 2, (2, size))
    found = keep_top_p(values, top_p)
    for old, new in zip(values, found, strict=True):
        shares = np.exp(old) / np.exp(old).sum()
        kept = np.isfinite(new)
        np.testing.assert_array_equal(new[kept], old[kept])
        assert kept.any() and shares[kept].sum() >= top_p - 1e-9
        assert kept.all() or shares[kept].min() >= shares[~kept].max()
        if kept.sum() > 1:  # one fewer would be too few
            assert shares[kept].sum() - shares[kept].min() < top_p + 1e-9


def test_large_vocabularies():
    values = np.random.default_rng(0).normal(0, 1, (2, 250_000)).astype("float32")
    assert largest(values[0], 9).tolist() == np.argsort(-values[0])[:9].tolist()
    assert np.isfinite(keep_top_k(values, 50)).sum(axis=-1).tolist() == [50, 50]
    kept = np.isfinite(keep_top_p(values, 0.9))
    shares = np.exp(log_softmax(values).astype("float64"))
    np.testing.assert_allclose((shares * kept).sum(axis=-1), 0.9, atol=1e-4)


def test_impossible_tokens_are_never_drawn():
    values = np.full((1, 5), -np.inf)
    values[0, [1, 3]] = 0.0
    tokens = [int(draw(values, np.array([u]))[0]) for u in (0, 0.4999, 0.5, 1 - 2**-53)]
    assert tokens == [1, 1, 3, 3]


def test_log_softmax_of_nothing_possible():
    found = log_softmax(np.array([[-np.inf, -np.inf], [0, -np.inf]], "float32"))
    np.testing.assert_array_equal(found, [[-np.inf, -np.inf], [0, -np.inf]])

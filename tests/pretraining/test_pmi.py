"""Vectors from neighbours: their numbers, and that like tokens get like vectors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import refused
from kerasbert.errors import ConfigError
from kerasbert.pretraining import pmi_embeddings


def plain_ppmi(texts, vocab_size, window, ignore, smoothing):
    """The matrix by two loops over each text."""
    counts = np.zeros((vocab_size, vocab_size))
    for text in texts:
        for i, one in enumerate(text):
            for j in range(max(i - window, 0), min(i + window + 1, len(text))):
                if i != j and one not in ignore and text[j] not in ignore:
                    counts[one, text[j]] += 1
    total, frequency = counts.sum(), counts.sum(1)
    smooth = frequency**smoothing
    smooth *= total / smooth.sum()
    with np.errstate(all="ignore"):
        one = counts * total / (frequency[:, None] * smooth)
        ratio = np.sqrt(one * one.T)
        return np.where(ratio > 1, np.log(ratio), 0.0)


@given(st.integers(0, 500), st.integers(1, 3), st.sampled_from([0.75, 1.0]))
@settings(max_examples=25)
def test_products_are_those_of_the_matrix(seed, window, smoothing):
    rng = np.random.default_rng(seed)
    texts = rng.integers(0, 12, (6, 15))
    matrix = plain_ppmi(texts, 12, window, (0, 2), smoothing)
    vectors = pmi_embeddings(
        texts, 12, vocab_size=12, window=window, ignore=(0, 2), smoothing=smoothing
    ).astype("float64")
    seen = matrix.any(1)
    # With all singular values the vectors give the matrix without the signs of its values.
    values, directions = np.linalg.eigh(matrix)
    whole = directions * np.abs(values) @ directions.T
    found = (vectors @ vectors.T)[np.ix_(seen, seen)]
    expected = whole[np.ix_(seen, seen)]
    scale = np.trace(found) / np.trace(expected)
    np.testing.assert_allclose(found / scale, expected, atol=1e-4 * np.abs(expected).max() + 1e-6)
    assert vectors[seen].std() == pytest.approx(0.02, rel=1e-3)


def grouped_text(rng, groups=11, words=8, length=60000):
    """Tokens of a group stand in the same places: after one group comes the next but one."""
    group = np.zeros(length, int)
    steps = rng.integers(1, 3, length)
    group = np.cumsum(steps) % groups
    return 1 + group * words + rng.integers(0, words, length)


def test_tokens_with_like_neighbours_are_near():
    vectors = pmi_embeddings(grouped_text(np.random.default_rng(0)), 16, vocab_size=95)
    assert vectors.shape == (95, 16) and vectors.dtype == np.float32
    vectors = vectors[1:89] / np.linalg.norm(vectors[1:89], axis=1, keepdims=True)
    likeness = vectors @ vectors.T
    np.fill_diagonal(likeness, -2)
    nearest = likeness.argmax(1)
    assert (nearest // 8 == np.arange(88) // 8).mean() > 0.95


def test_the_same_text_in_other_forms_gives_the_same():
    rng = np.random.default_rng(3)
    rows = rng.integers(1, 30, (20, 10))
    whole = pmi_embeddings(rows, 4)
    for form in (rows.tolist(), (row for row in rows), [list(row) for row in rows]):
        np.testing.assert_allclose(pmi_embeddings(form, 4), whole, atol=1e-6)
    flat = pmi_embeddings([*rows[0].tolist(), 0, 0, *rows[1].tolist()], 4, vocab_size=30)
    np.testing.assert_allclose(flat, pmi_embeddings(rows[:2], 4, vocab_size=30), atol=1e-6)


def test_many_texts_are_counted_in_parts(monkeypatch):
    from kerasbert.pretraining import pmi

    rows = np.random.default_rng(4).integers(1, 50, (300, 20))
    whole = pmi_embeddings(rows, 8)
    monkeypatch.setattr(pmi, "_MANY", 100)
    np.testing.assert_allclose(pmi_embeddings(rows, 8), whole, atol=1e-6)


def test_unseen_tokens_get_random_vectors():
    vectors = pmi_embeddings([[3, 4, 5, 3, 4, 5]], 6, vocab_size=400)
    assert vectors[6:].std() == pytest.approx(0.02, rel=0.1)
    assert np.isfinite(vectors).all()
    # Only three tokens have directions; the rest of their numbers is 0.
    assert vectors.shape == (400, 6)


@pytest.mark.parametrize(
    ("ids", "options", "fact"),
    [
        ([[1, 2]], {"size": 0}, "size=0"),
        ([[1, 2]], {"window": 0}, "window=0"),
        ([[1, 2]], {"smoothing": 0}, "smoothing=0"),
        ([[1, 2]], {"vocab_size": 2}, "vocab_size=2"),
        ([[1], [2]], {}, "No two tokens"),
        ([[0, 0, 0]], {}, "No two tokens"),
        ([], {}, "No two tokens"),
        ([[0.5, 1.0]], {}, "float64"),
        ([[1, -2]], {}, "-2"),
    ],
)
def test_refusals(ids, options, fact):
    with refused(ConfigError, fact):
        pmi_embeddings(ids, **{"size": 2, **options})

"""Vectors of tokens from how often they stand near each other, to start a token table from.

Shapes: V vocabulary, E size of a vector, P pairs of tokens that were seen.
"""

import numpy as np

from kerasbert.errors import ConfigError, check_integer, check_number

# So many pairs or products are in memory at once.
_MANY = 1 << 22
_EXTRA, _ROUNDS = 16, 4

# The bits of the second token of a pair.
_LOW = 0xFFFFFFFF


def pmi_embeddings(
    ids, size, *, vocab_size=None, window=2, ignore=(0,), smoothing=0.75, deviation=0.02, seed=0
):
    """Returns vectors by which tokens with like neighbours are near each other.

    They are the truncated singular value decomposition of the positive pointwise mutual
    information of neighbouring tokens, scaled like the initial values of a table. A small
    model that starts from them does not have to find out first which tokens are alike, which
    takes thousands of steps.

    Args:
        ids: array (N,) or (N, L) of token ids, or an iterable of such arrays or lists; a row
            is a text, over whose ends no tokens are neighbours.
        size: E.
        vocab_size: V; default one more than the highest id.
        window: how far apart neighbours may stand.
        ignore: ids that are neighbours of none, such as padding and special tokens; between
            others they count as a place.
        smoothing: power of the frequency of neighbours; below 1, rare ones weigh less.
        deviation: standard deviation of the numbers that are returned.
        seed: of the random numbers: the directions in which the decomposition begins, and
            the vectors of tokens that were not seen.

    Returns:
        Float32 array (V, E).

    Raises:
        ConfigError: if an argument is out of range, or no two tokens are neighbours.

    Example:
        >>> from kerasbert.pretraining import pmi_embeddings
        >>> table = pmi_embeddings([[5, 7, 6], [5, 8, 6], [9, 5, 10]], 4, vocab_size=12)
        >>> bool(table[7] @ table[8] > table[7] @ table[9])
        True

    Source: Levy and Goldberg 2014 (Neural word embedding as implicit matrix factorization);
    Levy et al. 2015 (TACL 3) for smoothing and the root of the singular values; Halko et al.
    2011 (arXiv:0909.4061), algorithm 4.4.
    """
    for name, value in {"size": size, "window": window}.items():
        check_integer(name, value, minimum=1)
    check_number("smoothing", smoothing, above=0, most=1)
    check_number("deviation", deviation, above=0)
    counts = _Counts(window, ignore)
    for text in _rows(ids):
        counts.add(text)
    codes, pairs, highest = counts.total()
    vocab_size = highest + 1 if vocab_size is None else vocab_size
    check_integer("vocab_size", vocab_size, minimum=highest + 1)
    matrix = _Symmetric(codes >> 32, codes & _LOW, pairs, vocab_size).ppmi(smoothing)
    rng = np.random.default_rng(seed)
    vectors = _decomposed(matrix, size, rng)
    seen = np.zeros(vocab_size, bool)
    seen[matrix.rows] = True
    if seen.any():
        vectors *= deviation / vectors[seen].std()
    vectors[~seen] = rng.normal(0.0, deviation, (int((~seen).sum()), vectors.shape[1]))
    return vectors.astype("float32")


def _rows(ids):
    """Yields the texts, or arrays of several of equal length."""
    if isinstance(ids, np.ndarray) and ids.ndim == 2:
        step = max(_MANY // max(ids.shape[1], 1), 1)
        yield from (ids[start : start + step] for start in range(0, len(ids), step))
    elif isinstance(ids, np.ndarray | list | tuple) and len(ids) and np.ndim(ids[0]) == 0:
        yield np.asarray(ids)
    else:
        yield from map(np.asarray, ids)


class _Counts:
    """Counts pairs of neighbours; a pair is one number, each token 32 bits of it."""

    def __init__(self, window, ignore):
        self.window = window
        self.ignore = np.array(list(ignore), "int64")
        self.parts, self.waiting = [], 0

    def add(self, ids):
        """Counts the neighbours in an array (L,) or (N, L)."""
        ids = np.asarray(ids)
        if ids.dtype.kind not in "iu" and ids.size:
            raise ConfigError(
                f"ids holds numbers of type {ids.dtype}.\n"
                "Expected token ids, integers.\nEncode the texts with a tokenizer first."
            )
        ids = ids.astype("int64")
        if ids.size and ids.min() < 0:
            raise ConfigError(f"ids holds {ids.min()}.\nExpected token ids, from 0 on.")
        counted = ~np.isin(ids, self.ignore)
        for distance in range(1, self.window + 1):
            both = counted[..., distance:] & counted[..., :-distance]
            left, right = ids[..., :-distance][both], ids[..., distance:][both]
            self.parts.append(np.unique(left << 32 | right, return_counts=True))
            self.waiting += len(self.parts[-1][0])
        if self.waiting > _MANY:
            self._merge()

    def _merge(self):
        codes = np.concatenate([codes for codes, _ in self.parts])
        codes, index = np.unique(codes, return_inverse=True)
        counts = np.bincount(index.ravel(), np.concatenate([n for _, n in self.parts]))
        self.parts, self.waiting = [(codes, counts)], 0

    def total(self):
        """Returns codes and counts of all pairs in both directions, ordered, and the highest id.

        Raises:
            ConfigError: if there are none.
        """
        if not any(len(codes) for codes, _ in self.parts):
            raise ConfigError(
                "No two tokens of ids are neighbours.\n"
                "Expected texts of at least two tokens that are not among those to ignore."
            )
        self.parts += [(codes >> 32 | (codes & _LOW) << 32, counts) for codes, counts in self.parts]
        self._merge()
        codes, counts = self.parts[0]
        return codes, counts, int((codes >> 32).max())


class _Symmetric:
    """A sparse symmetric matrix (V, V), its P entries in the order of the rows."""

    def __init__(self, rows, columns, values, size):
        self.rows, self.columns, self.values, self.size = rows, columns, values, size

    def ppmi(self, smoothing):
        """Returns the matrix of positive pointwise mutual information of these counts."""
        frequency = np.bincount(self.rows, self.values, minlength=self.size)
        smoothed = frequency**smoothing
        smoothed *= frequency.sum() / smoothed.sum()
        # The smoothing of both sides keeps the matrix symmetric.
        expected = np.sqrt(
            frequency[self.rows]
            * smoothed[self.columns]
            * smoothed[self.rows]
            * frequency[self.columns]
        )
        values = np.log(self.values * frequency.sum() / expected)
        kept = values > 0
        return _Symmetric(self.rows[kept], self.columns[kept], values[kept], self.size)

    def times(self, dense):
        """Returns the product with an array (V, K)."""
        product = np.zeros((self.size, dense.shape[1]))
        step = max(_MANY // dense.shape[1], 1)
        for start in range(0, len(self.rows), step):
            part = slice(start, start + step)
            rows = self.rows[part]
            firsts = np.flatnonzero(np.r_[True, rows[1:] != rows[:-1]])
            terms = dense[self.columns[part]] * self.values[part, None]
            # A row may go on in the next part.
            product[rows[firsts]] += np.add.reduceat(terms, firsts)
        return product


def _decomposed(matrix, size, rng):
    """Returns the left singular vectors (V, size) times the roots of the singular values."""
    width = min(size + _EXTRA, matrix.size)
    basis = np.linalg.qr(matrix.times(rng.normal(size=(matrix.size, width))))[0]
    for _ in range(_ROUNDS):
        basis = np.linalg.qr(matrix.times(basis))[0]
    small = basis.T @ matrix.times(basis)
    values, vectors = np.linalg.eigh((small + small.T) / 2)
    order = np.argsort(-np.abs(values))[:size]
    found = basis @ vectors[:, order] * np.sqrt(np.abs(values[order]))
    # A vocabulary smaller than the vectors leaves numbers over.
    return np.pad(found, ((0, 0), (0, size - found.shape[1])))

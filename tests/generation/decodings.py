"""Plain `Decoding`s for tests: every step computes the whole texts again."""

import zlib

import numpy as np

from kerasbert.generation.protocol import Decoding


class Written(Decoding):
    """Logits from a function of (row, text) that returns an array (V,).

    It keeps account of what was asked of it, and refuses what the protocol forbids.
    """

    def __init__(self, function, rows):
        self.function = function
        self.rows = np.arange(rows)
        self.texts = [[()]] * rows
        self.computed = []

    def first(self):
        assert not self.computed, "first is called once"
        return self._logits()[:, 0]

    def step(self, rows, parents, tokens):
        assert self.computed, "first comes first"
        assert len(rows) and (np.diff(rows) > 0).all()
        assert parents.shape == tokens.shape == (len(rows), parents.shape[1])
        old = [self.texts[row] for row in rows]
        self.rows = self.rows[rows]
        self.texts = [
            [(*texts[parent], int(token)) for parent, token in zip(*pair, strict=True)]
            for texts, *pair in zip(old, parents, tokens, strict=True)
        ]
        return self._logits()

    def _logits(self):
        self.computed.append((self.rows.tolist(), self.texts))
        return np.array(
            [
                [self.function(row, text) for text in texts]
                for row, texts in zip(self.rows, self.texts, strict=True)
            ],
            "float32",
        )


def random_logits(vocabulary, seed=0, scale=2.0, names=None):
    """A function for `Written`: random logits that depend on the whole text.

    ``names`` are what rows are known by; without them, by their number.
    """

    def function(row, text):
        name = row if names is None else names[row]
        key = zlib.crc32(repr((seed, int(name), tuple(map(int, text)))).encode())
        return np.random.default_rng(key).normal(0, scale, vocabulary)

    return function


def nothing_before(rows):
    """Prompts of which nothing counts as text."""
    return [np.zeros(0, "int64")] * rows

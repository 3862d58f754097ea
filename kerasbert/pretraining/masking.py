"""Which tokens are masked, and by what; for many rows at once.

Shapes: N rows, L length, M places of a row, W words, G longest n-gram, V vocabulary size.
"""

from dataclasses import dataclass, fields

import numpy as np

from kerasbert.errors import ConfigError, check_integer, check_number, did_you_mean

# Rows that are masked at once.
_CHUNK = 2048


@dataclass(frozen=True)
class Masking:
    """How tokens are chosen for the masked-LM objective, and what they become.

    Spans of 1 to `ngram` words are drawn, p(n) being proportional to 1/n, from each word of a row
    in random order, until the budget of the row is used up: a span that is too long for what is
    left of it is tried shorter, one that touches a chosen word is dropped. A word is a token,
    unless `whole_word`. [CLS], [SEP] and padding are never chosen; n-grams may cross [SEP].

    Args:
        rate: part of the tokens of a row, special ones counted too, that is its budget; at least
            one token.
        max_predictions: M, the most tokens of a row.
        ngram: G.
        whole_word: whether all tokens of a word are chosen together; "words" as the records have
            them in `token_boundary`.
        favor_shorter: p(n) proportional to 1/n; False turns these around.
        mask: part of the chosen tokens that becomes the mask token, each token by itself.
        random: part that becomes any token of the vocabulary; what is left stays as it is.

    Raises:
        ConfigError: for numbers out of range.

    Example:
        >>> Masking.of("ngram")
        Masking(rate=0.15, max_predictions=20, ngram=3, whole_word=True, ...)

    Source: google-research/bert and google-research/albert, create_pretraining_data.py.
    """

    rate: float = 0.15
    max_predictions: int = 20
    ngram: int = 1
    whole_word: bool = False
    favor_shorter: bool = True
    mask: float = 0.8
    random: float = 0.1

    def __post_init__(self):
        check_number("rate", self.rate, above=0, most=1)
        check_integer("max_predictions", self.max_predictions, minimum=1)
        check_integer("ngram", self.ngram, minimum=1)
        check_number("mask", self.mask, least=0, most=1)
        check_number("random", self.random, least=0, most=1)
        # 0.9 + 0.1 is above 1 by rounding.
        check_number("mask + random", self.mask + self.random, most=1 + 1e-9)

    @classmethod
    def of(cls, masking):
        """Returns the settings of a name.

        Args:
            masking: "bert", "whole_word", "ngram" (ALBERT's, of whole words) or "electra" (85 %
                become the mask token, nothing is random); or a `Masking`, which is returned.

        Raises:
            ConfigError: for another one.
        """
        if isinstance(masking, cls):
            return masking
        if not isinstance(masking, str) or masking not in _NAMED:
            raise ConfigError(
                f"masking={masking!r}.{did_you_mean(masking, _NAMED)}\n"
                f"Expected a Masking, or one of: {', '.join(_NAMED)}."
            )
        return _NAMED[masking]

    def apply(self, rows, table, rng):
        """Masks rows.

        Args:
            rows: dict with `input_ids` and `input_mask` (N, L), for whole words also
                `token_boundary` (N, L); without it words are told by the spelling of the tokens.
            table: the `TokenTable` of the tokenizer.
            rng: numpy's random generator.

        Returns:
            The dict with other `input_ids`, and with `masked_lm_positions` int32, ascending,
            `masked_lm_ids` int32, the tokens that were there, and `masked_lm_weights` float32, 1
            for a place and 0 for what fills up; all (N, M).
        """
        count = len(rows["input_ids"])
        chunks = range(0, max(count, 1), _CHUNK)
        chosen = [self._choose(rows, table, rng, slice(i, i + _CHUNK)) for i in chunks]
        row, position = np.nonzero(np.concatenate(chosen))
        shape = count, self.max_predictions
        made = places_of(row, position, rows["input_ids"][row, position], shape)
        ids = rows["input_ids"].copy()
        ids[row, position] = self._replaced(ids[row, position], table, rng)
        return rows | {"input_ids": ids} | made

    def _choose(self, rows, table, rng, part):
        """Returns which tokens of a part of the rows are chosen, a bool array (N, L)."""
        ids, real = rows["input_ids"][part], rows["input_mask"][part] > 0
        budget = np.rint(real.sum(axis=1) * self.rate).astype(int)
        budget = np.clip(budget, 1, self.max_predictions)
        open_to = real & (ids != table.start) & (ids != table.end)
        starts = open_to
        if self.whole_word:
            given = rows.get("token_boundary")
            starts = table.word_starts[ids] if given is None else given[part] > 0
        begins = open_to & starts
        row, first = np.arange(len(ids)), open_to.argmax(axis=1)
        begins[row, first] = open_to[row, first]  # whatever comes first starts a word
        word = np.cumsum(begins, axis=1) - 1  # the number of the word of each token
        words = begins.sum(axis=1)  # (N,)
        most = int(words.max(initial=0))
        row = np.nonzero(open_to)[0]
        sizes = np.bincount(row * most + word[open_to], minlength=len(ids) * most)
        taken = self._spans(sizes.reshape(len(ids), most), words, budget, rng)
        return open_to & np.take_along_axis(taken, word, axis=1) if most else open_to

    def _spans(self, sizes, words, budget, rng):
        """Returns which words are chosen, a bool array (N, at least W).

        Args:
            sizes: int array (N, W), the tokens of each word, 0 behind the last one.
            words: int array (N,), how many words each row has.
            budget: int array (N,), how many tokens may be chosen.
            rng: numpy's random generator.
        """
        count, most = sizes.shape
        steps = np.arange(self.ngram)
        ends = np.zeros((count, most + self.ngram + 1), int)  # tokens before each word
        np.cumsum(sizes, axis=1, out=ends[:, 1 : most + 1])
        ends[:, most + 1 :] = ends[:, most, None]
        keys = np.where(np.arange(most) < words[:, None], rng.random((count, most)), 2.0)
        order = keys.argsort(axis=1)
        drawn = self._lengths(rng, (count, most))
        chosen = np.zeros((count, most + self.ngram), bool)
        left, rows = budget.copy(), np.arange(count)
        # One word of every row at a time: the rows are independent, the words of a row are not.
        for turn in range(most):
            rows = rows[(words[rows] > turn) & (left[rows] > 0)]
            if not len(rows):
                break
            word, row = order[rows, turn], rows[:, None]
            span = word[:, None] + steps  # (rows, G)
            lengths = ends[row, span + 1] - ends[rows, word][:, None]
            fits = (lengths <= left[row]) & (steps < drawn[rows, turn][:, None])
            n = fits.sum(axis=1)
            inside = steps < n[:, None]
            good = (n > 0) & ~(chosen[row, span] & inside).any(axis=1)
            chosen[row[good], span[good]] |= inside[good]
            left[rows[good]] -= lengths[good, n[good] - 1]
        return chosen

    def _lengths(self, rng, shape):
        """Draws lengths of n-grams."""
        weights = 1 / np.arange(1, self.ngram + 1)
        weights = np.cumsum(weights if self.favor_shorter else weights[::-1])
        return 1 + np.searchsorted(weights[:-1] / weights[-1], rng.random(shape), side="right")

    def _replaced(self, ids, table, rng):
        """Returns what chosen tokens become."""
        fate = rng.random(len(ids))
        anything = rng.integers(table.size, size=len(ids), dtype="int32")
        ids = np.where(fate < self.mask + self.random, anything, ids)
        return np.where(fate < self.mask, np.int32(table.mask), ids)

    def description(self):
        """Returns the settings as a dict for JSON."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


_NAMED = {
    "bert": Masking(),
    "whole_word": Masking(whole_word=True),
    "ngram": Masking(ngram=3, whole_word=True),
    "electra": Masking(mask=0.85, random=0.0),
}


def restored(rows):
    """Returns rows with the tokens that were masked, without the places.

    Args:
        rows: dict of arrays as `Masking.apply` returns it.
    """
    ids = rows["input_ids"].copy()
    row, place = np.nonzero(rows["masked_lm_weights"] > 0)
    ids[row, rows["masked_lm_positions"][row, place]] = rows["masked_lm_ids"][row, place]
    kept = {name: array for name, array in rows.items() if not name.startswith("masked_lm_")}
    return kept | {"input_ids": ids}


def next_token_targets(rows, second_only):
    """Makes places and labels of language models: at each place the token behind it.

    Args:
        rows: dict of `input_ids`, `input_mask` and `segment_ids` (N, L).
        second_only: whether the tokens of the second segment alone are to be predicted, as UniLM
            does, or all of them.

    Returns:
        The dict with `masked_lm_positions`, `masked_lm_ids` and `masked_lm_weights`, as
        `Masking.apply` has them; M = L - 1. The `input_ids` stay as they are: the model that
        predicts them must not see what follows.
    """
    wanted = rows["segment_ids"] if second_only else rows["input_mask"]
    row, position = np.nonzero(wanted[:, 1:])
    count, length = wanted.shape
    labels = rows["input_ids"][row, position + 1]
    return rows | places_of(row, position, labels, (count, length - 1))


def places_of(row, position, labels, shape):
    """Returns the arrays (N, M) of places, from lists of them in the order of the rows.

    Args:
        row: int array, the row of each place, ascending.
        position: int array, its position.
        labels: int array, its token.
        shape: (N, M).
    """
    count = np.bincount(row, minlength=shape[0])
    rank = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    made = {
        "masked_lm_positions": np.zeros(shape, "int32"),
        "masked_lm_ids": np.zeros(shape, "int32"),
        "masked_lm_weights": np.zeros(shape, "float32"),
    }
    for array, values in zip(made.values(), (position, labels, 1.0), strict=True):
        array[row, rank] = values
    return made

"""Keeps some rows of a vocabulary and appends averages of others."""

from collections import Counter
from dataclasses import dataclass
from numbers import Integral

import numpy as np

from kerasbert.errors import ConfigError, is_finite_number, listing


@dataclass(frozen=True)
class VocabularySelection:
    """Which rows of the checkpoint's vocabulary the model gets.

    Attributes:
        keep_tokens: ids of the rows to keep, in their new order; None for all.
        compound_tokens: for each row to append, the ids to average, as `[ids]` or as
            `([ids], [weights])`; the ids count rows after `keep_tokens`.

    Raises:
        ConfigError: if an id is no id, or padding (id 0) would move.

    Example:
        >>> VocabularySelection([0, 5, 7]).size(100)
        3
    """

    keep_tokens: tuple | None = None
    compound_tokens: tuple = ()

    def __init__(self, keep_tokens=None, compound_tokens=None):
        if keep_tokens is not None:
            keep_tokens = _ids(keep_tokens, "keep_tokens")
            twice = [i for i, count in Counter(keep_tokens).items() if count > 1]
            if twice:
                raise ConfigError(
                    f"keep_tokens names {listing(twice)} more than once.\n"
                    "Expected every id once: two rows for one token would be trained apart."
                )
            if keep_tokens[0] != 0:
                raise ConfigError(
                    f"keep_tokens begins with {keep_tokens[0]}.\n"
                    "Expected 0, the id of [PAD]: models take id 0 for padding.\n"
                    "Put 0 first; load_vocab(..., simplified=True, startswith=['[PAD]', …]) does."
                )
        compounds = compound_tokens if compound_tokens is not None else ()
        if not isinstance(compounds, list | tuple):
            raise ConfigError(
                f"compound_tokens={compound_tokens!r}.\n"
                "Expected a list whose items are lists of ids, or pairs of ids and weights."
            )
        compounds = tuple(_compound(item) for item in compounds)
        object.__setattr__(self, "keep_tokens", keep_tokens)
        object.__setattr__(self, "compound_tokens", compounds)

    def size(self, file_size):
        """Returns the vocabulary size of the model for a file with `file_size` rows.

        Raises:
            ConfigError: if an id lies outside the table.
        """
        kept = file_size
        if self.keep_tokens is not None:
            _check_range("keep_tokens", self.keep_tokens, file_size)
            kept = len(self.keep_tokens)
        for ids, _ in self.compound_tokens:
            _check_range("compound_tokens", ids, kept)
        return kept + len(self.compound_tokens)

    def apply(self, array):
        """Returns the rows of the model for the rows of a file, along the first axis."""
        if self.keep_tokens is not None:
            array = array[list(self.keep_tokens)]
        if not self.compound_tokens:
            return array
        averages = [
            np.average(array[list(ids)], axis=0, weights=weights).astype(array.dtype)
            for ids, weights in self.compound_tokens
        ]
        return np.concatenate([array, np.stack(averages)])


def _ids(values, argument):
    ordered = hasattr(values, "__iter__") and not isinstance(values, str | set | frozenset)
    ids = list(values) if ordered else None
    if not ids or not all(
        isinstance(i, Integral) and not isinstance(i, bool) and i >= 0 for i in ids
    ):
        raise ConfigError(f"{argument}={values!r}.\nExpected a list of token ids, 0 or greater.")
    return tuple(int(i) for i in ids)


def _compound(item):
    if isinstance(item, tuple) and len(item) == 2 and not isinstance(item[0], Integral):
        ids = _ids(item[0], "compound_tokens")
        weights = tuple(item[1]) if isinstance(item[1], list | tuple | np.ndarray) else ()
        numbers = all(is_finite_number(weight) for weight in weights)
        if len(weights) != len(ids) or not numbers or not sum(weights):
            raise ConfigError(
                f"compound_tokens holds {len(ids)} ids with the weights {item[1]!r}.\n"
                "Expected one finite number per id, with a sum other than 0."
            )
        return ids, weights
    return _ids(item, "compound_tokens"), None


def _check_range(argument, ids, size):
    if max(ids) >= size:
        raise ConfigError(
            f"{argument} asks for id {max(ids)}, but the vocabulary has {size} rows.\n"
            f"Expected ids from 0 to {size - 1}.\n"
            "Was the checkpoint already cut to these tokens? Then leave the option out."
        )

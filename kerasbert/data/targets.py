"""The labels of texts, of their tokens, or of both.

Shapes: N texts, B batch, L length.
"""

from collections.abc import Mapping

import numpy as np

from kerasbert.data.padding import sequence_padding
from kerasbert.errors import ConfigError, listing


class Targets:
    """Labels in the form that the outputs of a model are compared with.

    Args:
        labels: array (N, …), dict of them by the name of the output, or None.
        token_labels: list of N lists, dict of them, or None.
        lengths: int array (N,), the number of tokens of each text.
        padding: label for the tokens that a batch is filled up with.

    Attributes:
        is_empty: whether there are no labels at all.

    Raises:
        ConfigError: if their number is not that of the texts, or of the tokens.
    """

    def __init__(self, labels, token_labels, lengths, padding):
        if labels is not None and token_labels is not None:
            _check_names(labels, token_labels)
        self.is_empty = labels is None and token_labels is None
        self._named = isinstance(labels, Mapping) or isinstance(token_labels, Mapping)
        self._labels = {
            name: _as_array(name, value, len(lengths))
            for name, value in _by_name("labels", labels).items()
        }
        self._token_labels = {
            name: _as_rows(name, value, lengths)
            for name, value in _by_name("token_labels", token_labels).items()
        }
        self._padding = padding

    def batch(self, chosen, length):
        """Returns the labels of some texts, arrays (B, …) and (B, L, …)."""
        found = {name: array[chosen] for name, array in self._labels.items()}
        for name, rows in self._token_labels.items():
            found[name] = sequence_padding([rows[i] for i in chosen], length, self._padding)
        return found if self._named else next(iter(found.values()))


def _by_name(argument, labels):
    """Returns a dict; a single set of labels goes by the name of its argument."""
    if labels is None:
        return {}
    return dict(labels) if isinstance(labels, Mapping) else {argument: labels}


def _check_names(labels, token_labels):
    named = [isinstance(value, Mapping) for value in (labels, token_labels)]
    both = set(labels) & set(token_labels) if all(named) else ()
    if both or not all(named):
        wrong = f"both give {listing(sorted(both))}" if both else "are no dicts"
        raise ConfigError(
            f"labels and token_labels {wrong}.\n"
            "Expected two dicts by the names of the outputs, each output in one of them."
        )


def _as_array(name, labels, count):
    _check_count(name, labels, count)
    try:
        return np.asarray(labels)
    except ValueError as error:
        raise ConfigError(
            f"{name} holds rows of different lengths.\n"
            "Expected one label, or equally many, for each text.\n"
            "Pass labels of tokens as token_labels."
        ) from error


def _as_rows(name, labels, lengths):
    _check_count(name, labels, len(lengths))
    rows = [np.asarray(row) for row in labels]
    for index, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        if row.ndim == 0 or len(row) != length:
            size = len(row) if row.ndim else "no"
            raise ConfigError(
                f"{name}[{index}] has {size} labels, texts[{index}] has {length} tokens.\n"
                "Expected one label for each token, special ones such as [CLS] included.\n"
                "Shorten the labels as maxlen shortens the text, and give special tokens one."
            )
    return rows


def _check_count(name, labels, count):
    if not hasattr(labels, "__len__") or len(labels) != count:
        got = f"{len(labels)} labels" if hasattr(labels, "__len__") else type(labels).__name__
        raise ConfigError(
            f"{name}: {got} for {count} texts.\nExpected one for each text.\n"
            "For several outputs pass a dict by their names."
        )

"""From the ids of one or two texts to rows: truncation, segments, padding, and input checks.

B = batch, L = length. Nothing here knows a vocabulary.
"""

import operator
from collections.abc import Mapping
from itertools import chain
from typing import NamedTuple

import numpy as np

from ..errors import TokenizerError, did_you_mean

PATTERNS = ("S*E*E", "S*ES*E")


class Sequence(NamedTuple):
    """The ids of one text, kept apart so that truncation never cuts a special token.

    Attributes:
        head: Ids of the start token, or nothing.
        body: Ids of the text.
        tail: Ids of the end token, or nothing.
    """

    head: list
    body: list
    tail: list

    def ids(self):
        """Returns all ids as one list."""
        return [*self.head, *self.body, *self.tail]


def assemble(first, second, maxlen, pattern, truncate_from):
    """Joins one or two sequences into a row, cut to `maxlen`.

    Args:
        first: A Sequence.
        second: Another one, or None.
        maxlen: Longest row allowed, special tokens included, or None.
        pattern: 'S*E*E' leaves out the second start token, 'S*ES*E' keeps it.
        truncate_from: Where tokens are taken away, see `TokenizerBase.encode`.

    Returns:
        (token_ids, segment_ids), two lists of equal length.
    """
    parts = [first] if second is None else [first, second]
    # How many specials stand before the body in the caller's eyes: an index given as
    # `truncate_from` counts them even where the pattern drops them afterwards.
    heads = [len(part.head) for part in parts]
    if second is not None and pattern == "S*E*E":
        parts[1] = second._replace(head=[])
    if maxlen is not None:
        room = maxlen - sum(len(part.head) + len(part.tail) for part in parts)
        keep = lengths_to_keep([len(part.body) for part in parts], room)
        parts = [
            part._replace(body=_cut(part, count, truncate_from, head))
            for part, count, head in zip(parts, keep, heads, strict=True)
        ]
    # A second text of which nothing is left adds no end token either, as in Google's code.
    rows = [part.ids() for part in parts[:1] + [p for p in parts[1:] if p.body]]
    segments = [[segment] * len(row) for segment, row in enumerate(rows)]
    return list(chain(*rows)), list(chain(*segments))


def lengths_to_keep(lengths, room):
    """Shares `room` among one or two bodies, taking from the longer one first.

    The result is that of Google's loop (drop one token from the longer text until both
    fit, from the second one when they are equally long), without the loop.

    Args:
        lengths: One or two lengths.
        room: Number of tokens that may stay in all.

    Returns:
        One length for each body.
    """
    if sum(lengths) <= room:
        return lengths
    if len(lengths) == 1:
        return [room]
    first, second = lengths
    half = room // 2
    if first <= room - half:
        return [first, room - first]
    if second <= half:
        return [room - second, second]
    return [room - half, half]


def _cut(part, keep, truncate_from, head):
    """Returns `keep` of the body's ids; the special tokens around it are never cut.

    As in bert4keras, an index says at which place of the whole sequence tokens are taken
    out one after the other: those behind it for 0 and up, those before it for -1 and down.
    """
    body, excess = part.body, len(part.body) - keep
    if excess <= 0:
        return body
    if truncate_from == "right":
        start = keep
    elif truncate_from == "left":
        start = 0
    elif truncate_from >= 0:
        start = truncate_from - head
    else:
        start = len(body) + len(part.tail) + truncate_from + 1 - excess
    start = min(max(start, 0), keep)
    return body[:start] + body[start + excess :]


def pad_rows(rows, length, value):
    """Fills rows up to one length.

    Args:
        rows: B lists of at most `length` ids.
        length: L.
        value: What to fill with.

    Returns:
        int32 array of shape (B, L).
    """
    padded = np.full((len(rows), length), value, dtype="int32")
    filled = np.arange(length) < np.array([len(row) for row in rows], dtype=int)[:, None]
    padded[filled] = np.fromiter(chain.from_iterable(rows), dtype="int32")
    return padded


def padded_length(padding, maxlen, rows):
    """Returns the L that `padding` asks for, after checking that every row fits."""
    longest = max(map(len, rows), default=0)
    if padding is True or padding == "longest":
        return longest
    if padding == "max_length":
        if maxlen is None:
            raise TokenizerError("padding='max_length' needs maxlen=, the length to pad to.")
        return maxlen
    if isinstance(padding, (bool, str)) or not hasattr(padding, "__index__"):
        known = ("longest", "max_length")
        raise TokenizerError(
            f"padding={padding!r} is not known. Expected True or 'longest', 'max_length', "
            f"a length, or False.{did_you_mean(padding, known)}"
        )
    if longest > padding:
        row = next(i for i, row in enumerate(rows) if len(row) > padding)
        raise TokenizerError(
            f"Row {row} has {len(rows[row])} tokens, more than padding={padding}. "
            f"Pass maxlen={padding} too to truncate, or a larger padding."
        )
    return operator.index(padding)


def check_length(maxlen, max_length, specials):
    """Returns the length limit, given under either spelling.

    Args:
        maxlen: Limit as bert4keras spells it, or None.
        max_length: The other spelling, or None.
        specials: Number of special tokens that have to fit.

    Raises:
        TokenizerError: If both are given, if it is no whole number or too small.
    """
    if maxlen is not None and max_length is not None:
        raise TokenizerError(
            f"Both maxlen={maxlen!r} and max_length={max_length!r} were given: they are two "
            "spellings of the same limit. Pass one of them."
        )
    limit = max_length if maxlen is None else maxlen
    if limit is None:
        return None
    if isinstance(limit, bool) or not hasattr(limit, "__index__"):
        raise TokenizerError(f"maxlen={limit!r} is not a length. Expected a whole number or None.")
    if limit < specials:
        raise TokenizerError(
            f"maxlen={limit} leaves no room for the {specials} special tokens. "
            f"Pass at least {specials}, better {specials + 1} or more."
        )
    return operator.index(limit)


def check_choices(pattern, truncate_from):
    """Checks `pattern` and `truncate_from` before any work is done."""
    if pattern not in PATTERNS:
        raise TokenizerError(
            f"pattern={pattern!r} is not known. Expected 'S*E*E' ([CLS] a [SEP] b [SEP]) or "
            "'S*ES*E' (the second text keeps its start token too)."
        )
    is_index = hasattr(truncate_from, "__index__") and not isinstance(truncate_from, bool)
    if not is_index and truncate_from not in ("right", "left"):
        raise TokenizerError(
            f"truncate_from={truncate_from!r} is not known. Expected 'right', 'left' or the "
            f"index at which to take tokens out.{did_you_mean(truncate_from, ('right', 'left'))}"
        )


def check_id(i, size):
    """Returns `i` as an int, after checking that it is an id of a vocabulary of that size."""
    if isinstance(i, bool) or not hasattr(i, "__index__"):
        raise TokenizerError(f"{_described(i)} is not an id. Expected an integer.")
    if not 0 <= i < size:
        raise TokenizerError(
            f"Id {i} is outside the vocabulary: ids run from 0 to {size - 1}. "
            "Does the model belong to this vocabulary?"
        )
    return operator.index(i)


def check_text(text, place):
    """Refuses anything but a string, naming its place."""
    if not isinstance(text, str):
        hint = " Decode bytes first: text.decode('utf-8')." if isinstance(text, bytes) else ""
        raise TokenizerError(f"{place} is {_described(text)}. Expected a string.{hint}")


def check_texts(texts, name):
    """Returns `texts` as a list, after checking that it holds nothing but strings."""
    if isinstance(texts, (str, bytes, Mapping)) or not hasattr(texts, "__iter__"):
        raise TokenizerError(
            f"{name} is {_described(texts)}. Expected a list of strings; for one text call "
            "encode, or pass [text]."
        )
    texts = list(texts)
    for position, text in enumerate(texts):
        if isinstance(text, (list, tuple)):
            raise TokenizerError(
                f"{name}[{position}] is {_described(text)}. Expected a string: second texts go "
                "into the argument pairs, and token lists one by one into encode."
            )
        check_text(text, f"{name}[{position}]")
    return texts


def check_tokens(tokens, place):
    """Refuses anything but a flat list of strings, naming the place of the first intruder."""
    for position, token in enumerate(tokens):
        check_text(token, f"{place}[{position}]")


def _described(value):
    """Returns a value, shortened, and its type, for an error message."""
    shown = repr(value)
    return f"{shown[:40] + '…' if len(shown) > 40 else shown} ({type(value).__name__})"

"""From the ids of one or two texts to rows: truncation, segments, padding, and input checks.

B = batch, L = length. Nothing here knows a vocabulary.
"""

import operator
from collections.abc import Mapping
from itertools import chain
from typing import NamedTuple

import numpy as np

from kerasbert.errors import TokenizerError, did_you_mean

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


def assemble(first, second, maxlen, pattern, truncate_from):
    """Cuts one or two sequences so that together they have at most `maxlen` ids.

    Args:
        first: A Sequence.
        second: Another one, or None.
        maxlen: Longest row allowed, special tokens included, or None.
        pattern: 'S*E*E' leaves out the second start token, 'S*ES*E' keeps it.
        truncate_from: Where tokens are taken away, see `TokenizerBase.encode`.

    Returns:
        A list of ids for each segment of the row, one or two.
    """
    parts = [first] if second is None else [first, second]
    heads = [part.head for part in parts]
    if second is not None and pattern == "S*E*E":
        heads[1] = []
    bodies = [part.body for part in parts]
    if maxlen is not None:
        room = maxlen - sum(map(len, heads)) - sum(len(part.tail) for part in parts)
        keep = lengths_to_keep(list(map(len, bodies)), room)
        bodies = [_cut(part, n, truncate_from) for part, n in zip(parts, keep, strict=True)]
    # A second text of which nothing is left adds no end token either, as in Google's code.
    return [
        head + body + part.tail
        for head, body, part in zip(heads, bodies, parts, strict=True)
        if body or part is first
    ]


def body_bounds(tokens, token_start, token_end):
    """Returns where the tokens of the text start and stop between the special ones."""
    start = int(len(tokens) > 0 and tokens[0] == token_start)
    return start, len(tokens) - int(len(tokens) > start and tokens[-1] == token_end)


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


def _cut(part, keep, truncate_from):
    """Returns `keep` of the body's ids; the special tokens around it are never cut.

    As in bert4keras, an index says at which place of the whole sequence (start token
    included, even one that the pattern drops) tokens are taken out one after the other:
    those behind it for 0 and up, those before it for -1 and down.
    """
    body, excess = part.body, len(part.body) - keep
    if excess <= 0:
        return body
    if truncate_from == "right":
        start = keep
    elif truncate_from == "left":
        start = 0
    elif truncate_from >= 0:
        start = truncate_from - len(part.head)
    else:
        start = len(body) + len(part.tail) + truncate_from + 1 - excess
    start = min(max(start, 0), keep)
    return body[:start] + body[start + excess :]


def pad_rows(rows, length, pad_id):
    """Makes arrays of rows.

    Args:
        rows: B lists of one or two lists of ids, see `assemble`; at most `length` in all.
        length: L.
        pad_id: What to fill up with.

    Returns:
        (token_ids, segment_ids): int32 arrays of shape (B, L).
    """
    ends = np.array([[len(row[0]), sum(map(len, row))] for row in rows], int).reshape(-1, 2)
    first, total = ends[:, :1], ends[:, 1:]
    place = np.arange(length)
    token_ids = np.full((len(rows), length), pad_id, "int32")
    ids = chain.from_iterable(chain.from_iterable(rows))
    token_ids[place < total] = np.fromiter(ids, "int32", total.sum())
    return token_ids, ((place >= first) & (place < total)).astype("int32")


def join_row(row):
    """Returns (token_ids, segment_ids), two lists, of a row that `assemble` made."""
    segment_ids = [segment for segment, ids in enumerate(row) for _ in ids]
    return list(chain.from_iterable(row)), segment_ids


def padded_length(padding, maxlen, lengths):
    """Returns the L that `padding` asks for, after checking that rows of `lengths` fit."""
    longest = max(lengths, default=0)
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
        row = next(i for i, length in enumerate(lengths) if length > padding)
        raise TokenizerError(
            f"Row {row} has {lengths[row]} tokens, more than padding={padding}. "
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
    try:
        index = operator.index(i)
    except TypeError:
        index = None
    if index is None or isinstance(i, bool):
        raise TokenizerError(f"{_described(i)} is not an id. Expected an integer.")
    if not 0 <= i < size:
        raise TokenizerError(
            f"Id {i} is outside the vocabulary: ids run from 0 to {size - 1}. "
            "Does the model belong to this vocabulary?"
        )
    return index


def as_list(values, what):
    """Returns the items of a list or an array of shape (L,), after checking that it is one."""
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise TokenizerError(f"{_described(values)} is no list of {what}. Expected a list.")
    return list(values)


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

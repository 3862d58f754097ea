"""`sequence_padding` and `truncate_sequences`, against the slowest way to do it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerasbert.data import sequence_padding, truncate_sequences
from kerasbert.errors import ConfigError

ROWS = st.lists(st.lists(st.integers(1, 99), max_size=6), min_size=1, max_size=5)


@given(ROWS, st.none() | st.integers(0, 8), st.integers(-1, 0), st.sampled_from(["post", "pre"]))
def test_padding_of_rows(rows, length, value, mode):
    padded = sequence_padding(rows, length, value, mode=mode)
    size = max(map(len, rows)) if length is None else length
    expected = []
    for row in rows:
        row = row[:size]
        fill = [value] * (size - len(row))
        expected.append(row + fill if mode == "post" else fill + row)
    assert padded.tolist() == expected
    assert padded.dtype.kind == "i"


def test_two_axes_and_those_that_stay():
    boxes = [np.ones((2, 3, 4), "float32"), np.ones((1, 5, 4), "float32")]
    padded = sequence_padding(boxes, seq_dims=2)
    assert padded.shape == (2, 2, 5, 4) and padded.dtype == "float32"
    assert padded.sum() == sum(box.sum() for box in boxes)
    assert sequence_padding(boxes, length=[1, 2], seq_dims=2, mode="pre").shape == (2, 1, 2, 4)
    assert sequence_padding([np.ones((2, 3)), np.ones((4, 3))]).shape == (2, 4, 3)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([],), "empty"),
        (([[1], [2]], None, 0, 1, "left"), "mode='left'"),
        (([1, 2],), r"inputs\[0\] has the shape \(\)"),
        (([[1, 2], [[1], [2]]],), r"inputs\[1\]"),
        (([[[1], [2, 3]]], None, 0, 1), "seq_dims"),
        (([[1], [2]], [1, 2]), "length"),
        (([[1], [2]], -1), "length=-1"),
    ],
)
def test_padding_refuses(arguments, said):
    with pytest.raises(ConfigError, match=said):
        sequence_padding(*arguments)


@given(ROWS, st.integers(0, 20), st.sampled_from([0, -1, -2]))
def test_truncation(rows, maxlen, index):
    expected = [list(row) for row in rows if row]
    while sum(map(len, expected)) > maxlen:
        longest = max(range(len(expected)), key=lambda i: len(expected[i]))
        if len(expected[longest]) < abs(index):
            with pytest.raises(ConfigError, match="points to no item"):
                truncate_sequences(maxlen, index, *rows)
            return
        expected[longest].pop(index)
    given_rows = [row for row in rows if row]
    shortened = truncate_sequences(maxlen, index, *rows)
    assert shortened == expected
    # bert4keras' scripts go on with the lists that they passed.
    assert all(one is other for one, other in zip(shortened, given_rows, strict=True))


def test_truncation_with_an_index_for_each_list():
    first, second = [1, 2, 3, 4], [5, 6, 7]
    assert truncate_sequences(4, [0, -1], first, second, None) == [[3, 4], [5, 6]]
    with pytest.raises(ConfigError, match="2 indices for 1"):
        truncate_sequences(4, [0, -1], first, [])

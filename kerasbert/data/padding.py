"""Rows of different lengths made equal, or shorter, as bert4keras does it."""

import operator

import numpy as np

from kerasbert.errors import ConfigError, check_integer, did_you_mean

_MODES = ("post", "pre")


def sequence_padding(inputs, length=None, value=0, seq_dims=1, mode="post"):
    """Makes one array of rows that have different lengths.

    Args:
        inputs: B lists or arrays that differ in the size of their first `seq_dims` axes only.
        length: the size to give these axes, an integer or one for each of them; what is longer
            loses its end. Default is the largest size of each axis.
        value: what to fill up with.
        seq_dims: how many axes are filled up.
        mode: "post" fills up behind a row, "pre" before it.

    Returns:
        Array of shape (B, *length, …), of the dtype that numpy gives the rows.

    Raises:
        ConfigError: for rows that are no sequences or cannot stand in one array, and for
            arguments that are out of range.

    Example:
        >>> sequence_padding([[2, 7, 3], [2, 3]]).tolist()
        [[2, 7, 3], [2, 3, 0]]

    Source: bert4keras, snippets.py.
    """
    check_integer("seq_dims", seq_dims, minimum=1)
    if mode not in _MODES:
        raise ConfigError(
            f"mode={mode!r}.{did_you_mean(mode, _MODES)}\nExpected one of: {', '.join(_MODES)}."
        )
    arrays = _as_arrays(inputs, seq_dims)
    sizes = np.array([array.shape[:seq_dims] for array in arrays])
    target = sizes.max(axis=0) if length is None else _lengths(length, seq_dims)
    shape = (len(arrays), *target, *arrays[0].shape[seq_dims:])
    padded = np.full(shape, value, np.result_type(*arrays))
    for place, array in zip(padded, arrays, strict=True):
        kept = array[tuple(slice(size) for size in target)]
        sides = zip(target, kept.shape[:seq_dims], strict=True)
        place[tuple(slice(n) if mode == "post" else slice(size - n, size) for size, n in sides)] = (
            kept
        )
    return padded


def _as_arrays(inputs, seq_dims):
    arrays = []
    for index, row in enumerate(inputs):
        try:
            array = np.asarray(row)
        except ValueError as error:
            raise ConfigError(
                f"inputs[{index}] holds rows of different lengths.\n"
                f"Expected rows that are equal from axis {seq_dims} on.\n"
                "Raise seq_dims, and pass arrays."
            ) from error
        # An empty list is taken for floats.
        array = array.astype("int64") if array.size == 0 and isinstance(row, list) else array
        first = arrays[0] if arrays else array
        if array.ndim < seq_dims or array.shape[seq_dims:] != first.shape[seq_dims:]:
            raise ConfigError(
                f"inputs[{index}] has the shape {array.shape}, inputs[0] {first.shape}.\n"
                f"Expected at least {seq_dims} axes, and the same size of those that follow."
            )
        arrays.append(array)
    if not arrays:
        raise ConfigError("inputs is empty.\nExpected at least one row to pad.")
    return arrays


def _lengths(length, seq_dims):
    lengths = list(length) if hasattr(length, "__getitem__") else [length]
    if len(lengths) != seq_dims:
        raise ConfigError(
            f"length={length!r}, with seq_dims={seq_dims}.\n"
            "Expected a length for each of these axes."
        )
    for one in lengths:
        check_integer("length", one, minimum=0)
    return [operator.index(one) for one in lengths]


def truncate_sequences(maxlen, indices, *sequences):
    """Shortens lists, always the longest of them, until together they are short enough.

    Args:
        maxlen: how many items they may have together.
        indices: which item is taken out of a list, -2 for the last but one, again and again; or
            one index for each list.
        *sequences: lists. They are changed; what is empty or None is left out.

    Returns:
        List of the lists that are not empty at the start.

    Raises:
        ConfigError: if there is not an index for each list, or if it points to no item.

    Example:
        >>> truncate_sequences(5, -2, [2, 4, 5, 6, 3], [7, 8, 3])
        [[2, 3], [7, 8, 3]]

    Source: bert4keras, snippets.py.
    """
    check_integer("maxlen", maxlen, minimum=0)
    sequences = [sequence for sequence in sequences if sequence]
    if not isinstance(indices, (list, tuple)):
        indices = [indices] * len(sequences)
    if len(indices) != len(sequences):
        raise ConfigError(
            f"There are {len(indices)} indices for {len(sequences)} sequences that are not empty.\n"
            "Expected one for each, or a single one for all."
        )
    while sum(map(len, sequences)) > maxlen:
        lengths = list(map(len, sequences))
        longest = lengths.index(max(lengths))
        sequence, index = sequences[longest], indices[longest]
        if not -len(sequence) <= index < len(sequence):
            raise ConfigError(
                f"indices[{longest}]={index} points to no item of {len(sequence)} that are left.\n"
                f"Expected room for more than maxlen={maxlen} items, or another index."
            )
        del sequence[index]
    return sequences

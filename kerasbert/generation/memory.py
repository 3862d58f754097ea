"""Keys and values of the tokens so far.

Small ones, of calls that follow each other and are alike, stand in one array, since a step costs
time for every array that it is given or writes to. Large ones stand alone: XLA copies a part that
is taken out of an array, which for 12 blocks of 768 and 16 rows takes longer than all the rest.

Shapes: P calls in one array, B rows, M tokens, C columns.
"""

import itertools
import math

import keras
from keras import ops

from kerasbert import compilation

# Numbers in an array from which on it stands alone.
_LARGE = 1 << 18


def stack(pairs, counts):
    """Joins a list of pairs of keys and values (B, …, M, ·) into pairs (P, B, …, M, ·).

    Args:
        pairs: the list.
        counts: P of each pair that comes out.
    """
    pairs = iter(pairs)
    runs = (itertools.islice(pairs, count) for count in counts)
    return [tuple(map(ops.stack, zip(*run, strict=True))) for run in runs]


def counts_of(stacks):
    """Returns how many calls stand in each pair that `stack` made."""
    return [keys.shape[0] for keys, _ in stacks]


def _alike(pairs, capacity):
    """Returns how many calls are to stand in each array, with room for `capacity` tokens."""

    def kind(numbered):
        number, pair = numbered
        shapes = [(*part.shape[:-2], capacity, part.shape[-1]) for part in pair]
        large = max(map(math.prod, shapes)) > _LARGE
        return shapes, number if large else None

    return [len(list(run)) for _, run in itertools.groupby(enumerate(pairs), key=kind)]


def unstack(stacks):
    """Returns the list of pairs that `stack` joined."""
    return [(keys[n], values[n]) for keys, values in stacks for n in range(keys.shape[0])]


class Memory:
    """Keys and values of the tokens so far, in arrays with room for more.

    Args:
        pairs: list of pairs of float tensors (B, …, M, ·).
        capacity: for how many tokens there is room, at least M.

    Attributes:
        stacks: list of pairs of arrays (P, B, …, C, ·); zeros where nothing is written.
        capacity: C.
    """

    def __init__(self, pairs, capacity):
        self._set(stack(pairs, _alike(pairs, capacity)), capacity)

    def _set(self, stacks, capacity):
        def extended(tensor):
            widths = [(0, 0)] * len(tensor.shape)
            widths[-2] = (0, capacity - tensor.shape[-2])
            return compilation.writable(ops.pad(tensor, widths))

        self.capacity = capacity
        self.stacks = keras.tree.map_structure(extended, stacks)

    def pick(self, rows, columns, capacity):
        """Keeps some rows and tokens.

        Args:
            rows: int array (R,).
            columns: int array (R, m), the tokens to keep of each of these rows.
            capacity: for how many tokens there is to be room then.
        """

        def picked(tensor):
            tensor = ops.take(ops.convert_to_tensor(tensor), rows, axis=1)
            between = (1,) * (len(tensor.shape) - 4)
            index = ops.reshape(columns, (1, len(rows), *between, columns.shape[1], 1))
            return ops.take_along_axis(tensor, index, axis=-2)

        self._set(keras.tree.map_structure(picked, self.stacks), capacity)

"""A dict of arrays in the role of a checkpoint."""

import numpy as np

from kerasbert.errors import CheckpointError


class ArrayCheckpoint:
    """Offers a dict of arrays the way a checkpoint file is offered.

    Args:
        arrays: dict from variable names to numpy arrays.

    Raises:
        CheckpointError: if a key is not a string or a value not an array of numbers.
    """

    source = "the dict of arrays"

    def __init__(self, arrays):
        self._arrays = {}
        for name, value in arrays.items():
            self._arrays[name] = _as_array(name, value)
        self.shapes = {name: array.shape for name, array in self._arrays.items()}

    def read(self, name):
        """Returns a copy of the array called `name`: backends may keep what they are given."""
        return self._arrays[name].copy()


def _as_array(name, value):
    try:
        array = np.asarray(value)
    except ValueError:  # a ragged list
        array = np.array(value, dtype=object)
    # Kind "V" are bfloat16 arrays, a type that numpy does not know by itself.
    if not isinstance(name, str) or array.dtype.kind not in "biufV":
        raise CheckpointError(
            f"checkpoint[{name!r}] is a {type(value).__name__} of dtype {array.dtype}.\n"
            "Expected a dict from variable names to arrays of numbers."
        )
    return array

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
            array = np.asarray(value)
            if not isinstance(name, str) or array.dtype.kind not in "biufV":
                raise CheckpointError(
                    f"checkpoint[{name!r}] is a {type(value).__name__} of dtype {array.dtype}.\n"
                    "Expected a dict from variable names to arrays of numbers."
                )
            self._arrays[name] = array
        self.shapes = {name: array.shape for name, array in self._arrays.items()}

    def read(self, name):
        """Returns the array called `name`."""
        return self._arrays[name]

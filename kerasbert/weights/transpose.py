"""Transposes arrays on their way into variables of TensorFlow."""

import keras
import numpy as np
from keras import ops

from kerasbert.weights.checkpoints.shards import ALIGNMENT


def turned_by_backend(value):
    """Returns the tensor of a transposed array, and any other array as it is.

    TensorFlow transposes faster than numpy, and here without the one or two copies that it
    otherwise makes of an array first: it is lent the memory for as long as that takes. The
    tensor has memory of its own, as transposing a matrix always copies; a matrix of one row
    or column is therefore left to the ordinary way.
    """
    if keras.backend.backend() != "tensorflow" or not _can_be_lent(value):
        return value
    from tensorflow.experimental import dlpack

    return ops.transpose(dlpack.from_dlpack(value.T.__dlpack__()))


def _can_be_lent(value):
    lies_transposed = value.ndim == 2 and min(value.shape) > 1 and value.flags.f_contiguous
    # numpy lends nothing that is read-only; TensorFlow computes on aligned memory only.
    usable = value.flags.writeable and value.ctypes.data % ALIGNMENT == 0
    return lies_transposed and usable and value.dtype == np.float32 and value.dtype.isnative

"""Pooling over the length, in which padding does not count.

Shapes: B batch, L length, H hidden.
"""

import keras
import numpy as np
from keras import ops


@keras.saving.register_keras_serializable(package="kerasbert")
class GlobalAveragePooling1D(keras.layers.GlobalAveragePooling1D):
    """Averages the real tokens of each row.

    Keras' own layer gives NaN for a row that is all padding, and adds up in the type of its
    input, which overflows in float16. Here such a row gives zeros, and sums are float32.

    Args:
        data_format: as in Keras, "channels_last" by default.
        keepdims: whether the length stays as an axis of size 1.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: float tensor (B, L, H).
        mask: optional bool tensor (B, L), the Keras mask of the input unless given.

    Returns:
        Float tensor (B, H), without a Keras mask.

    Example:
        >>> mean = GlobalAveragePooling1D()
        >>> mean(keras.ops.array([[[2.0], [4.0], [9.0]]]), mask=np.array([[1, 1, 0]])).numpy()
        array([[3.]], dtype=float32)
    """

    def call(self, inputs, mask=None):
        """Returns the mean over the length; see the class for shapes."""
        if mask is None:
            return super().call(inputs)
        axis, real = _along_the_length(self.data_format, mask)
        dtype = keras.backend.standardize_dtype(inputs.dtype)
        wide = keras.backend.result_type(dtype, "float32")
        values = ops.where(real, ops.cast(inputs, wide), 0.0)
        total = ops.sum(values, axis=axis, keepdims=self.keepdims)
        count = ops.sum(ops.cast(real, wide), axis=axis, keepdims=self.keepdims)
        return ops.cast(total / ops.maximum(count, 1.0), dtype)


@keras.saving.register_keras_serializable(package="kerasbert")
class GlobalMaxPooling1D(keras.layers.GlobalMaxPooling1D):
    """Takes the largest number of the real tokens of each row.

    Keras' own layer does not read a mask. A row that is all padding gives zeros.

    Args:
        data_format: as in Keras, "channels_last" by default.
        keepdims: whether the length stays as an axis of size 1.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: float tensor (B, L, H).
        mask: optional bool tensor (B, L), the Keras mask of the input unless given.

    Returns:
        Float tensor (B, H), without a Keras mask.

    Example:
        >>> largest = GlobalMaxPooling1D()
        >>> largest(keras.ops.array([[[2.0], [4.0], [9.0]]]), mask=np.array([[1, 1, 0]])).numpy()
        array([[4.]], dtype=float32)
    """

    def __init__(self, data_format=None, keepdims=False, **kwargs):
        super().__init__(data_format=data_format, keepdims=keepdims, **kwargs)
        self.supports_masking = True

    def call(self, inputs, mask=None):
        """Returns the maximum over the length; see the class for shapes."""
        if mask is None:
            return super().call(inputs)
        axis, real = _along_the_length(self.data_format, mask)
        values = ops.where(real, inputs, ops.cast(-np.inf, inputs.dtype))
        largest = ops.max(values, axis=axis, keepdims=self.keepdims)
        some = ops.any(real, axis=axis, keepdims=self.keepdims)
        return ops.where(some, largest, ops.cast(0.0, inputs.dtype))

    def compute_mask(self, inputs, mask=None):
        """The sequence axis is gone, so there is no mask."""
        return None


def _along_the_length(data_format, mask):
    """Returns the axis of the length, and the mask as bool that broadcasts to the input."""
    axis = 1 if data_format == "channels_last" else 2
    return axis, ops.expand_dims(ops.cast(mask, "bool"), axis=3 - axis)

"""The dense layer inside the layers of a block."""

import keras
from keras import ops

# For one token all that counts is the time to read the kernel, which XLA on CPUs does faster in
# parts: the feed-forward halves of 12 blocks of 768 in 15 ms instead of 19.
_PARTS = 4
_IS_TORCH = keras.backend.backend() == "torch"


@keras.saving.register_keras_serializable(package="kerasbert")
class Dense(keras.layers.Dense):
    """`keras.layers.Dense`, faster for a single token, as in generation.

    Args:
        *args: arguments of `keras.layers.Dense`.
        **kwargs: its keyword arguments.

    Call arguments:
        inputs: float tensor (…, input width).

    Returns:
        Float tensor (…, units).

    Example:
        >>> Dense(8)(keras.ops.ones((1, 1, 4))).shape
        TensorShape([1, 1, 8])
    """

    def call(self, inputs, training=None):
        """Returns the product with the kernel; see the class for shapes."""
        width = inputs.shape[-1]
        if any(size != 1 for size in inputs.shape[:-1]) or width % _PARTS or _IS_TORCH:
            return super().call(inputs, training=training)
        kernels = ops.reshape(self.kernel, (_PARTS, width // _PARTS, self.units))
        outputs = ops.matmul(ops.reshape(inputs, (_PARTS, 1, width // _PARTS)), kernels)
        outputs = ops.reshape(ops.sum(outputs, axis=0), (*inputs.shape[:-1], self.units))
        if self.bias is not None:
            outputs = ops.add(outputs, self.bias)
        return outputs if self.activation is None else self.activation(outputs)

    def quantize(self, mode=None, **options):
        """Quantises the kernel; Keras refuses to for what inherits from its own layer."""
        return super().quantize(mode, **{**options, "type_check": False})

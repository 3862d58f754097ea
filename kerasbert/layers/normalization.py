"""Layer normalisation in all the forms that the models have.

Shapes: B batch, L length, H hidden size, C condition.
"""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="kerasbert")
class LayerNormalization(keras.layers.LayerNormalization):
    """Keras' layer normalisation, also without mean, variance, scale or offset.

    Args:
        zero_mean: whether the mean is taken away; False is T5's form (RMS).
        unit_variance: whether to divide by the root of the mean square.
        epsilon: added to the mean square; default `keras.config.epsilon()`, as in bert4keras.
        scale: whether there is a `gamma`.
        offset: whether there is a `beta`.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: float tensor (B, …, H).

    Returns:
        Float tensor of the same shape.

    Example:
        >>> LayerNormalization(zero_mean=False, offset=False)(keras.ops.ones((2, 5, 32))).shape
        TensorShape([2, 5, 32])

    Source: Ba et al. 2016 (arXiv:1607.06450); Zhang and Sennrich 2019 (arXiv:1910.07467).
    """

    def __init__(
        self, zero_mean=True, unit_variance=True, epsilon=None, scale=True, offset=True, **kwargs
    ):
        epsilon = keras.config.epsilon() if epsilon is None else epsilon
        super().__init__(epsilon=epsilon, scale=scale, center=offset, **kwargs)
        self.zero_mean = zero_mean
        self.unit_variance = unit_variance

    def build(self, inputs_shape, condition_shape=None):
        """Creates gamma and beta (H,), as far as they are wanted."""
        super().build(inputs_shape)

    def call(self, inputs, condition=None):
        """Returns the normalised inputs; see the class for shapes."""
        if self.zero_mean and self.unit_variance:
            return super().call(inputs)
        dtype = keras.backend.result_type(inputs.dtype, "float32")
        hidden = ops.cast(inputs, dtype)
        if self.zero_mean:
            hidden = hidden - ops.mean(hidden, axis=-1, keepdims=True)
        if self.unit_variance:
            square = ops.mean(ops.square(hidden), axis=-1, keepdims=True)
            hidden = hidden * ops.rsqrt(square + self.epsilon)
        if self.scale:
            hidden = hidden * ops.cast(self.gamma, dtype)
        if self.center:
            hidden = hidden + ops.cast(self.beta, dtype)
        return ops.cast(hidden, self.compute_dtype)

    def compute_output_shape(self, inputs_shape, condition_shape=None):
        """The output has the shape of the input."""
        return inputs_shape

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        base = keras.layers.Layer.get_config(self)
        return {
            **base,
            "zero_mean": self.zero_mean,
            "unit_variance": self.unit_variance,
            "epsilon": self.epsilon,
            "scale": self.scale,
            "offset": self.center,
        }

"""Layer normalisation in all the forms that the models have.

Shapes: B batch, H hidden size, C condition.
"""

import keras
from keras import ops

from kerasbert.layers.scale_offset import ConditionalLayer


@keras.saving.register_keras_serializable(package="kerasbert")
class LayerNormalization(ConditionalLayer, keras.layers.LayerNormalization):
    """Keras' layer normalisation, also conditional, or without mean, variance, scale or offset.

    Args:
        zero_mean: whether the mean is taken away; False is T5's form (RMS).
        unit_variance: whether to divide by the root of the mean square.
        epsilon: added to the mean square; default `keras.config.epsilon()`, as in bert4keras.
        scale: whether there is a `gamma`.
        offset: whether there is a `beta`; Keras' name for it, `center`, will do too.
        **kwargs: arguments of `ConditionalLayer`.

    Call arguments:
        inputs: float tensor (B, …, H), or a list of it and the condition.
        condition: float tensor (B, C) or (B, …, C), if `conditional` and not in the list.

    Returns:
        Float tensor (B, …, H), with the Keras mask of the input.

    Raises:
        ConfigError: if the condition is missing, not asked for, or of more axes than the input.

    Example:
        >>> LayerNormalization(zero_mean=False, offset=False)(keras.ops.ones((2, 5, 32))).shape
        TensorShape([2, 5, 32])

    Source: Ba et al. 2016 (arXiv:1607.06450); Zhang and Sennrich 2019 (arXiv:1910.07467);
    `ConditionalLayer` for the condition.
    """

    def __init__(
        self, zero_mean=True, unit_variance=True, epsilon=None, scale=True, offset=True, **kwargs
    ):
        epsilon = keras.config.epsilon() if epsilon is None else epsilon
        offset = kwargs.pop("center", offset)  # Keras' name, and that of older bert4keras
        super().__init__(epsilon=epsilon, scale=scale, center=offset, **kwargs)
        self.zero_mean = zero_mean
        self.unit_variance = unit_variance

    def build(self, inputs_shape, condition_shape=None):
        """Creates gamma and beta (H,), as far as they are wanted, and what a condition needs."""
        shape, condition_shape = self.separate_shapes(inputs_shape, condition_shape)
        keras.layers.LayerNormalization.build(self, shape)
        self.build_condition(condition_shape, shape[-1], self.scale, self.center)

    def call(self, inputs, condition=None):
        """Returns the normalised inputs; see the class for shapes."""
        inputs, condition = self.separate(inputs, condition)
        if self.zero_mean and self.unit_variance and condition is None:
            return keras.layers.LayerNormalization.call(self, inputs)
        dtype = keras.backend.result_type(inputs.dtype, "float32")
        hidden = ops.cast(inputs, dtype)
        if self.zero_mean:
            hidden = hidden - ops.mean(hidden, axis=-1, keepdims=True)
        if self.unit_variance:
            square = ops.mean(ops.square(hidden), axis=-1, keepdims=True)
            hidden = hidden * ops.rsqrt(square + self.epsilon)
        gamma, beta = self.shifts(condition, len(inputs.shape))
        if self.scale:
            hidden = hidden * ops.cast(self.gamma + gamma, dtype)
        if self.center:
            hidden = hidden + ops.cast(self.beta + beta, dtype)
        return ops.cast(hidden, self.compute_dtype)

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        config = {
            **super().get_config(),
            "zero_mean": self.zero_mean,
            "unit_variance": self.unit_variance,
            "epsilon": self.epsilon,
            "scale": self.scale,
            "offset": self.center,
        }
        return {key: value for key, value in config.items() if key not in _NOT_OURS}


# What Keras' layer can do besides; the models need none of it.
_NOT_OURS = {
    "axis",
    "center",
    "rms_scaling",
    "beta_initializer",
    "gamma_initializer",
    "beta_regularizer",
    "gamma_regularizer",
    "beta_constraint",
    "gamma_constraint",
}

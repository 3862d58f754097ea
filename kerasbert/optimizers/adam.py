"""Adam and AdamW as BERT's program has them."""

import keras
from keras import ops

from kerasbert.optimizers.extended import BIASES_AND_NORMS, ExtendedOptimizer


class _Adam(keras.optimizers.Adam):
    """Keras' Adam that can go without the correction."""

    def __init__(self, *args, bias_correction=True, **kwargs):
        super().__init__(*args, **kwargs)
        self.bias_correction = bias_correction

    def update_step(self, gradient, variable, learning_rate):
        if self.bias_correction:
            super().update_step(gradient, variable, learning_rate)
            return
        index = self._get_variable_index(variable)
        first, second = self._momentums[index], self._velocities[index]
        gradient = ops.cast(gradient, variable.dtype)
        rate = ops.cast(learning_rate, variable.dtype)
        self.assign_add(first, ops.subtract(gradient, first) * (1 - self.beta_1))
        self.assign_add(second, ops.subtract(ops.square(gradient), second) * (1 - self.beta_2))
        if self.amsgrad:
            largest = self._velocity_hats[index]
            self.assign(largest, ops.maximum(largest, second))
            second = largest
        self.assign_sub(variable, ops.divide(first, ops.sqrt(second) + self.epsilon) * rate)

    def get_config(self):
        return super().get_config() | {"bias_correction": self.bias_correction}


@keras.saving.register_keras_serializable(package="kerasbert")
class Adam(ExtendedOptimizer, _Adam):
    """Is Keras' Adam, with or without the correction of the moments' bias.

    Args:
        learning_rate: a float or a schedule.
        beta_1: decay of the first moment.
        beta_2: decay of the second moment.
        epsilon: is added to the root of the second moment.
        bias_correction: whether moments are corrected for having started at 0.

    Other arguments are those of `ExtendedOptimizer` and of `keras.optimizers.Adam`.

    Raises:
        ConfigError: see `ExtendedOptimizer`.

    Example:
        >>> float(Adam(2e-5, bias_correction=False).epsilon)
        1e-06

    Source: Kingma and Ba 2014 (arXiv:1412.6980); bert4keras optimizers.py.
    """

    def __init__(
        self,
        learning_rate=0.001,
        beta_1=0.9,
        beta_2=0.999,
        epsilon=1e-6,
        bias_correction=True,
        **kwargs,
    ):
        super().__init__(
            learning_rate=learning_rate,
            beta_1=beta_1,
            beta_2=beta_2,
            epsilon=epsilon,
            bias_correction=bias_correction,
            **kwargs,
        )


@keras.saving.register_keras_serializable(package="kerasbert")
class AdamW(Adam):
    """Is BERT's optimizer: no bias correction, decay of all but biases and normalisations.

    Also ELECTRA's, and ALBERT's where that is not LAMB. Differs from `keras.optimizers.AdamW`
    by these defaults: `bias_correction=False`, `epsilon=1e-6`, `weight_decay=0.01`,
    `exclude_from_weight_decay`, and gradients clipped to a common norm of 1.

    Args:
        learning_rate: a float or a schedule, such as `WarmupDecay`.
        weight_decay: share of a variable that is subtracted with each update, times the
            learning rate.
        beta_1: decay of the first moment.
        beta_2: decay of the second moment.
        epsilon: is added to the root of the second moment.
        bias_correction: whether moments are corrected for having started at 0.
        global_clipnorm: largest norm of all gradients together; None does not clip.
        exclude_from_weight_decay: regular expressions, see `ExtendedOptimizer`.

    Other arguments are those of `ExtendedOptimizer` and of `keras.optimizers.Adam`.

    Raises:
        ConfigError: see `ExtendedOptimizer`.

    Example:
        >>> optimizer = AdamW(WarmupDecay(5e-5, total_steps=1000, warmup_steps=100))
        >>> model.compile(optimizer, "mse")

    Source: google-research/bert optimization.py, `AdamWeightDecayOptimizer`.
    """

    def __init__(
        self,
        learning_rate=5e-5,
        weight_decay=0.01,
        beta_1=0.9,
        beta_2=0.999,
        epsilon=1e-6,
        bias_correction=False,
        global_clipnorm=1.0,
        exclude_from_weight_decay=BIASES_AND_NORMS,
        **kwargs,
    ):
        # Keras allows one way of clipping.
        if kwargs.get("clipnorm") is not None or kwargs.get("clipvalue") is not None:
            global_clipnorm = None
        super().__init__(
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            beta_1=beta_1,
            beta_2=beta_2,
            epsilon=epsilon,
            bias_correction=bias_correction,
            global_clipnorm=global_clipnorm,
            exclude_from_weight_decay=exclude_from_weight_decay,
            **kwargs,
        )

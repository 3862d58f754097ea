"""The average of the weights over the updates, and putting it in the weights' place."""

from keras import ops

from kerasbert.errors import KerasbertError, check_number
from kerasbert.optimizers.extended import ExtendedOptimizer
from kerasbert.optimizers.recipes import extension


@extension
class Averaging(ExtendedOptimizer):
    """Extension: Keras' `use_ema`, without a bias towards the first weights.

    Keras' average starts as the weights after the first update and keeps them for long. Here
    it is at all times the mean of the weights after every update so far, the last weighted
    most: what bert4keras calls its average with bias correction. It counts updates and not
    batches when gradients are accumulated, and `fit` leaves the trained weights in their place
    at its end, so that training can go on from them. `keras.callbacks.SwapEMAWeights` works
    with it; by hand, `apply_ema_weights` and `reset_old_weights` do the same.

    Args:
        ema_momentum: weight of what was before.

    Other arguments are those of the optimizer that is extended; `use_ema` is True.

    Raises:
        ConfigError: for a momentum that is not from 0 to below 1.

    Source: Kingma and Ba 2014 (arXiv:1412.6980), section 7.2.
    """

    def __init__(self, *args, ema_momentum=0.999, **kwargs):
        check_number("ema_momentum", ema_momentum, least=0, below=1)
        super().__init__(*args, **kwargs | {"use_ema": True, "ema_momentum": ema_momentum})
        self._old_weights = None

    def _update_model_variables_moving_average(self, trainable_variables):
        every = self.gradient_accumulation_steps or 1
        # Keras comes here after each batch, and counts it afterwards.
        batches = self._iterations + 1
        updates = ops.cast(batches // every, "float32")
        momentum = float(self.ema_momentum)
        share = (1.0 - momentum) / (1.0 - ops.power(momentum, ops.maximum(updates, 1.0)))
        share = ops.where(ops.equal(batches % every, 0), share, 0.0)
        for variable, average in zip(
            trainable_variables, self._model_variables_moving_average, strict=True
        ):
            if average is not None:
                distance = ops.subtract(variable, average)
                average.assign(average + distance * ops.cast(share, average.dtype))

    def finalize_variable_values(self, var_list):
        """Does nothing: the trained weights stay."""

    def apply_ema_weights(self, bias_correction=True):
        """Puts the averages in the place of the weights, until `reset_old_weights`.

        Args:
            bias_correction: False for an average that started from 0, which is too small by
                the factor 1 - momentum ** updates.

        Raises:
            KerasbertError: if they stand there already, or nothing was trained yet.
        """
        updates = int(ops.convert_to_numpy(self.iterations))
        if self._old_weights is not None or not updates:
            problem = "twice" if updates else "before the first update"
            raise KerasbertError(
                f"apply_ema_weights was called {problem}.\n"
                "Expected a training run before it, and reset_old_weights after it."
            )
        factor = 1.0 if bias_correction else 1.0 - self.ema_momentum**updates
        variables = self._trainable_variables
        self._old_weights = [ops.convert_to_numpy(variable) for variable in variables]
        for variable, average in zip(variables, self._model_variables_moving_average, strict=True):
            if average is not None:
                variable.assign(ops.convert_to_numpy(average) * factor)

    def reset_old_weights(self):
        """Puts the weights back that `apply_ema_weights` took away.

        Raises:
            KerasbertError: if it was not called before.
        """
        if self._old_weights is None:
            raise KerasbertError(
                "reset_old_weights was called, but the weights are in their place.\n"
                "Expected a call of apply_ema_weights before it."
            )
        for variable, weight in zip(self._trainable_variables, self._old_weights, strict=True):
            variable.assign(weight)
        self._old_weights = None

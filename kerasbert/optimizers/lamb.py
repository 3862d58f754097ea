"""LAMB as ALBERT's program has it: AdamW's update, scaled to the size of the variable."""

import keras
from keras import ops

from kerasbert.optimizers.adam import AdamW
from kerasbert.optimizers.extended import ExtendedOptimizer, checked_patterns, found_in, path_of
from kerasbert.optimizers.recipes import extension


@extension
class LayerAdaptation(ExtendedOptimizer):
    """Extension: multiplies each variable's update by the ratio of both their norms.

    The update is taken without the learning rate and with the weight decay. Where the norm of
    the variable or of the update is 0, the ratio is 1.

    Args:
        exclude_from_layer_adaptation: regular expressions; a variable in whose path one is
            found keeps its update as it is.

    Other arguments are those of the optimizer that is extended.

    Raises:
        ConfigError: see `ExtendedOptimizer`.

    Source: You et al. 2019 (arXiv:1904.00962).
    """

    def __init__(self, *args, exclude_from_layer_adaptation=(), **kwargs):
        super().__init__(*args, **kwargs)
        self._kept = checked_patterns(
            "exclude_from_layer_adaptation", exclude_from_layer_adaptation
        )
        self._adapted = ()

    def build(self, variables):
        """Makes the slots, and decides by name which variables are adapted."""
        if self.built:
            return
        super().build(variables)
        self._adapted = tuple(
            not any(found_in(pattern, path_of(variable)) for pattern in self._kept)
            for variable in variables
        )

    def change(self, variable, change, rate):
        """Returns what is to be subtracted, scaled by the ratio."""
        change = super().change(variable, change, rate)
        if not self._adapted[self._get_variable_index(variable)]:
            return change
        size, step = _norm(variable), _norm(change)
        known = ops.logical_and(size > 0, step > 0)
        # The rate stands above the line, so that rate 0 needs no case of its own.
        ratio = size * ops.abs(ops.cast(rate, "float32")) / ops.where(known, step, 1.0)
        return change * ops.cast(ops.where(known, ratio, 1.0), change.dtype)

    def get_config(self):
        """Returns the arguments."""
        return super().get_config() | {"exclude_from_layer_adaptation": list(self._kept)}


def _norm(values):
    return ops.sqrt(ops.sum(ops.square(ops.cast(values, "float32"))))


@keras.saving.register_keras_serializable(package="kerasbert")
class LAMB(LayerAdaptation, AdamW):
    """Is the optimizer that ALBERT was trained with: `AdamW` with `LayerAdaptation`.

    Differs from `keras.optimizers.Lamb`: no bias correction, decay inside of the ratio, and
    biases and normalisations are neither decayed nor adapted.

    Args:
        learning_rate: a float or a schedule.
        exclude_from_layer_adaptation: regular expressions; None for the variables that do not
            decay, as in ALBERT; [] for none, as brightmart's models were trained.

    Other arguments are those of `AdamW`.

    Raises:
        ConfigError: see `ExtendedOptimizer`.

    Example:
        >>> schedule = WarmupDecay(0.00176, total_steps=125000, warmup_steps=3125)
        >>> model.compile(LAMB(schedule), "mse")

    Source: google-research/albert lamb_optimizer.py; brightmart/albert_zh lamb_optimizer.py.
    """

    def __init__(self, learning_rate=0.00176, *args, exclude_from_layer_adaptation=None, **kwargs):
        super().__init__(learning_rate, *args, exclude_from_layer_adaptation=(), **kwargs)
        if exclude_from_layer_adaptation is None:
            self._kept = self._patterns
        else:
            self._kept = checked_patterns(
                "exclude_from_layer_adaptation", exclude_from_layer_adaptation
            )

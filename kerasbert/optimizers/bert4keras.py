"""The names and arguments that bert4keras has for the same: thin wrappers, so old scripts run."""

import re

import keras

from kerasbert.optimizers.averaging import Averaging
from kerasbert.optimizers.extended import ExtendedOptimizer
from kerasbert.optimizers.extending import extend
from kerasbert.optimizers.lamb import LayerAdaptation
from kerasbert.optimizers.lazy import Lazy
from kerasbert.optimizers.lookahead import Lookahead
from kerasbert.optimizers.recipes import extension
from kerasbert.optimizers.schedules import checked_points, piecewise_linear

AdaFactor = keras.optimizers.Adafactor
Lion = keras.optimizers.Lion


@extension
class _WeightDecay(ExtendedOptimizer):
    def __init__(self, *args, weight_decay_rate=0.01, **kwargs):
        super().__init__(*args, **{"weight_decay": weight_decay_rate or 0.0} | kwargs)


@extension
class _Accumulation(ExtendedOptimizer):
    def __init__(self, *args, grad_accum_steps=2, **kwargs):
        steps = grad_accum_steps if grad_accum_steps != 1 else None
        super().__init__(*args, **{"gradient_accumulation_steps": steps} | kwargs)


@extension
class _ParameterWise(ExtendedOptimizer):
    def __init__(self, *args, paramwise_lr_schedule=None, **kwargs):
        multipliers = {re.escape(key): n for key, n in (paramwise_lr_schedule or {}).items()}
        super().__init__(*args, **{"multipliers": multipliers} | kwargs)


@extension
class _PiecewiseLinear(ExtendedOptimizer):
    def __init__(self, *args, lr_schedule=None, **kwargs):
        super().__init__(*args, **kwargs)
        self._points = checked_points("lr_schedule", lr_schedule or {0: 1})

    def _get_current_learning_rate(self):
        # Batches and not updates: bert4keras' scripts multiply the steps by grad_accum_steps.
        factor = piecewise_linear(self._iterations, self._points)
        return super()._get_current_learning_rate() * factor

    def get_config(self):
        points = {str(step): multiple for step, multiple in self._points.items()}
        return super().get_config() | {"lr_schedule": points}


def extend_with_weight_decay(base_optimizer, name=None):
    """Returns a class with weight decay.

    Args:
        base_optimizer: an optimizer class. The new one also takes `weight_decay_rate=0.01` and
            `exclude_from_weight_decay`.
        name: of the new class.

    Returns:
        A class as of `extend`.

    Raises:
        ConfigError: if `base_optimizer` is no optimizer class.

    Example:
        >>> AdamW = extend_with_weight_decay(Adam, "AdamW")
        >>> optimizer = AdamW(1e-5, exclude_from_weight_decay=["Norm", "bias"])
    """
    return extend(base_optimizer, _WeightDecay, name=name)


def extend_with_layer_adaptation(base_optimizer, name=None):
    """Returns a class whose updates are scaled to the size of each variable: LAMB.

    Args:
        base_optimizer: an optimizer class. The new one also takes
            `exclude_from_layer_adaptation`.
        name: of the new class.

    Returns:
        A class as of `extend`.

    Raises:
        ConfigError: if `base_optimizer` is no optimizer class.

    Example:
        >>> LAMB = extend_with_layer_adaptation(extend_with_weight_decay(Adam), "LAMB")
        >>> optimizer = LAMB(0.00176, weight_decay_rate=0.01, bias_correction=False)
    """
    return extend(base_optimizer, LayerAdaptation, name=name)


def extend_with_piecewise_linear_lr(base_optimizer, name=None):
    """Returns a class whose learning rate is multiplied along straight lines.

    Steps are batches, also when gradients are accumulated over several.

    Args:
        base_optimizer: an optimizer class. The new one also takes `lr_schedule`, a dict from
            steps to multiples.
        name: of the new class.

    Returns:
        A class as of `extend`.

    Raises:
        ConfigError: if `base_optimizer` is no optimizer class.

    Example:
        >>> AdamLR = extend_with_piecewise_linear_lr(Adam, "AdamLR")
        >>> optimizer = AdamLR(1e-5, lr_schedule={1000: 1, 2000: 0.1})
    """
    return extend(base_optimizer, _PiecewiseLinear, name=name)


def extend_with_gradient_accumulation(base_optimizer, name=None):
    """Returns a class that updates once in several batches: Keras' accumulation.

    Args:
        base_optimizer: an optimizer class. The new one also takes `grad_accum_steps=2`.
        name: of the new class.

    Returns:
        A class as of `extend`.

    Raises:
        ConfigError: if `base_optimizer` is no optimizer class.

    Example:
        >>> AdamGA = extend_with_gradient_accumulation(Adam, "AdamGA")
        >>> AdamGA(1e-5, grad_accum_steps=8).gradient_accumulation_steps
        8
    """
    return extend(base_optimizer, _Accumulation, name=name)


def extend_with_lookahead(base_optimizer, name=None):
    """Returns a class with `Lookahead`.

    Args:
        base_optimizer: an optimizer class. The new one also takes `steps_per_slow_update=5` and
            `slow_step_size=0.5`.
        name: of the new class.

    Returns:
        A class as of `extend`.

    Raises:
        ConfigError: if `base_optimizer` is no optimizer class.

    Example:
        >>> AdamLA = extend_with_lookahead(Adam, "AdamLA")
        >>> optimizer = AdamLA(1e-5, steps_per_slow_update=5, slow_step_size=0.5)
    """
    return extend(base_optimizer, Lookahead, name=name)


def extend_with_lazy_optimization(base_optimizer, name=None):
    """Returns a class that leaves the rows alone that have no gradient, see `Lazy`.

    Args:
        base_optimizer: an optimizer class. The new one also takes
            `include_in_lazy_optimization`, a list of names.
        name: of the new class.

    Returns:
        A class as of `extend`.

    Raises:
        ConfigError: if `base_optimizer` is no optimizer class.

    Example:
        >>> AdamLO = extend_with_lazy_optimization(Adam, "AdamLO")
        >>> optimizer = AdamLO(1e-5, include_in_lazy_optimization=["Embedding-Token"])
    """
    return extend(base_optimizer, Lazy, name=name)


def extend_with_exponential_moving_average(base_optimizer, name=None):
    """Returns a class that averages the weights, see `Averaging`.

    Args:
        base_optimizer: an optimizer class. The new one also takes `ema_momentum=0.999`, and has
            `apply_ema_weights` and `reset_old_weights`.
        name: of the new class.

    Returns:
        A class as of `extend`.

    Raises:
        ConfigError: if `base_optimizer` is no optimizer class.

    Example:
        >>> AdamEMA = extend_with_exponential_moving_average(Adam, "AdamEMA")
        >>> optimizer = AdamEMA(1e-5, ema_momentum=0.9999)
    """
    return extend(base_optimizer, Averaging, name=name)


def extend_with_parameter_wise_lr(base_optimizer, name=None):
    """Returns a class with learning rates by variable.

    Args:
        base_optimizer: an optimizer class. The new one also takes `paramwise_lr_schedule`, a
            dict from parts of variables' paths to multiples.
        name: of the new class.

    Returns:
        A class as of `extend`.

    Raises:
        ConfigError: if `base_optimizer` is no optimizer class.

    Example:
        >>> AdamPW = extend_with_parameter_wise_lr(Adam, "AdamPW")
        >>> optimizer = AdamPW(1e-5, paramwise_lr_schedule={"Embedding": 0.1})
    """
    return extend(base_optimizer, _ParameterWise, name=name)


# bert4keras has a second function for each, for the optimizers of tf.keras.
extend_with_weight_decay_v2 = extend_with_weight_decay
extend_with_layer_adaptation_v2 = extend_with_layer_adaptation
extend_with_piecewise_linear_lr_v2 = extend_with_piecewise_linear_lr
extend_with_gradient_accumulation_v2 = extend_with_gradient_accumulation
extend_with_lookahead_v2 = extend_with_lookahead
extend_with_lazy_optimization_v2 = extend_with_lazy_optimization
extend_with_exponential_moving_average_v2 = extend_with_exponential_moving_average
extend_with_parameter_wise_lr_v2 = extend_with_parameter_wise_lr

"""Optimizers and learning rates of BERT, ALBERT and ELECTRA, and extensions of Keras' own."""

from kerasbert.optimizers.adam import Adam, AdamW
from kerasbert.optimizers.averaging import Averaging
from kerasbert.optimizers.bert4keras import (
    AdaFactor,
    Lion,
    extend_with_exponential_moving_average,
    extend_with_exponential_moving_average_v2,
    extend_with_gradient_accumulation,
    extend_with_gradient_accumulation_v2,
    extend_with_layer_adaptation,
    extend_with_layer_adaptation_v2,
    extend_with_lazy_optimization,
    extend_with_lazy_optimization_v2,
    extend_with_lookahead,
    extend_with_lookahead_v2,
    extend_with_parameter_wise_lr,
    extend_with_parameter_wise_lr_v2,
    extend_with_piecewise_linear_lr,
    extend_with_piecewise_linear_lr_v2,
    extend_with_weight_decay,
    extend_with_weight_decay_v2,
)
from kerasbert.optimizers.extended import ExtendedOptimizer
from kerasbert.optimizers.extending import extend
from kerasbert.optimizers.lamb import LAMB, LayerAdaptation
from kerasbert.optimizers.layerwise import layerwise_multipliers
from kerasbert.optimizers.lazy import Lazy
from kerasbert.optimizers.lookahead import Lookahead
from kerasbert.optimizers.schedules import PiecewiseLinear, WarmupDecay

__all__ = [
    "LAMB",
    "AdaFactor",
    "Adam",
    "AdamW",
    "Averaging",
    "ExtendedOptimizer",
    "LayerAdaptation",
    "Lazy",
    "Lion",
    "Lookahead",
    "PiecewiseLinear",
    "WarmupDecay",
    "extend",
    "extend_with_exponential_moving_average",
    "extend_with_exponential_moving_average_v2",
    "extend_with_gradient_accumulation",
    "extend_with_gradient_accumulation_v2",
    "extend_with_layer_adaptation",
    "extend_with_layer_adaptation_v2",
    "extend_with_lazy_optimization",
    "extend_with_lazy_optimization_v2",
    "extend_with_lookahead",
    "extend_with_lookahead_v2",
    "extend_with_parameter_wise_lr",
    "extend_with_parameter_wise_lr_v2",
    "extend_with_piecewise_linear_lr",
    "extend_with_piecewise_linear_lr_v2",
    "extend_with_weight_decay",
    "extend_with_weight_decay_v2",
    "layerwise_multipliers",
]

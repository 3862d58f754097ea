"""Updates of tables that leave the rows alone whose ids did not come."""

from keras import ops

from kerasbert.optimizers.extended import (
    ExtendedOptimizer,
    checked_patterns,
    found_in,
    path_of,
)
from kerasbert.optimizers.recipes import extension


@extension
class Lazy(ExtendedOptimizer):
    """Extension: rows without a gradient keep their values, and so do their moments.

    An ordinary Adam goes on moving the row of a rare token for many updates after it came.
    Slots that are not of the variable's shape (Adafactor's) are updated as ever.

    Args:
        include_in_lazy_optimization: regular expressions; a variable in whose path one is
            found is updated lazily.

    Other arguments are those of the optimizer that is extended.

    Raises:
        ConfigError: see `ExtendedOptimizer`.

    Source: bert4keras optimizers.py, `extend_with_lazy_optimization`.
    """

    def __init__(self, *args, include_in_lazy_optimization=(), **kwargs):
        super().__init__(*args, **kwargs)
        self._included = checked_patterns(
            "include_in_lazy_optimization", include_in_lazy_optimization
        )
        self._lazy = ()

    def build(self, variables):
        """Makes the slots, and decides by name which variables are updated lazily."""
        if self.built:
            return
        super().build(variables)
        self._lazy = tuple(
            any(found_in(pattern, path_of(variable)) for pattern in self._included)
            for variable in variables
        )

    def _touched(self, reference):
        """Tensor (rows, 1) of what to change in a variable or slot; None for everything."""
        variable, gradient = self._step.variable, self._step.gradient
        if variable is None or not self._lazy[self._get_variable_index(variable)]:
            return None
        if tuple(reference.shape) != tuple(variable.shape):
            return None
        return ops.any(ops.not_equal(gradient, 0), axis=-1, keepdims=True)

    def change(self, variable, change, rate):
        """Returns what is to be subtracted: 0 in rows without a gradient."""
        change = super().change(variable, change, rate)
        touched = self._touched(variable)
        return change if touched is None else ops.where(touched, change, ops.zeros_like(change))

    def assign_add(self, variable, value):
        """Adds to a slot where there is a gradient; or to a model's variable."""
        touched = None if self._is_updated(variable) else self._touched(variable)
        if touched is not None:
            value = ops.where(touched, value, ops.zeros_like(value))
        super().assign_add(variable, value)

    def assign_sub(self, variable, value):
        """Subtracts from a slot where there is a gradient; or from a model's variable."""
        touched = None if self._is_updated(variable) else self._touched(variable)
        if touched is not None:
            value = ops.where(touched, value, ops.zeros_like(value))
        super().assign_sub(variable, value)

    def assign(self, variable, value):
        """Sets a slot where there is a gradient; or a model's variable."""
        touched = None if self._is_updated(variable) else self._touched(variable)
        if touched is not None:
            value = ops.where(touched, value, ops.convert_to_tensor(variable))
        super().assign(variable, value)

    def get_config(self):
        """Returns the arguments."""
        return super().get_config() | {"include_in_lazy_optimization": list(self._included)}

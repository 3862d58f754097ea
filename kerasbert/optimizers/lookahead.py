"""Lookahead: every few updates the variables go back part of the way."""

from keras import ops

from kerasbert.errors import check_integer, check_number
from kerasbert.optimizers.extended import ExtendedOptimizer
from kerasbert.optimizers.recipes import extension


@extension
class Lookahead(ExtendedOptimizer):
    """Extension: keeps slow copies of the variables, and returns to them now and then.

    After every `steps_per_slow_update` updates the slow copy moves towards the variable by
    `slow_step_size` of the distance, and the variable becomes equal to it. The copies start
    as the variables before the first update.

    Args:
        steps_per_slow_update: number of updates between.
        slow_step_size: share of the distance, from 0 to 1.

    Other arguments are those of the optimizer that is extended.

    Raises:
        ConfigError: for a number out of its range.

    Source: Zhang et al. 2019 (arXiv:1907.08610).
    """

    def __init__(self, *args, steps_per_slow_update=5, slow_step_size=0.5, **kwargs):
        super().__init__(*args, **kwargs)
        check_integer("steps_per_slow_update", steps_per_slow_update, minimum=1)
        check_number("slow_step_size", slow_step_size, least=0, most=1)
        self.steps_per_slow_update = steps_per_slow_update
        self.slow_step_size = slow_step_size

    def build(self, variables):
        """Makes the slots."""
        if self.built:
            return
        super().build(variables)
        self._slow = self.add_optimizer_variables(variables, "slow")

    def update_step(self, gradient, variable, learning_rate):
        """Updates one variable, and every few updates its slow copy and then itself."""
        slow = self._slow[self._get_variable_index(variable)]
        # The optimizer may have been built before the variables got their values.
        old, kept = ops.convert_to_tensor(variable), ops.convert_to_tensor(slow)
        start = ops.where(ops.equal(self.iterations, 0), old, kept)
        super().update_step(gradient, variable, learning_rate)
        new = ops.convert_to_tensor(variable)
        meet = ops.equal((self.iterations + 1) % self.steps_per_slow_update, 0)
        moved = start + (new - start) * self.slow_step_size
        self.assign(slow, ops.where(meet, moved, start))
        self.assign(variable, ops.where(meet, moved, new))

    def get_config(self):
        """Returns the arguments."""
        return super().get_config() | {
            "steps_per_slow_update": self.steps_per_slow_update,
            "slow_step_size": self.slow_step_size,
        }

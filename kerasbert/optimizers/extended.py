"""What all optimizers here can do beyond what Keras' own can: the base of each of them."""

import re
from dataclasses import dataclass
from typing import Any

import keras
from keras import ops

from kerasbert.errors import ConfigError, check_number
from kerasbert.optimizers.recipes import rebuilt
from kerasbert.optimizers.replicas import ReplicaAware

# Biases and normalisations, by the last part of a variable's path.
BIASES_AND_NORMS = (r"(^|/)(bias|beta|gamma)$",)


@dataclass
class _Step:
    """The update that is being computed: of which variable, with which gradient and rate."""

    gradient: Any = None
    variable: Any = None
    rate: Any = None


@keras.saving.register_keras_serializable(package="kerasbert", name="Extended")
class ExtendedOptimizer(ReplicaAware):
    """Gives a Keras optimizer multipliers by variable, and decay that leaves variables out.

    It stands before a Keras optimizer among a class' bases; `extend` makes such classes. What
    the Keras optimizer would subtract from a variable goes through `change`, where subclasses
    alter it. Weight decay is part of it, so that whatever scales an update scales the decay.

    Apart from what the arguments say, it differs from Keras in three points: a learning-rate
    schedule counts updates and not batches when gradients are accumulated; the gradient of a
    table that was looked up twice at one row is summed before it is squared; and under a
    `tf.distribute` strategy the sum of the replicas' gradients is clipped, not each of them,
    and gradients can be accumulated.

    Args:
        exclude_from_weight_decay: regular expressions; a variable in whose path one is found
            does not decay. "…/norm/gamma" is also found as bert4keras spells it,
            "…-Norm/gamma".
        multipliers: dict from regular expressions to numbers. What would be subtracted from a
            variable is multiplied by the numbers of all expressions found in its path.

    Other arguments are those of the Keras optimizer.

    Raises:
        ConfigError: for patterns that are no regular expressions and multipliers that are no
            numbers.
    """

    def __init__(self, *args, exclude_from_weight_decay=(), multipliers=None, **kwargs):
        super().__init__(*args, **kwargs)
        self._patterns = checked_patterns("exclude_from_weight_decay", exclude_from_weight_decay)
        self._multipliers = _checked_multipliers(multipliers or {})
        self._step = _Step()
        self._decayed = self._factors = ()

    def build(self, variables):
        """Makes the slots, and decides by name what holds for each variable."""
        if self.built:
            return
        super().build(variables)
        self._decayed = tuple(self._decays(variable) for variable in variables)
        self._factors = tuple(self._factor(path_of(variable)) for variable in variables)

    def _decays(self, variable):
        excluded = any(found_in(pattern, path_of(variable)) for pattern in self._patterns)
        return not excluded and super()._use_weight_decay(variable)

    def _factor(self, path):
        factor = 1.0
        for pattern, multiplier in self._multipliers.items():
            if found_in(pattern, path):
                factor *= multiplier
        return factor

    def _use_weight_decay(self, variable):
        return self._decayed[self._get_variable_index(variable)]

    def _get_current_learning_rate(self):
        if isinstance(self._learning_rate, keras.optimizers.schedules.LearningRateSchedule):
            return self._learning_rate(self.iterations)
        return super()._get_current_learning_rate()

    def apply(self, grads, trainable_variables=None):
        """Updates the variables; gradients as in Keras."""
        # TensorFlow's gradient of a table has a row for every look-up. Keras squares these rows
        # one by one, which is wrong where an id came twice.
        grads = [
            ops.add(gradient, ops.zeros(tuple(gradient.shape), gradient.dtype))
            if hasattr(gradient, "dense_shape")
            else gradient
            for gradient in grads
        ]
        super().apply(grads, trainable_variables)

    def _apply_weight_decay(self, variables):
        """Does nothing: decay is part of the change of each variable."""

    def update_step(self, gradient, variable, learning_rate):
        """Updates one variable, with its decay and its multiplier."""
        step = self._step
        step.gradient, step.variable, step.rate = gradient, variable, learning_rate
        super().update_step(gradient, variable, learning_rate)
        step.gradient = step.variable = step.rate = None

    def change(self, variable, change, rate):
        """Returns what is to be subtracted from `variable`.

        Args:
            variable: the variable, as it is before the update.
            change: what the Keras optimizer would subtract, the learning rate included.
            rate: the learning rate of this update.

        Returns:
            A tensor like `change`.
        """
        if not self.weight_decay or not self._use_weight_decay(variable):
            return change
        decay = ops.cast(rate, variable.dtype) * self.weight_decay
        return change + ops.multiply(variable, decay)

    def _is_updated(self, reference):
        return reference is self._step.variable

    def assign_sub(self, variable, value):
        """Subtracts from a slot; or from a model's variable, after `change`."""
        if self._is_updated(variable):
            value = self.change(variable, ops.convert_to_tensor(value), self._step.rate)
            factor = self._factors[self._get_variable_index(variable)]
            value = value if factor == 1.0 else value * factor
        super().assign_sub(variable, value)

    def assign_add(self, variable, value):
        """Adds to a slot; or to a model's variable, after `change`."""
        if self._is_updated(variable):
            self.assign_sub(variable, -value)
        else:
            super().assign_add(variable, value)

    def assign(self, variable, value):
        """Sets a slot; or a model's variable, after `change`."""
        if self._is_updated(variable):
            self.assign_sub(variable, ops.subtract(variable, value))
        else:
            super().assign(variable, value)

    def get_config(self):
        """Returns the arguments, and for a class of `extend` what it was made of."""
        config = super().get_config() | {
            "exclude_from_weight_decay": list(self._patterns),
            "multipliers": dict(self._multipliers),
        }
        recipe = getattr(type(self), "recipe", None)
        return config | ({"recipe": recipe} if recipe else {})

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Makes an optimizer from what `get_config` returned."""
        config = dict(config)
        recipe = config.pop("recipe", None)
        # Whichever class of `extend` Keras finds under their one name, it can make all others.
        made = cls if recipe is None else rebuilt(recipe)
        return super(ExtendedOptimizer, made).from_config(config, custom_objects)


def path_of(variable):
    """Returns the path of a variable, such as "Transformer-0-FeedForward/output/kernel"."""
    return getattr(variable, "path", variable.name)


def found_in(pattern, path):
    """Whether a pattern is found in a path, or in the path as bert4keras would spell it."""
    return any(re.search(pattern, name) for name in (path, path.replace("/norm/", "-Norm/")))


def _check_pattern(name, pattern):
    cause = None
    try:
        re.compile(pattern)
        return
    except (TypeError, re.error) as error:
        cause = error
    raise ConfigError(
        f"{name}: {pattern!r} is no regular expression.\n"
        'Expected a text that is searched in the paths of variables, such as "bias".'
    ) from cause


def checked_patterns(name, patterns):
    """Returns a list of regular expressions as a tuple; None means none.

    Args:
        name: of the argument, for the message.
        patterns: what was given for it.

    Raises:
        ConfigError: names the argument and the pattern.
    """
    if isinstance(patterns, str):
        raise ConfigError(
            f"{name}={patterns!r}.\nExpected a list of regular expressions.\nWrite [{patterns!r}]."
        )
    for pattern in patterns or ():
        _check_pattern(name, pattern)
    return tuple(patterns or ())


def _checked_multipliers(multipliers):
    if not isinstance(multipliers, dict):
        raise ConfigError(
            f"multipliers={multipliers!r}.\nExpected a dict from regular expressions to numbers."
        )
    for pattern, multiplier in multipliers.items():
        _check_pattern("multipliers", pattern)
        check_number(f"multipliers[{pattern!r}]", multiplier)
    return multipliers

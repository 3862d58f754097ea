"""Learning rates that change with the number of updates made."""

from itertools import pairwise

import keras
from keras import ops

from kerasbert.errors import ConfigError, check_integer, did_you_mean

WARMUPS = ("replaces", "multiplies")


@keras.saving.register_keras_serializable(package="kerasbert")
class WarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly, then falls to 0 with a power of the steps left.

    The decay is counted from step 0 and not from the end of the warm-up, as in the original
    programs: where the warm-up "replaces" it, the rate jumps at the warm-up's end. Steps are
    numbered from 0, so the first update has rate 0.

    Args:
        learning_rate: the rate that the decay starts from, at step 0.
        total_steps: the step at which the rate is 0; it stays there.
        warmup_steps: length of the warm-up.
        power: of the decay; 1 is linear.
        warmup: "replaces" the decay while it lasts (BERT, ALBERT), or "multiplies" it
            (ELECTRA).
        start_warmup_step: where the warm-up starts (ALBERT). Before it the rate is negative,
            as in the original.

    Raises:
        ConfigError: for steps that are no integers, or an unknown `warmup`.

    Example:
        >>> schedule = WarmupDecay(1e-4, total_steps=100, warmup_steps=10)
        >>> [round(float(schedule(step)), 6) for step in (0, 5, 10, 50, 100)]
        [0.0, 5e-05, 9e-05, 5e-05, 0.0]

    Source: google-research/bert optimization.py, google-research/albert optimization.py,
    google-research/electra model/optimization.py.
    """

    def __init__(
        self,
        learning_rate,
        total_steps,
        warmup_steps=0,
        *,
        power=1.0,
        warmup="replaces",
        start_warmup_step=0,
    ):
        super().__init__()
        check_integer("total_steps", total_steps, minimum=1)
        check_integer("warmup_steps", warmup_steps, minimum=0)
        check_integer("start_warmup_step", start_warmup_step, minimum=0)
        if warmup not in WARMUPS:
            raise ConfigError(
                f"warmup={warmup!r}.{did_you_mean(warmup, WARMUPS)}\n"
                f"Expected one of: {', '.join(WARMUPS)}."
            )
        self.learning_rate = float(learning_rate)
        self.total_steps = total_steps
        self.warmup_steps = warmup_steps
        self.power = float(power)
        self.warmup = warmup
        self.start_warmup_step = start_warmup_step

    def __call__(self, step):
        """Returns the rate of the update number `step`, counted from 0."""
        step = ops.cast(step, "float32")
        left = 1.0 - ops.minimum(step, float(self.total_steps)) / self.total_steps
        decay = self.learning_rate * (left if self.power == 1.0 else ops.power(left, self.power))
        if not self.warmup_steps:
            return decay
        done = (step - self.start_warmup_step) / self.warmup_steps
        if self.warmup == "multiplies":
            return decay * ops.minimum(done, 1.0)
        return ops.where(done < 1.0, self.learning_rate * done, decay)

    def get_config(self):
        """Returns the arguments."""
        return {
            "learning_rate": self.learning_rate,
            "total_steps": self.total_steps,
            "warmup_steps": self.warmup_steps,
            "power": self.power,
            "warmup": self.warmup,
            "start_warmup_step": self.start_warmup_step,
        }


@keras.saving.register_keras_serializable(package="kerasbert")
class PiecewiseLinear(keras.optimizers.schedules.LearningRateSchedule):
    """Joins given points by straight lines.

    Args:
        learning_rate: what the points are multiples of.
        points: dict from steps to multiples. Before the first the rate rises from 0 at step 0;
            after the last it stays.

    Raises:
        ConfigError: for a step that is no integer, or a multiple that is no number.

    Example:
        >>> schedule = PiecewiseLinear(1e-3, {1000: 1, 2000: 0.1})
        >>> [round(float(schedule(step)), 6) for step in (0, 500, 1000, 1500, 9999)]
        [0.0, 0.0005, 0.001, 0.00055, 0.0001]

    Source: bert4keras optimizers.py, `extend_with_piecewise_linear_lr`.
    """

    def __init__(self, learning_rate, points):
        super().__init__()
        self.learning_rate = float(learning_rate)
        self.points = checked_points("points", points)

    def __call__(self, step):
        """Returns the rate of the update number `step`, counted from 0."""
        return self.learning_rate * piecewise_linear(step, self.points)

    def get_config(self):
        """Returns the arguments; steps as text, which JSON wants for keys."""
        points = {str(step): multiple for step, multiple in self.points.items()}
        return {"learning_rate": self.learning_rate, "points": points}


def checked_points(name, points):
    """Returns a schedule's points in the order of their steps, the keys as integers again.

    Args:
        name: of the argument, for the message.
        points: dict from steps to multiples; steps may be texts, as JSON has them.

    Raises:
        ConfigError: names the argument and the point.
    """
    if not isinstance(points, dict) or not points:
        raise ConfigError(
            f"{name}={points!r}.\nExpected a dict from steps to multiples of the learning rate, "
            "such as {1000: 1, 2000: 0.1}."
        )
    checked = {}
    for step, multiple in points.items():
        number = int(step) if isinstance(step, str) and step.isdigit() else step
        check_integer(f"{name}: step", number, minimum=0)
        if isinstance(multiple, bool) or not isinstance(multiple, int | float):
            raise ConfigError(
                f"{name}: {multiple!r} at step {number}.\n"
                "Expected a number, the multiple of the learning rate at that step."
            )
        checked[number] = float(multiple)
    return dict(sorted(checked.items()))


def piecewise_linear(step, points):
    """Returns the value at `step` of the lines through `points`, a dict in order of the steps.

    Before the first point it rises from 0 at step 0; after the last it stays.
    """
    step = ops.cast(step, "float32")
    corners = list((points if 0 in points else {0: 0.0} | points).items())
    value = ops.full_like(step, corners[-1][1])
    for (start, low), (end, high) in reversed(list(pairwise(corners))):
        line = low + (high - low) * (step - start) / (end - start)
        value = ops.where(step < end, line, value)
    return value

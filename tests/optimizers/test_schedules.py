"""Schedules: corners, ends and refusals. That they are the originals' is in the golden tests."""

import keras
import numpy as np
import pytest

from kerasbert.errors import ConfigError
from kerasbert.optimizers import PiecewiseLinear, WarmupDecay


def rates(schedule, steps):
    return [float(schedule(step)) for step in steps]


@pytest.mark.backends
def test_joins_the_points():
    schedule = PiecewiseLinear(2.0, {4: 1, 2: 0.5, 8: 0})
    got = rates(schedule, [0, 1, 2, 3, 4, 6, 8, 100])
    np.testing.assert_allclose(got, [0, 0.5, 1, 1.5, 2, 1, 0, 0])


def test_a_point_at_0_is_the_start():
    np.testing.assert_allclose(rates(PiecewiseLinear(1.0, {0: 1}), [0, 5]), [1, 1])
    np.testing.assert_allclose(rates(PiecewiseLinear(1.0, {0: 1, 10: 0}), [0, 5, 10]), [1, 0.5, 0])


def test_the_warm_up_replaces_or_multiplies():
    replaces = WarmupDecay(1.0, 10, 5)
    multiplies = WarmupDecay(1.0, 10, 5, warmup="multiplies")
    np.testing.assert_allclose(rates(replaces, [0, 4, 5, 6]), [0, 0.8, 0.5, 0.4], rtol=1e-6)
    np.testing.assert_allclose(rates(multiplies, [0, 4, 5, 6]), [0, 0.48, 0.5, 0.4], rtol=1e-6)


def test_no_warm_up_and_no_rate_after_the_end():
    np.testing.assert_allclose(rates(WarmupDecay(1.0, 4), [0, 1, 4, 9]), [1, 0.75, 0, 0])


@pytest.mark.parametrize(
    "schedule",
    [WarmupDecay(0.1, 10, 3, power=0.5, warmup="multiplies"), PiecewiseLinear(0.1, {3: 1, 9: 0})],
    ids=lambda schedule: type(schedule).__name__,
)
def test_comes_back_from_its_configuration(schedule):
    config = keras.optimizers.schedules.serialize(schedule)
    again = keras.optimizers.schedules.deserialize(config)
    assert again.get_config() == schedule.get_config()
    assert rates(again, range(12)) == rates(schedule, range(12))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: WarmupDecay(0.1, 0), "total_steps=0"),
        (lambda: WarmupDecay(0.1, 10.0), "total_steps=10.0"),
        (lambda: WarmupDecay(0.1, 10, -1), "warmup_steps=-1"),
        (lambda: WarmupDecay(0.1, 10, warmup="multiply"), "Did you mean 'multiplies'?"),
        (lambda: PiecewiseLinear(0.1, {}), "points={}"),
        (lambda: PiecewiseLinear(0.1, [1]), "Expected a dict"),
        (lambda: PiecewiseLinear(0.1, {1.5: 1}), "points: step=1.5"),
        (lambda: PiecewiseLinear(0.1, {1: "x"}), "'x' at step 1"),
    ],
)
def test_refusals(make, words):
    with pytest.raises(ConfigError) as error:
        make()
    assert words in str(error.value)

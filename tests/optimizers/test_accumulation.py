"""Gradients of several batches in one update: the same numbers as one large batch."""

import keras
import numpy as np
import pytest
from updates import cross_entropy, numbers, small_data, small_model

from harness import STEP_BY_STEP, WITHOUT_XLA, default_and_slow
from kerasbert.optimizers import LAMB, AdamW, Averaging, Lookahead, WarmupDecay, extend

IDS, LABELS = small_data(24)
ALL = extend(AdamW, Lookahead, Averaging)


def trained(optimizer, batch_size, epochs=2, **options):
    model = small_model()
    model.compile(optimizer, cross_entropy(), **(options or STEP_BY_STEP))
    model.fit(IDS, LABELS, batch_size=batch_size, epochs=epochs, shuffle=False, verbose=0)
    return numbers(model.trainable_variables)


def schedule():
    return WarmupDecay(0.1, total_steps=8, warmup_steps=2)


def close(left, right):
    for a, b in zip(left, right, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)


@pytest.mark.backends
@pytest.mark.parametrize("make", default_and_slow([LAMB, ALL], [ALL]))
def test_four_batches_of_three_are_one_of_twelve(make):
    # The table has repeated ids and a mask; the schedule would end early if it counted batches.
    extra = {"steps_per_slow_update": 2} if issubclass(make, Lookahead) else {}
    plain = make(schedule(), **extra)
    accumulating = make(schedule(), gradient_accumulation_steps=4, **extra)
    # As Keras compiles it unless told not to.
    close(trained(plain, 12), trained(accumulating, 3, jit_compile="auto"))
    if issubclass(make, Averaging):
        close(
            numbers(plain._model_variables_moving_average),
            numbers(accumulating._model_variables_moving_average),
        )


def test_left_over_batches_wait_for_the_next_epoch():
    # Eight batches an epoch and an update after every fifth: one in the first epoch, with three
    # batches kept, which the second epoch's first two complete.
    model, optimizer = small_model(), AdamW(1e-2, gradient_accumulation_steps=5)
    model.compile(optimizer, cross_entropy(), **WITHOUT_XLA)
    model.fit(IDS, LABELS, batch_size=3, shuffle=False, verbose=0)
    assert int(optimizer.iterations) == 1
    assert max(np.abs(g).max() for g in numbers(optimizer._accumulated_gradients)) > 0
    model.fit(IDS, LABELS, batch_size=3, shuffle=False, verbose=0)
    again = AdamW(1e-2, gradient_accumulation_steps=5)
    close(numbers(model.trainable_variables), trained(again, 3, epochs=2))
    assert int(optimizer.iterations) == int(again.iterations) == 3


def test_the_rate_is_that_of_the_update():
    optimizer = AdamW(schedule(), gradient_accumulation_steps=4)
    trained(optimizer, 3, epochs=1)
    assert int(optimizer.iterations) == 2
    assert float(optimizer.learning_rate) == pytest.approx(float(schedule()(2)))


@pytest.mark.backends
def test_ids_that_repeat_are_summed_before_they_are_squared():
    # One id, twice in a batch: the same as one id with twice the gradient.
    rows = {"once": [[1]], "twice": [[1, 1]]}
    tables = {}
    for name, ids in rows.items():
        model = keras.Sequential([keras.layers.Embedding(3, 2, embeddings_initializer="ones")])
        model.compile(
            AdamW(0.1, global_clipnorm=None), lambda y, x: keras.ops.sum(x), **WITHOUT_XLA
        )
        model.fit(np.array(ids), np.zeros((1, 1)), verbose=0)
        second = model.optimizer._velocities[0]
        tables[name] = numbers([second])[0][1]
    np.testing.assert_allclose(tables["twice"], 4 * tables["once"], rtol=1e-5)

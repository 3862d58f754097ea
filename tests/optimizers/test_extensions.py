"""Lookahead, lazy rows and averages, against the papers' formulas in float64."""

import keras
import numpy as np
import pytest
from updates import numbers, run, small_data, small_model, variables_of

from harness import STEP_BY_STEP
from kerasbert.errors import ConfigError, KerasbertError
from kerasbert.optimizers import AdamW, Averaging, LayerAdaptation, Lazy, Lookahead, extend

START = np.arange(1.0, 13.0).reshape(4, 3) / 7
GRADIENTS = np.random.default_rng(0).normal(size=(7, 4, 3))


@pytest.mark.backends
def test_lookahead_meets_half_way_every_few_steps():
    optimizer = extend(keras.optimizers.SGD, Lookahead)(
        0.1, steps_per_slow_update=3, slow_step_size=0.25
    )
    fast = slow = START
    got = run(optimizer, variables_of(a__kernel=START), [[g] for g in GRADIENTS])
    for step, gradient in enumerate(GRADIENTS):
        fast = fast - 0.1 * gradient
        if (step + 1) % 3 == 0:
            fast = slow = slow + 0.25 * (fast - slow)
        np.testing.assert_allclose(got[step][0], fast, rtol=1e-5)


def test_lookahead_starts_from_the_weights_of_the_first_update():
    # Weights that are loaded after the optimizer was built.
    variables = variables_of(a__kernel=np.zeros((4, 3)))
    optimizer = extend(keras.optimizers.SGD, Lookahead)(0.1, steps_per_slow_update=1)
    optimizer.build(variables)
    variables[0].assign(START)
    got = run(optimizer, variables, [[GRADIENTS[0]]])[0][0]
    np.testing.assert_allclose(got, START - 0.05 * GRADIENTS[0], rtol=1e-5)


@pytest.mark.backends
@pytest.mark.parametrize("base", [AdamW, keras.optimizers.SGD, keras.optimizers.Adam])
def test_lazy_rows_keep_values_and_moments(base):
    extra = {"momentum": 0.9} if base is keras.optimizers.SGD else {}
    optimizer = extend(base, Lazy)(
        learning_rate=0.1, weight_decay=0.1, include_in_lazy_optimization=["^table/"], **extra
    )
    variables = variables_of(table__embeddings=START, other__kernel=START)
    touched = GRADIENTS.copy()
    touched[1:, 2] = 0
    got = run(optimizer, variables, [[g, g] for g in touched])
    for step in range(1, len(got)):
        np.testing.assert_array_equal(got[step][0][2], got[0][0][2])
        assert (got[step][1][2] != got[step - 1][1][2]).all()
    slots = [v for v in optimizer.variables if tuple(v.shape) == START.shape]
    for lazy, plain in zip(slots[: len(slots) // 2], slots[len(slots) // 2 :], strict=True):
        assert lazy.shape == plain.shape
    # Rows that always have a gradient are updated as without it.
    np.testing.assert_allclose(got[-1][0][:2], got[-1][1][:2], rtol=1e-6)


@pytest.mark.backends
def test_lazy_moments_do_not_fade():
    optimizer = extend(AdamW, Lazy)(0.1, include_in_lazy_optimization=["table"])
    variables = variables_of(table__embeddings=START)
    touched = GRADIENTS.copy()
    touched[1:, 2] = 0
    run(optimizer, variables, [[touched[0]]])
    first = numbers([optimizer._momentums[0], optimizer._velocities[0]])
    run(optimizer, variables, [[g] for g in touched[1:]])
    for before, after in zip(
        first, numbers([optimizer._momentums[0], optimizer._velocities[0]]), strict=True
    ):
        np.testing.assert_array_equal(before[2], after[2])
        assert (before[0] != after[0]).all()


@pytest.mark.backends
def test_the_average_is_the_weighted_mean_of_all_weights():
    optimizer = extend(keras.optimizers.SGD, Averaging)(0.1, ema_momentum=0.8)
    variables = variables_of(a__kernel=START)
    history = [got[0] for got in run(optimizer, variables, [[g] for g in GRADIENTS])]
    shares = 0.2 * 0.8 ** np.arange(len(history))[::-1]
    mean = np.tensordot(shares, np.float64(history), 1)
    last = history[-1]
    optimizer.apply_ema_weights()
    np.testing.assert_allclose(numbers(variables)[0], mean / shares.sum(), rtol=1e-5)
    with pytest.raises(KerasbertError, match="called twice"):
        optimizer.apply_ema_weights()
    optimizer.reset_old_weights()
    np.testing.assert_array_equal(numbers(variables)[0], last)
    optimizer.apply_ema_weights(bias_correction=False)
    np.testing.assert_allclose(numbers(variables)[0], mean, rtol=1e-5)
    optimizer.reset_old_weights()
    with pytest.raises(KerasbertError, match="in their place"):
        optimizer.reset_old_weights()


def test_no_average_before_the_first_update():
    optimizer = extend(AdamW, Averaging)(0.1)
    optimizer.build(variables_of(a__kernel=START))
    with pytest.raises(KerasbertError, match="before the first update"):
        optimizer.apply_ema_weights()


@pytest.mark.backends
def test_keras_swaps_the_average_in_for_evaluation():
    ids, labels = small_data()
    model = small_model()
    model.compile(
        extend(AdamW, Averaging)(0.1, ema_momentum=0.5),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        **STEP_BY_STEP,
    )
    seen = []

    class Look(keras.callbacks.Callback):
        def on_test_end(self, logs=None):
            seen.append(numbers(self.model.trainable_variables))

    # It looks before the swap is undone.
    callbacks = [Look(), keras.callbacks.SwapEMAWeights()]
    model.fit(ids, labels, validation_data=(ids, labels), epochs=2, verbose=0, callbacks=callbacks)
    averages = numbers(model.optimizer._model_variables_moving_average)
    trained = numbers(model.trainable_variables)
    assert len(seen) == 2
    for evaluated, average, weight in zip(seen[-1], averages, trained, strict=True):
        np.testing.assert_allclose(evaluated, average, atol=1e-6)
        assert np.abs(average - weight).max() > 1e-4


@pytest.mark.backends
def test_layer_adaptation_of_any_optimizer():
    optimizer = extend(keras.optimizers.SGD, LayerAdaptation)(
        0.1, exclude_from_layer_adaptation=["second"]
    )
    variables = variables_of(first__kernel=START, second__kernel=START, third__kernel=START * 0)
    got = run(optimizer, variables, [[GRADIENTS[0]] * 3])[0]
    ratio = np.linalg.norm(START) / np.linalg.norm(GRADIENTS[0])
    np.testing.assert_allclose(got[0], START - 0.1 * ratio * GRADIENTS[0], rtol=1e-5)
    np.testing.assert_allclose(got[1], START - 0.1 * GRADIENTS[0], rtol=1e-5)
    np.testing.assert_allclose(got[2], -0.1 * GRADIENTS[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("extension", "arguments"),
    [
        (Lookahead, {"steps_per_slow_update": 0}),
        (Lookahead, {"slow_step_size": 1.5}),
        (Averaging, {"ema_momentum": 1}),
        (Lazy, {"include_in_lazy_optimization": "Embedding-Token"}),
        (LayerAdaptation, {"exclude_from_layer_adaptation": ["*"]}),
    ],
)
def test_refusals(extension, arguments):
    (name,) = arguments
    with pytest.raises(ConfigError, match=name):
        extend(AdamW, extension)(**arguments)

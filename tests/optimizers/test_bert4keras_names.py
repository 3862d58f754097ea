"""bert4keras' functions, as its scripts use them, against its formulas in float64."""

import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from updates import cross_entropy, numbers, reloaded, run, small_data, small_model, variables_of

from harness import STEP_BY_STEP
from kerasbert import optimizers
from kerasbert.errors import ConfigError
from kerasbert.optimizers import (
    Adam,
    extend,
    extend_with_exponential_moving_average,
    extend_with_gradient_accumulation,
    extend_with_layer_adaptation,
    extend_with_lazy_optimization,
    extend_with_lookahead,
    extend_with_parameter_wise_lr,
    extend_with_piecewise_linear_lr,
    extend_with_weight_decay,
)

START = np.arange(1.0, 13.0).reshape(4, 3) / 7
GRADIENTS = np.random.default_rng(0).normal(size=(8, 4, 3))

AdamW = extend_with_weight_decay(Adam, "AdamW")
AdamWLR = extend_with_piecewise_linear_lr(AdamW, "AdamWLR")
LAMB = extend_with_gradient_accumulation(
    extend_with_piecewise_linear_lr(extend_with_layer_adaptation(AdamW, "LAMB")), "LAMBLRGA"
)


def lamb():
    """The recipe of bert4keras' pretraining script, steps times grad_accum_steps included."""
    return LAMB(
        learning_rate=0.0176,
        bias_correction=False,
        weight_decay_rate=0.01,
        exclude_from_weight_decay=["Norm", "bias"],
        exclude_from_layer_adaptation=["Norm", "bias"],
        lr_schedule={2 * 2: 1.0, 10 * 2: 0.0},
        grad_accum_steps=2,
    )


def everything():
    made = Adam
    for function in (
        extend_with_weight_decay,
        extend_with_layer_adaptation,
        extend_with_parameter_wise_lr,
        extend_with_lazy_optimization,
        extend_with_piecewise_linear_lr,
        extend_with_gradient_accumulation,
        extend_with_lookahead,
        extend_with_exponential_moving_average,
    ):
        made = function(made)
    return made(
        learning_rate=0.01,
        weight_decay_rate=0.01,
        exclude_from_layer_adaptation=["bias"],
        paramwise_lr_schedule={"head": 0.5},
        include_in_lazy_optimization=["table"],
        lr_schedule={2: 1},
        grad_accum_steps=2,
        steps_per_slow_update=2,
        ema_momentum=0.9,
    )


@pytest.mark.backends
def test_adam_with_decay_and_warm_up():
    optimizer = AdamWLR(
        learning_rate=0.1,
        weight_decay_rate=0.1,
        exclude_from_weight_decay=["Norm", "bias"],
        lr_schedule={2: 1, 6: 0.1},
    )
    got = run(optimizer, variables_of(a__kernel=START, a__bias=START), [[g, g] for g in GRADIENTS])
    kernel = bias = START
    m = v = 0.0
    for t, gradient in enumerate(GRADIENTS):
        rate = 0.1 * np.interp(t, [0, 2, 6], [0, 1, 0.1])
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        size = np.sqrt(1 - 0.999 ** (t + 1)) / (1 - 0.9 ** (t + 1))
        step = rate * size * m / (np.sqrt(v) + 1e-6)
        bias = bias - step
        kernel = kernel - step - rate * 0.1 * kernel
        np.testing.assert_allclose(got[t][0], kernel, rtol=2e-5, atol=1e-6)
        np.testing.assert_allclose(got[t][1], bias, rtol=2e-5, atol=1e-6)


@pytest.mark.backends
def test_lamb_of_the_pretraining_script():
    got = run(lamb(), variables_of(a__kernel=START, a__bias=START), [[g, g] for g in GRADIENTS])
    kernel = bias = START
    m = v = 0.0
    for batch in range(1, len(GRADIENTS), 2):
        gradient = GRADIENTS[batch - 1 : batch + 1].mean(0)
        rate = 0.0176 * np.interp(batch, [0, 4, 20], [0, 1, 0])
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        step = m / (np.sqrt(v) + 1e-6)
        bias = bias - rate * step
        step = step + 0.01 * kernel
        kernel = kernel - rate * np.linalg.norm(kernel) / np.linalg.norm(step) * step
        np.testing.assert_array_equal(got[batch - 1][0], got[max(batch - 2, 0)][0])
        np.testing.assert_allclose(got[batch][0], kernel, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(got[batch][1], bias, rtol=1e-5, atol=1e-6)


@pytest.mark.backends
@pytest.mark.parametrize("make", [lamb, everything])
def test_all_together_train_and_come_back(make, tmp_path):
    # Three batches: one is left over when the model is saved.
    ids, labels = small_data(18)
    model = small_model()
    model.compile(make(), cross_entropy(), **STEP_BY_STEP)
    model.fit(ids, labels, batch_size=6, shuffle=False, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert type(again.optimizer) is type(model.optimizer)
    for one in (model, again):
        one.fit(ids, labels, batch_size=6, shuffle=False, verbose=0)
    for a, b in zip(
        numbers(model.variables + model.optimizer.variables),
        numbers(again.variables + again.optimizer.variables),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_comes_back_in_a_process_that_never_made_the_class(tmp_path):
    ids, labels = small_data()
    model = small_model()
    model.compile(everything(), cross_entropy(), **STEP_BY_STEP)
    model.fit(ids, labels, verbose=0)
    model.save(tmp_path / "model.keras")
    code = (
        "import keras, kerasbert, sys; o = keras.models.load_model(sys.argv[1]).optimizer;"
        "print(type(o).__name__, int(o._iterations), len(o.variables))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "model.keras")],
        capture_output=True,
        text=True,
        cwd=Path(optimizers.__file__).parents[2],
        check=False,
    )
    made = type(model.optimizer).__name__
    expected = f"{made} 1 {len(model.optimizer.variables)}"
    assert done.stdout.strip() == expected, done.stderr[-800:]


def test_parts_of_names_are_no_patterns():
    optimizer = extend_with_parameter_wise_lr(Adam)(0.1, paramwise_lr_schedule={"a.b": 0.5})
    optimizer.build(variables_of(axb__kernel=START))
    assert optimizer._factors == (1.0,)


def test_a_schedule_leaves_the_rate_settable():
    optimizer = AdamWLR(0.1, lr_schedule={10: 1})
    optimizer.learning_rate = 0.2
    optimizer._iterations.assign(5)
    assert float(optimizer.learning_rate) == pytest.approx(0.1)


def test_names_of_both_kinds_are_there():
    for name in [n for n in optimizers.__all__ if n.startswith("extend_with_")]:
        assert getattr(optimizers, name.removesuffix("_v2")) is getattr(optimizers, name)
    assert optimizers.AdaFactor is keras.optimizers.Adafactor
    assert optimizers.Lion is keras.optimizers.Lion


def test_one_recipe_is_one_class():
    assert extend_with_weight_decay(Adam, "AdamW") is AdamW
    assert extend_with_weight_decay(Adam, "Other") is not AdamW
    assert AdamW.__name__ == "AdamW"


@pytest.mark.parametrize("base", [keras.optimizers.Lion, keras.optimizers.Adafactor])
def test_optimizers_of_keras_are_extended(base):
    made = extend_with_lookahead(extend_with_weight_decay(base))
    optimizer = made(learning_rate=0.1, weight_decay_rate=0.1)
    assert optimizer.weight_decay == 0.1
    assert type(reloaded(optimizer)) is made


def test_refuses_what_is_no_schedule():
    with pytest.raises(ConfigError, match="lr_schedule"):
        AdamWLR(0.1, lr_schedule=[1000])
    assert AdamWLR(0.1).get_config()["lr_schedule"] == {"0": 1.0}


def test_an_extension_is_added_once():
    with pytest.raises(ConfigError, match="has Lookahead already"):
        extend_with_lookahead(extend_with_weight_decay(extend_with_lookahead(Adam)))
    assert issubclass(extend(Adam), Adam)

"""Multipliers and decay by name, for every optimizer of Keras."""

import keras
import numpy as np
import pytest
from updates import numbers, reloaded, run, variables_of

from kerasbert.errors import ConfigError
from kerasbert.optimizers import LAMB, AdamW, Lookahead, WarmupDecay, extend

# They move the variables by other rules than "subtract rate times direction".
APART = {"LossScaleOptimizer", "MultiOptimizer", "Optimizer", "ScheduleFreeAdamW"}
EVERY = sorted(
    (
        cls
        for cls in vars(keras.optimizers).values()
        if isinstance(cls, type)
        and issubclass(cls, keras.optimizers.Optimizer)
        and cls.__name__ not in APART
    ),
    key=lambda cls: cls.__name__,
)
START = np.arange(1.0, 13.0).reshape(3, 4) / 7
GRADIENTS = np.random.default_rng(0).normal(size=(3, 3, 4))


def two():
    return variables_of(first__kernel=START, second__kernel=START)


def steps(count=3):
    return [[g, g] for g in GRADIENTS[:count]]


@pytest.mark.parametrize("base", EVERY, ids=lambda cls: cls.__name__)
def test_every_optimizer_of_keras_takes_multipliers(base):
    plain = run(base(learning_rate=0.1), two(), steps())
    ours = run(extend(base)(learning_rate=0.1, multipliers={"^third": 0.5}), two(), steps())
    for a, b in zip(plain, ours, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    halves = extend(base)(learning_rate=0.1, multipliers={"^second": 0.5, "^first": 0})
    halved = run(halves, two(), steps(1))[0]
    np.testing.assert_array_equal(halved[0], START.astype("float32"))
    np.testing.assert_allclose(halved[1] - START, (plain[0][1] - START) / 2, rtol=1e-4, atol=1e-6)


@pytest.mark.backends
def test_decay_is_multiplied_too():
    optimizer = extend(keras.optimizers.SGD)(0.1, weight_decay=0.5, multipliers={"second": 0.1})
    first, second = run(optimizer, two(), [[np.zeros((3, 4))] * 2])[0]
    np.testing.assert_allclose(first, START * 0.95, rtol=1e-6)
    np.testing.assert_allclose(second, START * 0.995, rtol=1e-6)


@pytest.mark.backends
def test_all_multipliers_that_match_count():
    optimizer = extend(keras.optimizers.SGD)(1.0, multipliers={"kernel": 0.5, "^first/": 0.1})
    first, second = run(optimizer, two(), [[np.ones((3, 4))] * 2])[0]
    np.testing.assert_allclose(first, START - 0.05, rtol=1e-6)
    np.testing.assert_allclose(second, START - 0.5, rtol=1e-6)


def test_names_as_bert4keras_spells_them():
    (norm,) = variables_of(norm__gamma=[1.0, 2.0])
    norm._path = "Transformer-0-FeedForward/norm/gamma"
    optimizer = AdamW(exclude_from_weight_decay=["Norm"])
    optimizer.build([norm])
    assert optimizer._decayed == (False,)


def test_the_methods_of_keras_for_decay_count_too():
    variables = two()
    optimizer = AdamW(0.1)
    optimizer.exclude_from_weight_decay(var_list=[variables[0]])
    optimizer.build(variables)
    assert optimizer._decayed == (False, True)


def test_the_rate_can_be_set():
    optimizer = AdamW(0.1)
    optimizer.learning_rate = 0.01
    assert float(optimizer.learning_rate) == pytest.approx(0.01)


@pytest.mark.parametrize("clip", ["clipnorm", "clipvalue"])
def test_another_way_of_clipping_replaces_the_default(clip):
    assert AdamW(**{clip: 0.5}).global_clipnorm is None


@pytest.mark.backends
@pytest.mark.parametrize("make", [AdamW, LAMB, extend(AdamW, Lookahead)])
def test_comes_back_from_its_configuration(make):
    schedule = WarmupDecay(0.1, 10, 2, power=2, warmup="multiplies", start_warmup_step=1)
    optimizer = make(schedule, multipliers={"second": 0.5}, exclude_from_weight_decay=["first"])
    again = reloaded(optimizer)
    assert type(again) is type(optimizer)
    assert again.get_config() == optimizer.get_config()
    for a, b in zip(run(optimizer, two(), steps()), run(again, two(), steps()), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"exclude_from_weight_decay": "bias"}, "Write ['bias']"),
        ({"exclude_from_weight_decay": ["("]}, "no regular expression"),
        ({"exclude_from_weight_decay": [3]}, "no regular expression"),
        ({"multipliers": ["a"]}, "Expected a dict"),
        ({"multipliers": {"a": "0.1"}}, "Expected a finite number"),
        ({"multipliers": {"[": 1.0}}, "no regular expression"),
    ],
)
def test_refusals(arguments, words):
    with pytest.raises(ConfigError) as error:
        AdamW(**arguments)
    assert words in str(error.value)


@pytest.mark.parametrize("base", [keras.optimizers.Adam(), keras.layers.Dense, "adam"])
def test_only_classes_of_optimizers_are_extended(base):
    with pytest.raises(ConfigError, match="is no optimizer class"):
        extend(base)


def test_only_extensions_extend():
    with pytest.raises(ConfigError, match="is no extension"):
        extend(keras.optimizers.Adam, keras.optimizers.SGD)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_variables_of_low_precision(dtype):
    variables = [keras.Variable(START, dtype=dtype, name="kernel")]
    for make in (AdamW, LAMB):
        run(make(0.1), variables, [[g] for g in GRADIENTS])
    assert np.isfinite(numbers(variables)[0].astype("float32")).all()

"""Which numbers a model gets, and the optimizer made of them."""

from dataclasses import replace

import keras
import pytest
from tiny import EAGER, IDS, LABELS, SEGMENTS, classifier

from harness import refused
from kerasbert import build_transformer_model
from kerasbert.errors import ConfigError, KerasbertError
from kerasbert.training import FGM, Recipe, recipe_for
from kerasbert.training.recipes import _RECIPES, nearest_recipe
from reference.zoo_weights import zoo_config

ALL = [(family, size) for family, sizes in _RECIPES.items() for size in sizes]


@pytest.mark.parametrize(("family", "size"), ALL)
def test_every_recipe_has_a_source_and_sane_numbers(family, size):
    recipe = nearest_recipe(family, size)
    assert recipe.source and not recipe.note
    assert 1e-6 < recipe.learning_rate <= 3e-4
    assert 0 < recipe.warmup < 0.2 and 0 < recipe.layer_decay <= 1


@pytest.mark.parametrize("family", _RECIPES)
def test_larger_models_get_lower_rates(family):
    rates = [_RECIPES[family][size].learning_rate for size in sorted(_RECIPES[family])]
    if family == "albert":
        # xxlarge has the table's own rate, xlarge the lower one that users report.
        assert rates.pop() > rates[-1]
    assert rates == sorted(rates, reverse=True)


def test_albert_gets_lower_rates_than_bert():
    for size in (768, 1024):
        albert, bert = nearest_recipe("albert", size), nearest_recipe("bert", size)
        assert albert.learning_rate < bert.learning_rate


@pytest.mark.parametrize(
    ("family", "size", "words"),
    [
        ("albert", 350, ["albert, hidden size 384", "albert, 350"]),
        ("bert", 16, ["bert, hidden size 256"]),
        ("nezha", 768, ["bert, hidden size 768", "nezha, 768"]),
        ("roberta", 512, ["roberta, hidden size 768"]),
    ],
)
def test_other_sizes_take_the_nearest_and_say_so(family, size, words):
    recipe = nearest_recipe(family, size)
    assert recipe.source
    assert all(word in recipe.note for word in words)


def test_two_lines_are_enough():
    model = classifier("electra", "electra")
    recipe = recipe_for(model)
    optimizer = recipe.optimizer(model, recipe.steps(examples=100))
    model.compile(optimizer, "sparse_categorical_crossentropy", run_eagerly=EAGER)
    assert recipe.steps(100) == 3 * 4
    schedule = model.optimizer._learning_rate
    assert (schedule.total_steps, schedule.warmup_steps) == (12, 1)
    assert schedule.learning_rate == recipe.learning_rate == 3e-4
    assert model.optimizer.weight_decay in (0.0, None)
    below = model.optimizer.get_config()["multipliers"]["(^|/)Embedding\\-Token/"]
    assert below == pytest.approx(0.8**4)
    assert recipe_for(FGM(model)) == recipe
    # The first update has rate 0, as in the original programs.
    assert model.train_on_batch([IDS, SEGMENTS], LABELS) > 0


def test_a_number_may_be_changed():
    model = classifier()
    recipe = replace(recipe_for(model), learning_rate=1e-3, warmup=0.5)
    assert recipe.optimizer(model, 10)._learning_rate.warmup_steps == 5


def test_refusals():
    t5 = build_transformer_model(zoo_config("t5.1.1"), model="t5.1.1", verbose=0)
    with refused(ConfigError, "'t5'", "AdaFactor"):
        recipe_for(t5)
    with refused(KerasbertError, "no encoder"):
        recipe_for(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))
    with refused(ConfigError, "steps=0"):
        Recipe(1e-5).optimizer(classifier(), 0)
    with refused(ConfigError, "examples=-1"):
        Recipe(1e-5).steps(-1)

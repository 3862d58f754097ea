"""The watch for collapse: provoked by a rate of 1, silent in a healthy run."""

import warnings

import keras
import numpy as np
import pytest
from tiny import classifier

from harness import refused
from kerasbert.errors import ConfigError
from kerasbert.optimizers import AdamW, WarmupDecay
from kerasbert.training import CollapseWarning


def task():
    """Texts whose first token tells their class; two thirds are of class 0."""
    rng = np.random.default_rng(0)
    labels = np.array([0, 0, 1] * 16, "int32")
    ids = rng.integers(10, 99, (48, 5)).astype("int32")
    ids[:, 0] = 2 + labels
    return [ids, np.zeros_like(ids)], labels


def fit(rate, epochs=1, **options):
    x, y = task()
    model = classifier()
    watch = CollapseWarning(x, y, **options)
    steps = epochs * 12
    model.compile(
        AdamW(WarmupDecay(rate, total_steps=2 * steps, warmup_steps=1)),
        "sparse_categorical_crossentropy",
        jit_compile=False,
    )
    history = model.fit(x, y, batch_size=4, epochs=epochs, verbose=0, callbacks=[watch])
    return watch, history


def test_a_rate_of_1_collapses_and_is_told():
    with pytest.warns(UserWarning, match="After epoch 1 48 of 48 texts are predicted") as caught:
        watch, history = fit(1.0, stop=True)
    assert watch.collapsed
    assert len(history.epoch) == 1
    text = str(caught[0].message)
    assert "rate of 0.0001" in text and "2 steps for 1" in text and "checkpoint" in text


def test_a_healthy_run_is_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        watch, history = fit(0.002, epochs=2, stop=True)
    assert not watch.collapsed
    assert len(history.epoch) == 2
    assert history.history["loss"][-1] < 0.4


class Fixed(keras.Model):
    def __init__(self, scores):
        super().__init__()
        self.scores = scores

    def predict(self, x, **options):
        return self.scores


def watched(scores, labels, **options):
    watch = CollapseWarning(np.zeros((len(labels), 2)), labels, **options)
    model = Fixed(np.asarray(scores, "float32"))
    model.compile("sgd", "mse")
    watch.set_model(model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        watch.on_epoch_end(0)
    assert watch.collapsed == bool(caught)
    return str(caught[0].message) if caught else ""


def test_what_counts_as_collapse():
    labels = [0, 0, 1, 1]
    assert "4 of 4 texts are predicted to be of class 1" in watched([[0.2, 0.8]] * 4, labels)
    assert "of class 0" in watched([[0.2]] * 4, labels)
    assert not watched([[0.2], [0.3], [0.8], [0.1]], labels)
    assert not watched([[0.9, 0.1], [0.1, 0.9]] * 2, [[1, 0], [0, 1]] * 2)
    assert "NaN" in watched([[np.nan, 0.1], [0.1, 0.9]] * 2, labels)
    assert "a tenth of all steps" in watched([[0.2]] * 4, labels)
    assert watched([[0.9, 0.1]] * 3 + [[0.1, 0.9]], labels, share=0.75)


def test_patience_lets_a_slow_start_pass():
    one_class, right = [[0.9, 0.1]] * 4, [[0.9, 0.1], [0.1, 0.9]] * 2
    watch = CollapseWarning(np.zeros((4, 2)), [0, 1, 0, 1], patience=1, stop=True)
    model = Fixed(None)
    model.compile("sgd", "mse")
    watch.set_model(model)
    watch.on_train_begin()
    warned = []
    for epoch, scores in enumerate([one_class, right, one_class, one_class]):
        model.scores = np.array(scores)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            watch.on_epoch_end(epoch)
        warned.append(len(caught))
    assert warned == [0, 0, 0, 1]
    assert model.stop_training


def test_refusals():
    with refused(ConfigError, "3 of 3 labels", "at least two classes"):
        CollapseWarning(np.zeros((3, 2)), [1, 1, 1])
    with refused(ConfigError, "share=3"):
        CollapseWarning(np.zeros((2, 2)), [0, 1], share=3)
    with refused(ConfigError, "shape (0,)"):
        CollapseWarning(np.zeros((0, 2)), [])
    with refused(ConfigError, "(4, 5, 2)"):
        watched(np.zeros((4, 5, 2)), [0, 1, 0, 1])

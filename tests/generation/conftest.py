"""Two ways to spare the time that XLA takes to compile."""

import functools

import keras
import pytest

from kerasbert import compilation


@pytest.fixture
def quick_to_compile(monkeypatch):
    """Leaves XLA out: steps take longer then, but far less than it takes to compile them."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        make = functools.partial(tf.function, autograph=False)
        monkeypatch.setattr(compilation, "compiled", lambda function, variables: make(function))


@pytest.fixture
def do_not_compile(monkeypatch):
    """Runs every step as it is, which is quickest for a few steps."""
    monkeypatch.setattr(compilation, "compiled", lambda function, variables: function)

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

        monkeypatch.setattr(compilation, "jit", functools.partial(tf.function, autograph=False))


@pytest.fixture
def do_not_compile(monkeypatch):
    """Runs every step as it is, which is quickest for a few steps."""
    monkeypatch.setattr(compilation, "compiled", lambda function, variables: function)
    monkeypatch.setattr(
        compilation,
        "compiled_writer",
        lambda function, variables: compilation.writes_afterwards(function),
    )

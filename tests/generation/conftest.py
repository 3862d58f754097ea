"""Two ways to spare the time that XLA takes to compile."""

import keras
import pytest

from kerasbert.generation import compilation


@pytest.fixture
def quick_to_compile(request):
    """Leaves XLA out: a few steps are over before TensorFlow has so much as traced one.

    On JAX steps stay compiled: as they are they take longest there.
    """
    if keras.backend.backend() == "tensorflow":
        request.getfixturevalue("do_not_compile")


@pytest.fixture
def do_not_compile(monkeypatch):
    """Runs every step as it is, which is quickest for a few steps."""
    monkeypatch.setattr(compilation, "compiled", lambda function, variables: function)

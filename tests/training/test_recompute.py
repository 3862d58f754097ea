"""Keras' own recomputation of activations, with models of ours."""

import keras
import pytest
from tiny import classifier, compiled, difference, one_step


@pytest.mark.backends
@pytest.mark.parametrize("kind", ["albert", "albert_unshared"])
def test_remat_scope_gives_the_same_step(kind):
    if keras.backend.backend() == "torch":
        pytest.skip("Keras recomputes on TensorFlow and JAX only: torch is active")
    loss, weights = one_step(compiled(classifier(model=kind)))
    with keras.RematScope(mode="full"):
        model = classifier(model=kind)
    found, after = one_step(compiled(model))
    assert found == pytest.approx(loss, abs=1e-6)
    assert difference(after, weights) < 1e-6

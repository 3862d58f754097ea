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
    # The head stays outside: Keras cannot recompute its own operation x[:, 0].
    model = classifier(model=kind, scope=keras.RematScope(mode="full"))
    assert all(layer._remat_mode for layer in model.layers if "Attention" in layer.name)
    found, after = one_step(compiled(model))
    assert found == pytest.approx(loss, abs=1e-6)
    assert difference(after, weights) < 1e-6

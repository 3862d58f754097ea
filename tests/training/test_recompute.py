"""Keras' own recomputation of activations, with models of ours.

On TensorFlow step by step (`run_eagerly=True`) it gives the same update, without dropout. The
rest is Keras' own: in a compiled step on TensorFlow it calls `tf.recompute_grad` with keyword
arguments, which that refuses; on JAX it traces `training`, of which layers then cannot tell
whether it is true; the second pass draws another dropout.
"""

import keras
import pytest
from tiny import classifier, compiled, difference, one_step


@pytest.mark.parametrize("kind", ["albert", "albert_unshared"])
def test_remat_scope_gives_the_same_step(kind):
    if keras.backend.backend() != "tensorflow":
        pytest.skip("Keras' recomputation fails with layers that drop out: not TensorFlow")
    loss, weights = one_step(compiled(classifier(model=kind)))
    # The head stays outside: Keras cannot recompute its own operation x[:, 0].
    model = classifier(model=kind, scope=keras.RematScope(mode="full"))
    assert all(layer._remat_mode for layer in model.layers if "Attention" in layer.name)
    found, after = one_step(compiled(model))
    assert found == pytest.approx(loss, abs=1e-6)
    assert difference(after, weights) < 1e-6

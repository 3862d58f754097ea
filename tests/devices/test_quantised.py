"""Models quantised to int8: smaller, near the exact ones, and the same when they come back."""

import warnings

import keras
import numpy as np
import pytest

from devices.models import KINDS, batch, build, classifier, difference, outputs
from harness import refused, saved_and_loaded
from kerasbert import unshare
from kerasbert.adapters import add_lora, load_lora, merge_lora, save_lora
from kerasbert.errors import KerasbertError
from kerasbert.layers import ConditionalRandomField, EfficientGlobalPointer, GlobalPointer

pytestmark = pytest.mark.slow


def quantised(model):
    """The same model; Keras warns of each layer that has nothing to quantise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.quantize("int8")
    return model


def size_of(model):
    """Bytes of the weights."""
    return sum(np.prod(w.shape) * (1 if w.dtype == "int8" else 4) for w in model.weights)


def policies(model):
    return [layer.dtype_policy.name for layer in model._flatten_layers()]


@pytest.mark.parametrize("kind", KINDS)
def test_every_family(kind, tmp_path):
    # Of fewer layers the tables, which stay as they are, would be too large a part.
    deep = {} if "groups" in kind or "t5" in kind else {"num_hidden_layers": 3}
    model = build(kind, **deep)
    inputs = batch(model)
    exact, size = outputs(model, inputs), size_of(model)
    quantised(model)
    found = outputs(model, inputs)
    assert all(np.isfinite(x).all() for x in found)
    largest = max(np.abs(x).max() for x in exact)
    assert 0 < difference(found, exact) < 0.15 * largest
    assert size_of(model) < 0.5 * size
    again = saved_and_loaded(model, tmp_path)
    assert difference(outputs(again, inputs), found) == 0
    assert policies(again) == policies(model)
    assert sum("int8" in name for name in policies(again)) > 4
    assert [w.dtype for w in again.weights] == [w.dtype for w in model.weights]


def crf(encoder):
    scores = keras.layers.Dense(4)(encoder.output)
    return keras.Model(encoder.inputs, ConditionalRandomField()(scores))


def pointer(layer):
    return lambda encoder: keras.Model(encoder.inputs, layer(2, 8)(encoder.output))


HEADS = {
    "crf": crf,
    "pointer": pointer(GlobalPointer),
    "efficient": pointer(EfficientGlobalPointer),
    "classifier": classifier,
}


@pytest.mark.parametrize("head", HEADS)
def test_heads(head, tmp_path):
    model = HEADS[head](build("albert", with_mlm=False, with_nsp=False))
    inputs = batch(model)
    found = outputs(quantised(model), inputs)
    again = saved_and_loaded(model, tmp_path)
    assert difference(outputs(again, inputs), found) == 0
    assert policies(again) == policies(model)


def test_with_low_precision(tmp_path):
    model = quantised(build("albert", dtype="mixed_bfloat16"))
    inputs = batch(model)
    found = outputs(model, inputs)
    again = saved_and_loaded(model, tmp_path)
    assert difference(outputs(again, inputs), found) == 0
    assert all(np.isfinite(x).all() for x in found)


def test_keras_refuses_int8_with_float16():
    with pytest.raises(ValueError, match="doesn't work well with compute_dtype='float16'"):
        quantised(build("albert", dtype="mixed_float16"))


def test_adapters_at_a_quantised_model(tmp_path):
    """Adapters are trained at int8 kernels, saved with them and alone, and merged elsewhere."""
    model = build("albert", with_mlm=False)
    base = quantised(build("albert", with_mlm=False))
    inputs = batch(model)
    lora = add_lora(base, 2, verbose=0)
    assert difference(outputs(lora, inputs), outputs(base, inputs)) == 0
    lora.compile(keras.optimizers.Adam(0.02), "mse", jit_compile=False)
    target = np.ones((4, 2), "float32")
    losses = [float(lora.train_on_batch(inputs, target)) for _ in range(10)]
    assert losses[-1] < losses[0]
    found = outputs(lora, inputs)
    again = saved_and_loaded(lora, tmp_path)
    assert difference(outputs(again, inputs), found) == 0
    with refused(KerasbertError, "quantised kernels", "query", "before"):
        merge_lora(lora)
    path = save_lora(lora, tmp_path / "adapters", heads=True)
    merged = merge_lora(load_lora(model, path, verbose=0))
    assert difference(outputs(merged, inputs), found) < 0.2
    both = quantised(merged)
    assert difference(outputs(saved_and_loaded(both, tmp_path), inputs), outputs(both, inputs)) == 0


def test_adapters_first_then_quantised(tmp_path):
    lora = add_lora(build("albert"), 2, verbose=0)
    inputs = batch(lora)
    rng = np.random.default_rng(2)
    for weight in lora.trainable_weights:
        weight.assign(rng.normal(0, 0.1, weight.shape))
    found = outputs(quantised(lora), inputs)
    assert difference(outputs(saved_and_loaded(lora, tmp_path), inputs), found) == 0


def test_unsharing_a_quantised_model():
    model = quantised(build("albert"))
    inputs = batch(model)
    assert difference(outputs(unshare(model), inputs), outputs(model, inputs)) == 0

"""Trains with TensorFlow's MirroredStrategy on two logical CPUs, in a process of its own.

    strategy_run.py FOLDER

Prints a JSON dict from the cases to "done", or to what went wrong.
"""

import json
import sys
import traceback
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from devices.models import batch, build, classifier, difference, outputs
from kerasbert import load_weights_from_checkpoint, save_weights_as_checkpoint
from kerasbert.adapters import add_lora, merge_lora


def two_devices():
    device = tf.config.list_physical_devices("CPU")[0]
    halves = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(device, halves)
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def compiled(model, **options):
    model.compile(keras.optimizers.Adam(0.01, **options), "mse", jit_compile=False)
    return model


def data(model, rows=5):
    return batch(model, rows=rows), np.random.default_rng(1).normal(size=(rows, 3))


def fitted(model, rows=5):
    """Two epochs of so many rows, four at a time: with five the last batch has one row."""
    inputs, target = data(model, rows)
    return model.fit(inputs, target, batch_size=4, epochs=2, shuffle=False, verbose=0).history


def check_replicas(model):
    for weight in model.weights:
        copies = [np.asarray(value) for value in weight.value.values]
        assert len(copies) == 2
        np.testing.assert_array_equal(*copies, err_msg=weight.path)


def equals_one_device(strategy, folder):
    for kind in ("bert", "albert"):
        alone = compiled(classifier(build(kind, with_mlm=False)))
        # Keras takes the mean over replicas of their means: rows weigh the same in even batches.
        expected = fitted(alone, 8)
        with strategy.scope():
            model = compiled(classifier(build(kind, with_mlm=False)))
        check_replicas(model)
        np.testing.assert_allclose(fitted(model, 8)["loss"], expected["loss"], rtol=1e-4)
        check_replicas(model)
        inputs, _ = data(model, 8)
        assert difference(outputs(model, inputs), outputs(alone, inputs)) < 1e-3
    # Saved inside the scope and loaded outside, and the other way round.
    with strategy.scope():
        model.save(folder / "inside.keras")
    again = keras.models.load_model(folder / "inside.keras")
    assert difference(outputs(again, inputs), outputs(model, inputs)) == 0
    again.save(folder / "outside.keras")
    with strategy.scope():
        inside = keras.models.load_model(folder / "outside.keras")
    check_replicas(inside)
    assert difference(outputs(inside, inputs), outputs(model, inputs)) == 0
    assert np.isfinite(fitted(inside)["loss"]).all()


def loads_a_checkpoint(strategy, folder):
    source = build("albert")
    save_weights_as_checkpoint(source, folder / "model.ckpt")
    with strategy.scope():
        model = build("albert", seed=2)
        load_weights_from_checkpoint(model, folder / "model.ckpt", verbose=0)
    check_replicas(model)
    inputs = batch(model)
    assert difference(outputs(model, inputs), outputs(source, inputs)) == 0
    save_weights_as_checkpoint(model, folder / "again.ckpt")


def low_precision(strategy, folder):
    with strategy.scope():
        encoder = build("albert", with_mlm=False, dtype="mixed_bfloat16", num_hidden_layers=1)
        model = compiled(classifier(encoder))
    assert np.isfinite(fitted(model)["loss"]).all()
    check_replicas(model)


def adapters(strategy, folder):
    with strategy.scope():
        model = classifier(build("albert", with_mlm=False))
        model = compiled(add_lora(model, 2, verbose=0))
    check_replicas(model)
    before = [np.asarray(w) for w in model.non_trainable_weights]
    assert np.isfinite(fitted(model)["loss"]).all()
    check_replicas(model)
    for one, other in zip(before, model.non_trainable_weights, strict=True):
        np.testing.assert_array_equal(one, np.asarray(other))
    inputs, _ = data(model)
    assert difference(outputs(merge_lora(model), inputs), outputs(model, inputs)) < 1e-5


def loss_scaling(strategy, folder):
    with strategy.scope():
        encoder = build("albert", with_mlm=False, dtype="mixed_float16", num_hidden_layers=1)
        model = classifier(encoder)
        optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01))
        model.compile(optimizer, "mse", jit_compile=False)
    assert np.isfinite(fitted(model)["loss"]).all()


def accumulation(strategy, folder):
    with strategy.scope():
        model = compiled(classifier(build("albert", with_mlm=False)), gradient_accumulation_steps=2)
    fitted(model)


CASES = (
    equals_one_device,
    loads_a_checkpoint,
    low_precision,
    adapters,
    loss_scaling,
    accumulation,
)


def ended(case, strategy, folder):
    """What one case ended with: its error is for the test of that case."""
    try:
        case(strategy, folder)
    except Exception:
        return traceback.format_exc()
    return "done"


if __name__ == "__main__":
    two = two_devices()
    print(json.dumps({case.__name__: ended(case, two, Path(sys.argv[1])) for case in CASES}))

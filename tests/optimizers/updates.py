"""Small helpers for tests of optimizers: variables, gradients, and small models."""

import keras
import numpy as np

# An `apply` outside of a compiled step would be slow on some backends; sizes are small.


def variables_of(**values):
    """A Keras variable for each value, its name in place of a path: ``layer__kernel``."""
    made = []
    for name, value in values.items():
        scope, _, last = name.rpartition("__")
        with keras.name_scope(scope or "top"):
            made.append(keras.Variable(np.asarray(value, "float32"), name=last))
    return made


def numbers(variables):
    """The values of variables or tensors, as numpy arrays."""
    return [keras.ops.convert_to_numpy(getattr(v, "value", v)) for v in variables]


def run(optimizer, variables, gradients):
    """Applies each list of gradients; returns the values after every update."""
    history = []
    for step in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(np.float32(g)) for g in step], variables)
        history.append(numbers(variables))
    return history


def reloaded(optimizer):
    """The optimizer that its serialised form makes."""
    return keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))


def small_model(seed=0, rows=7, width=4, dtype=None):
    """A classifier over a table with a mask for id 0, and a layer norm: compiled by the test."""
    keras.utils.set_random_seed(seed)
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(rows, width, mask_zero=True, name="table", dtype=dtype)(ids)
    x = keras.layers.GlobalAveragePooling1D(dtype=dtype)(x)
    x = keras.layers.LayerNormalization(name="norm", dtype=dtype)(x)
    x = keras.layers.Dense(3, name="head", dtype=dtype)(x)
    return keras.Model(ids, keras.layers.Activation("linear", dtype="float32")(x))


def small_data(samples=12, length=5, rows=7, seed=1):
    """Ids with many repeats and some padding, and labels."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(1, rows, (samples, length)).astype("int32")
    ids[::3, 3:] = 0
    return ids, rng.integers(0, 3, samples)


def cross_entropy():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

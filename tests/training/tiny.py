"""Small classifiers for the tests of training, and single steps of them."""

from contextlib import nullcontext

import keras
import numpy as np

from fixtures import tiny_config
from kerasbert import build_transformer_model

# A short run is quicker step by step than its compilation; on JAX it is the other way round.
EAGER = keras.backend.backend() == "tensorflow"

#: Every id stands once, so a row of the table is the vector of one token of one example.
IDS = np.array(
    [[2, 3, 4, 5, 6], [7, 8, 9, 0, 0], [10, 11, 12, 13, 0], [14, 15, 16, 17, 18]], "int32"
)
SEGMENTS = np.array([[0, 0, 0, 1, 1]] * 4, "int32")
LABELS = np.array([0, 1, 1, 0], "int32")


def classifier(kind="google_albert", model="albert", dropout=0.0, dtype=None, scope=None):
    """A classifier with a softmax; the same numbers each time. `scope` is around its encoder."""
    keras.utils.set_random_seed(1)
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    sizes = {"num_hidden_layers": 2, "hidden_size": 16, "intermediate_size": 32}
    config = tiny_config(kind, initializer_range=0.2, **sizes, **rates)
    with scope or nullcontext():
        encoder = build_transformer_model(config, model=model, dtype=dtype, verbose=0)
    labels = keras.layers.Dense(2, "softmax", dtype="float32", name="labels")
    return keras.Model(encoder.inputs, labels(encoder.output[:, 0]))


def compiled(model, rate=0.1, **options):
    """The model, with plain gradient steps, so that rounding stays as small as it is."""
    if "jit_compile" not in options:
        options["run_eagerly"] = EAGER
    model.compile(keras.optimizers.SGD(rate), "sparse_categorical_crossentropy", **options)
    return model


def one_step(model, weights=None, seed=5, **more):
    """(loss, weights after) of one training step from the given weights."""
    if weights is not None:
        model.set_weights(weights)
    keras.utils.set_random_seed(seed)
    loss = model.train_on_batch([IDS, SEGMENTS], LABELS, **more)
    return float(np.ravel(loss)[0]), model.get_weights()


def table_index(model):
    """Which of the model's weights is the token table."""
    paths = [weight.path for weight in model.weights]
    return next(i for i, path in enumerate(paths) if "Embedding-Token/" in path)


def difference(one, other):
    """The largest difference between two lists of arrays."""
    return max(np.abs(a - b).max() for a, b in zip(one, other, strict=True))

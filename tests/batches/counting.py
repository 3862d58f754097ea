"""A model that counts how often it was trained with each sample, and data for it."""

import functools

import keras
import numpy as np
from keras import ops

from harness import WITHOUT_XLA
from kerasbert.data import DataGenerator, sequence_padding


class Counter(keras.layers.Layer):
    """Counts the ids (B, L) at the first place; gives a vector for each row."""

    def __init__(self, samples):
        super().__init__()
        self.samples = samples
        self.embedding = keras.layers.Embedding(64, 4)

    def build(self, shape):
        self.counts = self.add_weight((self.samples,), "zeros", "float32", trainable=False)
        self.embedding.build(shape)

    def call(self, ids, training=False):
        if training:
            seen = ops.one_hot(ids[:, 0], self.samples)
            self.counts.assign(self.counts + ops.sum(seen, axis=0))
        return ops.sum(self.embedding(ids), axis=1)


class CheckCounts(keras.callbacks.Callback):
    """Keeps the counts after each epoch."""

    def __init__(self, counter):
        super().__init__()
        self.counter = counter
        self.epochs = []

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(np.copy(ops.convert_to_numpy(self.counter.counts)))


def new_model(samples):
    """Returns a compiled model of ids (B, L) and segments (B, L), and its layer that counts."""
    inputs = [keras.Input((None,), dtype="int32") for _ in range(2)]
    counter = Counter(samples)
    model = keras.Model(inputs, keras.layers.Dense(2)(counter(inputs[0])))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, metrics=["accuracy"], **WITHOUT_XLA)
    return model, counter


@functools.cache
def _made(samples):
    model, counter = new_model(samples)
    return model, counter, model.get_weights()


def counting_model(samples):
    """Returns `new_model` as it was at first, and its callback: what Keras traced is kept."""
    model, counter, start = _made(samples)
    model.set_weights(start)
    return model, CheckCounts(counter)


def assert_each_once(check, samples, epochs):
    expected = [np.full(samples, epoch + 1.0) for epoch in range(epochs)]
    np.testing.assert_array_equal(check.epochs, expected)


class Texts(DataGenerator):
    """Batches as the scripts for bert4keras make them; keeps what it made in `passes`."""

    passes = None

    def __iter__(self, random=False):
        self.passes = self.passes or []
        self.passes.append([])
        rows, labels = [], []
        for is_end, (row, label) in self.sample(random):
            self.passes[-1].append(row[0])
            rows.append(row)
            labels.append([label])
            if len(rows) == self.batch_size or is_end:
                ids = sequence_padding(rows)
                yield [ids, np.zeros_like(ids)], sequence_padding(labels)
                rows, labels = [], []

"""Batches that come one after the other, in the form that Keras takes."""

from itertools import islice

import keras
import numpy as np

from kerasbert.errors import ConfigError

# How many batches Keras looks at on TensorFlow, before the first epoch, to learn their shapes.
_LOOKED_AT = 2

# Where as many samples have the same shape, all of them are taken to have it.
_FAR_ENOUGH = 1000


class BatchStream(keras.utils.PyDataset):
    """Batches of an iterator, as a dataset for Keras.

    Keras asks for batches by number, in any order, and looks at the first two before it trains.
    Here a number means nothing: within an epoch every question is answered by the next batch;
    what was looked at before comes again.

    A subclass has `num_batches`, and two methods that return iterators: `one_pass` over the
    batches of one epoch, `single_samples` over batches that are as small as can be.
    """

    def __init__(self):
        super().__init__()
        self._coming = None
        self._is_running = False
        self._first_shape = None  # of the batch that was looked at first

    @property
    def workers(self):
        """One: batches of an iterator cannot be made side by side."""
        # Keras asks for it at the start of a fit; the one before may have been interrupted.
        self._is_running = False
        return 1

    @workers.setter
    def workers(self, value):
        """Refuses more than one."""
        if value > 1:
            raise ConfigError(
                f"workers={value} for a {type(self).__name__}.\n"
                "Expected 1: its batches come from one iterator.\nUse a BucketedDataset."
            )

    @property
    def use_multiprocessing(self):
        """False: every process would make all batches."""
        return False

    @use_multiprocessing.setter
    def use_multiprocessing(self, value):
        """Refuses True."""
        if value:
            raise ConfigError(
                f"use_multiprocessing={value} for a {type(self).__name__}.\n"
                "Expected False: its batches come from one iterator.\nUse a BucketedDataset."
            )

    def on_epoch_begin(self):
        """Starts an epoch; called by Keras."""
        self._is_running = True
        self._coming = None

    def on_epoch_end(self):
        """Ends an epoch; called by Keras."""
        self._is_running = False

    def __getitem__(self, index):
        """Returns the next batch, or one to look at outside of an epoch."""
        if not self._is_running and index < _LOOKED_AT:
            return as_tuples(self._look(index))
        return as_tuples(self._next())

    def _look(self, index):
        """Returns a first batch, or for index 1 a batch of another shape, if there is one.

        Keras takes an axis for fixed, on TensorFlow, if it is of the same size in the two batches
        that it looks at; a third of another size is an error then. Single samples show best
        whether sizes differ: of whole batches, each may hold a text of the greatest length.
        """
        batch = None
        for batch in islice(self.single_samples(), _FAR_ENOUGH):
            if index == 0:
                self._first_shape = _shape(batch)
            if index == 0 or _shape(batch) != self._first_shape:
                break
        return self._next() if batch is None else batch

    def _next(self):
        """Returns the next batch; after the last one comes the first of another pass."""
        batch = next(self._coming, None) if self._coming else None
        if batch is None:
            self._coming = iter(self.one_pass())
            batch = next(self._coming, None)
        if batch is None:
            raise ConfigError(
                f"{type(self).__name__} yields no batch.\n"
                "Expected at least one for an epoch.\nThe last batch comes when is_end is True."
            )
        return batch


class EndlessBatches(BatchStream):
    """Batches of one pass after the other, for Keras or for a loop of one's own.

    Args:
        one_pass: function that returns an iterator over the batches of one pass.
        single_samples: the same for batches of a single sample.
        inputs_only: whether the labels of the batches are left out.
    """

    num_batches = None

    def __init__(self, one_pass, single_samples, inputs_only=False):
        super().__init__()
        self.one_pass = one_pass
        self.single_samples = single_samples
        self._inputs_only = inputs_only
        self._is_looking = False

    def on_epoch_begin(self):
        """Starts an epoch, which goes on where the last one ended; called by Keras."""
        self._is_running = True

    def __getitem__(self, index):
        """Returns the next batch, after a start anew if the number is 0."""
        # Outside of an epoch Keras looks at batches 0 and 1; what follows is fetched in advance.
        before = index == 0 or (index == 1 and self._is_looking)
        self._is_looking = before and not self._is_running
        if index == 0:
            self._coming = None
        batch = as_tuples(self._look(index) if self._is_looking else self._next())
        return batch[:1] if self._inputs_only else batch

    def __iter__(self):
        return self

    def __next__(self):
        batch = self._next()
        return batch[0] if self._inputs_only else batch


def _shape(batch):
    """The shapes of all arrays of a batch, the number of its rows left out."""
    return [tuple(getattr(array, "shape", ()))[1:] for array in keras.tree.flatten(batch)]


def as_tuples(batch):
    """Returns a batch in the form that Keras takes on all backends.

    bert4keras' generators yield lists, which TensorFlow would stack, and None where there are no
    labels.
    """
    if isinstance(batch, (tuple, list)) and len(batch) > 1 and batch[-1] is None:
        batch = batch[:-1]
    return _as_tuples(tuple(batch) if isinstance(batch, list) else batch)


def _as_tuples(value):
    if isinstance(value, dict):
        return {name: _as_tuples(part) for name, part in value.items()}
    if isinstance(value, list) and all(np.ndim(part) == 0 for part in value):
        return np.asarray(value)
    if isinstance(value, (tuple, list)):
        return tuple(map(_as_tuples, value))
    return value

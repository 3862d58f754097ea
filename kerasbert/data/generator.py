"""Batches that a user's own code makes of samples, with the interface of bert4keras."""

from copy import copy
from itertools import islice

import numpy as np

from kerasbert.data.stream import BatchStream, EndlessBatches
from kerasbert.data.tf_data import samples_to_tf_data
from kerasbert.errors import ConfigError, check_integer

# Samples that an iterator gives are mixed among so many batches.
_BUFFERED_BATCHES = 1000


class DataGenerator(BatchStream):
    """Makes batches of samples; a subclass says how, by its `__iter__`.

    Goes into `fit` and `evaluate` as it is, as data and as validation data, with or without
    `steps_per_epoch`; an epoch has each sample once and ends with the last, shorter batch. Old
    scripts that pass `forfit()` and `steps_per_epoch=len(generator)` run as well. For `predict`
    use `fortest()`, which keeps the order of the data.

    Args:
        data: the samples, a list or another sequence; or what can be iterated over again and
            again, such as a file.
        batch_size: how many samples a batch has.
        buffer_size: among how many samples those of an iterator are mixed, default 1,000 batches.
        shuffle: whether the generator itself, as it goes into `fit`, mixes the samples anew in
            each epoch. False for `predict`.

    Raises:
        ConfigError: for sizes that are no integers above 0, and for a generator as data, which is
            empty after one epoch.

    Example:
        >>> class Numbers(DataGenerator):
        ...     def __iter__(self, random=False):
        ...         batch = []
        ...         for is_end, number in self.sample(random):
        ...             batch.append(number)
        ...             if len(batch) == self.batch_size or is_end:
        ...                 yield np.array(batch), np.array(batch) % 2
        ...                 batch = []
        >>> [len(numbers) for numbers, labels in Numbers(range(5), batch_size=2)]
        [2, 2, 1]

    Source: bert4keras, snippets.py.
    """

    def __init__(self, data, batch_size=32, buffer_size=None, *, shuffle=True):
        super().__init__()
        check_integer("batch_size", batch_size, minimum=1)
        if buffer_size is not None:
            check_integer("buffer_size", buffer_size, minimum=1)
        if iter(data) is data:
            raise ConfigError(
                f"data is a {type(data).__name__}, which can be read once only.\n"
                "Expected a list, or what can be iterated over in every epoch anew.\n"
                "Pass list(data), or an object with an __iter__."
            )
        self.data = data
        self.batch_size = batch_size
        self.buffer_size = buffer_size or batch_size * _BUFFERED_BATCHES
        self.shuffle = shuffle
        self.steps = -(-len(data) // batch_size) if hasattr(data, "__len__") else None

    def __len__(self):
        if self.steps is None:
            raise TypeError(
                f"data is a {type(self.data).__name__} of unknown length.\n"
                "Expected data with a length, to count the batches of an epoch.\n"
                "Pass forfit() and steps_per_epoch= to fit."
            )
        return self.steps

    @property
    def num_batches(self):
        """The number of batches of an epoch, for Keras; None if it is not known."""
        return self.steps

    def sample(self, random=False):
        """Yields (whether it is the last one, sample) for all samples once.

        Args:
            random: whether to mix them.

        Example:
            >>> list(DataGenerator("ab").sample())
            [(False, 'a'), (True, 'b')]
        """
        samples = self._mixed() if random else iter(self.data)
        nothing = object()
        current = next(samples, nothing)
        for following in samples:
            yield False, current
            current = following
        if current is not nothing:
            yield True, current

    def _mixed(self):
        if self.steps is not None:
            yield from (self.data[i] for i in np.random.permutation(len(self.data)))
            return
        coming = iter(self.data)
        waiting = list(islice(coming, self.buffer_size))
        for following in coming:
            place = np.random.randint(len(waiting))
            yield waiting[place]
            waiting[place] = following
        yield from (waiting[i] for i in np.random.permutation(len(waiting)))

    def __iter__(self, random=False):
        """Yields the batches of one epoch; to be written in a subclass.

        Args:
            random: to be passed on to `sample`.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no __iter__(self, random=False).\n"
            "Expected one that makes batches of what self.sample(random) yields."
        )

    def one_pass(self):
        """Returns an iterator over the batches of one epoch, as `fit` gets them."""
        return self.__iter__(self.shuffle)

    def single_samples(self):
        """Returns an iterator over batches of one sample, if `__iter__` heeds the batch size."""
        alone = copy(self)
        alone.batch_size = 1
        # Samples may be sorted by length; an iterator would have to fill its buffer first.
        return alone.__iter__(random=self.steps is not None)

    def forfit(self, random=True):
        """Returns the batches of one epoch after the other, without end, for `fit`.

        Args:
            random: whether to mix the samples, in every epoch anew.
        """
        return EndlessBatches(lambda: self.__iter__(random), self.single_samples)

    def fortest(self, random=False):
        """Returns the inputs of these batches, without labels, for `predict`.

        Args:
            random: whether to mix the samples.
        """
        return EndlessBatches(lambda: self.__iter__(random), self.single_samples, inputs_only=True)

    def to_dataset(self, types, shapes, names=None, padded_batch=False):
        """Returns an endless `tf.data.Dataset`, for `fit` with `steps_per_epoch=len(generator)`.

        Here `__iter__` has to yield single samples, which are made into batches.

        Args:
            types: dtype of each part of a sample, such as ("int32", "int32").
            shapes: shape of each part, such as ([None], [None]).
            names: names of the inputs, and of the outputs, for those parts; without them the
                parts go in by their order.
            padded_batch: whether to fill up samples of different lengths by zeros.
        """

        def one_pass():
            return (_named(names, sample) for sample in self.__iter__(random=True))

        types, shapes = _named(names, types), _named(names, shapes)
        return samples_to_tf_data(one_pass, types, shapes, self.batch_size, padded_batch)


def _named(names, parts):
    """Returns the parts of a sample as a dict by their names; of a nest of names as a tuple."""
    if names is None:
        return parts if not isinstance(parts, list) else tuple(parts)
    if isinstance(names, str):
        return {names: parts}
    if all(isinstance(name, str) for name in names):
        return dict(zip(names, parts, strict=True))
    return tuple(_named(own, part) for own, part in zip(names, parts, strict=True))

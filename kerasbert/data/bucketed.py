"""Texts of like length together, in batches of few shapes.

Shapes: N texts, B batch, L length, K lengths.
"""

import keras
import numpy as np

from kerasbert.data.buckets import bucket_lengths
from kerasbert.data.targets import Targets
from kerasbert.data.text_inputs import Rows, TextInputs
from kerasbert.data.tf_data import batches_to_tf_data
from kerasbert.data.workers import check_workers
from kerasbert.errors import ConfigError, check_integer


class BucketedDataset(keras.utils.PyDataset):
    """Batches of texts for `fit`, `evaluate` and `predict`, padded no further than needed.

    All texts are tokenised once, at the start. Each batch has one of at most `num_buckets`
    lengths and `batch_size` rows; texts that are left over in a bucket are filled up to the next
    one, so that only a single batch of an epoch, of the longest length, can have fewer rows. Hence
    there are at most `num_buckets + 1` shapes, the same in all epochs, for which a model is
    compiled; and every text comes exactly once an epoch.

    Args:
        model: the model that is to take the texts, or its `TextInputs`.
        tokenizer: its tokenizer.
        texts: N strings, or N pairs (text, second text).
        labels: one label for each text, an array (N, …) or list; for several outputs a dict by
            their names. None for a model that needs none.
        token_labels: a list of N lists with a label for each token, special ones included; for
            several outputs a dict by their names. Beside `labels`, both are such dicts.
        batch_size: B.
        maxlen: cut longer texts to so many tokens; None refuses what is too long for the model.
        num_buckets: how many lengths there may be.
        shuffle: whether each epoch has an order, and batches, of its own.
        seed: of the orders; None draws one by numpy's global generator, which
            `keras.utils.set_random_seed` sets.
        token_label_padding: label of the tokens that a batch is filled up with. A model of
            kerasbert leaves them out of the loss by its mask. Below 0 for a CRF.
        **kwargs: `workers`, `use_multiprocessing`, `max_queue_size` of a `PyDataset`; several
            workers on TensorFlow only.

    Attributes:
        lengths: the K lengths, an int array, ascending.
        epoch: the number of the epoch, from which the order follows. May be set, to go on where
            a training stopped: `fit` adds 1 at its start, and after every epoch.

    Raises:
        ConfigError: if texts and labels do not fit together, or the model cannot take a text:
            too long, or with an id outside of its table; for several workers on other backends
            than TensorFlow.
        TokenizerError: if a text is no string.

    Example:
        >>> texts = ["房间很干净", "电池用不久", "很好", "不"]
        >>> data = BucketedDataset(model, tokenizer, texts, [1, 0, 1, 0], batch_size=2)
        >>> len(data), data[0][0][0].shape
        (2, (2, 8))
    """

    def __init__(
        self,
        model,
        tokenizer,
        texts,
        labels=None,
        token_labels=None,
        *,
        batch_size=32,
        maxlen=None,
        num_buckets=6,
        shuffle=True,
        seed=None,
        token_label_padding=0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_workers(self)
        check_integer("batch_size", batch_size, minimum=1)
        check_integer("num_buckets", num_buckets, minimum=1)
        self.inputs = TextInputs.of(model)
        self.rows = Rows.encode(tokenizer, texts, maxlen)
        if not len(self.rows):
            raise ConfigError("texts is empty.\nExpected at least one text.")
        self.inputs.check(self.rows)
        self.targets = Targets(labels, token_labels, self.rows.lengths, token_label_padding)
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = np.random.randint(2**31) if seed is None else seed
        fixed = self.inputs.fixed_length
        self.lengths = (
            np.array([fixed])
            if fixed
            else bucket_lengths(self.rows.lengths, num_buckets, self.inputs.max_length)
        )
        self._bucket = np.searchsorted(self.lengths, self.rows.lengths)
        self.epoch = 0

    @property
    def epoch(self):
        """The number of the epoch."""
        return self._epoch

    @epoch.setter
    def epoch(self, value):
        """Makes the batches of that epoch."""
        check_integer("epoch", value, minimum=0)
        self._epoch = value
        self._batches = self._arranged()

    def _arranged(self):
        """Returns the batches of this epoch, a list of (length, int array of text numbers)."""
        rng = np.random.default_rng([self.seed, self._epoch])
        order = rng.permutation(len(self.rows)) if self.shuffle else np.arange(len(self.rows))
        buckets = self._bucket[order]
        batches, rest = [], order[:0]
        for number, length in enumerate(self.lengths):
            waiting = np.concatenate([rest, order[buckets == number]])
            full = len(waiting) // self.batch_size * self.batch_size
            batches += [(int(length), b) for b in waiting[:full].reshape(-1, self.batch_size)]
            rest = waiting[full:]
        if len(rest):
            batches.append((int(self.lengths[-1]), rest))
        if self.shuffle:
            batches = [batches[i] for i in rng.permutation(len(batches))]
        # Keras takes an axis for fixed, on TensorFlow, if the first two batches agree in it.
        for i, (length, _) in enumerate(batches):
            if length != batches[0][0]:
                batches.insert(1, batches.pop(i))
                break
        return batches

    def __len__(self):
        return len(self._batches)

    def __getitem__(self, index):
        """Returns the batch with a number.

        Returns:
            (inputs, labels), or (inputs,) if there are no labels; the inputs in the order of the
            model.
        """
        length, chosen = self._batches[index]
        arrays = self.inputs.arrays(self.rows, chosen, length)
        inputs = tuple(arrays) if len(arrays) > 1 else arrays[0]
        if self.targets.is_empty:
            return (inputs,)
        return inputs, self.targets.batch(chosen, length)

    def on_epoch_end(self):
        """Makes the order of the next epoch; called by Keras."""
        self.epoch += 1

    @property
    def order(self):
        """The numbers of the texts in the order in which they come, an int array (N,)."""
        return np.concatenate([chosen for _, chosen in self._batches])

    def restore(self, outputs):
        """Puts what `predict` returned for this dataset into the order of the texts.

        Args:
            outputs: array (N, …), or a nest of such arrays.

        Returns:
            The same with its rows in the order of the texts.

        Raises:
            ConfigError: for a dataset with shuffle=True, which has another order since.
        """
        if self.shuffle:
            raise ConfigError(
                "The dataset was made with shuffle=True.\n"
                "Expected shuffle=False: each epoch has an order of its own otherwise.\n"
                "Make another dataset for predict, or use predict_texts."
            )
        places = np.argsort(self.order)
        return keras.tree.map_structure(lambda array: np.asarray(array)[places], outputs)

    def to_tf_data(self):
        """Returns the same batches as a `tf.data.Dataset`; each pass has an order of its own."""
        return batches_to_tf_data(self)

"""What a model says of many texts, or of one, without waste.

Shapes: N texts, B batch, L length.
"""

from dataclasses import dataclass

import keras
import numpy as np

from kerasbert.compilation import compiled, made_for, to_numpy
from kerasbert.data.buckets import common_length
from kerasbert.data.text_inputs import Rows, TextInputs
from kerasbert.errors import ConfigError, check_integer

# So many tokens are computed at once: more gain little, and need more memory.
_TOKENS = 4096

# Fewer texts get lengths that are further apart, of which fewer are to be compiled.
_MANY = 8


def predict_texts(
    model, tokenizer, texts, *, batch_size=None, maxlen=None, verbose=1, jit_compile=True
):
    """Returns the outputs of a model for texts, in their order.

    The texts are tokenised at once, sorted by length and padded to a few lengths, which are the
    same in all calls; for each shape of a batch the model is compiled once, which takes some
    seconds, and kept. A call with a single text costs little more than the model itself, so it
    may stand in a loop or a server, also of several threads.

    Args:
        model: a functional model with one encoder of kerasbert and any heads.
        tokenizer: its tokenizer.
        texts: N strings, or N pairs (text, second text).
        batch_size: how many texts are computed at once; default is so many that they have about
            4,096 tokens, padding included.
        maxlen: cut longer texts to so many tokens; None refuses what is too long for the model.
        verbose: 1 shows a progress bar if there is more than one batch, 0 none.
        jit_compile: whether XLA compiles the model, on TensorFlow and JAX; False for layers that
            it cannot compile, and where a model is used for a few batches only.

    Returns:
        What `predict` returns: an array (N, …); for several outputs a list or dict of such. An
        output with a vector for each token (where the model's shape has None behind the batch)
        comes as a list of N arrays instead, without the padding: one row for each token, special
        ones included.

    Raises:
        ConfigError: if the model takes no texts, and for a text that it cannot take: too long,
            or with an id outside of its table; before anything is computed.
        TokenizerError: if a text is no string, or `maxlen` is out of range.

    Example:
        >>> hidden = predict_texts(model, tokenizer, ["房间很干净", "很好"], verbose=0)
        >>> [vectors.shape for vectors in hidden]
        [(7, 32), (4, 32)]
    """
    if not isinstance(model, keras.Model):
        raise ConfigError(
            f"model is a {type(model).__name__}.\n"
            "Expected a Keras model with an encoder of kerasbert.\n"
            "The order is predict_texts(model, tokenizer, texts)."
        )
    if batch_size is not None:
        check_integer("batch_size", batch_size, minimum=1)
    predictor = made_for(model, Predictor)
    rows = Rows.encode(tokenizer, texts, maxlen)
    predictor.inputs.check(rows)
    plan = plan_batches(rows.lengths, batch_size, predictor.inputs)
    step = predictor.compiled if jit_compile else predictor.plain
    bar = keras.utils.Progbar(len(plan), unit_name="batch") if verbose and len(plan) > 1 else None
    results = [[None] * len(rows) for _ in predictor.outputs]
    for batch in plan:
        arrays = predictor.inputs.arrays(rows, batch.padded_texts, batch.length)
        for result, output, found in zip(results, predictor.outputs, step(arrays), strict=True):
            for number, row in zip(batch.texts, found, strict=False):
                result[number] = output.unpadded(row, batch.length, rows.lengths[number])
        if bar:
            bar.add(1)
    return predictor.packed(results)


@dataclass(frozen=True)
class Batch:
    """Some texts that are computed at once.

    Attributes:
        texts: int array of their numbers.
        length: L.
        size: B; above the number of texts, if it is to be a shape that comes again.
    """

    texts: np.ndarray
    length: int
    size: int

    @property
    def padded_texts(self):
        """The numbers (B,) of the texts, some of them again in the place of those that lack."""
        return np.resize(self.texts, self.size)


def plan_batches(lengths, batch_size, inputs):
    """Shares texts among batches of few shapes, that depend little on the texts.

    Args:
        lengths: int array (N,), the number of tokens of each text.
        batch_size: see `predict_texts`.
        inputs: the `TextInputs` of the model.

    Returns:
        List of `Batch`, the shortest texts first.
    """
    few = len(lengths) <= _MANY
    padded = np.array([_padded(length, inputs, few) for length in lengths], int)
    order = np.argsort(lengths, kind="stable")
    plan, rest = [], order[:0]
    for length in np.unique(padded):
        size = batch_size or max(_TOKENS // length, 1)
        waiting = np.concatenate([rest, order[padded[order] == length]])
        full = len(waiting) // size * size
        plan += [Batch(some, int(length), size) for some in waiting[:full].reshape(-1, size)]
        # Too few for a batch: they go with texts that are a little longer.
        rest = waiting[full:]
    if len(rest):
        length = _padded(lengths[rest].max(), inputs, few=True)
        size = 1 << (len(rest) - 1).bit_length()
        plan.append(Batch(rest, length, min(size, batch_size or size)))
    return plan


def _padded(length, inputs, few):
    return inputs.fixed_length or common_length(length, inputs.max_length, few)


class Predictor:
    """A model, compiled for the shapes of its batches.

    Args:
        model: a functional Keras model.

    Attributes:
        inputs: its `TextInputs`.
        outputs: list of an `Output` for each tensor that it returns.
    """

    def __init__(self, model):
        self.inputs = TextInputs.of(model)
        self.outputs = [Output(tuple(tensor.shape), tensor.dtype) for tensor in model.outputs]
        self._structure = model.output
        self._model = model
        self._step = compiled(lambda *arrays: self._flat(arrays), model.variables)

    def _flat(self, arrays):
        return keras.tree.flatten(self._model(list(arrays), training=False))

    def compiled(self, arrays):
        """Returns the outputs for a batch as numpy arrays."""
        return [to_numpy(output) for output in self._step(*arrays)]

    def plain(self, arrays):
        """The form of `compiled` without XLA."""
        return keras.tree.flatten(self._model.predict_on_batch(arrays))

    def packed(self, results):
        """Returns lists of rows, one for each output, in the form that the model returns."""
        values = map(Output.joined, self.outputs, results)
        # Lists would be taken for a part of the form.
        boxes = keras.tree.pack_sequence_as(self._structure, [_Box(value) for value in values])
        return keras.tree.map_structure(lambda box: box.value, boxes)


@dataclass(frozen=True)
class _Box:
    value: object


@dataclass(frozen=True)
class Output:
    """One tensor that a model returns.

    Attributes:
        shape: its shape (B, …), None where it is open.
        dtype: its dtype.
    """

    shape: tuple
    dtype: str

    @property
    def has_tokens(self):
        """Whether an axis behind the batch grows with the text."""
        return None in self.shape[1:]

    def unpadded(self, row, padded, length):
        """Returns the row of one text, of `length` tokens, from a batch of the padded length."""
        if not self.has_tokens:
            return row
        sizes = zip(self.shape[1:], row.shape, strict=True)
        # A copy, as a view would keep the whole batch.
        return row[
            tuple(slice(length if n is None and m == padded else m) for n, m in sizes)
        ].copy()

    def joined(self, rows):
        """Returns what stands for the rows of all texts."""
        if self.has_tokens:
            return rows
        return np.stack(rows) if rows else np.zeros((0, *self.shape[1:]), self.dtype)

"""A masked-LM model and its tokenizer, read at chosen places of texts.

Shapes: B batch, L length, M places of a row that are read, H hidden size, V vocabulary.
"""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import keras
import numpy as np
from keras import ops

from kerasbert.data.text_inputs import NAMES, Rows, TextInputs
from kerasbert.errors import ConfigError, TokenizerError, check_integer, listing
from kerasbert.models.masked_head import check_predicts_masks, masked_head
from kerasbert.models.view import find_encoder
from kerasbert.tokenizers.base import TokenizerBase
from kerasbert.tokenizers.sequences import Sequence, assemble, join_row

# Lengths are rounded up to a multiple of it, so that few shapes have to be compiled.
_STEP = 16

# A reader is compiled at its first use; that should happen once for a model.
_READERS = WeakKeyDictionary()
_VOCABULARIES = WeakKeyDictionary()


@dataclass(frozen=True)
class Vocabulary:
    """Which ids of a tokenizer mean what.

    Attributes:
        known: bool array (tokenizer.vocab_size,), whether there is a token with that id.
        ordinary: bool array of that shape, False also for special tokens such as [SEP],
            [unused1], and the unknown token.
    """

    known: np.ndarray
    ordinary: np.ndarray


class MaskedLM:
    """Logits of a model's masked-LM head, whatever else the model computes.

    Only the places asked for pass through the head: for all tokens of a batch, its output would
    often not fit into memory.

    Args:
        model: a model that holds one encoder of kerasbert with a masked-LM head.
        tokenizer: its `Tokenizer` or `SpTokenizer`.

    Attributes:
        tokenizer: as given.
        mask_id: the id of the mask token.
        vocabulary: the `Vocabulary` of the tokenizer.
        limit: the length of the longest row, special tokens included; None without limit.

    Raises:
        ConfigError: if the model has no such head, is made to predict the next token, needs
            inputs that no text gives, or has a smaller vocabulary than the tokenizer.
        TokenizerError: if the vocabulary has no mask token.
    """

    def __init__(self, model, tokenizer):
        self._view = find_encoder(model)
        check_predicts_masks(self._view)
        if not isinstance(tokenizer, TokenizerBase):
            raise ConfigError(
                f"tokenizer is a {type(tokenizer).__name__}.\n"
                "Expected a Tokenizer or SpTokenizer of kerasbert.tokenizers."
            )
        inner = self._view.model
        # Not those of the model, which may be made for training and take targets too.
        names = tuple(filter(self._view.has_layer, NAMES))
        length = _input(self._view, names[0]).shape[1]
        self._inputs = TextInputs.of_encoder(self._view, names, length)
        self.limit = self._inputs.max_length
        if inner not in _READERS:
            _READERS[inner] = _make_reader(self._view, names)
        self._reader = _READERS[inner]
        self._check_vocabulary(tokenizer)
        self.tokenizer = tokenizer
        self.mask_id = tokenizer._token_mask_id
        self.vocabulary = _vocabulary(tokenizer)

    def _check_vocabulary(self, tokenizer):
        size = self._reader.outputs[0].shape[-1]
        if tokenizer.vocab_size > size:
            raise ConfigError(
                f"The tokenizer has {tokenizer.vocab_size} ids, the model's vocabulary {size}.\n"
                "Expected every token to have a row of the model's table.\n"
                "Take the vocabulary of this model; after keep_tokens= the tokenizer needs the "
                "dict that load_vocab(..., simplified=True) returns with the list."
            )

    # --- From texts to rows ----------------------------------------------------------------

    def split(self, text):
        """Returns the parts of a text between its mask tokens, at least one."""
        return text.split(self.tokenizer._token_mask)

    def row(self, parts, second_parts=None):
        """Joins the parts of one text, or of two, with masks and puts special tokens around.

        Args:
            parts: list of strings, see `split`.
            second_parts: the same for a second text, or None.

        Returns:
            (token_ids, segment_ids), two lists.

        Raises:
            ConfigError: if there is a second text, but the model knows one segment only.
        """
        head, tail = self.tokenizer._special_ids()
        texts = [parts] if second_parts is None else [parts, second_parts]
        sequences = [Sequence(head, self._masked_ids(one), tail) for one in texts]
        ids, segments = join_row(assemble(*[*sequences, None][:2], None, "S*E*E", "right"))
        if self._view.has_layer("Input-Segment") and max(segments, default=0) > 0:
            self._check_segments()
        return ids, segments

    def _masked_ids(self, parts):
        ids, *others = self.tokenizer._body_ids(list(parts))
        for more in others:
            ids = [*ids, self.mask_id, *more]
        return ids

    def _check_segments(self):
        known = self._view.config.type_vocab_size
        if known < 2:
            raise ConfigError(
                f"There is a second text, but the model has type_vocab_size={known}.\n"
                "Expected one text: the model has no vector for a second segment.\n"
                "Join the texts, or use a model with two segments."
            )

    def check_length(self, length, place):
        """Refuses a row that is too long for the model.

        Args:
            length: number of its tokens, special ones included.
            place: what to call it in the message.

        Raises:
            ConfigError: names the place, the length and the limit.
        """
        if self.limit is not None and length > self.limit:
            raise ConfigError(
                f"{place} has {length} tokens, special ones included.\n"
                f"Expected at most {self.limit}, the longest input of the model.\n"
                "Shorten the text; a mask that was cut off could not be filled."
            )

    # --- From rows to numbers --------------------------------------------------------------

    def inputs(self, rows, length=None):
        """Returns the arrays (B, L) that the model takes for rows, padded, in its order.

        Args:
            rows: list of (token_ids, segment_ids).
            length: L; the default is the longest row.
        """
        encoded = Rows.of(*zip(*rows, strict=True))
        length = self._inputs.fixed_length or length or int(encoded.lengths.max())
        return self._inputs.arrays(encoded, np.arange(len(rows)), length)

    def logits(self, rows, places, batch_size, step=_STEP):
        """Yields what the model says at some places of rows, shortest rows first.

        Args:
            rows: list of (token_ids, segment_ids).
            places: for each row a list of indexes of its tokens, at least one.
            batch_size: how many rows are computed at once.
            step: lengths are rounded up to a multiple of it.

        Yields:
            (number of the row, float32 array (M, V) of logits).
        """
        order = sorted(range(len(rows)), key=lambda number: len(rows[number][0]))
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            length = len(rows[chosen[-1]][0])
            length = min(-(-length // step) * step, self.limit or length + step)
            width = max(len(places[number]) for number in chosen)
            indexes = np.zeros((len(chosen), width), "int32")
            for index, number in zip(indexes, chosen, strict=True):
                index[: len(places[number])] = places[number]
            arrays = self.inputs([rows[number] for number in chosen], length)
            # `predict` would spend more time on its loop than a small model on the batch.
            found = self._reader.predict_on_batch([*arrays, indexes])
            for number, row in zip(chosen, np.asarray(found, "float32"), strict=True):
                yield number, row[: len(places[number])]


def check_batch_size(batch_size):
    """Refuses what is no number of rows.

    Raises:
        ConfigError: names the value.
    """
    check_integer("batch_size", batch_size, minimum=1)


def _input(view, name):
    return view.calls(name)[0].output_tensors[0]


def _make_reader(view, names):
    """Returns the model from inputs (B, L) and places (B, M) to logits (B, M, V)."""
    _, hidden, logits = masked_head(view)
    places = keras.Input((None,), dtype="int32", name="places")
    try:
        if hidden.shape[1] is None:
            logits = keras.Model(hidden, logits)(_taken(hidden, places))  # (B, M, V)
        else:
            # The graph of a head that was built for L tokens takes no other number.
            logits = _taken(logits, places)
        return keras.Model([*(_input(view, name) for name in names), places], logits)
    except ValueError as error:
        known = {view.full_name(name) for name in names}
        others = [tensor.name for tensor in view.model.inputs if tensor.name not in known]
        raise ConfigError(
            f"The model needs more than a text: {listing(others)}.\n"
            f"Expected no other inputs than {listing(NAMES)}.\n"
            "Build it without additional_input_layers and layer_norm_cond."
        ) from error


def _taken(vectors, places):
    """Returns the vectors (B, M, H) at places (B, M) of vectors (B, L, H)."""
    return ops.take_along_axis(vectors, ops.expand_dims(places, -1), axis=1)


def _vocabulary(tokenizer):
    if tokenizer not in _VOCABULARIES:
        tokens = [_token(tokenizer, index) for index in range(tokenizer.vocab_size)]
        special = {tokenizer._token_unk, tokenizer._token_mask, tokenizer._token_pad}
        known = np.array([token is not None for token in tokens])
        ordinary = [
            token not in special and token not in (None, "") and not tokenizer._is_marker(token)
            for token in tokens
        ]
        _VOCABULARIES[tokenizer] = Vocabulary(known, np.array(ordinary))
    return _VOCABULARIES[tokenizer]


def _token(tokenizer, index):
    """Returns the token with an id, None for the gaps of a vocabulary with equal rows."""
    try:
        return tokenizer.id_to_token(index)
    except TokenizerError:
        return None

"""What a model takes of a text, and which texts it cannot take.

Shapes: B batch, L length, N texts.
"""

from dataclasses import dataclass
from itertools import chain

import numpy as np

from kerasbert.errors import ConfigError, check_integer, listing
from kerasbert.models.view import find_encoder

#: The inputs that a text gives, by their names; a prefix is not counted.
NAMES = ("Input-Token", "Input-Segment", "Input-Position", "Input-Mask")


@dataclass(frozen=True)
class TextInputs:
    """The inputs of a model, and the limits of what may stand in them.

    Attributes:
        vocab_size: how many rows the table of the tokens has.
        max_length: how many tokens a text can have; None without limit.
        names: the inputs in their order, some of `NAMES`.
        segments: how many segments there are; None without limit.
        pad_id: the token id of padding.
        first_position: the position of the first token.
        fixed_length: the one length that all batches have; None for any.

    Raises:
        ConfigError: for sizes that are no integers above 0, and unknown names.

    Example:
        >>> TextInputs(vocab_size=100, max_length=32).names
        ('Input-Token', 'Input-Segment')
    """

    vocab_size: int
    max_length: int | None = None
    names: tuple = NAMES[:2]
    segments: int | None = None
    pad_id: int = 0
    first_position: int = 0
    fixed_length: int | None = None

    def __post_init__(self):
        check_integer("vocab_size", self.vocab_size, minimum=1)
        for name in ("max_length", "segments", "fixed_length"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), minimum=1)
        others = [name for name in self.names if name not in NAMES]
        if others or NAMES[0] not in self.names:
            raise ConfigError(
                f"names={self.names!r}.\nExpected {NAMES[0]}, and some of {listing(NAMES[1:])}."
            )

    @classmethod
    def of(cls, model):
        """Returns those of a model.

        Args:
            model: a functional model with one encoder of kerasbert, as it was built, extended or
                reloaded; or a `TextInputs`, which is returned.

        Raises:
            ConfigError: if the model has other inputs than a text gives.
            KerasbertError: if there is no encoder in it, or more than one.
        """
        if isinstance(model, cls):
            return model
        view = find_encoder(model)
        return cls.of_encoder(view, _names(model, view), model.inputs[0].shape[1])

    @classmethod
    def of_encoder(cls, view, names, fixed_length=None):
        """Returns those of an encoder.

        Args:
            view: its `EncoderView`.
            names: see the class.
            fixed_length: see the class.
        """
        config = view.config
        start = config.first_position
        limits = [fixed_length]
        if config.position_limit is not None:
            limits.append(config.position_limit - start)
        return cls(
            vocab_size=config.vocab_size,
            max_length=min((limit for limit in limits if limit is not None), default=None),
            names=names,
            segments=config.type_vocab_size if view.has_layer(NAMES[1]) else None,
            pad_id=config.pad_token_id,
            first_position=start,
            fixed_length=fixed_length,
        )

    def check(self, rows):
        """Refuses texts that the model cannot take, before it has to.

        Args:
            rows: the `Rows` of the texts.

        Raises:
            ConfigError: names the text, its length, id or segment, the limit, and what to do.
        """
        lengths = rows.lengths
        if self.max_length is not None and lengths.max(initial=0) > self.max_length:
            index = int(np.argmax(lengths > self.max_length))
            raise ConfigError(
                f"texts[{index}] has {lengths[index]} tokens, special ones included.\n"
                f"Expected at most {self.max_length}, the longest input of the model.\n"
                f"Pass maxlen={self.max_length}, which cuts off what is more."
            )
        self._check_ids(rows)

    def _check_ids(self, rows):
        ids = rows.tokens
        wrong = np.flatnonzero((ids < 0) | (ids >= self.vocab_size))
        if len(wrong):
            index = rows.row_of(wrong[0])
            raise ConfigError(
                f"texts[{index}] has the token id {ids[wrong[0]]}.\n"
                f"Expected ids from 0 to {self.vocab_size - 1}, the rows of the model's table.\n"
                "Take the vocabulary of this model; after keep_tokens= the tokenizer needs the "
                "dict that load_vocab(..., simplified=True) returns with the list."
            )
        if self.segments is not None and rows.segments.max(initial=0) >= self.segments:
            index = rows.row_of(np.argmax(rows.segments >= self.segments))
            raise ConfigError(
                f"texts[{index}] has a second text, but the model has "
                f"type_vocab_size={self.segments}.\n"
                "Expected single texts: the model has no vector for a second segment.\n"
                "Join the texts, or use a model with two segments."
            )

    def arrays(self, rows, chosen, length):
        """Returns the int32 arrays (B, L) for some texts, in the order of the inputs.

        Args:
            rows: the `Rows` of all texts.
            chosen: int array (B,), which of them.
            length: L, at least the length of each of them.
        """
        lengths = rows.lengths[chosen][:, None]
        order = np.arange(length, dtype="int32")
        real = order < lengths  # (B, L)
        found = {NAMES[3]: real.astype("int32")}
        if NAMES[2] in self.names:
            padding = max(self.first_position - 1, 0)
            found[NAMES[2]] = np.where(real, order + self.first_position, padding).astype("int32")
        for name, values, pad in (
            (NAMES[0], rows.tokens, self.pad_id),
            (NAMES[1], rows.segments, 0),
        ):
            found[name] = np.full(real.shape, pad, "int32")
            found[name][real] = rows.joined(values, chosen)
        return [found[name] for name in self.names]


@dataclass(frozen=True)
class Rows:
    """The token ids of many texts, one behind the other.

    Attributes:
        tokens: int32 array of the ids of all texts.
        segments: their segment ids.
        starts: int array (N + 1,), where each text starts; the last one is the end.
    """

    tokens: np.ndarray
    segments: np.ndarray
    starts: np.ndarray

    @classmethod
    def encode(cls, tokenizer, texts, maxlen=None):
        """Tokenises many texts at once.

        Args:
            tokenizer: a tokenizer of `kerasbert.tokenizers`, or what has its `encode_batch`.
            texts: N strings, or N pairs of strings.
            maxlen: see `encode_batch`.

        Raises:
            ConfigError: for a tokenizer without `encode_batch`, and if only some of the texts
                are pairs.
            TokenizerError: if a text is no string, or `maxlen` is out of range.
        """
        if not hasattr(tokenizer, "encode_batch"):
            raise ConfigError(
                f"tokenizer is a {type(tokenizer).__name__}.\n"
                "Expected a Tokenizer or SpTokenizer of kerasbert.tokenizers."
            )
        firsts, seconds = _split_pairs(texts)
        return cls.of(*tokenizer.encode_batch(firsts, seconds, maxlen=maxlen, padding=False))

    @classmethod
    def of(cls, tokens, segments):
        """Joins the lists of N rows, of token ids and of segment ids."""
        starts = np.cumsum([0, *map(len, tokens)])
        return cls(_flat(tokens, starts[-1]), _flat(segments, starts[-1]), starts)

    def __len__(self):
        return len(self.starts) - 1

    @property
    def lengths(self):
        """The number of tokens of each text, an int array (N,)."""
        return np.diff(self.starts)

    def row_of(self, place):
        """Returns the number of the text whose token stands at a place of `tokens`."""
        return int(np.searchsorted(self.starts, place, side="right")) - 1

    def joined(self, values, chosen):
        """Returns what of `values`, one for every token, belongs to the chosen texts."""
        return np.concatenate([values[self.starts[i] : self.starts[i + 1]] for i in chosen])


def _flat(rows, size):
    return np.fromiter(chain.from_iterable(rows), "int32", size)


def _split_pairs(texts):
    """Returns a list of first texts, and one of second texts or None."""
    if isinstance(texts, str) or not hasattr(texts, "__iter__"):
        return texts, None  # the tokenizer says what is wrong with it
    texts = list(texts)
    pairs = [isinstance(text, (tuple, list)) for text in texts]
    if not any(pairs):
        return texts, None
    for index, text in enumerate(texts):
        if not pairs[index] or len(text) != 2:
            raise ConfigError(
                f"texts[{index}]={str(text)[:60]!r} is no pair, texts[{pairs.index(True)}] is.\n"
                "Expected texts only, or pairs (text, second text) only."
            )
    return [first for first, _ in texts], [second for _, second in texts]


def _names(model, view):
    """Returns the names, prefix not counted, of the inputs of a model in their order."""
    known = {
        id(view.calls(name)[0].output_tensors[0]): name for name in NAMES if view.has_layer(name)
    }
    if view.model is not model:
        inner = view.model.inputs
        for node in (node for nodes in model._nodes_by_depth.values() for node in nodes):
            if node.operation is view.model:
                pairs = zip(inner, node.input_tensors, strict=True)
                known = {id(outer): known.get(id(own)) for own, outer in pairs}
    others = [tensor.name for tensor in model.inputs if known.get(id(tensor)) is None]
    if others:
        raise ConfigError(
            f"The model {model.name!r} needs more than a text: {listing(others)}.\n"
            f"Expected no other inputs than {listing(NAMES)}.\n"
            "Feed it by a DataGenerator, or build it without additional inputs."
        )
    return tuple(known[id(tensor)] for tensor in model.inputs)

"""How to search: all the arguments of a search, checked in one place before it starts."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from numbers import Integral, Real

from kerasbert.errors import ConfigError, check_integer, check_number, did_you_mean

METHODS = ("greedy", "beam", "sample")
BEAM_SIZE = 4

# Arguments that only one method reads, with the value that means nothing.
ONLY_FOR = {
    "beam_size": ("beam", None),
    "length_penalty": ("beam", 0),
    "temperature": ("sample", 1),
    "top_k": ("sample", None),
    "top_p": ("sample", None),
    "seed": ("sample", None),
}

# What numbers have to be like.
RANGES = {
    "temperature": {"above": 0},
    "top_p": {"above": 0, "most": 1},
    "length_penalty": {"hint": "; negative ones favour short texts"},
    "repetition_penalty": {"above": 0, "hint": "; 1 changes nothing"},
}


@dataclass(frozen=True)
class SearchSettings:
    """The arguments of `generate` that concern the search.

    Args:
        max_new_tokens: after so many tokens a text ends in any case.
        method: "greedy", "beam" or "sample".
        beam_size: texts that beam search follows at a time; 4 unless given.
        num_return: texts wanted of each row.
        temperature: divides the logits before drawing; below 1 the probable gets more so.
        top_k: draw among so many of the most probable tokens only.
        top_p: draw among the fewest tokens that together have this probability.
        length_penalty: beam search ranks texts by sum of log p / length ** length_penalty.
        repetition_penalty: above 1, tokens that the text has already become less likely.
        no_repeat_ngram_size: no so many tokens in a row come twice; 0 for no such rule.
        min_length: new tokens before a text may end.
        end_id: token, or tokens, that end a text; None for none.
        allowed_tokens: function of (row, new tokens) that returns the ids allowed next, or
            None where all are.
        seed: makes the draws repeatable.

    Raises:
        ConfigError: names the value that cannot be, or the argument that changes nothing.
    """

    max_new_tokens: int
    method: str = "greedy"
    beam_size: int | None = None
    num_return: int = 1
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    length_penalty: float = 0.0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    min_length: int = 0
    end_id: int | Iterable | None = None
    allowed_tokens: Callable | None = None
    seed: int | None = None
    end_ids: tuple = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "end_ids", _end_ids(self.end_id))
        _check_method(self)
        _check_integers(self)
        _check_numbers(self)
        _check_number_of_texts(self)
        _check_min_length(self)
        if self.allowed_tokens is not None and not callable(self.allowed_tokens):
            raise ConfigError(
                f"allowed_tokens={self.allowed_tokens!r} cannot be called.\n"
                "Expected a function of (row, new_tokens) that returns the allowed ids.\n"
                "For the same ids everywhere: allowed_tokens=lambda row, new_tokens: ids."
            )

    @property
    def slots(self):
        """Number of texts that each row follows at a time."""
        if self.method == "beam":
            return self.beam_size or BEAM_SIZE
        return self.num_return

    def check_vocabulary(self, size):
        """Refuses end tokens that the model does not have.

        Args:
            size: number of tokens that the model predicts.

        Raises:
            ConfigError: names the token and the size.
        """
        if self.end_ids and self.end_ids[-1] >= size:
            raise ConfigError(
                f"end_id={self.end_ids[-1]} for a model that predicts {size} tokens.\n"
                f"Expected ids from 0 to {size - 1}.\n"
                "Check that the tokenizer and the model have the same vocabulary."
            )


def _end_ids(end_id):
    """The end tokens as a sorted tuple."""
    if end_id is None:
        return ()
    one = isinstance(end_id, Integral | str) or not isinstance(end_id, Iterable)
    ids = [end_id] if one else list(end_id)
    wrong = [i for i in ids if isinstance(i, bool) or not isinstance(i, Integral) or i < 0]
    if wrong or not ids:
        raise ConfigError(
            f"end_id={end_id!r}"
            + (f" holds {wrong[0]!r}.\n" if wrong and not one else ".\n")
            + "Expected a token id (an integer of at least 0), a collection of them, or None.\n"
            "A tokenizer has it as tokenizer.token_to_id('[SEP]') or the like."
        )
    return tuple(sorted({int(i) for i in ids}))


def _check_method(settings):
    """Refuses unknown methods, and arguments that the method does not read."""
    if settings.method not in METHODS:
        raise ConfigError(
            f"method={settings.method!r}.{did_you_mean(settings.method, METHODS)}\n"
            f"Expected one of: {', '.join(METHODS)}."
        )
    for name, (method, nothing) in ONLY_FOR.items():
        value = getattr(settings, name)
        unset = value is None if nothing is None else isinstance(value, Real) and value == nothing
        if settings.method != method and not unset:
            raise ConfigError(
                f"{name}={value!r} was given with method={settings.method!r}, which does not "
                f"read it.\nExpected method={method!r}.\nLeave {name} out otherwise."
            )


def _check_integers(settings):
    """Refuses what has to be an integer and is none, or too small."""
    bounds = {"max_new_tokens": 1, "num_return": 1, "no_repeat_ngram_size": 0, "min_length": 0}
    optional = {"beam_size": 1, "top_k": 1, "seed": 0}
    for name, minimum in {**bounds, **optional}.items():
        value = getattr(settings, name)
        if value is not None or name in bounds:
            check_integer(name, value, minimum)


def _check_numbers(settings):
    """Refuses what has to be a finite number in a range and is none."""
    for name in RANGES:
        value = getattr(settings, name)
        if value is not None or name != "top_p":
            check_number(name, value, **RANGES[name])


def _check_number_of_texts(settings):
    """Refuses more texts than the method can have."""
    if settings.method == "greedy" and settings.num_return > 1:
        raise ConfigError(
            f"num_return={settings.num_return} was given with method='greedy', which has a "
            "single text.\nExpected num_return=1, or method='beam' or 'sample'."
        )
    if settings.method == "beam" and settings.num_return > settings.slots:
        raise ConfigError(
            f"num_return={settings.num_return} with beam_size={settings.slots}.\n"
            "Expected at most as many texts as there are beams.\n"
            f"Take beam_size={settings.num_return} or more."
        )


def _check_min_length(settings):
    """Refuses a shortest length that means nothing, or that is above the longest."""
    if settings.min_length > settings.max_new_tokens:
        raise ConfigError(
            f"min_length={settings.min_length} is more than "
            f"max_new_tokens={settings.max_new_tokens}.\n"
            "Expected at most as many: both count new tokens only."
        )
    if settings.min_length and not settings.end_ids:
        raise ConfigError(
            f"min_length={settings.min_length} was given without end_id: no text ends early.\n"
            "Expected end_id, the token that is not allowed before that length."
        )

"""The errors a user can meet, and the words they are made of.

Every message has three parts: what is wrong, with the value and the place; what
was expected; what to do about it.
"""

import math
from difflib import get_close_matches
from numbers import Integral, Real


class KerasbertError(ValueError):
    """Base of the library's own errors, so that one `except` can catch them all."""

    # Keras puts a paragraph of its own before the text of errors raised inside a layer's
    # call, unless they carry this mark.
    _keras_call_info_injected = True


class ConfigError(KerasbertError):
    """A model configuration is missing something, contradicts itself or cannot be honoured."""


class CheckpointError(KerasbertError):
    """A checkpoint cannot be found, opened, read, recognised or written."""


class WeightMismatchError(CheckpointError):
    """A readable checkpoint does not fit the model: variables are missing, extra or misshapen."""


class TokenizerError(KerasbertError):
    """A vocabulary cannot be used, or a text cannot be encoded as asked."""


class CorpusError(KerasbertError):
    """A text for pre-training, or the records made of it, cannot be read, built or used."""


def check_integer(name, value, minimum):
    """Refuses a value that is no integer of at least `minimum`.

    Raises:
        ConfigError: names the value, its type and the bound.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < minimum:
        raise ConfigError(
            f"{name}={value!r} (of type {type(value).__name__}).\n"
            f"Expected an integer of at least {minimum}."
        )


def check_number(name, value, *, least=None, most=None, above=None, below=None, hint=""):
    """Refuses a value that is no finite number of a range.

    Args:
        name: of the argument, for the message.
        value: anything.
        least: the lowest number allowed.
        most: the highest number allowed.
        above: the number has to be higher than this.
        below: the number has to be lower than this.
        hint: what the number means, if that needs saying; it follows the range.

    Raises:
        ConfigError: names the value, its type and the range.
    """
    bounds = (
        ("of at least", least, lambda: value >= least),
        ("above", above, lambda: value > above),
        ("at most", most, lambda: value <= most),
        ("below", below, lambda: value < below),
    )
    bounds = [(words, bound, kept) for words, bound, kept in bounds if bound is not None]
    if not (is_finite_number(value) and all(kept() for *_, kept in bounds)):
        words = " and ".join(f"{words} {bound:g}" for words, bound, _ in bounds)
        raise ConfigError(
            f"{name}={value!r} (of type {type(value).__name__}).\n"
            f"Expected a finite number{' ' if words else ''}{words}{hint}."
        )


def is_finite_number(value):
    """Returns whether `value` is a number a float holds; truth values are none."""
    # numpy's truth values are no Real.
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # An integer or fraction beyond what a float holds.
        return False


def did_you_mean(word, known):
    """Returns " Did you mean 'x'?" for the known word closest to `word`, or "" if none is close."""
    names = [str(name) for name in known]
    close = get_close_matches(str(word), names, n=1, cutoff=0.6)
    if not close:
        small = {name.lower(): name for name in names}
        close = [small[name] for name in get_close_matches(str(word).lower(), small, n=1)]
    return f" Did you mean {close[0]!r}?" if close else ""


def listing(items, limit=8):
    """Joins `items` with commas; past `limit` the rest is only counted."""
    items = [str(item) for item in items]
    more = f", … and {len(items) - limit} more" if len(items) > limit else ""
    return ", ".join(items[:limit]) + more

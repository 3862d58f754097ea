"""From WordPiece tokens back to readable text: where to put the spaces.

The vocabulary does not record white space, so it is put back by rules: none between
ideographs, none inside words, none on the inner side of brackets and quotes.
"""

import re
import unicodedata

from kerasbert.tokenizers.characters import is_punctuation, stem

_CONTRACTIONS = ("d", "ll", "m", "re", "s", "t", "ve")
_OPENING = "([{<#$"
_JOINING = "+-/=\\_@^|~*&"
_QUOTES = "'\""
# A point, colon or slash between digits belongs to a number ('2.0', '12:30'); a comma only
# in front of exactly three digits ('1,000'), as lists of numbers have commas too.
_INSIDE_NUMBER = re.compile(r"\d[.:]\d+|\d,\d{3}")


def join_tokens(tokens):
    """Joins tokens to a text.

    Args:
        tokens: WordPiece tokens without special ones.

    Returns:
        A string.

    Example:
        >>> join_tokens(['bert', '模', '型', 'v2', '.', '0'])
        'bert模型v2.0'
    """
    text, glue, open_quotes = "", True, set()
    for token, following in zip(tokens, [*tokens[1:], ""], strict=True):
        if token.startswith("##"):
            text, glue = text + stem(token), _is_wide(token[-1])
            continue
        if token in _QUOTES and not _is_apostrophe(text, glue, following):
            before, after = token in open_quotes, token not in open_quotes
            open_quotes ^= {token}
        else:
            before, after = _sticks(text, token, following)
        text += token if glue or before else " " + token
        glue = after
    return text


def _is_apostrophe(text, glue, following):
    """Tells whether the quote that comes next stands inside a word, as in "don't"."""
    return not glue and text[-1:].isalnum() and following in _CONTRACTIONS


def _sticks(text, token, following):
    """Tells whether `token` takes no space before it, and none after it."""
    if len(token) != 1 or not is_punctuation(token):
        return _is_wide(token[:1]), _is_wide(token[-1:])
    if _is_wide(token) or token in _JOINING or unicodedata.category(token) in ("Pc", "Pd"):
        return True, True
    if token in _OPENING or unicodedata.category(token) in ("Ps", "Pi"):
        return False, True
    inside_number = _INSIDE_NUMBER.fullmatch(text[-1:] + token + following)
    return True, token in _QUOTES or bool(inside_number)


def _is_wide(char):
    """Tells whether `char` belongs to a script written without spaces.

    East Asian width finds ideographs, kana and full-width signs; Hangul is wide too but
    has spaces between words, and so have emoji (category So).
    """
    return (
        char != ""
        and unicodedata.east_asian_width(char) in ("W", "F")
        and unicodedata.category(char) != "So"
        and not unicodedata.name(char, "").startswith("HANGUL")
    )

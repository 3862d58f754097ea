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
# A point or colon between digits belongs to a number ('2.0', '12:30'); a comma only
# in front of exactly three digits ('1,000'), as lists of numbers have commas too.
_INSIDE_NUMBER = re.compile(r"\d[.:]\d.*|\d,\d{3}")


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
    words = []
    for token in tokens:
        if words and token.startswith("##"):
            words[-1] += stem(token)
        else:
            words.append(stem(token))
    text, glue, open_quotes = "", True, set()
    for word, following in zip(words, [*words, ""][1:], strict=True):
        if word in _QUOTES and not _is_apostrophe(text, glue, following):
            before, after = word in open_quotes, word not in open_quotes
            open_quotes ^= {word}
        else:
            before, after = _sticks(text, word, following)
        text += word if glue or before else " " + word
        glue = after
    return text


def _is_apostrophe(text, glue, following):
    """Tells whether the quote that comes next stands inside a word, as in "don't"."""
    return not glue and text[-1:].isalnum() and following in _CONTRACTIONS


def _sticks(text, word, following):
    """Tells whether `word` takes no space before it, and none after it."""
    if len(word) != 1 or not is_punctuation(word):
        return _is_wide(word[:1]), _is_wide(word[-1:])
    if _is_wide(word) or word in _JOINING or unicodedata.category(word) in ("Pc", "Pd"):
        return True, True
    if word in _OPENING or unicodedata.category(word) in ("Ps", "Pi"):
        return False, True
    inside_number = _INSIDE_NUMBER.fullmatch(text[-1:] + word + following)
    return True, word in _QUOTES or bool(inside_number)


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

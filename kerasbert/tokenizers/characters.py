"""Which characters are space, control, punctuation or CJK, and how a text becomes words.

The rules are those of BasicTokenizer in google-research/bert (tokenization.py); ELECTRA
differs in two switches. They look at one character at a time, with two exceptions noted
in `TextRules`, so ordinary texts are cleaned by one `str.translate` with a table that is
filled as characters are met. The Unicode data is Python's own, as in the original, and
not the older tables inside the `tokenizers` library.
"""

import re
import unicodedata

# The eight blocks Google splits. The later extensions F and G are absent on purpose:
# the released vocabularies were counted without them.
_CJK_RANGES = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
_ASCII_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_SURROGATE = re.compile("[\ud800-\udfff]")


def is_space(char):
    """Tells whether Google's rules turn `char` into a space: tab, newlines, category Zs."""
    return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def is_control(char, categories=("Cc", "Cf")):
    """Tells whether `char` is dropped as a control character; tab and newlines are not.

    Args:
        char: One character.
        categories: Unicode categories, or their first letters, that count as control:
            BERT and ALBERT drop Cc and Cf, ELECTRA everything that starts with C.
    """
    return char not in "\t\n\r" and unicodedata.category(char).startswith(categories)


def is_punctuation(char):
    """Tells whether `char` is a token of its own: ASCII symbols and the categories P*."""
    return char in _ASCII_PUNCTUATION or unicodedata.category(char).startswith("P")


def is_cjk_character(char):
    """Tells whether `char` lies in the ideograph blocks Google splits (no kana, no Hangul)."""
    code = ord(char)
    return any(first <= code <= last for first, last in _CJK_RANGES)


def stem(token):
    """Returns a WordPiece without its leading '##'."""
    return token[2:] if token[:2] == "##" else token


def is_redundant(token):
    """Tells whether `load_vocab(simplified=True)` drops `token`.

    Ideographs and punctuation are always tokens of their own, so a longer token that
    contains one (such as '##中') can never come out of a text. Rule of bert4keras.
    """
    return len(token) > 1 and any(is_cjk_character(c) or is_punctuation(c) for c in stem(token))


def without_surrogates(text):
    """Replaces lone surrogates, which `tokenizers` cannot take, by NUL: no vocabulary has it."""
    return _SURROGATE.sub("\0", text)


class _NeighboursMatterError(Exception):
    """Raised by the table for a character that one-to-one replacement cannot treat."""


class _Replacements(dict):
    """Code point -> cleaned text, computed when a character is met for the first time."""

    def __init__(self, rules):
        super().__init__()
        self._rules = rules

    def __missing__(self, code):
        # `str.translate` passes this exception on, and the failed entry is not stored:
        # one table is at once the fast path and the test of whether it may be used.
        entry = self[code] = self._rules.replacement(chr(code))
        return entry


class TextRules:
    """Cleans a text and cuts it into the words that WordPiece then splits.

    Two things depend on neighbours: a capital sigma lower-cases to σ or ς by its place in
    the word, and combining marks that accent stripping keeps are put in canonical order.
    Texts with those, or with lone surrogates, take `words_with_origins`, which follows the
    original step by step.

    Args:
        lower: Whether to lower-case.
        strip_accents: Whether to decompose (NFD) and drop marks of category Mn.
        control_categories: See `is_control`; a tuple.
    """

    def __init__(self, lower, strip_accents, control_categories=("Cc", "Cf")):
        self.lower = lower
        self.strip_accents = strip_accents
        self.control_categories = control_categories
        self._table = _Replacements(self)

    def is_removed(self, char):
        """Tells whether `char` vanishes: NUL, U+FFFD and control characters."""
        return char in "\0\ufffd" or is_control(char, self.control_categories)

    def fold(self, text):
        """Lower-cases `text` and strips its accents, as far as asked for."""
        if self.lower:
            text = text.lower()
        if self.strip_accents:
            text = unicodedata.normalize("NFD", text)
            text = "".join(c for c in text if unicodedata.category(c) != "Mn")
        return text

    def fold_with_origins(self, text, origins):
        """Folds `text` and tells where each remaining character came from.

        Args:
            text: A string of n characters.
            origins: n indexes.

        Returns:
            (folded, origins), of equal length.
        """
        if self.lower:
            text, origins = text.lower(), spread(text, origins, str.lower)
        if self.strip_accents:
            origins = spread(text, origins, lambda c: unicodedata.normalize("NFD", c))
            text = unicodedata.normalize("NFD", text)
            kept = [i for i, c in enumerate(text) if unicodedata.category(c) != "Mn"]
            text, origins = "".join(text[i] for i in kept), [origins[i] for i in kept]
        return text, origins

    def replacement(self, char):
        """Returns what `char` becomes: nothing, a space, or itself with spaces where words end."""
        if self.is_removed(char):
            return ""
        # `isspace` adds U+2028 and U+2029, which the original keeps while cleaning but
        # which then end words in its `split()`.
        if char.isspace():
            return " "
        folded = self.fold(char)
        if (
            _SURROGATE.match(char)
            or (self.lower and char == "Σ")
            or (self.strip_accents and any(map(unicodedata.combining, folded)))
        ):
            raise _NeighboursMatterError
        parts = "".join(f" {c} " if is_punctuation(c) else c for c in folded)
        return f" {parts} " if is_cjk_character(char) else parts

    def clean(self, text):
        """Returns the words of `text` with spaces between them, fit for `tokenizers`."""
        try:
            return text.translate(self._table)
        except _NeighboursMatterError:
            words = (word for word, _ in self.words_with_origins(text))
            return without_surrogates(" ".join(words))

    def split(self, text):
        """Returns the words of `text`: cleaned, folded, punctuation and ideographs apart."""
        try:
            return text.translate(self._table).split()
        except _NeighboursMatterError:
            return [word for word, _ in self.words_with_origins(text)]

    def words_with_origins(self, text):
        """Cuts `text` into words and tells which characters each word is made of.

        Args:
            text: A string.

        Returns:
            A list of (word, origins): `origins[i]` is the index in `text` of the
            character that `word[i]` came from.
        """
        words = []
        for chunk, origins in self._chunks(text):
            folded, origins = self.fold_with_origins(chunk, origins)
            start = 0
            for end, char in enumerate(folded):
                if is_punctuation(char):
                    words += [(folded[start:end], origins[start:end]), (char, [origins[end]])]
                    start = end + 1
            words.append((folded[start:], origins[start:]))
        return [word for word in words if word[0]]

    def _chunks(self, text):
        """Yields (chunk, origins) between spaces, every ideograph a chunk of its own."""
        chunk, origins = "", []
        for index, char in enumerate(text):
            if self.is_removed(char):
                continue
            if char.isspace() or is_cjk_character(char):
                yield chunk, origins
                chunk, origins = "", []
                if not char.isspace():
                    yield char, [index]
            else:
                chunk += char
                origins.append(index)
        yield chunk, origins


def spread(text, origins, change):
    """Repeats the origin of each character as often as `change` makes characters of it.

    Lower-casing and decomposing keep the order and number of characters that each
    character alone would give; only marks may trade places among themselves.

    Args:
        text: A string of n characters.
        origins: n indexes.
        change: Function from one character to a string.

    Returns:
        One origin per character of the changed text.
    """
    return [origin for char, origin in zip(text, origins, strict=True) for _ in change(char)]

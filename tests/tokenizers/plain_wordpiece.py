"""A slow WordPiece tokenizer written straight from its description, to judge the fast one.

It shares no code and no idea with the library: text goes through one step after the other,
each over the whole text, and pieces are found by trying every length.
"""

import unicodedata

CJK = [
    range(0x4E00, 0xA000),
    range(0x3400, 0x4DC0),
    range(0x20000, 0x2A6E0),
    range(0x2A700, 0x2B740),
    range(0x2B740, 0x2B820),
    range(0x2B820, 0x2CEB0),
    range(0xF900, 0xFB00),
    range(0x2F800, 0x2FA20),
]


def is_cjk(char):
    return any(ord(char) in block for block in CJK)


def is_punctuation(char):
    return (
        33 <= ord(char) <= 47
        or 58 <= ord(char) <= 64
        or 91 <= ord(char) <= 96
        or 123 <= ord(char) <= 126
        or unicodedata.category(char)[0] == "P"
    )


def is_dropped(char, any_control):
    if char in "\t\n\r":
        return False
    category = unicodedata.category(char)
    control = category[0] == "C" if any_control else category in ("Cc", "Cf")
    return control or char == "\x00" or char == "\ufffd"


def is_space(char):
    return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def words(text, lower, strip=None, any_control=False):
    strip = lower if strip is None else strip
    text = "".join(c for c in text if not is_dropped(c, any_control))
    text = "".join(" " if is_space(c) else c for c in text)
    text = "".join(f" {c} " if is_cjk(c) else c for c in text)
    found = []
    for word in text.split():
        if lower:
            word = word.lower()
        if strip:
            decomposed = unicodedata.normalize("NFD", word)
            word = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
        found += "".join(f" {c} " if is_punctuation(c) else c for c in word).split()
    return found


def pieces(word, vocabulary, longest=200):
    if len(word) > longest:
        return ["[UNK]"]
    found, rest = [], word
    while rest:
        mark = "##" if found else ""
        fits = [n for n in range(len(rest), 0, -1) if mark + rest[:n] in vocabulary]
        if not fits:
            return ["[UNK]"]
        found.append(mark + rest[: fits[0]])
        rest = rest[fits[0] :]
    return found


def tokens(text, vocabulary, lower, strip=None, any_control=False):
    return [p for w in words(text, lower, strip, any_control) for p in pieces(w, vocabulary)]

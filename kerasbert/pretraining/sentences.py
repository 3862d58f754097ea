"""Where sentences end, in Chinese and in English."""

import re

# A mark that may end a sentence, and the quotes and brackets that close behind it.
_STOP = re.compile(r"""[。！？!?.]+[”’」』】》〉）)\]"']*""")
_FULL_WIDTH = re.compile("[。！？]")

# What cannot begin a sentence: then the one before has not ended.
_GOES_ON = "，、；：,;:)）]】」』”’》〉"

_CJK = re.compile("[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003134f]")
_LAST_WORD = re.compile(r"[A-Za-z.]*$")
_BLACK = re.compile(r"\S")

# Words whose period ends no sentence, as a rule.
_ABBREVIATIONS = frozenset(
    re.findall(
        r"\S+",
        """
        al apr aug capt cf co col corp dec dept dr e.g ed eds eq feb fig figs gen gov hon i.e inc
        jan jr jul jun lt ltd maj mar messrs mr mrs ms mt nov oct op p pp prof rep rev sen
        sep sept sgt sr st u.k u.s viz vol vols vs
        """,
    )
)

_BEFORE_NUMBERS = ("no", "nos", "art")


def split_sentences(text):
    """Splits a text, Chinese, English or both, into its sentences.

    A sentence ends at 。！？ with the closing quotes behind, and at . ! ? where white space, a
    Chinese character or nothing follows. A period ends none in numbers, after one letter, after
    usual abbreviations, and before a small letter.

    Args:
        text: a string, a paragraph for instance.

    Returns:
        A list of strings without white space around them, none empty; joined, they are the text
        but for that white space.

    Raises:
        TypeError: if the text is no string.

    Example:
        >>> split_sentences("房间很干净。“真好！”他说。It was 3.5 m, e.g. here. Good?")
        ['房间很干净。', '“真好！”', '他说。', 'It was 3.5 m, e.g. here.', 'Good?']
    """
    sentences, start = [], 0
    for match in _STOP.finditer(text):
        end = match.end()
        if _ends_sentence(text, match.start(), end, match.group()):
            sentences.append(text[start:end].strip())
            start = end
    sentences.append(text[start:].strip())
    return [sentence for sentence in sentences if sentence]


def _ends_sentence(text, start, end, mark):
    """Whether a mark that stands from `start` to `end` ends a sentence."""
    found = _BLACK.search(text, end)
    if found is None:
        return True
    behind = found.group()
    if behind in _GOES_ON:
        return False
    if _FULL_WIDTH.search(mark):
        return True
    apart = found.start() > end or _CJK.match(behind)
    if not apart or "." not in mark:
        return bool(apart)
    word = _LAST_WORD.search(text[max(start - 12, 0) : start]).group().lower()
    if word in _BEFORE_NUMBERS and behind.isdigit():
        return False
    short = len(word) == 1 and word != "i"
    return not (short or word in _ABBREVIATIONS or behind.islower())

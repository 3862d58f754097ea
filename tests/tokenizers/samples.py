"""Files, tokenizers and texts that several test modules use."""

import json
from functools import cache
from pathlib import Path

from hypothesis import strategies as st

from kerasbert.tokenizers import SpTokenizer, Tokenizer

DATA = Path(__file__).resolve().parents[1] / "data" / "tokenization"

# Texts on which rematch broke in older libraries, and relatives of them.
HARD_TEXTS = [
    "",
    " ",
    "rΣ",
    "˃ʍ˂",
    "˃ʍ˂ ˃ʍ˂ a ˃ʍ˂",
    "İstanbul",
    "ﬁx",
    "e\u0301",
    "鲁石化a19.11",
    "👩‍👧a",
    "[UNK]x",
    "[CLS] [MASK] [SEP]",
    "  a\t b ",
    "ß",
    "ΑΣ",
    "ΑΣ. Σ ΣΑΣ-ΣΑΣ",
    "한글 단어",
    "ＡＢＣ１２３",
    "\ufeffword\u00adjoin\u200bed\x00",
    "a\u2028b\x85c\x1cd",
    "q\u0307\u0323 \u302e\u302f\U0001d165",
    "\u0301",
    "lone \ud800 surrogate\udfff",
    "x" * 201 + " y",
    "É" * 200,
    "中国㍿½ﷺ",
    "Ǆ ŉ K Å",
]

_MEAN = (
    "Σσς ΑİıßẞéÉe\u0301\u0300\u0323\u302e\U00016ff0\U0001d165한中國㐀𪚥𫠝豈，。“”.,!?#'-_[]1２½㍿ﬁ"
)
_MEAN += "かが\u200d\u2028\x85\x1c\t\n\r\xa0\u3000\x00\ufffd\ue000\ud800😀aABbzt##"


def texts(max_size=40):
    """Any string at all (lone surrogates too), often made of characters that cause trouble."""
    any_character = st.characters(exclude_categories=[])
    return st.text(any_character | st.sampled_from(_MEAN), max_size=max_size)


def rows(name):
    """The rows of a file of recorded results."""
    return [json.loads(line) for line in (DATA / name).open(encoding="ascii")]


@cache
def small_tokenizer(lower=True, **options):
    """A Tokenizer with the recorded vocabulary of 3,000 tokens."""
    return Tokenizer(DATA / "vocab_small.txt", do_lower_case=lower, **options)


@cache
def sp_tokenizer(name="spm400", **options):
    """A SpTokenizer with one of the recorded models."""
    return SpTokenizer(DATA / f"{name}.model", **options)

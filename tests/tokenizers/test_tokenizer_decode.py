"""decode: where spaces go when WordPiece tokens become text again."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import small_tokenizer, texts

from kerasbert.tokenizers import Tokenizer
from kerasbert.tokenizers.joining import join_tokens

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def tokenizer_for(text, lower=False):
    """A tokenizer whose vocabulary has every character of `text`, at the start and inside."""
    characters = dict.fromkeys(text.lower().replace(" ", ""))
    tokens = [*SPECIALS, *characters, *(f"##{c}" for c in characters)]
    return Tokenizer({token: i for i, token in enumerate(tokens)}, do_lower_case=lower)


@pytest.mark.parametrize(
    "text",
    [
        "中文文本",
        "bert模型v2.0",
        "他说：“你好！”然后走了。",
        "在2019年，价格是3.5元（约50%）。",
        "《书名》、顿号；冒号：问？",
        "hello, world!",
        "it's what i'd say: don't, they've, we'll, i'm",
        "in 12:30 at a-b and a/b, 3.14 or 1,000,000 (one million)",
        "lists 1, 2, 3 and 1998, 1999",
        "she said \"no way\" and 'maybe' left.",
        "50% of $1,000 [sic] {x}",
        "#tag x_y a@b 1+1=2",
        "ひらがなとカタカナ",
        "한글 단어 둘",
        "ｆｕｌｌｗｉｄｔｈ",
        "good 😀 bad",
        "a—b",
        "wait… what?!",
        "русский текст",
        "e=mc^2",
    ],
)
def test_text_survives_encoding_and_decoding(text):
    tokenizer = tokenizer_for(text)
    assert tokenizer._token_unk_id not in tokenizer.encode(text)[0]
    assert tokenizer.decode(tokenizer.encode(text)[0]) == text


def test_case_does_not_survive():
    tokenizer = tokenizer_for("BERT模型v2.0", lower=True)
    assert tokenizer.decode(tokenizer.encode("BERT模型v2.0")[0]) == "bert模型v2.0"


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([], ""),
        (["a"], "a"),
        (["un", "##aff", "##able", "word"], "unaffable word"),
        (["中", "##国", "a", "##b", "国"], "中国ab国"),
        (["北京", "大学", "ok"], "北京大学ok"),
        (["##a", "b"], "a b"),
        (["a", "##"], "a"),
        (["(", "a", ")", "b"], "(a) b"),
        (["'", "'"], "''"),
        (["a", "'", "b", "'"], "a 'b'"),
        (["'", "s"], "'s"),
        (["a", "=", "'", "t", "'", "b"], "a='t' b"),
        (["1", ".", "a"], "1. a"),
        (["a", ".", "1"], "a. 1"),
        (["1", ",", "0000"], "1, 0000"),
    ],
)
def test_joining(tokens, expected):
    assert join_tokens(tokens) == expected


def test_special_tokens_are_left_out():
    tokenizer = tokenizer_for("ab")
    ids = [2, 5, 4, 6, 1, 3, 0, 0]
    assert tokenizer.ids_to_tokens(ids)[1:4] == ["a", "[MASK]", "b"]
    assert tokenizer.decode(ids) == "a b"
    assert tokenizer.decode([]) == tokenizer.decode([2, 3, 0]) == ""


def test_arrays_and_tokens_are_taken_too():
    tokenizer = tokenizer_for("ab")
    assert tokenizer.decode(tokenizer.encode_batch(["a b"])[0][0]) == "a b"
    assert tokenizer.decode(None, tokens=["[CLS]", "x", "##y", "z"]) == "xy z"


@given(texts(), st.booleans())
@settings(max_examples=200)
def test_decoding_any_text_loses_only_spaces(text, lower):
    tokenizer = small_tokenizer(lower)
    tokens = [t for t in tokenizer.tokenize(text)[1:-1] if t != "[UNK]"]
    decoded = tokenizer.decode(tokenizer.encode(text)[0])
    assert decoded.replace(" ", "") == "".join(map(tokenizer.stem, tokens))
    assert decoded == decoded.strip()
    assert "  " not in decoded


@given(st.text("ab1中国，。()'\".,- ", max_size=30))
@settings(max_examples=200)
def test_decoding_never_changes_the_words(text):
    # Quotes aside, whose place depends on what came before them.
    text = text.replace("'", "").replace('"', "")
    tokenizer = tokenizer_for("ab1中国，。()'\".,-")
    decoded = tokenizer.decode(tokenizer.encode(text)[0])
    again = tokenizer.decode(tokenizer.encode(decoded)[0])
    assert decoded == again
    words = re.findall(r"[ab1]+|[^ab1 ]", text)
    assert re.findall(r"[ab1]+|[^ab1 ]", decoded) == words

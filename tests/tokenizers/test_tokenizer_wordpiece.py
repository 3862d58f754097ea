"""The WordPiece tokenizer against a slow one written from the description."""

import ast
import pickle
import sys
from pathlib import Path

import plain_wordpiece
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from samples import HARD_TEXTS, small_tokenizer, texts

from kerasbert import tokenizers
from kerasbert.errors import TokenizerError
from kerasbert.tokenizers import Tokenizer

MINI = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "un",
    "##aff",
    "##able",
    "##a",
    "a",
    "中",
    "国",
]
# What the library is called with, and what the slow tokenizer is called with.
VARIANTS = {
    "uncased": ({"lower": True}, {"lower": True}),
    "cased": ({"lower": False}, {"lower": False}),
    "electra": (
        {"lower": True, "control_categories": ("C",)},
        {"lower": True, "any_control": True},
    ),
    "lower, accents kept": (
        {"lower": True, "strip_accents": False},
        {"lower": True, "strip": False},
    ),
    "cased, accents stripped": (
        {"lower": False, "strip_accents": True},
        {"lower": False, "strip": True},
    ),
}


def mini(**options):
    return Tokenizer({token: i for i, token in enumerate(MINI)}, **options)


@pytest.mark.parametrize("variant", VARIANTS)
@given(text=texts())
@settings(max_examples=300)
def test_any_text_is_split_like_the_slow_tokenizer_does(variant, text):
    ours, theirs = VARIANTS[variant]
    tokenizer = small_tokenizer(**ours)
    expected = plain_wordpiece.tokens(text, tokenizer._token_dict, **theirs)
    assert tokenizer.tokenize(text)[1:-1] == expected
    ids = [tokenizer._token_dict[token] for token in expected]
    assert tokenizer.encode(text)[0][1:-1] == ids
    assert tokenizer.encode_batch([text], padding=False)[0][0][1:-1] == ids


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("text", HARD_TEXTS, ids=ascii)
def test_hard_texts_are_split_like_the_slow_tokenizer_does(variant, text):
    ours, theirs = VARIANTS[variant]
    tokenizer = small_tokenizer(**ours)
    expected = plain_wordpiece.tokens(text, tokenizer._token_dict, **theirs)
    assert tokenizer.tokenize(text)[1:-1] == expected
    assert tokenizer._rules.split(text) == plain_wordpiece.words(text, **theirs)


@pytest.mark.parametrize("variant", ["uncased", "cased", "electra"])
def test_every_character_is_treated_like_the_slow_tokenizer_does(variant):
    ours, theirs = VARIANTS[variant]
    rules = small_tokenizer(**ours)._rules
    codes = [*range(0x10000), *range(0x10000, 0x32000, 3), *range(0xE0000, 0xE01F0), 0x10FFFF]
    for code in codes:
        text = f"a{chr(code)}b"
        assert rules.split(text) == plain_wordpiece.words(text, **theirs), hex(code)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("unaffable", ["un", "##aff", "##able"]),
        ("中国a中", ["中", "国", "a", "中"]),
        ("unb a", ["[UNK]", "a"]),
        ("[MASK]", ["[UNK]", "[UNK]", "[UNK]"]),
        ("a" * 200, ["a"] + ["##a"] * 199),
        ("a" * 201, ["[UNK]"]),
    ],
)
def test_known_answers(text, expected):
    assert mini().tokenize(text) == ["[CLS]", *expected, "[SEP]"]


def test_length_of_a_word_is_counted_after_accents_are_gone():
    decomposed = "a\u0301" * 200
    assert mini(do_lower_case=True).tokenize(decomposed)[1:-1] == ["a"] + ["##a"] * 199
    assert mini(do_lower_case=True).tokenize(decomposed + "a")[1:-1] == ["[UNK]"]
    assert mini(word_maxlen=3).tokenize("aaa aaaa")[1:-1] == ["a", "##a", "##a", "[UNK]"]


@pytest.mark.parametrize("word_maxlen", [0, -1, 1.5, True, None])
def test_word_maxlen_has_to_be_a_length(word_maxlen):
    with pytest.raises(TokenizerError, match=r"word_maxlen=.* is no length"):
        mini(word_maxlen=word_maxlen)


def test_cased_keeps_accents():
    vocabulary = [*MINI[:5], "Й", "ö", "ç", "И", "и", "o", "c"]
    token_dict = {token: i for i, token in enumerate(vocabulary)}
    assert Tokenizer(token_dict).tokenize("Й ö ç")[1:-1] == ["Й", "ö", "ç"]
    assert Tokenizer(token_dict, do_lower_case=True).tokenize("Й ö ç")[1:-1] == ["и", "o", "c"]


@pytest.mark.parametrize("categories", [("X",), "Ccc", ("Cc", 3), ("",)])
def test_control_categories_have_to_be_categories(categories):
    with pytest.raises(TokenizerError, match=r"control_categories has .*such as 'Cc'"):
        mini(control_categories=categories)


def test_control_categories_may_be_a_string():
    assert mini(control_categories="C").tokenize("a\ue000a")[1:-1] == ["a", "##a"]
    assert mini().tokenize("a\ue000a")[1:-1] == ["[UNK]"]


# --- Special tokens and ids ---------------------------------------------------------------


def test_special_tokens_and_their_ids():
    tokenizer = mini()
    assert [
        tokenizer._token_pad_id,
        tokenizer._token_unk_id,
        tokenizer._token_start_id,
        tokenizer._token_end_id,
        tokenizer._token_mask_id,
    ] == [0, 1, 2, 3, 4]
    assert (tokenizer._token_pad, tokenizer._token_unk) == ("[PAD]", "[UNK]")
    assert (tokenizer._token_start, tokenizer._token_end) == ("[CLS]", "[SEP]")
    assert tokenizer._token_mask == "[MASK]"
    assert tokenizer._vocab_size == tokenizer.vocab_size == 12


def test_other_special_tokens():
    assert mini(token_start=None, token_end="[MASK]").encode("a")[0] == [9, 4]
    assert mini(token_start=None, token_end=None).encode("a")[0] == [9]
    assert mini(token_start="", token_end="").tokenize("a") == ["a"]
    with pytest.raises(TokenizerError, match=r"lacks <s>\."):
        mini(token_start="<s>")


def test_a_missing_mask_token_matters_only_when_asked_for():
    tokenizer = Tokenizer({token: i for i, token in enumerate(MINI[:4])})
    assert tokenizer.encode("a")[0] == [2, 1, 3]
    with pytest.raises(TokenizerError, match=r"no mask token \(looked for '\[MASK\]'\)"):
        _ = tokenizer._token_mask_id


def test_ids_and_tokens():
    tokenizer = mini()
    assert tokenizer.tokens_to_ids(["un", "##aff", "nowhere"]) == [5, 6, 1]
    assert tokenizer.ids_to_tokens([5, 6, 1]) == ["un", "##aff", "[UNK]"]
    assert tokenizer.token_to_id("中") == 10
    assert tokenizer.id_to_token(10) == "中"


@pytest.mark.parametrize("index", [-1, 12, 10**9])
def test_ids_outside_the_vocabulary(index):
    message = f"Id {index} is outside the vocabulary: ids run from 0 to 11"
    with pytest.raises(TokenizerError, match=message):
        mini().id_to_token(index)
    with pytest.raises(TokenizerError, match=message):
        mini().decode([5, index])


@pytest.mark.parametrize("index", [1.0, "1", None, True, [1]])
def test_ids_of_other_types(index):
    with pytest.raises(TokenizerError, match=r"is not an id. Expected an integer"):
        mini().id_to_token(index)


def test_the_callers_dict_is_not_kept():
    token_dict = {token: i for i, token in enumerate(MINI)}
    tokenizer = Tokenizer(token_dict)
    token_dict.clear()
    assert tokenizer.encode("a")[0] == [2, 9, 3]


# --- Words of a segmenter, translated and unknown tokens ----------------------------------


def test_unknown_words_can_be_shown():
    shown = small_tokenizer(keep_unknown_words=True)
    plain = small_tokenizer()
    text = "龘 Unknown\u1234Word a\ud800"
    assert plain.tokenize(text)[1:-1] == ["[UNK]"] * 3
    assert shown.tokenize(text)[1:-1] == ["龘", "unknown\u1234word", "a\ud800"]
    assert shown.encode(text) == plain.encode(text)
    assert shown.tokens_to_ids(shown.tokenize(text)) == plain.encode(text)[0]


@given(texts())
def test_unknown_words_change_no_id(text):
    shown = small_tokenizer(keep_unknown_words=True)
    assert shown.tokens_to_ids(shown.tokenize(text)) == small_tokenizer().encode(text)[0]


def segmenter(text):
    return [word for part in text.split("|") for word in (part, "")]


def test_words_of_a_segmenter_that_are_tokens_are_kept_whole():
    tokens = [*MINI, "中国", "t恤", "[unused1]", "x y"]
    tokenizer = Tokenizer(
        {t: i for i, t in enumerate(tokens)}, do_lower_case=True, pre_tokenize=segmenter
    )
    text = "中国|国中|T恤|[unused1]|[MASK]|unaffable|x y"
    expected = ["中国", "国", "中", "t恤", "[unused1]", "[UNK]", "[UNK]", "[UNK]"]
    # '[MASK]' reaches the segmenter in lower case, so it is no token any more.
    assert tokenizer.tokenize(text)[1:-1] == [*expected, "un", "##aff", "##able", "x y"]
    ids = tokenizer.tokens_to_ids(tokenizer.tokenize(text))
    assert tokenizer.encode(text)[0] == ids
    assert tokenizer.encode_batch([text])[0].tolist() == [ids]


def test_a_segmenter_that_returns_no_strings_is_reported():
    with pytest.raises(TokenizerError, match=r"pre_tokenize\(text\)\[1\] is None"):
        mini(pre_tokenize=lambda text: ["a", None]).tokenize("a")
    with pytest.raises(TokenizerError, match=r"pre_tokenize='jieba' cannot be called"):
        mini(pre_tokenize="jieba")


def test_translated_tokens():
    tokenizer = mini(token_translate={"国": "un", "龘": "[MASK]", "##a": "a"})
    assert tokenizer.tokenize("中国龘靐aa")[1:-1] == ["中", "un", "[MASK]", "[UNK]", "a", "a"]
    assert tokenizer.encode("中国龘靐aa")[0] == [2, 10, 5, 4, 1, 9, 9, 3]
    assert tokenizer.encode_batch(["中国龘靐"])[0].tolist() == [[2, 10, 5, 4, 1, 3]]
    assert tokenizer.decode([2, 10, 5, 4, 1, 3]) == "中国龘"


# --- Helpers of bert4keras, copies, imports -----------------------------------------------


def test_static_helpers():
    assert Tokenizer.stem("##able") == "able"
    assert Tokenizer.stem("un") == "un"
    assert [Tokenizer._is_space(c) for c in " \t\n\r\xa0\u3000a\u2028"] == [True] * 6 + [False] * 2
    assert [Tokenizer._is_control(c) for c in "\t\n\r\x00\x1c\u200d\ue000"] == (
        [False] * 3 + [True] * 3 + [False]
    )
    assert all(map(Tokenizer._is_punctuation, "$+<=>^`|~!，。“”—…"))
    assert not any(map(Tokenizer._is_punctuation, "a1 中￥£°"))
    assert all(map(Tokenizer._is_cjk_character, "中㐀𠀀𪜀𫝀𫠠豈丽"))
    assert not any(map(Tokenizer._is_cjk_character, "aのカ한，々\U0002ceb0\U00030000"))
    assert [Tokenizer._is_special(t) for t in ("[CLS]", "[unused1]", "[", "]", "", "a")] == (
        [True, True, False, False, False, False]
    )
    assert [Tokenizer._is_redundant(t) for t in ("##中", "中国", "[PAD]", "a.", "中", "##a")] == (
        [True, True, True, True, False, False]
    )


@example("ΑΣ \ud800")
@given(texts(max_size=12))
@settings(max_examples=25)
def test_a_pickled_tokenizer_gives_the_same(text):
    tokenizer = small_tokenizer(keep_unknown_words=True)
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.tokenize(text) == tokenizer.tokenize(text)
    assert copy.encode_batch([text, "a"], padding=False) == tokenizer.encode_batch(
        [text, "a"], padding=False
    )


def test_threads_share_a_tokenizer():
    from concurrent.futures import ThreadPoolExecutor

    tokenizer = mini(do_lower_case=True)
    words = [chr(code) * 3 + "Σ中a" for code in range(0x4E00, 0x5200)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda text: tokenizer.encode(text)[0], words))
    assert found == [mini(do_lower_case=True).encode(text)[0] for text in words]


def test_tokenizers_import_no_framework():
    folder = Path(tokenizers.__file__).parent
    found = set()
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module)
    own = {name for name in found if name.startswith("kerasbert")}
    assert own - {"kerasbert.errors"} == {n for n in own if n.startswith("kerasbert.tokenizers")}
    outside = {name.split(".")[0] for name in found - own} - set(sys.stdlib_module_names)
    assert outside == {"numpy", "sentencepiece", "tokenizers"}


@given(st.lists(texts(max_size=8), max_size=5))
@settings(max_examples=50)
def test_no_text_touches_another(batch):
    tokenizer = small_tokenizer()
    together = tokenizer.encode_batch(batch, padding=False)[0]
    assert together == [tokenizer.encode(text)[0] for text in batch]

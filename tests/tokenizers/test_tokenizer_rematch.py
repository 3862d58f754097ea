"""rematch: the characters behind each token, through all that cleaning does to a text."""

import unicodedata

import plain_wordpiece
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import HARD_TEXTS, small_tokenizer, sp_tokenizer, texts

from kerasbert.errors import TokenizerError
from kerasbert.tokenizers import Tokenizer

VARIANTS = [
    {"lower": True},
    {"lower": False},
    {"lower": True, "strip_accents": False},
    {"lower": True, "control_categories": ("C",)},
    {"lower": True, "keep_unknown_words": True},
]


def check_rematch(tokenizer, text, tokens):
    """What holds for the tokens of any text; returns the indexes of the tokens between."""
    mapping = tokenizer.rematch(text, tokens)
    assert len(mapping) == len(tokens)
    assert mapping[0] == mapping[-1] == []
    spans = mapping[1:-1]
    last = 0
    for span in spans:
        assert span == sorted(set(span))
        assert all(0 <= i < len(text) for i in span)
        if span:
            # Two tokens share a character that became several ('한', 'İ'), but never go back.
            assert span[0] >= last
            last = span[-1]
    return spans


def check_wordpiece(tokenizer, text, options):
    tokens = tokenizer.tokenize(text)
    spans = check_rematch(tokenizer, text, tokens)
    assert all(spans), "a token without characters"
    lower = options["lower"]
    strip = options.get("strip_accents", lower)
    any_control = options.get("control_categories") == ("C",)
    survivors = {
        i for i, char in enumerate(text) if plain_wordpiece.words(char, lower, strip, any_control)
    }
    covered = {i for span in spans for i in span}
    assert survivors == covered
    for token, span in zip(tokens[1:-1], spans, strict=True):
        if token == "[UNK]" or options.get("keep_unknown_words"):
            continue
        own = "".join(text[i] for i in span)
        found = "".join(plain_wordpiece.words(own, lower, strip, any_control))
        # ς and σ depend on the word around them; marks may have been put in order.
        sigma = found.replace("ς", "σ")
        assert sorted(tokenizer.stem(token).replace("ς", "σ")) == sorted(sigma) or (
            len(found) > len(tokenizer.stem(token)) and tokenizer.stem(token) in found
        )


@pytest.mark.parametrize("options", VARIANTS, ids=str)
@pytest.mark.parametrize("text", HARD_TEXTS, ids=ascii)
def test_hard_texts(text, options):
    check_wordpiece(small_tokenizer(**options), text, options)


@pytest.mark.parametrize("options", VARIANTS, ids=str)
@given(text=texts())
@settings(max_examples=200)
def test_any_text(text, options):
    # Marks that swap places may be given each other's index, hence not here.
    if not any(unicodedata.combining(c) and unicodedata.category(c) != "Mn" for c in text):
        check_wordpiece(small_tokenizer(**options), text, options)


@given(texts())
def test_never_raises_with_marks_that_swap_places(text):
    tokenizer = small_tokenizer()
    text = f"a\U0001d165\u302e{text}\u302e\U0001d165"
    assert all(check_rematch(tokenizer, text, tokenizer.tokenize(text)))


@pytest.mark.parametrize(
    ("text", "tokens", "expected"),
    [
        ("rΣ", ["r", "##ς"], [[0], [1]]),
        ("˃ʍ˂ a", ["[UNK]", "a"], [[0, 1, 2], [4]]),
        ("İst", ["i", "##st"], [[0], [1, 2]]),
        ("e\u0301a", ["e", "##a"], [[0], [2]]),
        ("鲁石化a19.11", ["鲁", "石", "化", "a", "##19", ".", "[UNK]"], None),
        ("  a\t b ", ["a", "b"], [[2], [5]]),
        ("한", ["ᄒ", "##ᅡ", "##ᆫ"], [[0], [0], [0]]),
        ("Éa\x00中\u200d国", ["e", "##a", "中", "国"], [[0], [1], [3], [5]]),
        ("[UNK]x", ["[", "[UNK]", "]", "[UNK]"], [[0], [1, 2, 3], [4], [5]]),
    ],
)
def test_known_answers(text, tokens, expected):
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"rabei鲁石化中国[].", "##ς", "##st", "##a"]
    vocabulary += ["##19", "ᄒ", "##ᅡ", "##ᆫ"]
    tokenizer = Tokenizer({t: i for i, t in enumerate(vocabulary)}, do_lower_case=True)
    assert tokenizer.tokenize(text)[1:-1] == tokens
    if expected is None:
        expected = [[0], [1], [2], [3], [4, 5], [6], [7, 8]]
    assert tokenizer.rematch(text, tokenizer.tokenize(text))[1:-1] == expected


# --- Tokens that are not exactly those of the text ------------------------------------------

MINI = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "b", "中", "国"]


def mini(**options):
    return Tokenizer({t: i for i, t in enumerate(MINI)}, do_lower_case=True, **options)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (["[CLS]", "a", "b", "[SEP]"], [[], [0], [2], []]),
        (["a", "b"], [[0], [2]]),
        (["b", "a", "中", "国"], [[6], [8], [10], [11]]),
        (["a", "中", "国"], [[8], [10], [11]]),
        (["a", "b", "国"], [[0], [2], [11]]),
        (["[CLS]", "a", "[MASK]", "a", "b", "[SEP]"], [[], [0], [], [4], [6], []]),
        (["[CLS]", "a", "b", "[SEP]", "[PAD]", "[PAD]"], [[], [0], [2], [], [], []]),
        ([], []),
        (["[CLS]"], [[]]),
        (["[CLS]", "[SEP]"], [[], []]),
        (["中国"], [[10, 11]]),
        (["ba", "国"], [[2, 4], [11]]),
        (["[UNK]", "国"], [[], [11]]),
    ],
)
def test_cut_and_edited_tokens(tokens, expected):
    assert mini().rematch("a b a b a 中国", tokens) == expected


def test_truncated_on_the_left():
    text = "a b a b a 中国"
    tokenizer = mini()
    ids, _ = tokenizer.encode(text, maxlen=5, truncate_from="left")
    assert tokenizer.rematch(text, tokenizer.ids_to_tokens(ids)) == [[], [8], [10], [11], []]


def test_padding_behind_unknown_words():
    tokens = ["[CLS]", "[UNK]", "a", "[SEP]", "[PAD]", "[PAD]"]
    assert mini().rematch("龘 a 中", tokens) == [[], [0], [2], [], [], []]


def test_unknown_words_under_both_names():
    text = "a 龘龘 Ünk 中"
    for tokenizer in (mini(), mini(keep_unknown_words=True)):
        for tokens in (
            ["a", "[UNK]", "[UNK]", "[UNK]", "中"],
            ["a", "龘", "龘", "unk", "中"],
            ["a", "[UNK]", "龘", "[UNK]", "中"],
        ):
            assert tokenizer.rematch(text, tokens) == [[0], [2], [3], [5, 6, 7], [9]]


def test_tokens_of_another_text_are_refused():
    with pytest.raises(TokenizerError, match=r"Token 1, 'b', is not found.*this tokenizer made"):
        mini().rematch("a 中", ["[CLS]", "a", "b", "[SEP]"])
    with pytest.raises(TokenizerError, match=r"Token 0, '国', is not found"):
        sp_tokenizer().rematch("a", ["国"])
    with pytest.raises(TokenizerError, match=r"tokens\[1\] is 3 \(int\)"):
        mini().rematch("a", ["a", 3])


def test_translated_tokens():
    tokenizer = mini(token_translate={"国": "b", "龘": "[MASK]"})
    text = "中国 龘"
    assert tokenizer.tokenize(text)[1:-1] == ["中", "b", "[MASK]"]
    assert tokenizer.rematch(text, tokenizer.tokenize(text))[:3] == [[], [0], [1]]
    assert tokenizer.rematch(text, ["中", "国", "龘"]) == [[0], [1], [3]]


@pytest.mark.parametrize(
    ("segmenter", "expected"),
    [
        (lambda text: [text[:2], text[2:]], [[0, 1], [2], [4]]),
        (lambda text: text.replace("b", " b").split(), [[0, 1], [2], [4]]),
        (lambda text: [text.replace(" ", "▂")], None),
        (lambda text: ["中国", "no such word", "a"], [[0, 1], [], [], [], [4]]),
    ],
)
def test_words_of_a_segmenter(segmenter, expected):
    vocabulary = {t: i for i, t in enumerate([*MINI, "中国"])}
    tokenizer = Tokenizer(vocabulary, do_lower_case=True, pre_tokenize=segmenter)
    text = "中国B Ä"
    mapping = tokenizer.rematch(text, tokenizer.tokenize(text))
    if expected is None:
        assert tokenizer.tokenize(text)[1:-1] == ["中", "国", "[UNK]"]
        expected = [[0], [1], [2, 3, 4]]
    assert mapping == [[], *expected, []]


@given(texts(), st.randoms())
def test_any_segmenter_that_only_cuts(text, random):
    def cut(folded):
        places = sorted(random.sample(range(len(folded) + 1), min(3, len(folded))))
        ends = [*places, len(folded)]
        return [folded[a:b] for a, b in zip([0, *places], ends, strict=True)]

    tokenizer = small_tokenizer()
    tokenizer = Tokenizer(tokenizer._token_dict, do_lower_case=True, pre_tokenize=cut)
    state = random.getstate()
    tokens = tokenizer.tokenize(text)
    random.setstate(state)
    assert all(check_rematch(tokenizer, text, tokens))


# --- Sentencepiece ------------------------------------------------------------------------

SP_OPTIONS = [
    {},
    {"do_lower_case": False},
    {"keep_accents": True},
    {"comma_rule": "intended"},
    {"preprocess": False},
]


@pytest.mark.parametrize("options", SP_OPTIONS, ids=str)
@pytest.mark.parametrize("model", ["spm400", "spm_zh"])
@given(text=texts())
@settings(max_examples=150)
def test_any_text_with_sentencepiece(model, options, text):
    tokenizer = sp_tokenizer(model, **options)
    tokens = tokenizer.tokenize(text)
    spans = check_rematch(tokenizer, text, tokens)
    for token, span in zip(tokens[1:-1], spans, strict=True):
        assert bool(span) == (token != "▁")
    covered = {i for span in spans for i in span}
    # Letters and digits survive, unless they are marks or spaces once decomposed.
    for i, char in enumerate(text):
        if char.isalnum() and any(c.isalnum() for c in unicodedata.normalize("NFKD", char)):
            assert i in covered
        if char.isspace() and options.get("preprocess", True):
            assert i not in covered


@pytest.mark.parametrize("model", ["spm400", "spm_zh"])
@pytest.mark.parametrize("text", HARD_TEXTS, ids=ascii)
def test_hard_texts_with_sentencepiece(model, text):
    tokenizer = sp_tokenizer(model)
    tokens = tokenizer.tokenize(text)
    spans = check_rematch(tokenizer, text, tokens)
    assert all(
        bool(span) == (token != "▁") for token, span in zip(tokens[1:-1], spans, strict=True)
    )


@pytest.mark.parametrize(
    ("text", "options", "tokens", "expected"),
    [
        ("Hello", {}, ["▁", "he", "l", "l", "o"], [[], [0, 1], [2], [3], [4]]),
        (
            "in 1998, a",
            {},
            ["▁in", "▁199", "▁", "8", ",", "▁a"],
            [[0, 1], [3, 4, 5], [], [6], [7], [9]],
        ),
        (
            "in  1998, a",
            {"comma_rule": "intended"},
            ["▁in", "▁199", "8", ",", "▁a"],
            [[0, 1], [4, 5, 6], [7], [8], [10]],
        ),
        ("ﬁ㍿", {}, ["▁", "f", "i", "株式会社"], [[], [0], [0], [1]]),
    ],
)
def test_known_answers_with_sentencepiece(text, options, tokens, expected):
    tokenizer = sp_tokenizer(**options)
    assert tokenizer.tokenize(text)[1:-1] == tokens
    assert tokenizer.rematch(text, tokenizer.tokenize(text))[1:-1] == expected


def test_unknown_pieces_under_both_names():
    tokenizer = sp_tokenizer()
    text = "a 龘龘 in"
    tokens = tokenizer.tokenize(text)
    by_id = tokenizer.ids_to_tokens(tokenizer.encode(text)[0])
    assert "<unk>" in by_id
    assert tokenizer.rematch(text, by_id) == tokenizer.rematch(text, tokens)
    assert [2, 3] in tokenizer.rematch(text, by_id)

"""The sentencepiece tokenizer beyond the recorded results: real model, switches, errors."""

import pickle
import shutil
import unicodedata

import pytest
import sentencepiece
from hypothesis import given, settings
from samples import DATA, HARD_TEXTS, rows, sp_tokenizer, texts

from kerasbert.errors import TokenizerError
from kerasbert.tokenizers import SpTokenizer


@pytest.fixture(scope="module")
def english(request):
    """The model of the English ALBERT, and a tokenizer made of it."""
    folder = request.getfixturevalue("shared_dir")
    path = folder / "weights" / "vocabs" / "albert-en" / "30k-clean.model"
    if not path.is_file():
        pytest.skip(f"needs the published model {path}")
    return sentencepiece.SentencePieceProcessor(model_file=str(path)), SpTokenizer(path)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("Hello  WORLD’s café, 1,9", "hello world’s cafe, 1,9"),
        (" \tÀ  la\u3000carte\n", "a la carte"),
        ("ﬁ ½ ㍿ Å", "fi 1⁄2 株式会社 a"),
        ("İSTANBUL ΑΣ", "istanbul ας"),
    ],
)
def test_english_model_sees_the_cleaned_text(english, text, cleaned):
    model, tokenizer = english
    ids, segments = tokenizer.encode(text)
    assert ids == [2, *model.encode(cleaned, out_type=int), 3]
    assert segments == [0] * len(ids)
    assert tokenizer.tokenize(text)[1:-1] == model.encode(cleaned, out_type=str)
    assert (tokenizer._token_pad_id, tokenizer._token_unk_id, tokenizer._token_mask_id) == (0, 1, 4)
    assert tokenizer.vocab_size == 30000


def test_english_model_and_the_comma_rule(english):
    model, tokenizer = english
    assert model.encode("in 2014, x", out_type=str)[1] == "▁2014,"
    assert tokenizer.tokenize("in 2014, x")[1:-1] == ["▁in", "▁2014", ",", "▁x"]
    ids = [model.piece_to_id(p) for p in ("▁in", "▁2014", ",", "▁x")]
    assert tokenizer.encode("in 2014, x")[0][1:-1] == ids
    assert tokenizer.encode_batch(["in 2014, x"])[0][0, 1:-1].tolist() == ids


def reference_cleaning(text, lower, keep_accents):
    """What ALBERT's preprocess_text is described to do."""
    text = " ".join(text.strip().split())
    if not keep_accents:
        text = unicodedata.normalize("NFKD", text)
        text = "".join(c for c in text if not unicodedata.combining(c))
    return text.lower() if lower else text


@pytest.mark.parametrize("keep_accents", [False, True])
@pytest.mark.parametrize("lower", [True, False])
@given(text=texts())
@settings(max_examples=100)
def test_any_text_is_cleaned_as_described(lower, keep_accents, text):
    tokenizer = sp_tokenizer("spm_zh", do_lower_case=lower, keep_accents=keep_accents)
    # UTF-8 cannot hold lone surrogates, so the original has no answer for them.
    cleaned = reference_cleaning(text, lower, keep_accents)
    expected = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in cleaned)
    assert tokenizer._prepare(text) == expected
    prepared, origins = tokenizer._prepare_with_origins(text)
    assert prepared == expected
    assert len(origins) == len(prepared)
    known = [origin for origin in origins if origin is not None]
    assert known == sorted(known)
    assert all(prepared[i] == " " for i, origin in enumerate(origins) if origin is None)


def test_accents_can_be_kept():
    kept, stripped = sp_tokenizer(keep_accents=True), sp_tokenizer()
    assert kept.decode(None, kept.tokenize("Café")) == "café"
    assert stripped.decode(None, stripped.tokenize("Café")) == "cafe"


@pytest.mark.parametrize("name", ["spm400", "spm_zh"])
def test_without_preprocessing_it_is_plain_sentencepiece(name):
    model = sentencepiece.SentencePieceProcessor(model_file=str(DATA / f"{name}.model"))
    tokenizer = sp_tokenizer(name, preprocess=False)
    for text in {row["text"] for row in rows(f"albert_{name}.jsonl")}:
        assert tokenizer.tokenize(text)[1:-1] == model.encode(text, out_type=str)
        assert tokenizer.encode(text)[0][1:-1] == model.encode(text, out_type=int)


def test_lower_casing_is_honoured_without_preprocessing():
    plain = sp_tokenizer(preprocess=False)
    lower = sp_tokenizer(preprocess=False, do_lower_case=True)
    assert lower.tokenize("Hé") == plain.tokenize("hé") != plain.tokenize("Hé")
    assert sp_tokenizer().tokenize("HE") == sp_tokenizer().tokenize("he")
    assert sp_tokenizer(do_lower_case=False).tokenize("HE") != sp_tokenizer().tokenize("he")


@pytest.mark.parametrize("text", HARD_TEXTS, ids=ascii)
def test_hard_texts(text):
    for options in ({}, {"preprocess": False}, {"comma_rule": "intended"}):
        tokenizer = sp_tokenizer(**options)
        tokens = tokenizer.tokenize(text)
        assert tokenizer.tokens_to_ids(tokens) == tokenizer.encode(text)[0]
        assert isinstance(tokenizer.decode(tokenizer.encode(text)[0]), str)


@given(text=texts())
@settings(max_examples=200)
def test_tokens_and_ids_agree_for_any_text(text):
    for options in ({}, {"preprocess": False}):
        tokenizer = sp_tokenizer(**options)
        assert tokenizer.tokens_to_ids(tokenizer.tokenize(text)) == tokenizer.encode(text)[0]


def test_special_tokens_in_a_text_are_text():
    ids = sp_tokenizer().encode("[MASK] [CLS] <pad>")[0]
    assert not {0, 4} & set(ids)
    assert ids.count(2) == 1


def test_decode():
    tokenizer = sp_tokenizer()
    assert tokenizer.decode(tokenizer.encode("Hello, the text")[0]) == "hello, the text"
    assert tokenizer.decode([2, 4, 3, 0, 0, 1]) == ""
    assert tokenizer.decode([]) == ""
    assert tokenizer.decode(None, ["[CLS]", "▁a", "龘", "<unk>", "[SEP]"]) == "a龘"
    array = tokenizer.encode_batch(["the text", "a"])[0]
    assert [tokenizer.decode(row) for row in array] == ["the text", "a"]
    for ids, message in (([400], "Id 400 is outside.*0 to 399"), ([-1], "Id -1"), ([1.5], "1.5")):
        with pytest.raises(TokenizerError, match=message):
            tokenizer.decode(ids)


def test_special_and_decodable_ids():
    tokenizer = sp_tokenizer()
    assert [tokenizer._is_special(i) for i in range(7)] == [True] * 5 + [False] * 2
    assert [tokenizer._is_decodable(i) for i in (-1, 0, 5, 399, 400)] == (
        [False, False, True, True, False]
    )


def test_words_of_a_segmenter_and_translated_pieces():
    tokenizer = SpTokenizer(
        DATA / "spm400.model",
        preprocess=False,
        pre_tokenize=lambda text: [text[:2].replace(" ", "▂"), text[2:]],
        token_translate={"▂": "[MASK]"},
    )
    text = "a the"
    assert tokenizer.tokenize(text) == ["[CLS]", "▁a", "[MASK]", "▁the", "[SEP]"]
    assert tokenizer.encode(text)[0] == tokenizer.tokens_to_ids(tokenizer.tokenize(text))
    assert tokenizer.encode_batch([text])[0].tolist() == [tokenizer.encode(text)[0]]
    assert tokenizer.rematch(text, tokenizer.tokenize(text)) == [[], [0], [], [2, 3, 4], []]
    assert tokenizer.decode(None, tokenizer.tokenize(text)) == "a▂ the"


def test_a_pickled_tokenizer_gives_the_same():
    tokenizer = sp_tokenizer(comma_rule="intended")
    copy = pickle.loads(pickle.dumps(tokenizer))
    for text in ("In 1998, a", "龘 Ünk"):
        assert copy.tokenize(text) == tokenizer.tokenize(text)
        assert copy.encode_batch([text], padding=False) == tokenizer.encode_batch(
            [text], padding=False
        )


# --- Other kinds of models ----------------------------------------------------------------


def train(folder, name, **options):
    """Trains a small model on a few letters, without [CLS], [SEP] and padding."""
    sentences = ["the cat sat on the mat", "a man in a hat", "that is the man"] * 20
    (folder / "corpus.txt").write_text("\n".join(sentences))
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "corpus.txt"),
        model_prefix=str(folder / name),
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    return folder / f"{name}.model"


@pytest.fixture(scope="module")
def bytes_model(tmp_path_factory):
    """A model that spells unknown characters in bytes."""
    return train(tmp_path_factory.mktemp("sp"), "bytes", vocab_size=290, byte_fallback=True)


def test_the_comma_rule_splits_unknown_pieces_too(tmp_path):
    path = train(tmp_path, "letters", vocab_size=30)
    tokenizer = SpTokenizer(path, token_start=None, token_end=None)
    assert tokenizer.tokenize("99,") == ["▁", "▁", "99", ","]
    assert tokenizer.encode("99,")[0] == tokenizer.tokens_to_ids(tokenizer.tokenize("99,"))
    off = SpTokenizer(path, token_start=None, token_end=None, comma_rule="off")
    assert off.tokenize("99,") == ["▁", "99,"]


def test_byte_pieces_are_matched(bytes_model):
    tokenizer = SpTokenizer(bytes_model, token_start=None, token_end="</s>", preprocess=False)
    text = "the 中é man"
    tokens = tokenizer.tokenize(text)
    expected = ["▁the", "▁", "<0xE4>", "<0xB8>", "<0xAD>", "<0xC3>", "<0xA9>", "▁man", "</s>"]
    assert [t for t in tokens if t.startswith("<0x")] == expected[2:7]
    mapping = tokenizer.rematch(text, tokens)
    spans = dict(zip(tokens, mapping, strict=True))
    assert [spans[t] for t in expected[2:7]] == [[4], [4], [4], [5], [5]]
    assert sorted({i for span in mapping for i in span}) == [0, 1, 2, 4, 5, 7, 8, 9]
    assert tokenizer.decode(tokenizer.encode(text)[0]) == text
    # Cut in the middle of the bytes, the tokens are still found.
    assert tokenizer.rematch(text, tokens[2:]) == mapping[2:]


def test_a_model_without_padding_encodes_but_does_not_pad(bytes_model):
    tokenizer = SpTokenizer(bytes_model, token_start="<s>", token_end="</s>")
    assert tokenizer.encode_batch(["the cat", "a"], padding=False)[0][1] == tokenizer.encode("a")[0]
    with pytest.raises(TokenizerError, match=r"no pad token \(looked for None\)"):
        tokenizer.encode_batch(["the cat", "a"])


def test_missing_special_tokens_name_those_there_are(bytes_model):
    message = r"bytes.model lacks \[CLS\], \[SEP\]. Its special pieces are <s>, </s>"
    with pytest.raises(TokenizerError, match=message):
        SpTokenizer(bytes_model)
    with pytest.raises(TokenizerError, match=r"lacks <sep>"):
        sp_tokenizer(token_end="<sep>")


# --- What is refused ----------------------------------------------------------------------


def test_wrong_files(tmp_path):
    shutil.copyfile(DATA / "spm400.model", tmp_path / "a.model")
    with pytest.raises(TokenizerError, match=r"b.model does not exist.*has: a.model"):
        SpTokenizer(tmp_path / "b.model")
    with pytest.raises(TokenizerError, match=r"is a folder. Expected a .model file.*has: a.model"):
        SpTokenizer(tmp_path)
    content = (DATA / "spm400.model").read_bytes()
    (tmp_path / "cut.model").write_bytes(content[:1000])
    with pytest.raises(TokenizerError, match=r"cut.model is not a sentencepiece model.*damaged"):
        SpTokenizer(tmp_path / "cut.model")
    (tmp_path / "empty.model").write_bytes(b"")
    with pytest.raises(TokenizerError, match=r"empty.model is not a sentencepiece model"):
        SpTokenizer(tmp_path / "empty.model")
    with pytest.raises(TokenizerError, match=r"3 \(int\) is no path. Expected that of a .model"):
        SpTokenizer(3)


def test_wrong_comma_rule():
    message = r"comma_rule='Google' is not known.*google, intended, off. Did you mean 'google'"
    with pytest.raises(TokenizerError, match=message):
        sp_tokenizer(comma_rule="Google")

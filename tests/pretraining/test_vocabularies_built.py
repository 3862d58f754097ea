"""Vocabularies made of text: our tokenizers read them, and spell that text by them."""

from collections import Counter

import pytest

from harness import refused
from kerasbert.errors import ConfigError, CorpusError
from kerasbert.pretraining import (
    Corpus,
    build_character_vocabulary,
    build_records,
    build_sentencepiece_model,
    build_wordpiece_vocabulary,
)
from kerasbert.pretraining.vocabularies import SPECIAL
from kerasbert.tokenizers import SpTokenizer, Tokenizer, load_vocab

LINES = [
    "今天天气很好，我们去公园玩！",
    "房间很干净，电池不好用。ＧＰＵ",
    "Unaffable café lovers love lowering the lowest prices.",
    "The lower the price, the lower the cost: 1990, 2024.",
]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(LINES * 5), encoding="utf-8")
    return path


def unknown(tokenizer, text):
    return tokenizer.token_to_id(tokenizer._token_unk) in tokenizer.encode(text)[0]


def test_characters(tmp_path, path):
    counts = build_character_vocabulary(path, tmp_path / "vocab.txt")
    vocabulary = load_vocab(tmp_path / "vocab.txt")
    assert list(counts) == list(vocabulary) and list(vocabulary.values()) == list(
        range(len(counts))
    )
    assert tuple(counts)[:5] == SPECIAL
    tokenizer = Tokenizer(tmp_path / "vocab.txt", do_lower_case=True)
    seen = Counter(token for line in LINES * 5 for token in tokenizer.tokenize(line)[1:-1])
    assert {token: n for token, n in counts.items() if n} == dict(seen)
    numbers = list(counts.values())[5:]
    assert numbers == sorted(numbers, reverse=True)
    assert not any(unknown(tokenizer, line) for line in LINES)
    assert not unknown(tokenizer, "zebra xylophone 42")
    assert unknown(tokenizer, "龘")


def test_size_and_minimum_of_characters(tmp_path, path):
    path.write_text(path.read_text("utf-8") + "\n龘", encoding="utf-8")
    assert "龘" in build_character_vocabulary(path, tmp_path / "a.txt")
    assert "龘" not in build_character_vocabulary(path, tmp_path / "a.txt", min_count=2)
    small = build_character_vocabulary(path, tmp_path / "a.txt", size=90)
    assert len(small) == 90 == len(load_vocab(tmp_path / "a.txt"))
    every = build_character_vocabulary(path, tmp_path / "b.txt")
    always = {p + c for c in "abcdefghijklmnopqrstuvwxyz0123456789" for p in ("", "##")}
    best = [token for token in every if token not in {*SPECIAL, *always}][: 90 - 5 - 72]
    assert set(small) == {*SPECIAL, *always, *best}
    with refused(ConfigError, "size=50", "77"):
        build_character_vocabulary(path, tmp_path / "c.txt", size=50)
    cased = build_character_vocabulary(path, tmp_path / "d.txt", do_lower_case=False)
    assert "U" in cased and "Ｇ" in cased and "u" in cased


def test_wordpiece(tmp_path, path):
    vocabulary = build_wordpiece_vocabulary(path, tmp_path / "vocab.txt", 200)
    assert vocabulary == load_vocab(tmp_path / "vocab.txt")
    assert tuple(vocabulary)[:5] == SPECIAL and len(vocabulary) <= 200
    tokenizer = Tokenizer(tmp_path / "vocab.txt", do_lower_case=True)
    assert not any(unknown(tokenizer, line) for line in LINES)
    assert tokenizer.tokenize("lower")[1:-1] == ["lower"]
    assert tokenizer.tokenize("天气")[1:-1] == ["天", "气"], "ideographs stay apart"
    assert len(tokenizer.tokenize("thecost")) > 3
    small = build_wordpiece_vocabulary(path, tmp_path / "vocab.txt", 40)
    assert len(small) <= 40


def test_sentencepiece(tmp_path, path):
    made = build_sentencepiece_model(path, tmp_path / "sp.model", 60, coverage=1.0)
    tokenizer = SpTokenizer(made)
    assert tokenizer.vocab_size == 60
    assert tokenizer.ids_to_tokens(range(5)) == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    assert not any(unknown(tokenizer, line) for line in LINES)
    assert tokenizer.decode(tokenizer.encode("The lower price")[0]) == "the lower price"
    again = build_sentencepiece_model(path, tmp_path / "again.model", 60, coverage=1.0)
    assert again.read_bytes() == made.read_bytes()
    build_records(path, tmp_path / "records", tokenizer, workers=1, verbose=0)


def test_refusals(tmp_path, path):
    with refused(CorpusError, "sentencepiece could not make 5000 pieces", cause=RuntimeError):
        build_sentencepiece_model(path, tmp_path / "sp.model", 5000)
    with refused(ConfigError, "unigramm", "Did you mean"):
        build_sentencepiece_model(path, tmp_path / "sp.model", 100, model_type="unigramm")
    with refused(ConfigError, "size=5"):
        build_wordpiece_vocabulary(path, tmp_path / "vocab.txt", 5)
    empty = tmp_path / "empty.txt"
    empty.write_text("\n")
    with refused(CorpusError, "no word"):
        build_wordpiece_vocabulary(Corpus(empty), tmp_path / "vocab.txt", 100)
    assert not list(tmp_path.glob("*.model")) and not list(tmp_path.glob("vocab.txt"))

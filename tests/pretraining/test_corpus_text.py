"""Documents and words of plain text files."""

import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import DATA
from harness import refused
from kerasbert.errors import ConfigError, CorpusError, TokenizerError
from kerasbert.pretraining import Corpus, TokenTable, split_sentences
from kerasbert.pretraining.words import find_segmenter, starts_word, tokenize
from kerasbert.tokenizers import SpTokenizer, Tokenizer
from pretraining.made_up import CHINESE, TOKENIZER, TOKENS, by_character
from pretraining.plain_records import joined

# ---- sentences -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("今天很好。我们去公园！好吗？", ["今天很好。", "我们去公园！", "好吗？"]),
        ("他说：“好！”然后走了。", ["他说：“好！”", "然后走了。"]),
        ("《怎么办？》，是书名。（真的。）完", ["《怎么办？》，是书名。", "（真的。）", "完"]),
        ("可以允许 root 登录.下一句", ["可以允许 root 登录.", "下一句"]),
        ("版本2.1很好。", ["版本2.1很好。"]),
        ("Really?! Yes... and no. It is No. 3.", ["Really?!", "Yes... and no.", "It is No. 3."]),
        (
            "Mr. Smith saw J. Doe at 5 p.m. on Fig. 3.",
            ["Mr. Smith saw J. Doe at 5 p.m. on Fig. 3."],
        ),
        ('"Go." He went.  \n It was I. Then', ['"Go."', "He went.", "It was I.", "Then"]),
        ("no stop at all", ["no stop at all"]),
        ("", []),
        (" \n\t", []),
        ("。。。", ["。。。"]),
        ("a.b.c", ["a.b.c"]),
    ],
)
def test_sentences(text, sentences):
    assert split_sentences(text) == sentences


@given(st.text(alphabet="ab 今。！？.!?”’，,3\n", max_size=40))
def test_sentences_lose_nothing_but_white_space(text):
    parts = split_sentences(text)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(part == part.strip() != "" for part in parts)


# ---- files -----------------------------------------------------------------------------------


def file_of(folder, text, name="text.txt", encoding="utf-8"):
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


TEXT = "\ufeff今天很好。\r\n我们去公园玩。\r\n\r\n \t\r\n\n第二篇。\nno end"


def test_lines(tmp_path):
    path = file_of(tmp_path, TEXT)
    assert list(Corpus(path).documents()) == [
        ["今天很好。", "我们去公园玩。"],
        ["第二篇。", "no end"],
    ]
    path = file_of(tmp_path, "一。二！\n三\n\n四。五。\n")
    assert list(Corpus(path, line="paragraph").documents()) == [
        ["一。", "二！", "三"],
        ["四。", "五。"],
    ]
    assert list(Corpus(path, line="document").documents()) == [
        ["一。", "二！"],
        ["三"],
        ["四。", "五。"],
    ]
    commas = Corpus(
        path, line="document", splitter=lambda text: text.replace("。", "。|").split("|")
    )
    assert list(commas.documents())[2] == ["四。", "五。"]
    assert list(Corpus([path, path]).texts()) == ["一。二！", "三", "四。五。"] * 2


def test_files_begin_with_a_new_document(tmp_path):
    paths = [file_of(tmp_path, "a\nb", "1"), file_of(tmp_path, "c\n", "2")]
    assert list(Corpus(paths).documents()) == [["a", "b"], ["c"]]


def test_other_encodings(tmp_path):
    path = file_of(tmp_path, "今天很好。\n\n我们。\n", encoding="gb18030")
    assert list(Corpus(path, encoding="gb18030").texts()) == ["今天很好。", "我们。"]
    with refused(CorpusError, path, "byte 0", "utf-8", cause=UnicodeDecodeError):
        list(Corpus(path).texts())
    path.write_bytes("好\n".encode() + b"a\xffb\n")
    with refused(CorpusError, "byte 5", r"b'\xff'"):
        list(Corpus(path).texts())
    for encoding in ("utf-16", "no such"):
        with refused(CorpusError, encoding):
            Corpus(path, encoding=encoding)


@given(
    documents=st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=5), max_size=12),
    shard_bytes=st.integers(13, 200),
    line=st.sampled_from(["sentence", "paragraph", "document"]),
    ends=st.sampled_from(["\n", "\r\n"]),
    files=st.integers(1, 3),
)
def test_shards_hold_every_document_once(
    tmp_path_factory, documents, shard_bytes, line, ends, files
):
    folder = tmp_path_factory.mktemp("text")
    texts = [ends.join(["x" * n for n in document]) for document in documents]
    paths = [
        file_of(folder, (ends * 2).join(texts[i::files]) + ends * (i % 2), f"{i}.txt")
        for i in range(files)
    ]
    corpus = Corpus(paths, line=line)
    if not documents and files == 1:
        with refused(CorpusError, "no text"):
            corpus.shards(shard_bytes)
        return
    try:
        shards = corpus.shards(shard_bytes)
    except CorpusError as error:
        assert "no text" in str(error) and not documents
        return
    whole, parts = list(corpus.documents()), [list(corpus.documents(shard)) for shard in shards]
    if max((sum(document) + 2 * len(document) for document in documents), default=0) < shard_bytes:
        assert joined(parts) == whole
    # A document longer than a shard may be cut, at the end of a line.
    assert joined(joined(parts)) == joined(whole)
    sizes = [sum(piece.stop - piece.start for piece in shard) for shard in shards]
    assert sum(sizes) == sum(path.stat().st_size for path in paths)
    assert all(size >= shard_bytes for size in sizes[:-1])


def test_text_without_blank_lines_is_cut_at_lines(tmp_path):
    path = file_of(tmp_path, "\n".join(f"line {i}" for i in range(1000)))
    corpus = Corpus(path)
    shards = corpus.shards(500)
    assert len(shards) > 10
    parts = [list(corpus.documents(shard)) for shard in shards]
    assert all(len(documents) == 1 for documents in parts)
    assert [text for (document,) in parts for text in document] == list(corpus.texts())


def test_lines_longer_than_a_shard_are_refused(tmp_path):
    path = file_of(tmp_path, "short\n" * 20 + "x" * 1000 + "\nshort\n")
    with refused(CorpusError, path, "more than 200 bytes", "shard_bytes"):
        Corpus(path).shards(200)


def test_a_big_file_is_never_in_memory(tmp_path):
    path = tmp_path / "big.txt"
    with open(path, "w") as file:
        for i in range(12_000):
            file.write(
                f"This is the sentence with the number {i}, and it is not short.\n" * 4 + "\n"
            )
    size = path.stat().st_size
    tracemalloc.start()
    corpus = Corpus(path)
    shards = corpus.shards(1 << 20)
    count = sum(len(document) for document in corpus.documents())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 48_000 and len(shards) > 2
    assert peak < size / 10


def test_refused_corpora(tmp_path):
    path = file_of(tmp_path, "a")
    with refused(CorpusError, "absent.txt"):
        Corpus([path, tmp_path / "absent.txt"])
    with refused(CorpusError, "an empty list"):
        Corpus([])
    with refused(CorpusError, "line='sentences'", "Did you mean 'sentence'?"):
        Corpus(path, line="sentences")
    with refused(CorpusError, "splitter"):
        Corpus(path, splitter=str.split)
    with refused(ConfigError, "shard_bytes=0"):
        Corpus(path).shards(0)
    with refused(CorpusError, "no text"):
        Corpus(file_of(tmp_path, "", "empty")).shards(100)


# ---- words -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("piece", "starts"),
    [
        *[
            (piece, True)
            for piece in ("▁the", "▁", "<unk>", ",", "~", "今天", "1990", "a1", "é", "'s")
        ],
        *[(piece, False) for piece in ("ing", "ING", "s.", "...", "th", "(a)")],
        *[("=", True), ("a=", True), ("\u20ac", True)],
    ],
)
def test_starts_of_words_in_sentencepiece(piece, starts):
    assert starts_word(piece, True) is starts


def test_starts_of_words_in_wordpiece():
    assert [starts_word(t, False) for t in ("un", "##aff", "今", "##", "#")] == [1, 0, 1, 0, 1]
    table = TokenTable.of(TOKENIZER)
    inside = [TOKENS[i] for i in np.flatnonzero(~table.word_starts)]
    assert inside == ["##aff", "##able"]
    assert (table.size, table.start, table.end, table.mask, table.pad) == (len(TOKENS), 2, 3, 4, 0)
    assert TokenTable.of(table) is table


def test_table_of_sentencepiece():
    table = TokenTable.of(SpTokenizer(DATA / "tokenization" / "spm400.model"))
    assert (table.pad, table.start, table.end, table.mask) == (0, 2, 3, 4)
    assert 0.2 < table.word_starts.mean() < 0.8


def test_refused_tokenizers():
    with refused(CorpusError, "dict"):
        TokenTable.of({"[PAD]": 0})
    tokens = {t: i for i, t in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])}
    with pytest.raises(TokenizerError, match=r"\[MASK\]"):
        TokenTable.of(Tokenizer(tokens))


DOCUMENTS = [["今天气很好。", "unaffable w1，今天", " "], [], ["☃", "\u200b"], ["我们去公园玩"]]


def test_tokenized_documents():
    text = tokenize(DOCUMENTS, TOKENIZER)
    sentences = [text.ids[a:b] for a, b in zip(text.sentences, text.sentences[1:], strict=False)]
    assert text.documents == [0, 2, 3, 4], "without sentences that have no token, and empty ones"
    for ids, sentence in zip(
        sentences, ["今天气很好。", "unaffable w1，今天", "☃", "我们去公园玩"], strict=True
    ):
        assert ids.tolist() == TOKENIZER.encode(sentence)[0][1:-1]
    assert text.starts.tolist() == [not TOKENS[i].startswith("##") for i in text.ids]
    nothing = tokenize([], TOKENIZER)
    assert nothing.documents == nothing.sentences == [0]


@pytest.mark.parametrize(
    "tokenizer",
    [TOKENIZER, SpTokenizer(DATA / "tokenization" / "spm_zh.model")],
    ids=["wordpiece", "sentencepiece"],
)
def test_a_segmenter_joins_and_changes_no_token(tokenizer):
    plain = tokenize(DOCUMENTS, tokenizer)
    joined = tokenize(DOCUMENTS, tokenizer, by_character)
    assert joined.ids.tolist() == plain.ids.tolist()
    assert joined.sentences == plain.sentences and joined.documents == plain.documents
    assert not (joined.starts & ~plain.starts).any()
    assert joined.starts.sum() < plain.starts.sum()


def test_words_of_a_segmenter():
    def words(text):
        return ["今天", "气", "很好", "。", "un", "affable", " ", "w1，", "公园"]

    text = tokenize([["今天气很好。unaffable w1，公园"]], TOKENIZER, words)
    tokens = [TOKENS[i] for i in text.ids]
    starts = [token for token, start in zip(tokens, text.starts, strict=True) if start]
    assert starts == ["今", "气", "很", "。", "un", "w1", "公"]


def test_jieba(monkeypatch):
    fake = type(sys)("jieba")
    fake.lcut = by_character
    monkeypatch.setitem(sys.modules, "jieba", fake)
    assert find_segmenter("jieba") is by_character
    monkeypatch.setitem(sys.modules, "jieba", None)
    with refused(CorpusError, "pip install jieba", cause=ImportError):
        find_segmenter("jieba")
    with refused(CorpusError, "segmenter='thulac'"):
        find_segmenter("thulac")


def test_the_vocabulary_of_the_tests_spells_its_texts():
    assert TOKENS.index("[UNK]") not in TOKENIZER.encode(CHINESE)[0]

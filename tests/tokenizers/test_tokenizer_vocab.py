"""load_vocab and save_vocab: a token's id is its line, whatever the line holds."""

import os
import shutil
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import DATA

from kerasbert.errors import TokenizerError
from kerasbert.tokenizers import SpTokenizer, Tokenizer, load_vocab, save_vocab

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture
def write(tmp_path):
    """Writes bytes to a file and returns its path."""

    def write(content, name="vocab.txt"):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.mark.parametrize("odd", ["\u2028", "\x85", "\x1c", "\u3000", "\x0b", "\u2029", ""])
def test_no_row_shifts_the_ids_behind_it(write, odd):
    path = write("\n".join([*SPECIALS, odd, "中", f"##{odd}", "last"]) + "\n")
    token_dict = load_vocab(path)
    assert [token_dict[t] for t in (*SPECIALS, "中", "last")] == [0, 1, 2, 3, 4, 6, 8]
    assert Tokenizer(path).vocab_size == 9


def test_the_chinese_vocabulary_keeps_its_21128_rows(shared_dir):
    path = shared_dir / "weights" / "vocabs" / "bert-base-chinese-vocab.txt"
    if not path.is_file():
        pytest.skip(f"needs the published vocabulary {path}")
    assert len(path.read_text("utf-8").splitlines()) > 21128, "no longer a trap"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        token_dict = load_vocab(path)
    assert token_dict["[PAD]"] == 0
    assert token_dict["##😎"] == 21127
    assert sorted(token_dict.values()) == list(range(21128))


@pytest.mark.parametrize(
    "content",
    [
        "[PAD]\na\nb\n",
        "[PAD]\na\nb",
        "[PAD]\r\na\r\nb\r\n",
        "\ufeff[PAD]\na\nb\n",
        " [PAD] \na\t\nb",
    ],
    ids=["plain", "no last newline", "CRLF", "BOM", "white space"],
)
def test_line_ends_and_marks_do_no_harm(write, content):
    assert load_vocab(write(content)) == {"[PAD]": 0, "a": 1, "b": 2}


def test_other_encodings(write):
    path = write("[PAD]\n中\n".encode("gbk"))
    assert load_vocab(path, encoding="gbk") == {"[PAD]": 0, "中": 1}
    with pytest.raises(TokenizerError, match=r"vocab.txt cannot be read as 'utf-8'.*'gbk'"):
        load_vocab(path)
    with pytest.raises(TokenizerError, match="cannot be read as 'no-such'"):
        load_vocab(path, encoding="no-such")


def test_equal_rows_are_named(write):
    path = write("a\nb\na\nc\nb\nb\n")
    with pytest.warns(UserWarning) as caught:
        token_dict = load_vocab(path)
    assert token_dict == {"a": 2, "b": 5, "c": 3}
    message = str(caught[0].message)
    assert "'a' (lines 1, 3), 'b' (lines 2, 5, 6)" in message
    assert "the last line counts" in message
    assert caught[0].filename == __file__, "the warning should point at the caller"
    with pytest.warns(UserWarning, match="the first line counts and later ids move up"):
        assert load_vocab(path, rule="albert") == {"a": 0, "b": 1, "c": 2}


def test_a_gap_left_by_equal_rows_is_explained(write):
    path = write("\n".join([*SPECIALS, "x", "x"]))
    with pytest.warns(UserWarning):
        tokenizer = Tokenizer(path)
    assert tokenizer.vocab_size == 7
    with pytest.raises(TokenizerError, match=r"Id 5 has no token.*6 tokens for 7 ids.*row occurs"):
        tokenizer.id_to_token(5)


def test_simplified_drops_what_no_text_contains(write):
    rows = [
        "[PAD]",
        "[unused1]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "中",
        "##中",
        "中国",
        "a",
        "##b",
        "a.b",
    ]
    rows += ["##.", ".", "##1", "の中"]
    path = write("\n".join(rows))
    start = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    token_dict, keep_tokens = load_vocab(path, simplified=True, startswith=start)
    assert list(token_dict) == [*start, "中", "a", "##b", ".", "##1"]
    assert list(token_dict.values()) == list(range(9))
    assert keep_tokens == [0, 2, 3, 4, 5, 8, 9, 12, 13]
    old, new = load_vocab(path), {i: t for t, i in token_dict.items()}
    assert [old[new[i]] for i in range(9)] == keep_tokens
    assert Tokenizer(token_dict).encode("a中")[0] == [2, 5, 4, 3]


def test_simplified_changes_no_text(shared_dir):
    path = shared_dir / "weights" / "vocabs" / "bert-base-chinese-vocab.txt"
    if not path.is_file():
        pytest.skip(f"needs the published vocabulary {path}")
    token_dict, keep_tokens = load_vocab(path, simplified=True, startswith=SPECIALS)
    whole, small = Tokenizer(path, do_lower_case=True), Tokenizer(token_dict, do_lower_case=True)
    assert small.vocab_size == len(keep_tokens) < 14000
    for text in ("语言模型BERT，version 2.0！", "ひらがなとか，ＡＢ", "unaffable 鲁石化a19.11"):
        assert small.tokenize(text) == whole.tokenize(text)
        ids = small.encode(text)[0]
        assert [keep_tokens[i] for i in ids] == whole.encode(text)[0]


def test_startswith_alone_only_reorders(write):
    path = write("[UNK]\n##中\n[PAD]\n")
    token_dict, keep_tokens = load_vocab(path, startswith=["[PAD]"])
    assert token_dict == {"[PAD]": 0, "[UNK]": 1, "##中": 2}
    assert keep_tokens == [2, 0, 1]


def test_without_startswith_simplified_loses_the_special_tokens(write):
    token_dict, _ = load_vocab(write("\n".join([*SPECIALS, "a"])), simplified=True)
    assert token_dict == {"a": 0}
    with pytest.raises(TokenizerError, match=r"lacks \[PAD\], \[UNK\], .*named in startswith="):
        Tokenizer(token_dict)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startswith": ["[PAD]", "[MASKED]"]}, r"does not have: \[MASKED\]. Did you mean '\[MASK"),
        ({"startswith": ["[PAD]", "[PAD]"]}, "names a token twice"),
        ({"startswith": "[PAD]"}, "is a string. Expected a list"),
        ({"rule": "Bert"}, r"rule='Bert'.*bert, albert. Did you mean 'bert'"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(TokenizerError, match=message):
        load_vocab(DATA / "vocab_small.txt", **options)


def test_wrong_paths(write, tmp_path):
    write("a\n", "bert_vocab.txt")
    with pytest.raises(TokenizerError, match=r"vocab.txt does not exist.*has: bert_vocab.txt"):
        load_vocab(tmp_path / "vocab.txt")
    with pytest.raises(TokenizerError, match=r"is a folder.*vocab.txt.*has: bert_vocab.txt"):
        load_vocab(tmp_path)
    with pytest.raises(TokenizerError, match=r"The folder .*no does not exist"):
        load_vocab(tmp_path / "no" / "vocab.txt")
    with pytest.raises(TokenizerError, match="has no such file"):
        (tmp_path / "bare").mkdir()
        load_vocab(tmp_path / "bare" / "vocab.txt")
    with pytest.raises(TokenizerError, match=r"None \(NoneType\) is no path. Expected that of a"):
        load_vocab(None)
    for content in ("", "\n\n", "\ufeff"):
        with pytest.raises(TokenizerError, match=r"is empty. Expected one token a line"):
            load_vocab(write(content))


def test_paths_may_be_odd(tmp_path, monkeypatch):
    folder = tmp_path / "模型 é"
    folder.mkdir()
    shutil.copyfile(DATA / "vocab_small.txt", folder / "vocab.txt")
    shutil.copyfile(DATA / "spm400.model", folder / "spm.model")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USERPROFILE", str(folder))
    assert load_vocab("~/vocab.txt") == load_vocab(folder / "vocab.txt")
    assert Tokenizer(str(folder / "vocab.txt")).vocab_size == 3000
    assert SpTokenizer("~/spm.model").vocab_size == 400


def test_files_of_the_other_kind_name_the_right_class(write):
    model = DATA / "spm400.model"
    with pytest.raises(TokenizerError, match=r"is a sentencepiece model.*Use SpTokenizer"):
        Tokenizer(model)
    tokenizer = SpTokenizer(model)
    listing = "".join(f"{tokenizer.id_to_token(i)}\t{-i / 7}\n" for i in range(400))
    path = write(listing, "spm.vocab")
    with pytest.raises(
        TokenizerError, match=r"sentencepiece pieces with their scores.*SpTokenizer"
    ):
        Tokenizer(path)
    with pytest.raises(TokenizerError, match=r"lists pieces with scores.*\.model"):
        SpTokenizer(path)
    with pytest.raises(TokenizerError, match=r"one token a line.*use Tokenizer"):
        SpTokenizer(DATA / "vocab_small.txt")


@pytest.mark.parametrize(
    ("token_dict", "message"),
    [
        ({}, "is an empty dict"),
        (None, "is an empty NoneType"),
        (["[PAD]", "[UNK]"], "is a list. Expected a dict from token to id"),
        ({0: "[PAD]"}, r"key 0 \(int\).*other way round"),
        ({"[PAD]": "0"}, r"'\[PAD\]' has the id '0'"),
        ({"[PAD]": -1}, "has the id -1"),
        ({"[PAD]": True}, "has the id True"),
        ({"[PAD]": 0.0}, r"has the id 0\.0"),
        ({"[PAD]": 0, "[UNK]": 0}, r"'\[PAD\]' and '\[UNK\]' have the same id 0"),
        ({"[PAD]": 0, "[UNK]": 1, "[CLS]": 2}, r"lacks \[SEP\]. "),
        ({"[PAD]": 0, "[CLS]": 2, "[SEP]": 1, "[UNKN]": 3}, r"lacks \[UNK\]. Did you mean '\[UNKN"),
    ],
)
def test_unusable_dicts(token_dict, message):
    with pytest.raises(TokenizerError, match=message):
        Tokenizer(token_dict)


# --- save_vocab ---------------------------------------------------------------------------

TOKENS = st.text(min_size=0, max_size=6).filter(
    lambda t: "\n" not in t and t == t.strip() and not t.startswith("\ufeff")
)


@given(st.lists(TOKENS, unique=True, max_size=30), st.randoms())
def test_saving_and_loading_gives_the_same_dict(tmp_path_factory, more, random):
    tokens = [*SPECIALS, *[t for t in more if t not in SPECIALS]]
    random.shuffle(tokens)
    token_dict = {token: i for i, token in enumerate(tokens)}
    shuffled = dict(random.sample(list(token_dict.items()), len(tokens)))
    path = tmp_path_factory.getbasetemp() / "round_trip.txt"
    save_vocab(path, shuffled)
    assert load_vocab(path) == token_dict
    assert path.read_bytes().count(b"\n") == len(tokens)


@pytest.mark.parametrize(
    ("token_dict", "message"),
    [
        ({"a": 0, "b": 2}, r"should be 0 to 1, but 1 are missing \(the largest is 2\)"),
        ({"a": 1, "b": 2}, "but 0 are missing"),
        ({"a": 0, "b": 0}, "have the same id 0"),
        ({"a": 0, "b\nc": 1}, r"cannot hold 'b\\nc'"),
        ({"a": 0, "\u2028": 1}, r"cannot hold '\\u2028'"),
        ({"\ufeffa": 0}, r"cannot hold '\\ufeffa'"),
        ({}, "empty dict"),
    ],
)
def test_what_cannot_be_saved_is_refused(tmp_path, token_dict, message):
    with pytest.raises(TokenizerError, match=message):
        save_vocab(tmp_path / "vocab.txt", token_dict)
    assert not list(tmp_path.iterdir())


def test_saving_elsewhere_and_otherwise(tmp_path):
    with pytest.raises(TokenizerError, match=r"the folder .*no does not exist"):
        save_vocab(tmp_path / "no" / "vocab.txt", {"a": 0})
    with pytest.raises(TokenizerError, match="'ascii' has no form for '中'"):
        save_vocab(tmp_path / "vocab.txt", {"a": 0, "中": 1}, encoding="ascii")
    save_vocab(tmp_path / "vocab.txt", {"a": 0, "中": 1}, encoding="gbk")
    assert (tmp_path / "vocab.txt").read_bytes() == "a\n中\n".encode("gbk")


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "vocab.txt"
    save_vocab(path, {"old": 0})

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        save_vocab(path, {"new": 0})
    assert [p.name for p in tmp_path.iterdir()] == ["vocab.txt"]
    assert path.read_text() == "old\n"

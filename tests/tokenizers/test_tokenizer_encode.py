"""encode and encode_batch: pairs, truncation, segments, padding, and what they refuse."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import small_tokenizer, sp_tokenizer, texts

from kerasbert.errors import TokenizerError
from kerasbert.tokenizers import Tokenizer

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
PAD, UNK, CLS, SEP, MASK = range(5)


def letters(**options):
    return Tokenizer({token: i for i, token in enumerate(VOCABULARY)}, **options)


def spell(token_ids):
    """Writes ids as a string: letters, < for [CLS], > for [SEP], . for [PAD]."""
    signs = {PAD: ".", CLS: "<", SEP: ">"}
    return "".join(signs.get(i) or VOCABULARY[i] for i in token_ids)


A, B = "a b c d e f", "u v w x"


def google_lengths(first, second, room):
    """Shortens the longer text by one until both fit, the second one on a tie."""
    while first + second > room:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


@pytest.mark.parametrize(
    ("options", "expected", "segments"),
    [
        ({}, "<abcdef>uvwx>", "0000000011111"),
        ({"pattern": "S*ES*E"}, "<abcdef><uvwx>", "00000000111111"),
        ({"maxlen": 11}, "<abcd>uvwx>", "00000011111"),
        ({"maxlen": 10}, "<abcd>uvw>", "0000001111"),
        ({"maxlen": 9}, "<abc>uvw>", "000001111"),
        ({"max_length": 9}, "<abc>uvw>", "000001111"),
        ({"maxlen": 9, "pattern": "S*ES*E"}, "<abc><uv>", "000001111"),
        ({"maxlen": 9, "truncate_from": "left"}, "<def>vwx>", "000001111"),
        ({"maxlen": 9, "truncate_from": 2}, "<aef>uwx>", "000001111"),
        ({"maxlen": 9, "truncate_from": -3}, "<abf>uvx>", "000001111"),
        ({"maxlen": 9, "truncate_from": 0}, "<def>vwx>", "000001111"),
        ({"maxlen": 9, "truncate_from": -1}, "<abc>uvw>", "000001111"),
        ({"maxlen": 9, "truncate_from": 99}, "<abc>uvw>", "000001111"),
        ({"maxlen": 9, "truncate_from": -99}, "<def>vwx>", "000001111"),
        ({"maxlen": 5}, "<a>u>", "00011"),
        ({"maxlen": 4}, "<a>", "000"),
        ({"maxlen": 3}, "<>", "00"),
        ({"maxlen": 100}, "<abcdef>uvwx>", "0000000011111"),
    ],
)
def test_pairs(options, expected, segments):
    tokenizer = letters()
    token_ids, segment_ids = tokenizer.encode(A, B, **options)
    assert spell(token_ids) == expected
    assert "".join(map(str, segment_ids)) == segments
    # Token lists give the same, whether or not they come with their special tokens.
    given = [tokenizer.tokenize(text) for text in (A, B)]
    assert tokenizer.encode(*given, **options) == (token_ids, segment_ids)


@pytest.mark.parametrize("maxlen", range(3, 13))
@given(st.integers(0, 12), st.integers(0, 12))
@settings(max_examples=40)
def test_any_pair_is_cut_as_google_cuts_it(maxlen, first, second):
    text_a, text_b = "a" + " a" * (first - 1) if first else "", " b" * second
    token_ids, segment_ids = letters().encode(text_a, text_b, maxlen=maxlen)
    first, second = google_lengths(first, second, maxlen - 3)
    expected = "<" + "a" * first + ">" + ("b" * second + ">" if second else "")
    assert spell(token_ids) == expected
    assert segment_ids == [0] * (first + 2) + [1] * (len(expected) - first - 2)
    assert len(token_ids) <= maxlen
    assert token_ids[-1] == SEP


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "<abcdef>"),
        ({"maxlen": 5}, "<abc>"),
        ({"maxlen": 5, "truncate_from": "left"}, "<def>"),
        ({"maxlen": 5, "truncate_from": 3}, "<abf>"),
        ({"maxlen": 5, "truncate_from": -2}, "<abc>"),
        ({"maxlen": 5, "truncate_from": np.int64(3)}, "<abf>"),
        ({"maxlen": np.int32(2)}, "<>"),
    ],
)
def test_single_texts(options, expected):
    token_ids, segment_ids = letters().encode(A, **options)
    assert spell(token_ids) == expected
    assert segment_ids == [0] * len(expected)


def test_tokenize_is_cut_at_the_end():
    tokenizer = letters()
    assert tokenizer.tokenize(A, maxlen=4) == ["[CLS]", "a", "b", "[SEP]"]
    assert tokenizer.tokenize(A, max_length=2) == ["[CLS]", "[SEP]"]
    assert tokenizer.tokenize("a", maxlen=9) == ["[CLS]", "a", "[SEP]"]
    assert letters(token_end=None).tokenize(A, 3) == ["[CLS]", "a", "b"]


def test_token_lists_are_used_as_they_are():
    tokenizer = letters()
    assert spell(tokenizer.encode(["a", "b", "c"], maxlen=2)[0]) == "ab"
    assert spell(tokenizer.encode(["[CLS]", "a", "b"], ["c", "[SEP]"])[0]) == "<abc>"
    assert tokenizer.encode(("[CLS]", "nowhere", "[MASK]"))[0] == [CLS, UNK, MASK]
    assert tokenizer.encode([]) == ([], [])


def test_a_second_text_without_tokens_counts_as_none():
    for empty in ("", " \u200b", ["[CLS]", "[SEP]"]):
        assert spell(letters().encode("a b", empty)[0]) == "<ab>"
    assert spell(letters().encode("", "a b")[0]) == "<>ab>"


# --- encode_batch -------------------------------------------------------------------------


@pytest.mark.parametrize("tokenizer", [small_tokenizer(), sp_tokenizer()], ids=["word", "sp"])
@given(
    st.lists(st.tuples(texts(max_size=20), texts(max_size=20)), max_size=5),
    st.booleans(),
    st.none() | st.integers(3, 24),
    st.sampled_from(["right", "left", 2, -3]),
    st.sampled_from(["S*E*E", "S*ES*E"]),
)
@settings(max_examples=150)
def test_rows_are_what_encode_gives(tokenizer, batch, in_pairs, maxlen, truncate_from, pattern):
    if pattern == "S*ES*E" and maxlen is not None:
        maxlen += 1
    options = {"maxlen": maxlen, "truncate_from": truncate_from, "pattern": pattern}
    firsts = [first for first, _ in batch]
    seconds = [second for _, second in batch] if in_pairs else None
    rows = [
        tokenizer.encode(first, second if in_pairs else None, **options) for first, second in batch
    ]
    token_ids, segment_ids = tokenizer.encode_batch(firsts, seconds, **options)
    longest = max((len(ids) for ids, _ in rows), default=0)
    assert token_ids.shape == segment_ids.shape == (len(batch), longest)
    assert token_ids.dtype == segment_ids.dtype == np.int32
    for row, (ids, segments) in enumerate(rows):
        fill = longest - len(ids)
        assert token_ids[row].tolist() == ids + [tokenizer._token_pad_id] * fill
        assert segment_ids[row].tolist() == segments + [0] * fill
    ragged = tokenizer.encode_batch(firsts, seconds, padding=False, **options)
    assert ragged == ([ids for ids, _ in rows], [segments for _, segments in rows])


def test_the_pad_id_need_not_be_zero():
    tokenizer = Tokenizer({"[CLS]": 0, "[SEP]": 1, "[UNK]": 2, "[PAD]": 3, "a": 4})
    token_ids, segment_ids = tokenizer.encode_batch(["a a", "a"], ["a", "a a"], padding=8)
    assert token_ids.tolist() == [[0, 4, 4, 1, 4, 1, 3, 3], [0, 4, 1, 4, 4, 1, 3, 3]]
    assert segment_ids.tolist() == [[0, 0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1, 0, 0]]


@pytest.mark.parametrize(
    ("options", "length"),
    [
        ({}, 8),
        ({"padding": True}, 8),
        ({"padding": "longest"}, 8),
        ({"padding": "longest", "maxlen": 6}, 6),
        ({"padding": "longest", "maxlen": 60}, 8),
        ({"padding": "max_length", "maxlen": 60}, 60),
        ({"padding": "max_length", "max_length": 5}, 5),
        ({"padding": 8}, 8),
        ({"padding": 10, "maxlen": 6}, 10),
        ({"padding": np.int64(9)}, 9),
    ],
)
def test_padding(options, length):
    token_ids, segment_ids = letters().encode_batch([A, "a"], **options)
    assert token_ids.shape == segment_ids.shape == (2, length)
    assert spell(token_ids[1]) == "<a>" + "." * (length - 3)


def test_empty_and_odd_batches():
    assert letters().encode_batch([])[0].shape == (0, 0)
    assert letters().encode_batch([], padding=7)[1].shape == (0, 7)
    assert letters().encode_batch([], padding=False) == ([], [])
    expected = letters().encode_batch(["a", "b c"])[0].tolist()
    for batch in (
        ("a", "b c"),
        np.array(["a", "b c"]),
        iter(["a", "b c"]),
        {"a": 1, "b c": 2}.keys(),
    ):
        assert letters().encode_batch(batch)[0].tolist() == expected


def test_more_texts_than_are_handed_over_at_once():
    batch = [VOCABULARY[5 + i % 26] for i in range(9000)]
    token_ids, _ = letters().encode_batch(batch)
    assert token_ids.shape == (9000, 3)
    assert [VOCABULARY[i] for i in token_ids[:, 1]] == batch


# --- What is refused ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"first_text is None \(NoneType\). Expected a string"),
        (b"abc", r"first_text is b'abc' \(bytes\).*text.decode\('utf-8'\)"),
        (3, r"first_text is 3 \(int\)"),
        (["a", None], r"first_text\[1\] is None"),
        (["a", ["b"]], r"first_text\[1\] is \['b'\] \(list\)"),
        ({"a": 1}, r"first_text is \{'a': 1\} \(dict\)"),
    ],
)
def test_encode_names_what_is_no_text(text, message):
    with pytest.raises(TokenizerError, match=message):
        letters().encode(text)
    if text is not None:
        with pytest.raises(TokenizerError, match=message.replace("first", "second")):
            letters().encode("a", text)


@pytest.mark.parametrize("method", ["tokenize", "rematch"])
@pytest.mark.parametrize("text", [None, b"a", 3, ["a"]])
def test_other_methods_name_what_is_no_text(method, text):
    more = [["a"]] if method == "rematch" else []
    with pytest.raises(TokenizerError, match=r"text is .*Expected a string"):
        getattr(letters(), method)(text, *more)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ("abc", r"texts is 'abc' \(str\). Expected a list of strings.*\[text\]"),
        (b"abc", r"texts is b'abc'"),
        (None, r"texts is None"),
        (7, r"texts is 7 \(int\)"),
        ({"a": "b"}, r"texts is \{'a': 'b'\} \(dict\)"),
        (["a", None], r"texts\[1\] is None \(NoneType\)"),
        (["a", "b", b"c"], r"texts\[2\] is b'c' \(bytes\).*Decode"),
        (["a", float("nan")], r"texts\[1\] is nan \(float\)"),
        ([["a", "b"]], r"texts\[0\] is \['a', 'b'\] \(list\).*argument pairs"),
        ([("a", "b")], r"texts\[0\] is \('a', 'b'\) \(tuple\)"),
        (np.array([["a", "b"]]), r"texts\[0\] is array.*\(ndarray\)"),
        (["a" * 9, "b" * 99, 1234567890 * 10**40], r"texts\[2\] is 1234567890000.*… \(int\)"),
    ],
)
def test_encode_batch_names_what_is_no_text(batch, message):
    with pytest.raises(TokenizerError, match=message):
        letters().encode_batch(batch)
    if batch is not None:
        with pytest.raises(TokenizerError, match=message.replace("texts", "pairs")):
            letters().encode_batch(["a"], batch)


def test_pairs_of_another_length():
    with pytest.raises(TokenizerError, match=r"3 texts but 2 pairs. Expected one second text"):
        letters().encode_batch(["a", "b", "c"], ["a", "b"])


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (["a"], {"maxlen": 1}, "maxlen=1 leaves no room for the 2 special tokens. Pass at least 2"),
        (["a", "b"], {"maxlen": 2}, "maxlen=2 leaves no room for the 3 special tokens"),
        (["a", "b"], {"max_length": 2}, "maxlen=2 leaves no room for the 3 special tokens"),
        (["a", "b"], {"maxlen": 3, "pattern": "S*ES*E"}, "maxlen=3 leaves no room for the 4"),
        (["a"], {"maxlen": -1}, "maxlen=-1 leaves no room"),
        (["a"], {"maxlen": 8.0}, r"maxlen=8\.0 is not a length"),
        (["a"], {"maxlen": True}, "maxlen=True is not a length"),
        (["a"], {"maxlen": 8, "max_length": 8}, "two spellings of the same limit"),
        (["a"], {"pattern": "S*E"}, r"pattern='S\*E' is not known. Expected 'S\*E\*E'"),
        (["a"], {"truncate_from": "rigth"}, "'rigth' is not known.*Did you mean 'right'"),
        (["a"], {"truncate_from": None}, "truncate_from=None is not known"),
        (["a"], {"truncate_from": True}, "truncate_from=True is not known"),
    ],
)
def test_wrong_limits(arguments, options, message):
    with pytest.raises(TokenizerError, match=message):
        letters().encode(*arguments, **options)
    with pytest.raises(TokenizerError, match=message):
        letters().encode_batch(*[[text] for text in arguments], **options)


def test_tokenize_refuses_wrong_limits():
    with pytest.raises(TokenizerError, match="maxlen=1 leaves no room for the 2 special tokens"):
        letters().tokenize("a", maxlen=1)
    with pytest.raises(TokenizerError, match="two spellings"):
        letters().tokenize("a", 4, max_length=5)


@pytest.mark.parametrize(
    ("padding", "message"),
    [
        ("max_length", r"needs maxlen="),
        ("longst", r"padding='longst' is not known.*Did you mean 'longest'"),
        (None, "padding=None is not known"),
        (4.0, r"padding=4\.0 is not known"),
        (7, r"Row 1 has 8 tokens, more than padding=7. Pass maxlen=7 too"),
        (-1, "Row 0 has 3 tokens, more than padding=-1"),
    ],
)
def test_wrong_padding(padding, message):
    with pytest.raises(TokenizerError, match=message):
        letters().encode_batch(["a", A], padding=padding)


@pytest.mark.parametrize(
    ("method", "argument"),
    [
        ("ids_to_tokens", 5),
        ("ids_to_tokens", "5"),
        ("tokens_to_ids", 5),
        ("tokens_to_ids", "[CLS]"),
        ("tokens_to_ids", [5]),
        ("token_to_id", 5),
        ("token_to_id", None),
        ("id_to_token", "5"),
        ("id_to_token", True),
        ("id_to_token", [1, 2]),
        ("decode", 5),
        ("decode", [[1, 2], [3, 4]]),
        ("decode", np.zeros((2, 3), int)),
    ],
)
def test_arguments_of_the_wrong_kind(method, argument):
    with pytest.raises(TokenizerError, match=r"Expected an? "):
        getattr(letters(), method)(argument)

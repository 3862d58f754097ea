"""Every recorded result of Google's own tokenizers, row by row."""

import json

import numpy as np
import pytest
from samples import DATA, rows, small_tokenizer, sp_tokenizer

from kerasbert.tokenizers import Tokenizer, load_vocab

ELECTRA = {"control_categories": ("C",)}
WORDPIECE = [
    ("bert_vocab_small", {}),
    ("electra_vocab_small", ELECTRA),
    ("electra_vocab_small_nostrip", {**ELECTRA, "strip_accents": False}),
]


def check_wordpiece(recorded, tokenizers):
    """Compares tokens, ids, words and the bulk path with rows of recorded results."""
    assert len(recorded) >= 218
    for row in recorded:
        tokenizer = tokenizers[row["lower"]]
        text, tokens, ids = row["text"], row["tokens"], row["ids"]
        head, tail = tokenizer._token_start_id, tokenizer._token_end_id
        assert tokenizer.tokenize(text) == ["[CLS]", *tokens, "[SEP]"], ascii(text)
        assert tokenizer.encode(text) == ([head, *ids, tail], [0] * (len(ids) + 2)), ascii(text)
        assert tokenizer._rules.split(text) == row["basic"], ascii(text)
        assert [w for w, _ in tokenizer._rules.words_with_origins(text)] == row["basic"]
    for lower in {row["lower"] for row in recorded}:
        chosen = [row for row in recorded if row["lower"] is lower]
        found = tokenizers[lower].encode_batch([row["text"] for row in chosen], padding=False)[0]
        assert [ids[1:-1] for ids in found] == [row["ids"] for row in chosen]


@pytest.mark.parametrize(("name", "options"), WORDPIECE, ids=[name for name, _ in WORDPIECE])
def test_wordpiece_equals_the_original(name, options):
    tokenizers = {lower: small_tokenizer(lower, **options) for lower in (True, False)}
    check_wordpiece(rows(f"{name}.jsonl"), tokenizers)


@pytest.mark.parametrize(("family", "options"), [("bert", {}), ("electra", ELECTRA)])
def test_wordpiece_equals_the_original_with_the_chinese_vocabulary(shared_dir, family, options):
    folder = shared_dir / "golden" / "tokenization"
    if not (folder / "vocab_zh.txt").is_file():
        pytest.skip(f"needs vocab_zh.txt, a published vocabulary, in {folder}")
    lines = (folder / f"{family}_vocab_zh.jsonl").open(encoding="ascii")
    tokenizers = {
        lower: Tokenizer(folder / "vocab_zh.txt", do_lower_case=lower, **options)
        for lower in (True, False)
    }
    assert tokenizers[True].vocab_size == 21128
    check_wordpiece([json.loads(line) for line in lines], tokenizers)


def test_the_variants_differ_where_they_should():
    texts = [row["text"] for row in rows("bert_vocab_small.jsonl") if row["lower"]]
    bert = [small_tokenizer().tokenize(text) for text in texts]
    electra = [small_tokenizer(**ELECTRA).tokenize(text) for text in texts]
    kept = [small_tokenizer(strip_accents=False).tokenize(text) for text in texts]
    assert sum(a != b for a, b in zip(bert, electra, strict=True)) == 3
    assert sum(a != b for a, b in zip(bert, kept, strict=True)) > 10


def check_pairs(recorded, tokenizers):
    """Compares padded rows with those of run_classifier.py."""
    assert recorded
    for row in recorded:
        tokenizer, maxlen = tokenizers[row["lower"]], row["max_seq_length"]
        pair = None if row["text_b"] is None else [row["text_b"]]
        token_ids, segment_ids = tokenizer.encode_batch(
            [row["text_a"]], pair, maxlen=maxlen, padding="max_length"
        )
        assert token_ids.tolist() == [row["input_ids"]], row
        assert segment_ids.tolist() == [row["segment_ids"]], row
        alone = tokenizer.encode(row["text_a"], row["text_b"], maxlen=maxlen)
        assert alone[0] == row["input_ids"][: sum(row["input_mask"])]
        assert alone[1] == row["segment_ids"][: sum(row["input_mask"])]


def test_pairs_equal_the_original():
    check_pairs(rows("bert_pairs.jsonl"), {b: small_tokenizer(b) for b in (True, False)})


def test_pairs_equal_the_original_with_the_chinese_vocabulary(shared_dir):
    folder = shared_dir / "golden" / "tokenization"
    if not (folder / "vocab_zh.txt").is_file():
        pytest.skip(f"needs vocab_zh.txt, a published vocabulary, in {folder}")
    recorded = map(json.loads, (folder / "bert_pairs.jsonl").open(encoding="ascii"))
    tokenizers = {b: Tokenizer(folder / "vocab_zh.txt", do_lower_case=b) for b in (True, False)}
    check_pairs([row for row in recorded if row["vocab"] == "vocab_zh.txt"], tokenizers)


# What the SpTokenizer is called with, and the recorded field it has to equal. Where the
# repaired comma rule makes no difference, its field is not recorded.
SENTENCEPIECE = {
    "as the original runs": ({}, "tokens", "ids"),
    "named": ({"comma_rule": "google"}, "tokens", "ids"),
    "intended": ({"comma_rule": "intended"}, "tokens_intended", "ids_intended"),
    "no comma rule": ({"comma_rule": "off"}, "sp_pieces", "sp_ids"),
    "no preprocessing": ({"preprocess": False, "comma_rule": "google"}, "raw_tokens", "raw_ids"),
}


@pytest.mark.parametrize("case", SENTENCEPIECE)
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("model", ["spm400", "spm_zh"])
def test_sentencepiece_equals_the_original(model, lower, case):
    options, tokens_field, ids_field = SENTENCEPIECE[case]
    if options.get("preprocess", True):
        options = {**options, "do_lower_case": lower}
    tokenizer = sp_tokenizer(model, **options)
    recorded = [row for row in rows(f"albert_{model}.jsonl") if row["lower"] is lower]
    assert len(recorded) == 218
    bulk, _ = tokenizer.encode_batch([row["text"] for row in recorded], padding=False)
    for row, ids in zip(recorded, bulk, strict=True):
        tokens = row.get(tokens_field, row["tokens"])
        assert tokenizer.tokenize(row["text"]) == ["[CLS]", *tokens, "[SEP]"], ascii(row["text"])
        assert ids == [2, *row.get(ids_field, row["ids"]), 3], ascii(row["text"])
        assert tokenizer.encode(row["text"])[0] == ids
        if options.get("preprocess", True):
            assert tokenizer._prepare(row["text"]) == row["preprocessed"]
            assert tokenizer._prepare_with_origins(row["text"])[0] == row["preprocessed"]


def test_the_two_comma_rules_differ():
    for model in ("spm400", "spm_zh"):
        differing = [row for row in rows(f"albert_{model}.jsonl") if "tokens_intended" in row]
        assert len(differing) == 8
        assert all(row["tokens"] != row["tokens_intended"] for row in differing)


@pytest.mark.parametrize("rule", ["bert", "albert"])
def test_vocabulary_with_odd_rows_loads_as_the_original_does(rule):
    expected = json.loads((DATA / "vocab_edge_loaded.json").read_text("utf-8"))
    with pytest.warns(UserWarning, match=r"'dup' \(lines 8, 10\)"):
        assert load_vocab(DATA / "vocab_edge.txt", rule=rule) == expected[rule]


def test_recorded_arrays_are_int32():
    token_ids, segment_ids = small_tokenizer().encode_batch(["a"])
    assert token_ids.dtype == segment_ids.dtype == np.int32

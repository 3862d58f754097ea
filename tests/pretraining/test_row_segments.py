"""From sentences to rows: pairs as the original makes them, rows of whole sentences."""

import json
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import DATA
from kerasbert.pretraining import RecordSettings
from kerasbert.pretraining.segments import _Cutter, _truncated, make_rows
from pretraining.made_up import random_documents, table, text_of
from pretraining.plain_records import joined, pairs, truncated_lengths

RECORDED = json.loads((DATA / "masking" / "sop_stats.json").read_text())


def segments(rows):
    """Pairs of lists of tokens, special ones left out, and labels."""
    for ids, mask, second, label in zip(
        *(rows[name] for name in ("input_ids", "input_mask", "segment_ids")),
        rows["next_sentence_labels"][:, 0],
        strict=True,
    ):
        real, later = mask > 0, second > 0
        body = ids >= 100
        yield ids[real & ~later & body].tolist(), ids[later & body].tolist(), label


@given(
    objective=st.sampled_from(["sop", "nsp"]),
    seed=st.integers(0, 2**32),
    room=st.integers(5, 60),
    short=st.sampled_from([0.0, 0.1, 1.0]),
    skip=st.booleans(),
)
def test_pairs_are_those_of_plain_lists(objective, seed, room, short, skip):
    documents = random_documents(np.random.default_rng(seed), 5, tokens=(1, 12))
    skip = skip and objective == "sop"
    settings = RecordSettings(
        max_length=room + 3, objective=objective, short_seq_prob=short, skip_single_sentences=skip
    )
    text = text_of(documents)
    spans = list(_Cutter(text, settings, room, Random(seed)).rows())
    wanted = pairs(documents, objective, room, short, Random(seed), skip)
    found = [(text.ids[a:b].tolist(), text.ids[c:d].tolist(), label) for a, b, c, d, label in spans]
    assert found == wanted


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1), st.integers(2, 30))
def test_truncation(lengths, room):
    starts = np.arange(len(lengths)) * 100
    a, b = np.array(lengths).T
    spans = np.stack([starts, starts + a, starts + 50, starts + 50 + b], axis=1)
    cut = _truncated(spans, room, np.random.default_rng(0))
    found = [tuple(row) for row in np.stack([cut[:, 1] - cut[:, 0], cut[:, 3] - cut[:, 2]], axis=1)]
    assert found == [truncated_lengths(*one, room) for one in lengths]
    assert (cut[:, [0, 2]] >= spans[:, [0, 2]]).all() and (cut[:, [1, 3]] <= spans[:, [1, 3]]).all()


def test_either_end_is_cut_off_for_each_token():
    spans = np.tile([0, 30, 50, 60], (20_000, 1))
    front = _truncated(spans, 30, np.random.default_rng(0))[:, 0]
    counts = np.bincount(front, minlength=11)  # of 10 tokens, each with a half
    assert len(counts) == 11
    assert abs(front.mean() - 5) < 5 * np.sqrt(2.5 / 20_000)
    assert abs(front.var() - 2.5) < 0.15


def rows_of(documents, seed=0, **options):
    settings = RecordSettings(**{"max_length": 32, "short_seq_prob": 0.0} | options)
    return make_rows(text_of(documents), table(), settings, np.random.default_rng(seed))


@pytest.mark.parametrize("objective", ["sop", "nsp", "none", "lm", "unilm"])
def test_what_a_row_looks_like(objective):
    documents = random_documents(np.random.default_rng(1), 40)
    rows = rows_of(documents, objective=objective, short_seq_prob=0.3)
    is_pair = objective in ("sop", "nsp", "unilm")
    lengths = rows["input_mask"].sum(axis=1)
    assert lengths.max() == 32
    place = np.arange(32)
    assert (rows["input_mask"] == (place < lengths[:, None])).all()
    assert (rows["input_ids"][:, 0] == 2).all()
    assert (rows["input_ids"][np.arange(len(lengths)), lengths - 1] == 3).all()
    assert ((rows["input_ids"] == 3).sum(axis=1) == 1 + is_pair).all()
    assert (rows["input_ids"][place >= lengths[:, None]] == 0).all()
    assert (rows["segment_ids"].max(axis=1) == is_pair).all()
    assert not rows["segment_ids"][place >= lengths[:, None]].any()
    # The second segment starts behind the first [SEP], and [SEP] ends it.
    first = (rows["input_ids"] == 3).argmax(axis=1)
    assert not is_pair or (rows["segment_ids"].argmax(axis=1) == first + 1).all()
    for a, b, label in segments(rows):
        assert a and bool(b) == is_pair
        for part in (a, b):
            assert part == list(range(part[0], part[0] + len(part))) if part else True
        if objective == "unilm" or (objective == "sop" and label == 0):
            assert b[0] > a[-1]


@pytest.mark.parametrize("objective", ["none", "lm", "unilm"])
def test_whole_sentences_leave_nothing_out(objective):
    documents = random_documents(np.random.default_rng(2), 30, tokens=(2, 70))
    sentences = [sentence for document in documents for sentence in document]
    rows = rows_of(documents, objective=objective)
    found = [a + b for a, b, _ in segments(rows)]
    tokens = joined(found)
    if objective != "unilm":  # where a single token that is left over has no second half
        assert tokens == joined(sentences)
    assert len(tokens) > 0.99 * len(joined(sentences))
    starts = {sentence[0] for sentence in sentences}
    long = {i for sentence in sentences if len(sentence) > 29 for i in sentence}
    assert all(row[0] in starts | long for row in found)


def test_segments_of_unilm_meet_where_a_sentence_starts():
    documents = random_documents(np.random.default_rng(3), 30, sentences=(2, 6), tokens=(3, 9))
    starts = {sentence[0] for document in documents for sentence in document}
    pairs_ = list(segments(rows_of(documents, objective="unilm", max_length=64)))
    assert all(b[0] in starts and b[0] == a[-1] + 1 for a, b, _ in pairs_ if len(a + b) > 9)


def share_within(count, total, expected):
    return abs(count / total - expected) <= 5 * np.sqrt(expected * (1 - expected) / total)


def kinds(rows, documents):
    """How many rows have each (where the segments come from, label)."""
    own = {i: n for n, document in enumerate(documents) for sentence in document for i in sentence}
    counts = {}
    for a, b, label in segments(rows):
        same = own[a[0]] == own[b[0]]
        kind = "other-doc" if not same else "same-doc A<B" if a[0] < b[0] else "same-doc A>B"
        counts[kind, int(label)] = counts.get((kind, int(label)), 0) + 1
    return counts


def test_half_of_the_pairs_are_swapped():
    documents = random_documents(np.random.default_rng(4), 700, sentences=(5, 30))
    counts = kinds(rows_of(documents, max_length=128, short_seq_prob=0.1), documents)
    assert set(counts) == {("same-doc A<B", 0), ("same-doc A>B", 1), ("other-doc", 1)}
    right, wrong = counts["same-doc A<B", 0], counts["same-doc A>B", 1]
    assert share_within(right, right + wrong, 0.5)
    recorded = RECORDED["random_next_sentence=False (default, SOP), L=128"][0]
    share = recorded["('same-doc A<B', 0)"] / (
        recorded["('same-doc A<B', 0)"] + recorded["('same-doc A>B', 1)"]
    )
    assert share_within(share * 5660, 5660, right / (right + wrong))


def test_half_of_the_pairs_are_of_another_document():
    documents = random_documents(np.random.default_rng(5), 300, sentences=(20, 60))
    counts = kinds(
        rows_of(documents, objective="nsp", max_length=128, short_seq_prob=0.0), documents
    )
    assert set(counts) == {("same-doc A<B", 0), ("other-doc", 1)}
    singles = 0.02  # documents end with one sentence left now and then
    share = counts["other-doc", 1] / sum(counts.values())
    assert 0.5 - 5 * 0.5 / np.sqrt(sum(counts.values())) < share < 0.56 + singles


def test_single_sentences_are_paired_or_left_out():
    documents = [[list(range(100 + 20 * i, 110 + 20 * i))] for i in range(50)]
    paired = list(segments(rows_of(documents)))
    assert len(paired) == 50
    assert all(label == 1 and a[0] != b[0] for a, b, label in paired)
    assert not list(segments(rows_of(documents, skip_single_sentences=True)))


def test_short_documents_and_none():
    assert rows_of([])["input_ids"].shape == (0, 32)
    alone = list(segments(rows_of([[[100, 101]]], objective="sop")))
    assert alone == [([100, 101], [100, 101], 1)], "no other document: as in the original"
    assert list(segments(rows_of([[[100]]], objective="unilm"))) == []


def test_short_rows_are_as_frequent_as_asked_for():
    documents = random_documents(np.random.default_rng(6), 3000, sentences=(8, 9), tokens=(30, 31))
    rows = rows_of(documents, objective="none", max_length=242, short_seq_prob=0.1)
    lengths = rows["input_mask"].sum(axis=1)
    full = (lengths == 242).sum()
    assert share_within(3000 - full, 3000, 0.1)

"""Which tokens are masked: the rules, kept for every row."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import DATA
from harness import refused
from kerasbert.errors import ConfigError
from kerasbert.pretraining import Masking, RecordSettings
from kerasbert.pretraining.masking import next_token_targets, restored
from pretraining.made_up import table
from pretraining.plain_records import chosen_words

RECORDED = json.loads((DATA / "masking" / "mask_stats.json").read_text())


def rows_of(lengths, length, rng, first=None, inside=0.3):
    """Rows [CLS] a [SEP] b [SEP] of the given numbers of tokens, or [CLS] a [SEP]."""
    lengths = np.array(lengths)[:, None]
    place = np.arange(length)
    ids = np.where(place < lengths, rng.integers(10, 1000, (len(lengths), length)), 0)
    ids[:, 0] = 2
    np.put_along_axis(ids, lengths - 1, 3, axis=1)
    if first is not None:
        ids[:, first] = np.where(lengths[:, 0] > first + 1, 3, ids[:, first])
    special = np.isin(ids, (2, 3))
    boundary = special | ((rng.random(ids.shape) >= inside) & (place < lengths))
    return {
        "input_ids": ids.astype("int32"),
        "input_mask": (place < lengths).astype("int8"),
        "segment_ids": np.zeros(ids.shape, "int8"),
        "token_boundary": boundary.astype("int8"),
    }


def chosen_places(masked):
    """A list of the chosen positions of each row."""
    pairs = zip(masked["masked_lm_positions"], masked["masked_lm_weights"], strict=True)
    return [positions[weights > 0].tolist() for positions, weights in pairs]


maskings = st.builds(
    Masking,
    rate=st.floats(0.05, 1.0),
    max_predictions=st.integers(1, 30),
    ngram=st.integers(1, 5),
    whole_word=st.booleans(),
    favor_shorter=st.booleans(),
)


@given(
    masking=maskings,
    lengths=st.lists(st.integers(2, 40), min_size=1, max_size=8),
    inside=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 2**32),
)
def test_rules(masking, lengths, inside, seed):
    rng = np.random.default_rng(seed)
    rows = rows_of(lengths, 40, rng, first=9, inside=inside)
    masked = masking.apply(rows, table(), rng)
    for name, dtype in (("positions", "int32"), ("ids", "int32"), ("weights", "float32")):
        array = masked[f"masked_lm_{name}"]
        assert array.shape == (len(lengths), masking.max_predictions) and array.dtype == dtype
    for row, positions in enumerate(chosen_places(masked)):
        ids = rows["input_ids"][row]
        budget = min(masking.max_predictions, max(1, round(lengths[row] * masking.rate)))
        assert len(positions) <= budget
        assert positions == sorted(set(positions))
        assert not np.isin(ids[positions], (2, 3)).any(), "[CLS] and [SEP] stay"
        assert all(position < lengths[row] for position in positions), "padding stays"
        assert masked["masked_lm_ids"][row, : len(positions)].tolist() == ids[positions].tolist()
        untouched = np.setdiff1d(np.arange(40), positions)
        assert (masked["input_ids"][row, untouched] == ids[untouched]).all()
        words = np.cumsum(rows["token_boundary"][row])
        if masking.whole_word and lengths[row] <= 9:  # one segment, whose words are simple
            body = range(1, lengths[row] - 1)
            word = {i: words[i] for i in body}
            picked = {word[i] for i in positions}
            assert positions == [i for i in body if word[i] in picked]
        # What fills up is zero.
        for name in ("positions", "ids", "weights"):
            assert not masked[f"masked_lm_{name}"][row, len(positions) :].any()
    back = restored(masked)
    assert (back["input_ids"] == rows["input_ids"]).all()
    assert back.keys() == rows.keys()


@pytest.mark.parametrize("ngram", [1, 2, 3, 5])
@pytest.mark.parametrize("favor_shorter", [True, False])
def test_the_words_are_those_of_one_word_after_the_other(ngram, favor_shorter):
    masking = Masking(ngram=ngram, whole_word=True, favor_shorter=favor_shorter)
    rng = np.random.default_rng(0)
    words = rng.integers(1, 30, 200)
    sizes = np.where(np.arange(30) < words[:, None], rng.integers(1, 5, (200, 30)), 0)
    budget = rng.integers(1, 25, 200)
    found = masking._spans(sizes, words, budget, np.random.default_rng(1))
    again = np.random.default_rng(1)  # draws what was drawn
    keys = np.where(np.arange(30) < words[:, None], again.random((200, 30)), 2.0)
    order, drawn = keys.argsort(axis=1), masking._lengths(again, (200, 30))
    for row, count in enumerate(words):
        wanted = chosen_words(
            sizes[row, :count].tolist(),
            order[row, :count].tolist(),
            drawn[row, :count].tolist(),
            budget[row],
        )
        assert set(np.flatnonzero(found[row, :count])) == wanted


def test_the_first_token_of_a_row_starts_a_word_even_behind_a_broken_one():
    rows = rows_of([8], 8, np.random.default_rng(0), inside=1.0)
    masked = Masking(rate=1.0, whole_word=True).apply(rows, table(), np.random.default_rng(0))
    assert chosen_places(masked) == [[1, 2, 3, 4, 5, 6]]
    half = Masking(rate=0.5, whole_word=True).apply(rows, table(), np.random.default_rng(0))
    assert chosen_places(half) == [[]], "one word of six tokens, for a budget of four"


def test_a_word_goes_on_behind_sep_as_in_the_original():
    rows = rows_of([7], 7, np.random.default_rng(0), first=3, inside=0.0)
    rows["token_boundary"][0] = [1, 1, 1, 1, 0, 1, 1]
    seen = set()
    for seed in range(40):
        rng = np.random.default_rng(seed)
        masked = Masking(rate=0.3, whole_word=True).apply(rows, table(), rng)
        seen.add(tuple(chosen_places(masked)[0]))
    assert seen == {(1, 5), (2, 4)}, "[CLS] 1 2 [SEP] ##2 5 [SEP], two tokens"


def test_words_are_told_by_their_spelling_without_boundaries():
    rng = np.random.default_rng(0)
    rows = rows_of([30] * 50, 30, rng)
    del rows["token_boundary"]
    rows["input_ids"][:, 10:13] = 900
    vocabulary = table(inside=[900])
    masked = Masking(rate=0.3, whole_word=True).apply(rows, vocabulary, rng)
    for positions in chosen_places(masked):
        assert len({9, 10, 11, 12} & set(positions)) in (0, 4)


def test_rows_without_a_token_to_mask():
    rows = rows_of([2, 2], 6, np.random.default_rng(0))
    masked = Masking.of("ngram").apply(rows, table(), np.random.default_rng(0))
    assert chosen_places(masked) == [[], []]
    empty = {name: array[:0] for name, array in rows.items()}
    masked = Masking.of("ngram").apply(empty, table(), np.random.default_rng(0))
    assert masked["masked_lm_ids"].shape == (0, 20)


def test_every_row_by_itself_however_many_there_are():
    rng = np.random.default_rng(0)
    rows = rows_of([20] * 5000, 20, rng)
    masked = Masking(rate=0.2).apply(rows, table(), rng)
    assert (masked["masked_lm_weights"].sum(axis=1) == 4).all()


# ---- statistics ------------------------------------------------------------------------------

RUNS = 2500


def within(share, expected, count, sigmas=5, other=np.inf):
    """Whether a share of `count` agrees with one, which is a share of `other` itself."""
    error = np.sqrt(expected * (1 - expected) * (1 / count + 1 / other))
    return abs(share - expected) <= sigmas * error + 1e-12


def recorded_rows(case, rng):
    inside = case["cont_piece_prob"]
    return rows_of([case["seq_len"]] * RUNS, case["seq_len"], rng, inside=inside)


@pytest.mark.parametrize("case", RECORDED, ids=range(len(RECORDED)))
def test_statistics_of_the_original(case):
    rng = np.random.default_rng(7)
    masking = Masking(
        rate=case["masked_lm_prob"],
        max_predictions=case["max_predictions"],
        ngram=case["ngram"],
        whole_word=case["whole_word"],
        favor_shorter=case["favor_shorter"],
    )
    rows = recorded_rows(case, rng)
    masked = masking.apply(rows, table(50_000), rng)
    places = chosen_places(masked)
    assert {len(one) for one in places} == {case["num_to_predict"]}
    count, recorded = RUNS * case["num_to_predict"], case["runs"] * case["num_to_predict"]
    new = masked["input_ids"][masked["input_ids"] != rows["input_ids"]]
    became_mask, became_random = (new == 4).sum() / count, (new != 4).sum() / count
    for share, name in ((became_mask, "mask"), (became_random, "random")):
        assert within(share, {"mask": 0.8, "random": 0.1}[name], count)
        assert within(share, case["replace"][name], count, other=recorded)
    # Lengths of n-grams as they are drawn.
    drawn = masking._lengths(rng, 100_000)
    for n, expected in case["n_drawn"].items():
        assert within((drawn == int(n)).mean(), expected, 100_000, other=case["runs"] * 9)
    # What comes of it: maximal runs of chosen words.
    runs = np.array(
        [
            run
            for row, one in zip(rows["token_boundary"], places, strict=True)
            for run in word_runs(row, one)
        ]
    )
    for n, expected in case["maximal_run_length_words"].items():
        others = case["runs"] * len(runs) / RUNS
        assert within((runs == int(n)).mean(), expected, len(runs), other=others), n
    # The first token is reached by n-grams only that start with it.
    for place, expected in enumerate(case["pos_rate_first_last_mid"][:2], start=1):
        share = np.mean([place in one for one in places])
        assert within(share, expected, RUNS, other=case["runs"])


def word_runs(boundary, positions):
    """Lengths of the runs of chosen words that stand side by side."""
    words = np.unique(np.cumsum(boundary)[positions])
    breaks = np.flatnonzero(np.diff(words) > 1) + 1
    return np.diff([0, *breaks, len(words)]).tolist()


@pytest.mark.parametrize("ngram", [2, 3, 4])
def test_lengths_are_drawn_by_one_over_n(ngram):
    rng = np.random.default_rng(3)
    expected = 1 / np.arange(1, ngram + 1)
    expected /= expected.sum()
    for favor_shorter, shares in ((True, expected), (False, expected[::-1])):
        drawn = Masking(ngram=ngram, favor_shorter=favor_shorter)._lengths(rng, 200_000)
        counts = np.bincount(drawn, minlength=ngram + 1)[1:] / 200_000
        assert all(within(c, s, 200_000) for c, s in zip(counts, shares, strict=True))


def test_random_tokens_are_any_of_the_vocabulary():
    rng = np.random.default_rng(0)
    rows = rows_of([100] * 400, 100, rng)
    everything = Masking(rate=1.0, max_predictions=100, mask=0.0, random=1.0)
    masked = everything.apply(rows, table(20), rng)
    counts = np.bincount(masked["input_ids"][:, 1:-1].ravel(), minlength=20)
    total = 400 * 98
    assert len(counts) == 20
    assert all(within(count / total, 1 / 20, total) for count in counts)


def test_electra_keeps_what_it_does_not_mask():
    rng = np.random.default_rng(0)
    rows = rows_of([100] * 300, 100, rng)
    masked = Masking.of("electra").apply(rows, table(), rng)
    new = masked["input_ids"][masked["input_ids"] != rows["input_ids"]]
    assert (new == 4).all()
    assert within(len(new) / (300 * 15), 0.85, 300 * 15)


# ---- language models -------------------------------------------------------------------------


def test_next_tokens():
    rows = {
        "input_ids": np.array([[2, 7, 8, 3, 9, 3, 0]], "int32"),
        "input_mask": np.array([[1, 1, 1, 1, 1, 1, 0]], "int8"),
        "segment_ids": np.array([[0, 0, 0, 0, 1, 1, 0]], "int8"),
    }
    everything = next_token_targets(rows, second_only=False)
    assert everything["masked_lm_positions"].tolist() == [[0, 1, 2, 3, 4, 0]]
    assert everything["masked_lm_ids"].tolist() == [[7, 8, 3, 9, 3, 0]]
    assert everything["masked_lm_weights"].tolist() == [[1, 1, 1, 1, 1, 0]]
    second = next_token_targets(rows, second_only=True)
    assert second["masked_lm_positions"].tolist() == [[3, 4, 0, 0, 0, 0]]
    assert second["masked_lm_ids"].tolist() == [[9, 3, 0, 0, 0, 0]]
    assert second["input_ids"] is rows["input_ids"]


# ---- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        ({"rate": 0}, "rate=0"),
        ({"rate": 1.5}, "rate=1.5"),
        ({"max_predictions": 0}, "max_predictions=0"),
        ({"ngram": True}, "ngram=True"),
        ({"mask": 0.9, "random": 0.2}, "mask + random"),
    ],
)
def test_refused_maskings(arguments, fact):
    with refused(ConfigError, fact):
        Masking(**arguments)


def test_refused_settings():
    with refused(ConfigError, "masking='ngrams'", "Did you mean 'ngram'?"):
        RecordSettings(masking="ngrams")
    with refused(ConfigError, "masking='bert'", "objective='lm'"):
        RecordSettings(objective="lm", masking="bert")
    with refused(ConfigError, "objective='sob'", "'sop'"):
        RecordSettings(objective="sob")
    with refused(ConfigError, "max_length=7"):
        RecordSettings(max_length=7)
    with refused(ConfigError, "skip_single_sentences", "'nsp'"):
        RecordSettings(objective="nsp", skip_single_sentences=True)

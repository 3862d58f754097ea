"""What `generate` writes: for inputs in every form, and by all of its rules."""

import re

import numpy as np
import pytest
from plain_writing import assert_greedy, plain_greedy
from writers import (
    ENDS,
    FEW_NAMES,
    POSITIONS,
    VOCABULARY,
    WRITERS,
    few,
    random_prompts,
    writer,
)

from harness import default_and_slow, refused
from kerasbert.errors import ConfigError
from kerasbert.generation import generate
from kerasbert.generation.cached import CachedDecoding
from kerasbert.generation.graph import DecodingGraph
from kerasbert.generation.prompts import read_prompts
from kerasbert.generation.stepwise import StepwiseModel

MOST = 4
pytestmark = pytest.mark.usefixtures("quick_to_compile")

#: Of each way to learn of positions and of padding one.
PADDED = (
    "bert_lm",
    "bert_positions_mask_unilm",
    "albert_unilm",
    "roberta_lm",
    "nezha_unilm",
    "roformer_unilm",
    "gau_alpha_lm",
    "gpt2",
    "gpt2_mask",
    "t5",
)


def texts(found):
    return [texts(item) if isinstance(item, list) else item.tolist() for item in found]


def padded(rows, side, filler):
    """An array of the rows."""
    longest = max(map(len, rows)) + 3
    array = np.full((len(rows), longest), filler, "int64")
    for line, row in zip(array, rows, strict=True):
        line[slice(0, len(row)) if side == "right" else slice(longest - len(row), None)] = row
    return array


# ---- inputs ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    default_and_slow(PADDED, ["bert_positions_mask_unilm", "gau_alpha_lm", "t5"]),
)
def test_padding_on_either_side_changes_nothing(name):
    one, prompts = writer(name), random_prompts(5, seed=20)
    wanted = texts(generate(one.made(), prompts, 3))
    for side in ("left", "right"):
        given = padded(prompts, side, one.padding or 0)
        if "mask" in one.inputs:
            # Any id may stand where the mask is 0.
            given = padded(prompts, side, 33)
            mask = padded([[1] * len(prompt) for prompt in prompts], side, 0)
            given = {"Input-Token": given, "Input-Mask": mask}
        assert texts(generate(one.made(), given, 3)) == wanted, side


@pytest.mark.backends
@few
@pytest.mark.parametrize("method", default_and_slow(["greedy", "beam"], ["beam"]))
def test_a_row_does_not_know_the_others(one, method):
    prompts = random_prompts(5, seed=21)
    settings = {"method": method, "end_id": ENDS}
    together = texts(generate(one.made(), prompts, MOST, **settings))
    assert texts(generate(one.made(), prompts[::-1], MOST, **settings)) == together[::-1]
    # The longest, by whose length the others were padded, and one of these.
    longest = max(range(5), key=lambda row: len(prompts[row]))
    for row in (longest, longest - 1):
        assert texts(generate(one.made(), [prompts[row]], MOST, **settings)) == [together[row]]


def test_forms_of_the_inputs():
    one, prompts = writer("albert_unilm"), random_prompts(3, seed=22)
    segments = [[0] * len(prompt) for prompt in prompts]
    graph = DecodingGraph(one.made())
    wanted = read_prompts(graph, prompts)
    for given in (
        [prompts, segments],
        (prompts, segments),
        {"Input-Token": prompts, "Input-Segment": segments},
        {"Input-Token": prompts},
        [np.array(prompt) for prompt in prompts],
        [padded(prompts, "right", 0), padded(segments, "right", 0)],
        [padded(prompts, "left", 0), padded(segments, "left", 0)],
    ):
        found = read_prompts(graph, given)
        assert found.fixed == [] and found.rows.keys() == wanted.rows.keys()
        for role, rows in found.rows.items():
            assert texts(rows) == texts(wanted.rows[role]), role
    whole = texts(generate(one.made(), prompts, MOST))
    assert texts(generate(one.made(), [prompts, segments], MOST)) == whole
    assert texts(generate(one.made(), prompts[0], MOST)) == whole[:1], "a flat list"


@pytest.mark.parametrize("name", default_and_slow(["albert_unilm", "nezha_unilm"], ["nezha_unilm"]))
def test_a_text_that_was_begun(name):
    """Going on behind the first new tokens gives the rest."""
    one, prompts = writer(name), [prompt[:12] for prompt in random_prompts(4, seed=23)]
    whole = texts(generate(one.made(), prompts, MOST))
    begun = [prompt + text[:2] for prompt, text in zip(prompts, whole, strict=True)]
    segments = [[0] * len(prompt) + [1, 1] for prompt in prompts]
    for use_cache in (True, False):
        found = texts(generate(one.made(), [begun, segments], MOST - 2, use_cache=use_cache))
        assert found == [text[2:] for text in whole]
    # All of it as text to read is another question.
    for prompt, text in zip(begun, generate(one.made(), begun, 2), strict=True):
        assert_greedy(one, one.made(), prompt, text, 2, ends=())


def test_a_language_model_goes_on_in_the_last_segment():
    one, prompts = writer("bert_lm"), [[5, 9, 8, 12, 30], [40, 3, 22]]
    segments = [[0, 0, 1, 1, 1], [0, 1, 1]]
    found = generate(one.made(), [prompts, segments], MOST)
    for prompt, own, text in zip(prompts, segments, found, strict=True):
        assert_greedy(one, one.made(), prompt, text, MOST, ends=(), segments=own)


@pytest.mark.parametrize("name", ["bert_positions_lm", "roformer_positions_unilm"])
def test_positions_of_ones_own(name):
    """They go on counting from the last one that was given: for the second token, and the third."""
    one, prompts = writer(name), random_prompts(3, seed=24, longest=9)
    counted = [list(range(len(prompt))) for prompt in prompts]
    given = {"Input-Token": prompts, "Input-Position": counted}
    wanted = texts(generate(one.made(), prompts, 3))
    assert texts(generate(one.made(), given, 3)) == wanted
    apart = {**given, "Input-Position": [[7 + 2 * n for n in row] for row in counted]}
    cached, uncached = (
        texts(generate(one.made(), apart, 3, use_cache=use)) for use in (True, False)
    )
    assert cached == uncached != wanted


def test_t5_may_be_told_how_the_answer_begins():
    one, prompts = writer("t5.1.1"), random_prompts(3, seed=25)
    whole = texts(generate(one.made(), prompts, MOST))
    assert texts(generate(one.made(), [prompts, [[0]] * 3], MOST)) == whole
    begun = [[0, *text[:2]] for text in whole]
    assert texts(generate(one.made(), [prompts, begun], MOST - 2)) == [t[2:] for t in whole]


# ---- room for the text -----------------------------------------------------------------------


LIMITED = {
    "bert_lm": POSITIONS,
    "bert_hierarchical_unilm": 64,
    # Its first rows are for padding.
    "roberta_lm": POSITIONS - 2,
    "gpt2": POSITIONS,
    "gpt2_ml": POSITIONS,
}


@pytest.mark.parametrize("name", default_and_slow(LIMITED, ["roberta_lm", "gpt2_ml"]))
def test_up_to_the_last_position(name):
    one, limit = writer(name), LIMITED[name]
    prompts = [[7, 8, 9], list(np.arange(limit - 2) % 50 + 4)]
    cached, uncached = (generate(one.made(), prompts, 3, use_cache=use) for use in (True, False))
    assert texts(cached) == texts(uncached)
    for prompt, text in zip(prompts, cached, strict=True):
        assert_greedy(one, one.made(), prompt, text, 3, ends=())


@pytest.mark.parametrize("name", LIMITED)
def test_beyond_the_last_position(name, monkeypatch):
    one, limit = writer(name), LIMITED[name]
    monkeypatch.setattr(CachedDecoding, "first", None)  # nothing may run before the refusal
    for length, most in ((limit + 1, 1), (limit - 3, 5), (3, limit)):
        prompt = list(np.arange(length) % 50 + 4)
        with refused(ConfigError, length, f"max_new_tokens={most}", limit):
            generate(one.made(), [[7, 8], prompt], most)


@pytest.mark.parametrize(
    "name", default_and_slow(["nezha_lm", "roformer_unilm", "gau_alpha_lm", "t5"], ["nezha_lm"])
)
def test_texts_without_a_limit(name):
    one, prompt = writer(name), list(np.arange(POSITIONS + 30) % 50 + 4)
    text = generate(one.made(), [prompt, [5, 6]], 3)[0]
    assert_greedy(one, one.made(), prompt, text, 3, ends=())


# ---- what is computed ------------------------------------------------------------------------


@few
def test_rows_that_ended_cost_nothing(one, monkeypatch, do_not_compile):
    asked, computed = [], []
    step, run = CachedDecoding.step, StepwiseModel.step

    def asking(self, rows, parents, tokens):
        asked.append(len(rows))
        return step(self, rows, parents, tokens)

    def running(self, told, *memory):
        computed.append(told.index.shape[0])
        return run(self, told, *memory)

    monkeypatch.setattr(CachedDecoding, "step", asking)
    monkeypatch.setattr(StepwiseModel, "step", running)
    # Compiled, only the first call of each size would be seen.
    # Half of the rows may end at once, the others later.
    ends = set(range(4, 24))

    def allowed(row, new):
        return [4] if len(new) >= row else range(30, 60)

    found = generate(
        one.build(), random_prompts(12, seed=26), 14, end_id=ends, allowed_tokens=allowed
    )
    assert [len(text) for text in found] == [n + 1 for n in range(12)]
    # A row is asked for as long as its text is not over.
    assert asked == list(range(11, 0, -1))
    assert computed == sorted(computed, reverse=True)
    # Few rows cost little more than one, and another number of them has to be compiled for.
    assert computed == [16] * 7 + [4] * 3 + [1]


# ---- rules -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FEW_NAMES)
@pytest.mark.parametrize("method", default_and_slow(["greedy", "beam", "sample"], ["beam"]))
def test_an_answer_from_the_passage(name, method):
    """The texts are spans of what was read, ended by the end token."""
    one, prompts, end = writer(name), random_prompts(6, seed=27, low=6), 3
    prompts = [[token for token in prompt if token != end] for prompt in prompts]

    def next_in_passage(row, new):
        passage, size = prompts[row], len(new)
        if size == 0:
            return passage
        starts = [i for i in range(len(passage)) if passage[i : i + size] == new.tolist()]
        return [end, *(passage[i + size] for i in starts if i + size < len(passage))]

    seed = {"seed": 1} if method == "sample" else {}
    found = generate(
        one.made(), prompts, 8, method, end_id=end, allowed_tokens=next_in_passage, **seed
    )
    for prompt, text in zip(prompts, texts(found), strict=True):
        span = text[:-1] if text[-1] == end else text
        assert span and (text[-1] == end or len(text) == 8)
        assert re.search(" " + " ".join(map(str, span)) + " ", f" {' '.join(map(str, prompt))} ")


@few
@pytest.mark.parametrize("method", default_and_slow(["greedy", "beam", "sample"], ["sample"]))
def test_no_end_before_the_shortest_length(one, method):
    prompts, most = random_prompts(6, seed=28), 7
    # Half of the vocabulary would end a text.
    ends, settings = range(2, 31), {"seed": 2} if method == "sample" else {}
    short = generate(one.made(), prompts, most, method, end_id=ends, **settings)
    assert min(map(len, short)) < 4
    for text in generate(one.made(), prompts, most, method, end_id=ends, min_length=4, **settings):
        assert len(text) >= 4 and not set(text[:3].tolist()) & set(ends)
        assert text[-1] in ends or len(text) == most


@pytest.mark.parametrize("name", FEW_NAMES)
@pytest.mark.parametrize("method", default_and_slow(["greedy", "beam"], ["greedy"]))
def test_no_token_twice(name, method):
    """That the rules are asked; `test_processors` has their numbers, for n-grams of any size."""
    one, prompts = writer(name), random_prompts(6, seed=30)

    def repeats(**settings):
        found = generate(one.made(), prompts, 6, method, **settings)
        return sum(len(text) - len(set(text.tolist())) for text in found)

    assert repeats(repetition_penalty=20.0) < repeats(repetition_penalty=1.0)
    assert repeats(no_repeat_ngram_size=1) == 0


def test_penalties_see_the_prompt_of_a_language_model_only():
    """A prompt that holds the whole vocabulary shows who looks at it."""
    prompt = list(range(2, 50))
    for name in ("bert_lm", "bert_unilm", "t5"):
        one = writer(name)
        text = generate(one.made(), [prompt], 1, no_repeat_ngram_size=1)[0].tolist()
        assert (set(text) <= {1, *range(50, 60)}) == (one.kind == "lm") or one.kind != "lm"
        if one.kind != "lm":
            free = plain_greedy(one, one.made(), prompt, 1, ends=())
            assert text[0] == free[0], "the first token is free of the prompt"


@few
def test_padding_is_never_written(one):
    """Not even where all that is allowed is next to impossible."""
    if one.padding is None:
        pytest.skip("no id is padding")
    found = generate(
        one.made(), one.given([[5, 6, 7]]), 3, allowed_tokens=lambda row, new: [one.padding, 58]
    )
    assert texts(found) == [[58, 58, 58]]


def test_seeds():
    one, prompts = writer("albert_unilm"), random_prompts(4, seed=31)

    def draw(seed, count=3):
        return texts(generate(one.made(), prompts, 3, "sample", seed=seed, num_return=count))

    first = draw(1)
    assert first == draw(1) != draw(2)
    assert len({tuple(text) for row in first for text in row}) > 6
    assert [len(row) for row in first] == [3] * 4
    # A text is that of its row and number, however many are drawn.
    assert [[text] for text in draw(1, 1)] == [row[:1] for row in first]


def test_all_kinds_are_there():
    assert len({one.name for one in WRITERS}) == len(WRITERS) >= 24
    assert {one.kind for one in WRITERS} == {"lm", "unilm", "t5"}
    assert all(id_ < VOCABULARY for id_ in ENDS)

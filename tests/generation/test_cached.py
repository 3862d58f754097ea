"""Cached decoding writes what uncached decoding writes, and that is what the model says."""

import numpy as np
import pytest
from plain_writing import (
    all_logits,
    assert_greedy,
    assert_same_scores,
    decoding,
    full_logits,
    log_softmax,
    margin,
    plain_greedy,
)
from writers import (
    ENDS,
    FEW,
    FEW_NAMES,
    VOCABULARY,
    WRITERS,
    few,
    main_and_slow,
    random_prompts,
    writer,
)

from harness import default_and_slow
from kerasbert.generation import generate

MOST = 8
METHODS = {
    "greedy": {"method": "greedy"},
    "beam": {"method": "beam", "beam_size": 4, "num_return": 2},
    "sample": {
        "method": "sample",
        "top_k": 5,
        "temperature": 0.8,
        "num_return": 2,
        "seed": 3,
    },
}


def texts(found):
    """Lists of ids in the place of arrays, at any depth."""
    if isinstance(found, list):
        return [texts(item) for item in found]
    assert found.dtype == np.int32 and found.ndim == 1
    return found.tolist()


def first_difference(one, prompt, text, other):
    """Where two texts part, and how near the two best tokens are there."""
    same = next((i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), None)
    if same is None:
        return f"{text} and {other} have different lengths"
    scores = full_logits(one, one.made(), prompt, text[:same])
    return (
        f"cached {text}\nuncached {other}\npart at {same} after {prompt}, where the best token is "
        f"ahead by {margin(scores):.7f}; "
        f"theirs are apart by {abs(scores[text[same]] - scores[other[same]]):.7f}"
    )


def compare(one, prompts, method, model=None, end_id=None):
    """Cached and uncached texts are the same; returns them."""
    model, settings = model or one.made(), {**METHODS[method], "end_id": end_id}
    found = texts(generate(model, one.given(prompts), MOST, **settings))
    wanted = texts(generate(model, one.given(prompts), MOST, use_cache=False, **settings))
    for prompt, own, other in zip(prompts, found, wanted, strict=True):
        for text, its in zip(
            *([x] if method == "greedy" else x for x in (own, other)), strict=True
        ):
            assert text == its, f"{one}, {method}: " + first_difference(one, prompt, text, its)
    return found


#: One of every family, with the methods in turn: these differ in the number of slots of a step,
#: which `test_the_scores_of_every_step` tries for every kind. One kind has all of them.
FAMILIES = {one.model: one for one in reversed(WRITERS)}.values()
PAIRS = [(writer(FEW[0]), method) for method in METHODS]
PAIRS += [(w, list(METHODS)[n % 3]) for n, w in enumerate(FAMILIES)]


# ---- the scores of every step --------------------------------------------------------------------


@few
@pytest.mark.usefixtures("do_not_compile")
def test_the_first_scores_without_a_cache_are_those_of_a_full_run(one):
    prompts = random_prompts(4, seed=1)
    found = decoding(one, one.made(), prompts, cached=False).first()
    assert found.dtype == np.float32 and found.shape == (4, VOCABULARY)
    for number, (own, prompt) in enumerate(zip(found, prompts, strict=True)):
        wanted = all_logits(one, one.made(), prompt, condition=number)[-1]
        assert_same_scores(log_softmax(own.astype("float64")), wanted)


@main_and_slow
@pytest.mark.usefixtures("do_not_compile")
def test_the_scores_of_every_step(one):
    """Random texts whose slots change places, and of which some rows end before others."""
    rng = np.random.default_rng(4)
    prompts, slots = [[7], *random_prompts(2, seed=5), list(range(10, 34))], 2
    model = decoding(one, one.made(), prompts, slots)
    scores = model.first()
    written = [[([], [own])] for own in scores]
    alive, done = np.arange(len(prompts)), []
    for keep in ((0, 1, 2, 3), (1, 3), (1,)):
        keep = np.array(keep)
        done += [(alive[n], *written[n][0]) for n in range(len(alive)) if n not in keep]
        parents = rng.integers(0, len(written[0]), (len(keep), slots))
        tokens = rng.integers(2, VOCABULARY, (len(keep), slots))
        scores = model.step(keep, parents, tokens)
        assert scores.shape == (len(keep), slots, VOCABULARY)
        alive, before = alive[keep], [written[n] for n in keep]
        written = [
            [
                ([*old[parent][0], token], [*old[parent][1], own])
                for parent, token, own in zip(*parts, strict=True)
            ]
            for old, *parts in zip(before, parents, tokens.tolist(), scores, strict=True)
        ]
    done += [(alive[0], *slot) for slot in written[0]]
    for row, tokens, found in done:
        wanted = all_logits(one, one.made(), prompts[row], tokens, condition=int(row))
        assert_same_scores(log_softmax(np.array(found, "float64")), wanted)


# ---- texts -----------------------------------------------------------------------------------


@few
@pytest.mark.parametrize("method", default_and_slow(METHODS, ["beam"]))
@pytest.mark.usefixtures("quick_to_compile")
def test_cached_as_uncached_where_texts_end(one, method):
    """Rows end one after the other, down to the last."""
    found = compare(one, random_prompts(12, seed=6), method, end_id=ENDS)
    flat = [tuple(t) for row in found for t in (row if method != "greedy" else [row])]
    assert len(set(flat)) > 1, "nearly all texts are the same"


@pytest.mark.slow
@pytest.mark.parametrize(("one", "method"), PAIRS, ids=str)
@pytest.mark.usefixtures("quick_to_compile")
def test_cached_as_uncached_for_200_prompts(one, method):
    compare(one, random_prompts(200, seed=8), method)


# The default run has one such comparison in `test_nothing_is_traced_twice`.
@pytest.mark.slow
@pytest.mark.parametrize(("name", "method"), [("albert_unilm", "beam"), ("t5", "greedy")])
def test_compiled_cached_as_uncached(name, method):
    one = writer(name)
    compare(one, random_prompts(16, seed=9), method, one.build())


@pytest.mark.backends
@few
@pytest.mark.usefixtures("quick_to_compile")
def test_greedy_is_what_the_model_says(one):
    """One full run over the whole text of a row tells what is likeliest at every step."""
    prompts = random_prompts(6, seed=10)
    found = generate(one.made(), one.given(prompts), MOST, end_id=ENDS)
    for number, (prompt, text) in enumerate(zip(prompts, found, strict=True)):
        assert_greedy(one, one.made(), prompt, text, MOST, condition=number)


@pytest.mark.parametrize("name", FEW_NAMES)
@pytest.mark.usefixtures("quick_to_compile")
def test_a_plain_loop(name):
    one = writer(name)
    prompts, most = random_prompts(2, seed=11), 3
    wanted = [plain_greedy(one, one.made(), prompt, most) for prompt in prompts]
    for use_cache in (True, False):
        found = generate(one.made(), prompts, most, end_id=ENDS, use_cache=use_cache)
        assert texts(found) == wanted, f"use_cache={use_cache}"

"""Plain loops that write with the models of `writers`, and what a search gets of these.

A row at a time, without padding and by full runs: what the generation of the package must equal.
"""

import numpy as np
from writers import ENDS

from harness import to_numpy
from kerasbert.generation.cached import CachedModel
from kerasbert.generation.graph import DecodingGraph
from kerasbert.generation.prompts import read_prompts
from kerasbert.generation.uncached import UncachedModel


def all_logits(one, model, prompt, new=(), **row):
    """Log-probabilities (n + 1, V) of each new token and the one after, by one full run."""
    inputs = one.row(prompt, new, **row)
    outputs = model(inputs if len(inputs) > 1 else inputs[0], training=False)
    output = outputs if one.output is None else outputs[one.output]
    scores = to_numpy(output)[0, -(len(new) + 1) :].astype("float64")
    return log_softmax(scores) if one.logits else np.log(np.maximum(scores, 1e-30))


def full_logits(one, model, prompt, new=(), **row):
    """Log-probabilities (V,) of the next token, by a full run; -inf for padding."""
    scores = all_logits(one, model, prompt, new, **row)[-1]
    return without_padding(one, scores)


def without_padding(one, scores):
    scores = scores.copy()
    if one.padding is not None:
        scores[..., one.padding] = -np.inf
    return scores


def log_softmax(scores):
    scores = scores - scores.max(axis=-1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))


def assert_same_scores(found, wanted):
    """Compares log-probabilities to 1e-5 of the largest that are looked at."""
    least = -30  # what is less probable says nothing
    found, wanted = (np.maximum(scores, least) for scores in (found, wanted))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * abs(least))


def plain_greedy(one, model, prompt, most, ends=ENDS, **row):
    """The likeliest token at every step."""
    new = []
    while len(new) < most and (not new or new[-1] not in ends):
        new.append(int(full_logits(one, model, prompt, new, **row).argmax()))
    return new


def margin(scores):
    """How far the best token is ahead of the second."""
    second, first = np.sort(scores)[-2:]
    return first - second


def assert_greedy(one, model, prompt, text, most, ends=ENDS, **row):
    """The text is what a plain loop writes: its tokens are the likeliest, by one full run."""
    assert 0 < len(text) <= most
    assert not set(text[:-1].tolist()) & set(ends), "goes on behind an end"
    assert len(text) == most or text[-1] in ends, "stops before an end"
    scores = without_padding(one, all_logits(one, model, prompt, text[:-1].tolist(), **row))
    for step, (own, token) in enumerate(zip(scores, text, strict=True)):
        assert own.argmax() == token, (
            f"{one}: token {step} after the prompt {prompt} is {token} and not {own.argmax()}, "
            f"which is ahead of the second by {margin(own):.6f} and of it by "
            f"{own.max() - own[token]:.6f}"
        )


def decoding(one, model, prompts, slots=1, most=8, cached=True, **given):
    """What a search gets of the model."""
    graph = DecodingGraph(model)
    made = (CachedModel if cached else UncachedModel)(graph)
    return made.start(read_prompts(graph, one.given(prompts, **given)), slots, most)

"""Greedy search, sampling and beam search over anything that keeps to the protocol `Decoding`.

Shapes: R rows of the batch, r rows that still go on, J slots of a row, V vocabulary.
"""

from typing import NamedTuple

import numpy as np

from kerasbert.errors import ConfigError
from kerasbert.generation.beams import Beams
from kerasbert.generation.distributions import draw, log_sum_exp
from kerasbert.generation.processors import Processors

# Stands in a `Step` where a slot had ended before.
NOTHING = -1


class Step(NamedTuple):
    """What one step of greedy search or sampling adds.

    Args:
        rows: int array (r,): rows of the batch, ascending.
        tokens: int array (r, J): the new tokens, `NOTHING` for a slot that has ended.
        scores: float array (r, J, V), by which they were chosen.
    """

    rows: np.ndarray
    tokens: np.ndarray
    scores: np.ndarray

    def log_probabilities(self):
        """Returns those (r, J) of the new tokens, 0 for a slot that has ended."""
        live = self.tokens != NOTHING
        tokens = np.where(live, self.tokens, 0)[..., None]
        chosen = np.take_along_axis(self.scores, tokens, axis=-1) - log_sum_exp(self.scores)
        return np.where(live, chosen[..., 0], 0.0)


def search(decoding, prompts, settings, banned=(), scored=True):
    """Writes texts.

    Args:
        decoding: a `Decoding`, used up by this.
        prompts: a list with an int array for each row: the tokens of its prompt that count
            as text for penalties. They may be empty.
        settings: `SearchSettings`.
        banned: ids that are never written.
        scored: whether the scores of greedy search and samples are wanted, which takes a while
            for many rows; they are 0 otherwise.

    Returns:
        List with an entry for each row: a list of at most `settings.num_return` pairs (int32
        array of the new tokens, with the end token if there was one; score). Beams come best
        first, with the score that ranks them; there are fewer if the row has no more
        different texts. Samples come in order, scored by the sum of the log-probabilities
        they were drawn with.

    Raises:
        ConfigError: if an id is outside the vocabulary, a logit no number, or no token is
            left for a row.
    """
    if settings.method == "beam":
        return _beam_search(decoding, prompts, settings, banned)
    texts = [[[] for _ in range(settings.slots)] for _ in prompts]
    scores = np.zeros((len(prompts), settings.slots))
    for step in steps(decoding, prompts, settings, banned):
        if scored:
            scores[step.rows] += step.log_probabilities()
        for i, j in zip(*np.nonzero(step.tokens != NOTHING), strict=True):
            texts[step.rows[i]][j].append(step.tokens[i, j])
    return [
        [(np.array(text, "int32"), float(score)) for text, score in zip(*pair, strict=True)]
        for pair in zip(texts, scores, strict=True)
    ]


def steps(decoding, prompts, settings, banned=()):
    """Writes texts token by token, by greedy search or sampling.

    Args:
        decoding: as for `search`.
        prompts: as for `search`.
        settings: as for `search`, but not for beams, whose tokens are known at the end only.
        banned: as for `search`.

    Returns:
        Iterator of `Step`.

    Raises:
        ConfigError: as `search`, or if the method is "beam".
    """
    if settings.method == "beam":
        raise ConfigError(
            "method='beam' cannot be followed token by token: it changes its mind.\n"
            "Expected method='greedy' or 'sample'."
        )
    return _steps(decoding, prompts, settings, banned)


def _steps(decoding, prompts, settings, banned):
    slots, ends = settings.slots, settings.end_ids
    logits = _first(decoding, slots)
    process = Processors(settings, prompts, logits.shape[-1], banned)
    choose = _drawing(settings, len(prompts)) if settings.method == "sample" else _best
    rows, texts = np.arange(len(prompts)), np.zeros((len(prompts), slots, 0), "int64")
    live = np.ones((len(prompts), slots), bool)
    for length in range(1, settings.max_new_tokens + 1):
        if not len(rows):
            return
        scores = process(logits, rows, texts, live)
        tokens = choose(scores, rows)
        yield Step(rows, np.where(live, tokens, NOTHING), scores)
        texts = np.concatenate([texts, tokens[..., None]], axis=-1)
        live = live & ~np.isin(tokens, ends)
        keep = np.flatnonzero(live.any(axis=1))
        if length < settings.max_new_tokens and len(keep):
            parents = np.broadcast_to(np.arange(slots) * (length > 1), (len(keep), slots))
            logits = decoding.step(keep, parents, tokens[keep])
        rows, texts, live = rows[keep], texts[keep], live[keep]


def _beam_search(decoding, prompts, settings, banned):
    logits = _first(decoding, 1)
    process = Processors(settings, prompts, logits.shape[-1], banned)
    beams = [Beams(row, settings) for row in range(len(prompts))]
    rows, texts = np.arange(len(prompts)), np.zeros((len(prompts), 1, 0), "int64")
    for length in range(1, settings.max_new_tokens + 1):
        if not len(rows):
            break
        live = np.array([beams[row].scores > -np.inf for row in rows])
        scores = process(logits, rows, texts, live)
        moves = [beams[row].advance(*pair) for row, *pair in zip(rows, scores, texts, strict=True)]
        parents, tokens = np.array(moves).swapaxes(0, 1)
        keep = np.flatnonzero([not beams[row].stopped for row in rows])
        rows, parents, tokens = rows[keep], parents[keep], tokens[keep]
        texts = np.take_along_axis(texts[keep], parents[..., None], axis=1)
        texts = np.concatenate([texts, tokens[..., None]], axis=-1)
        if length < settings.max_new_tokens and len(keep):
            logits = decoding.step(keep, parents, tokens)
    return [
        [(text.astype("int32"), score) for text, score in row.finished[: settings.num_return]]
        for row in beams
    ]


def _first(decoding, slots):
    """The logits after the prompts, (R, J, V)."""
    logits = np.asarray(decoding.first(), "float32")[:, None]
    return np.broadcast_to(logits, (len(logits), slots, logits.shape[-1]))


def _best(scores, rows):
    """The best tokens (r, J); the lower one among equals."""
    return scores.argmax(axis=-1)


def _drawing(settings, rows):
    """A function that draws tokens (r, J).

    Each slot of each row has its own stream of random numbers, so that a text depends neither
    on the other rows nor on how many are drawn beside it.
    """
    streams = [
        [np.random.default_rng(seed) for seed in row.spawn(settings.slots)]
        for row in np.random.SeedSequence(settings.seed).spawn(rows)
    ]

    def choose(scores, rows):
        uniform = np.array([[stream.random() for stream in streams[row]] for row in rows])
        return draw(scores, uniform)

    return choose

"""Plain arithmetic on the scores of a vocabulary: what is best, what stays, what is drawn.

All work on the last axis, and none loops over it. Scores of -inf are impossible tokens.
"""

import numpy as np

# The largest are looked for among the maxima of groups of that many values.
GROUP = 32
# So many of the most probable tokens hold the wanted share of the probability, as a rule.
USUALLY_ENOUGH = 1024


def log_sum_exp(scores):
    """Returns the logarithm of the sum of the exponentials, with the last axis kept as 1."""
    highest = scores.max(axis=-1, keepdims=True)
    highest = np.where(np.isneginf(highest), np.float32(0), highest)
    with np.errstate(divide="ignore", invalid="ignore"):
        return highest + np.log(np.exp(scores - highest).sum(axis=-1, keepdims=True))


def log_softmax(scores):
    """Turns scores into log-probabilities; where all are -inf, they stay it."""
    total = log_sum_exp(scores)
    return scores - np.where(np.isneginf(total), np.float32(0), total)


def largest(scores, count):
    """Finds the largest values of one vector.

    Args:
        scores: float array (V,).
        count: how many.

    Returns:
        Int array of at most `count` positions, best first and the lower one first among
        equals. Fewer, if fewer are above -inf.
    """
    found = np.arange(len(scores))
    columns = len(scores) // GROUP
    if columns > count:
        # As many values as are wanted reach this bound; with luck few others do.
        maxima = scores[: columns * GROUP].reshape(GROUP, columns).max(axis=0)
        found = np.flatnonzero(scores >= np.partition(maxima, -count)[-count])
    values = scores[found]
    possible = values > -np.inf
    found, values = found[possible], values[possible]
    return found[np.argsort(-values, kind="stable")[:count]]


def keep_top_k(scores, top_k):
    """Makes all but the `top_k` largest scores impossible; equals of the last one stay too.

    Args:
        scores: float array (..., V).
        top_k: how many to keep.

    Returns:
        Float array of the same shape.

    Source: as `TopKLogitsWarper` of Hugging Face transformers.
    """
    flat = scores.reshape(-1, scores.shape[-1])
    kept = np.full_like(flat, -np.inf)
    for old, new in zip(flat, kept, strict=True):
        best = largest(old, top_k)
        if len(best):
            np.copyto(new, old, where=old >= old[best[-1]])
    return kept.reshape(scores.shape)


def keep_top_p(scores, top_p):
    """Keeps the fewest tokens that together have a probability of at least `top_p`.

    Args:
        scores: float array (..., V) of logits or log-probabilities.
        top_p: the probability, above 0 and at most 1.

    Returns:
        Float array of the same shape, with the other tokens impossible.

    Source: Holtzman et al. 2020 (arXiv:1904.09751), nucleus sampling.
    """
    if top_p == 1:
        return scores
    flat = scores.reshape(-1, scores.shape[-1])
    total = log_sum_exp(flat)
    kept = np.full_like(flat, -np.inf)
    for old, new, whole in zip(flat, kept, total, strict=True):
        nucleus = _nucleus(old, whole, top_p)
        new[nucleus] = old[nucleus]
    return kept.reshape(scores.shape)


def _nucleus(scores, total, top_p):
    """Positions of the most probable tokens, up to the one that reaches `top_p`."""
    for count in (min(USUALLY_ENOUGH, len(scores)), len(scores)):
        best = largest(scores, count)
        shares = np.exp(scores[best] - total, dtype="float64")
        before = np.cumsum(shares) - shares
        kept = np.count_nonzero(before < top_p)
        if kept < len(best):
            break
    return best[:kept]


def narrow(scores, temperature=1, top_k=None, top_p=None):
    """Applies temperature, top-k and top-p to scores (..., V), in this order."""
    if temperature != 1:
        scores = scores / np.float32(temperature)
    if top_k is not None:
        scores = keep_top_k(scores, top_k)
    return scores if top_p is None else keep_top_p(scores, top_p)


def draw(scores, uniform):
    """Draws a token from each distribution.

    Args:
        scores: float array (..., V) of logits or log-probabilities.
        uniform: float array (...), from 0 to below 1, one random number each.

    Returns:
        Int array (...) of tokens.
    """
    highest = scores.max(axis=-1, keepdims=True)
    sums = np.cumsum(np.exp(scores - highest), axis=-1, dtype="float64")
    whole = sums[..., -1:]
    tokens = (sums <= uniform[..., None] * whole).sum(axis=-1)
    # Rounding may carry the product to the sum itself; what adds nothing is impossible.
    return np.minimum(tokens, (sums < whole).sum(axis=-1))

"""From attention scores to weights: masks, and the ways to normalise.

Shapes: Q queries, K keys.
"""

import math

import numpy as np
from keras import ops

from kerasbert.errors import ConfigError, did_you_mean

NORMALIZATIONS = ("softmax", "squared_relu", "softmax_plus")

# Far below any score, yet finite in float32, in which the weights are computed.
MASKED_SCORE = -1e9

# The number of keys at which softmax_plus is the plain softmax, and the least it counts.
_USUAL_KEYS, _FEWEST_KEYS = 512, 16


def attention_scores(query, keys):
    """Returns the products (…, Q, K) of queries (…, Q, S) with a list of keys (…, K_i, S).

    K is the sum of all K_i. The keys are not joined, which would copy a long memory of them for
    every new token.
    """
    axes = (*range(len(query.shape) - 2), len(query.shape) - 1, len(query.shape) - 2)
    parts = [ops.matmul(query, ops.transpose(part, axes)) for part in keys]
    return parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=-1)


def weighted_sum(weights, values):
    """Returns the sum (…, Q, D) of a list of values (…, K_i, D), weighted by (…, Q, K)."""
    if len(values) == 1:
        return ops.matmul(weights, values[0])
    ends = np.cumsum([part.shape[-2] for part in values])[:-1]
    weights = ops.split(weights, [int(end) for end in ends], axis=-1)
    return sum(ops.matmul(*pair) for pair in zip(weights, values, strict=True))


def attention_weights(scores, mask=None, normalization="softmax"):
    """Turns attention scores into the weights of the values.

    Args:
        scores: float tensor (…, Q, K).
        mask: bool tensor that broadcasts to `scores`; False keys get no weight. A query
            without any key attends to all of them alike, so that no row can give NaN; with
            "squared_relu" to none.
        normalization: "softmax"; "squared_relu" (`relu(s)^2 / n`, n being the number of
            visible keys); or "softmax_plus" (the softmax of `s log(n) / log(512)`, n at
            least 16).

    Returns:
        Float32 tensor of the shape of `scores`.

    Source: Vaswani et al. 2017 (arXiv:1706.03762); Hua et al. 2022 (arXiv:2202.10447) for
    squared_relu; https://kexue.fm/archives/8823 for softmax_plus, bert4keras for its least n.

    Example:
        >>> attention_weights(keras.ops.zeros((1, 4))).numpy().tolist()
        [[0.25, 0.25, 0.25, 0.25]]
    """
    scores = ops.cast(scores, "float32")
    if normalization == "squared_relu":
        weights = ops.square(ops.relu(scores)) / _visible_keys(scores, mask)
        return weights if mask is None else weights * ops.cast(mask, "float32")
    if normalization == "softmax_plus":
        visible = ops.maximum(_visible_keys(scores, mask), _FEWEST_KEYS)
        scores = scores * (ops.log(visible) / math.log(_USUAL_KEYS))
    if mask is not None:
        # Not by a sum: where all keys are hidden, their scores would still get gradients.
        scores = ops.where(mask, scores, MASKED_SCORE)
    return ops.softmax(scores, axis=-1)


def check_normalization(normalization):
    """Refuses a way to normalise that `attention_weights` does not know.

    Raises:
        ConfigError: names it and those that are known.
    """
    if normalization not in NORMALIZATIONS:
        raise ConfigError(
            f"normalization={normalization!r}.{did_you_mean(normalization, NORMALIZATIONS)}\n"
            f"Expected one of: {', '.join(NORMALIZATIONS)}."
        )


def _visible_keys(scores, mask):
    """The number of keys that each query sees, at least 1; broadcasts to `scores`."""
    if mask is None:
        return ops.cast(ops.shape(scores)[-1], "float32")
    visible = ops.sum(ops.cast(mask, "float32"), axis=-1, keepdims=True)
    return ops.maximum(visible, 1.0)

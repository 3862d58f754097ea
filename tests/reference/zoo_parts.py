"""Pieces that the references of ``zoo`` share: who sees whom, positions, attention.

Plain numpy in float64, written from the papers. Loops stand where they make the meaning plain;
nothing here is meant to be fast.

Shapes: B batch, S sequence, F from (query) position, T to (key) position, N heads, K size of a
head's queries and keys, D size of its values, H hidden, C condition.
"""

import math

import numpy as np

from reference.forward import ACTIVATIONS, dense, layer_norm, softmax


def as_float64(arrays):
    """Copy a dict of variables, as float64."""
    return {name: np.asarray(value, np.float64) for name, value in arrays.items()}


def activation_of(config, activation=None):
    """Return the function that the config names, or the one named instead."""
    name = config["hidden_act"] if activation is None else activation
    return ACTIVATIONS[(name or "linear").lower()]


def kernel(v, scope, x):
    """A dense layer that has no bias."""
    return x @ v[f"{scope}/kernel"]


# ---- normalisation -----------------------------------------------------------------------------


def rms_norm(x, epsilon):
    """Divide by the root of the mean square; nothing is subtracted, nothing is learned."""
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + epsilon)


def conditional_norm(v, scope, x, epsilon, condition=None, hidden_act="linear"):
    """Layer normalisation whose scale and offset also depend on a vector, [B, C] or [B, S, C].

    gamma + c W_g and beta + c W_b, with c the condition itself, or, if there is a hidden layer,
    its activation of the condition. A scope without such kernels is normalised as ever. The
    names of the kernels are this file's own; no published checkpoint has them.
    """
    if condition is None or f"{scope}/gamma_dense/kernel" not in v:
        return layer_norm(v, scope, x, epsilon)
    c = np.asarray(condition, np.float64)
    if f"{scope}/hidden_dense/kernel" in v:
        c = ACTIVATIONS[hidden_act](kernel(v, f"{scope}/hidden_dense", c))
    if c.ndim == 2:
        c = c[:, None, :]  # one condition for all positions
    plain = {"n/gamma": np.ones(x.shape[-1]), "n/beta": np.zeros(x.shape[-1])}
    gamma = v[f"{scope}/gamma"] + kernel(v, f"{scope}/gamma_dense", c)
    beta = v[f"{scope}/beta"] + kernel(v, f"{scope}/beta_dense", c)
    return layer_norm(plain, "n", x, epsilon) * gamma + beta


# ---- who sees whom -----------------------------------------------------------------------------


def visible_keys(key_mask, queries=None, causal=False, segments=None):
    """Return [B, F, T] booleans: the keys that every query attends to.

    Args:
        key_mask: [B, T], true for keys that are no padding.
        queries: F; None means T, that is self-attention.
        causal: Whether a query sees no later key.
        segments: [B, T] integers for the mask of UniLM: a query sees the keys whose running sum
            of segment ids is not above its own.

    A query from which all keys are hidden attends to all of them.
    """
    key_mask = np.asarray(key_mask, bool)
    batch, keys = key_mask.shape
    seen = np.zeros((batch, queries or keys, keys), bool)
    for b, i, j in np.ndindex(seen.shape):
        allowed = key_mask[b, j]
        if causal:
            allowed = allowed and j <= i
        if segments is not None:
            allowed = allowed and sum(segments[b][: j + 1]) <= sum(segments[b][: i + 1])
        seen[b, i, j] = allowed
    seen[~seen.any(axis=-1)] = True
    return seen


def weights_over(row, seen):
    """Softmax of the scores [T] of one query over the keys it sees; the others get 0."""
    weights = np.zeros(len(row))
    weights[seen] = softmax(row[seen])
    return weights


# ---- positions ---------------------------------------------------------------------------------


def sinusoids(rows, width, base=10000.0):
    """Return [rows, width]: sin(r / base^(2i/width)) at column 2i, the cosine at 2i + 1."""
    table = np.zeros((rows, width))
    for r in range(rows):
        for column in range(width):
            angle = r / base ** (2 * (column // 2) / width)
            table[r, column] = math.sin(angle) if column % 2 == 0 else math.cos(angle)
    return table


def relative_vectors(queries, keys, width, max_distance):
    """NEZHA: [F, T, width], the fixed vector of the clipped distance from query to key."""
    table = sinusoids(2 * max_distance + 1, width)
    index = np.zeros((queries, keys), int)
    for i, j in np.ndindex(index.shape):
        index[i, j] = min(max(j - i, -max_distance), max_distance) + max_distance
    return table[index]


def rotate(x, base=10000.0):
    """Rotary positions on [B, S, N, K]: the pair (2i, 2i + 1) turns by p base^(-2i/K)."""
    turned = np.zeros_like(x)
    width = x.shape[-1]
    for p in range(x.shape[1]):
        for even in range(0, width, 2):
            angle = p * base ** (-even / width)
            a, b = x[:, p, :, even], x[:, p, :, even + 1]
            turned[:, p, :, even] = a * math.cos(angle) - b * math.sin(angle)
            turned[:, p, :, even + 1] = a * math.sin(angle) + b * math.cos(angle)
    return turned


def hierarchical_table(table, length, alpha=0.4):
    """Extend n position vectors to ``length`` (n^2 at most), as in kexue.fm/archives/7947.

    The new vectors are q[i n + j] = alpha u[i] + (1 - alpha) u[j], and u is such that the first
    n of them are the old ones.
    """
    n = len(table)
    u = [(p - alpha * table[0]) / (1 - alpha) for p in table]
    return np.array([alpha * u[k // n] + (1 - alpha) * u[k % n] for k in range(length)])


def bucket_of(distance, bidirectional, num_buckets=32, max_distance=128):
    """T5's bucket of the distance key position - query position.

    Half of the buckets hold one distance each; the ones after hold ranges that grow like a
    power, up to max_distance; the last holds all beyond. Counted in whole numbers: no logarithm
    is rounded at the border of two buckets.
    """
    offset = 0
    if bidirectional:
        num_buckets //= 2
        offset = num_buckets if distance > 0 else 0  # keys to the right have buckets of their own
        distance = abs(distance)
    else:
        distance = max(-distance, 0)  # keys to the right share the bucket of distance 0
    exact = num_buckets // 2
    if distance < exact:
        return offset + distance
    # The largest m with distance / exact >= (max_distance / exact) ^ (m / wide).
    wide = num_buckets - exact
    m = 0
    while (
        m + 1 < wide and distance**wide * exact ** (m + 1) >= max_distance ** (m + 1) * exact**wide
    ):
        m += 1
    return offset + exact + m


def bucket_bias(table, queries, keys, bidirectional, max_distance=128):
    """T5: [N, F, T], what a table [N, buckets] adds to the scores."""
    bias = np.zeros((len(table), queries, keys))
    for i in range(queries):
        for j in range(keys):
            bias[:, i, j] = table[:, bucket_of(j - i, bidirectional, table.shape[1], max_distance)]
    return bias


# ---- attention ---------------------------------------------------------------------------------


def split_heads(x, heads):
    """[B, S, N * D] -> [B, S, N, D]."""
    return x.reshape(*x.shape[:2], heads, -1)


def attend(query, key, value, visible, *, scaled=True, bias=None, relative=None, previous=None):
    """Attention of every head, without any dense layer.

    Args:
        query, key, value: [B, F, N, K], [B, T, N, K], [B, T, N, D].
        visible: [B, F, T] booleans.
        scaled: Whether scores are divided by the root of K.
        bias: [N, F, T], added to the scores.
        relative: [F, T, K], added to the keys for the scores and to the values for the sum.
        previous: [B, N, F, T], scores of the layer before, added to this one's.

    Returns:
        The heads side by side, [B, F, N * D], and the scores [B, N, F, T] before the softmax.
    """
    batch, queries, heads, key_size = query.shape
    context = np.zeros((batch, queries, heads, value.shape[-1]))
    scores = np.zeros((batch, heads, queries, key.shape[1]))
    for b, n, i in np.ndindex(batch, heads, queries):
        keys, values = key[b, :, n], value[b, :, n]
        if relative is not None:
            keys, values = keys + relative[i], values + relative[i]
        row = keys @ query[b, i, n]
        if scaled:
            row = row / math.sqrt(key_size)
        if bias is not None:
            row = row + bias[n, i]
        if previous is not None:
            row = row + previous[b, n, i]
        scores[b, n, i] = row
        context[b, i, n] = weights_over(row, visible[b, i]) @ values
    return context.reshape(batch, queries, -1), scores


def self_attention(v, scope, x, visible, heads, *, position=None, project=dense, previous=None):
    """Attention under BERT's names, with its output layer; returns it and the scores.

    Args:
        position: None, "rotary", or NEZHA's largest distance, an int.
        project: ``dense``, or ``kernel`` where there are no biases.
    """
    query, key, value = (
        split_heads(project(v, f"{scope}/self/{name}", x), heads)
        for name in ("query", "key", "value")
    )
    relative = None
    if position == "rotary":
        query, key = rotate(query), rotate(key)
    elif position is not None:
        relative = relative_vectors(x.shape[1], x.shape[1], key.shape[-1], position)
    context, scores = attend(query, key, value, visible, relative=relative, previous=previous)
    return project(v, f"{scope}/output/dense", context), scores

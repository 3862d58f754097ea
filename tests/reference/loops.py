"""Halves of Transformer blocks by loops over single numbers, in float64, from the papers.

Weights come as {path relative to the layer: array}, such as ``query/kernel``. Only what the
loops say is meant: nothing here is fast, and nothing is taken from the package.

Shapes: B batch, Q queries, K keys, H hidden size, N heads, D head size, S key size.
"""

import math

import numpy as np

ACTIVATIONS = {
    "linear": lambda x: x,
    "relu": lambda x: np.where(x > 0, x, 0.0),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "swish": lambda x: x / (1 + np.exp(-x)),
    "gelu_erf": np.vectorize(lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}


def dense(v, name, x):
    """A dense layer, with a bias if there is one."""
    return x @ v[f"{name}/kernel"] + v.get(f"{name}/bias", 0.0)


def rotated(vector, waves):
    """Pairs (2i, 2i + 1) as complex numbers, turned by the angle of their sine and cosine."""
    turned = np.zeros(len(vector))
    for i in range(0, len(vector), 2):
        pair = complex(vector[i], vector[i + 1]) * complex(waves[i + 1], waves[i])
        turned[i : i + 2] = pair.real, pair.imag
    return turned


def weights_of_scores(scores, visible, normalization="softmax"):
    """The weights of the keys for one query: scores (K,), visible (K,) of bools."""
    seen = [j for j in range(len(scores)) if visible[j]]
    weights = np.zeros(len(scores))
    if normalization == "squared_relu":
        for j in seen:
            weights[j] = max(scores[j], 0.0) ** 2 / len(seen)
        return weights
    if not seen:
        return weights + 1 / len(scores)
    factor = 1.0
    if normalization == "softmax_plus":
        factor = math.log(max(len(seen), 16)) / math.log(512)
    highest = max(scores[j] for j in seen)
    for j in seen:
        weights[j] = math.exp(factor * (scores[j] - highest))
    return weights / weights.sum()


def attention(
    v,
    query,
    key,
    value,
    heads,
    visible=None,
    added=None,
    p_bias=None,
    position=None,
    scaled=True,
    normalization="softmax",
):
    """Multi-head attention; returns the output (B, Q, ·) and the scores (B, N, Q, K).

    Args:
        visible: bool array (B, 1 or Q, K) or (B, 1 or N, 1 or Q, K).
        added: float array of the same form that is added to the returned scores.
        p_bias: None, "rotary", "typical_relative" or "t5_relative", with its `position`.
    """
    batch, queries, keys = len(query), query.shape[1], key.shape[1]
    grid = (batch, heads, queries, keys)
    visible = _over_heads(np.ones((1, 1, 1), bool) if visible is None else visible, grid)
    added = _over_heads(np.zeros((1, 1, 1)) if added is None else added, grid)
    q, k, w = dense(v, "query", query), dense(v, "key", key), dense(v, "value", value)
    size, width = q.shape[-1] // heads, w.shape[-1] // heads
    scores, context = np.zeros(grid), np.zeros((batch, queries, heads * width))
    for b, n, i in np.ndindex(batch, heads, queries):
        for j in range(keys):
            one = q[b, i, n * size : (n + 1) * size]
            other = k[b, j, n * size : (n + 1) * size]
            if p_bias == "rotary":
                waves = position[b if len(position) > 1 else 0]
                one, other = rotated(one, waves[i]), rotated(other, waves[j])
            if p_bias == "typical_relative":
                other = other + position[i, j]
            scores[b, n, i, j] = sum(one[d] * other[d] for d in range(size))
            if p_bias == "t5_relative":
                scores[b, n, i, j] += position[i, j, n]
            scores[b, n, i, j] /= math.sqrt(size) if scaled else 1.0
        row = weights_of_scores(scores[b, n, i] + added[b, n, i], visible[b, n, i], normalization)
        for j in range(keys):
            seen = w[b, j, n * width : (n + 1) * width]
            if p_bias == "typical_relative":
                seen = seen + position[i, j]
            context[b, i, n * width : (n + 1) * width] += row[j] * seen
    return dense(v, "output", context), scores


def _over_heads(array, grid):
    array = array[:, None] if array.ndim == 3 else array
    return np.broadcast_to(array, grid)


def feed_forward(v, x, activation):
    """Two dense layers, or with a list of activations the product of several, and one more."""
    if isinstance(activation, str):
        inner = ACTIVATIONS[activation](dense(v, "intermediate", x))
    else:
        inner = np.ones(1)
        for index, name in enumerate(activation):
            inner = inner * ACTIVATIONS[name](dense(v, f"intermediate_{index}", x))
    return dense(v, "output", inner)


def norm(
    v,
    x,
    condition=None,
    name="",
    epsilon=1e-12,
    zero_mean=True,
    unit_variance=True,
    activation="linear",
):
    """Layer normalisation row by row; gamma and beta as far as there are weights of that name."""
    y = np.zeros(x.shape)
    for place in np.ndindex(*x.shape[:-1]):
        row = x[place]
        if zero_mean:
            row = row - sum(row) / len(row)
        if unit_variance:
            row = row / math.sqrt(sum(number**2 for number in row) / len(row) + epsilon)
        gamma, beta = v.get(f"{name}gamma", 1.0), v.get(f"{name}beta", 0.0)
        if condition is not None:
            c = condition[place[0]] if condition.ndim == 2 else condition[place]
            if f"{name}hidden_dense/kernel" in v:
                c = ACTIVATIONS[activation](c @ v[f"{name}hidden_dense/kernel"])
            if f"{name}gamma_dense/kernel" in v:
                gamma = gamma + c @ v[f"{name}gamma_dense/kernel"]
            if f"{name}beta_dense/kernel" in v:
                beta = beta + c @ v[f"{name}beta_dense/kernel"]
        y[place] = row * gamma + beta
    return y


def residual(v, x, transform, placement, **arguments):
    """`transform` with its residual connection and norms, see `kerasbert.layers.residual`."""
    before = {"pre": "norm/", "both": "inner_norm/"}.get(placement)
    y = x + transform(x if before is None else norm(v, x, name=before, **arguments))
    return norm(v, y, name="norm/", **arguments) if placement in ("post", "both") else y

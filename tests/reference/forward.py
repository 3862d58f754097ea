"""Forward pass of BERT, ALBERT and the early albert_zh models in plain numpy, float64.

Written from the papers and from recorded outputs of the original TensorFlow 1 programs. It
imports nothing of the package, and it reads variables by their checkpoint names, so that a
mistake in the package's name tables, layers or models cannot be repeated here.

Three dialects, told apart by the variable names:

* ``google_bert``: blocks ``layer_0``, ``layer_1``, ...; all of width H.
* ``google_albert``: blocks ``group_g/inner_group_j``; the tables are E wide, and a dense layer
  with a bias brings their normalised sum to H (it is absent when E equals H).
* ``albert_zh``: a second table ``word_embeddings_2`` brings the words alone to H, before the
  sum; blocks ``layer_shared``, or ``layer_0``, ... in an un-shared file. The config's
  ``ln_type`` says where the normalisation stands, the names do not.

Shapes: B batch, F from (query) position, T to (key) position, S sequence length (= F = T),
N heads, D head size, H hidden (= N * D), I intermediate, E embedding, V vocabulary, P most
positions, G groups, J blocks in a group, L layers.
"""

import math

import numpy as np

MASK_BIAS = -10000.0  # added to a hidden key's score; the originals use neither -inf nor -1e9


# ---- small pieces --------------------------------------------------------------------------


def gelu_tanh(x):
    """GELU by the tanh formula: what "gelu" means in BERT's and ALBERT's configs."""
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def gelu_erf(x):
    """GELU by the Gaussian's distribution function: what "gelu" means elsewhere."""
    return 0.5 * x * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0)))


def swish(x):
    """x times its own sigmoid."""
    return x / (1.0 + np.exp(-x))


ACTIVATIONS = {
    "gelu": gelu_tanh,
    "gelu_tanh": gelu_tanh,
    "gelu_new": gelu_tanh,
    "gelu_erf": gelu_erf,
    "relu": lambda x: np.maximum(x, 0.0),
    "swish": swish,
    "tanh": np.tanh,
    "linear": lambda x: x,
}


def softmax(x):
    """Softmax over the last axis."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def dense(v, scope, x):
    """Kernels are stored [in, out]."""
    if v[f"{scope}/kernel"].ndim != 2:
        raise NotImplementedError(f"{scope}/kernel is no matrix: grouped layers are not covered")
    return x @ v[f"{scope}/kernel"] + v[f"{scope}/bias"]


def layer_norm(v, scope, x, epsilon):
    """Normalise over the last axis; the variance is the biased one."""
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * v[f"{scope}/gamma"] + v[f"{scope}/beta"]


# ---- which names -----------------------------------------------------------------------------


def dialect_of(names):
    """Return "google_bert", "google_albert" or "albert_zh"."""
    if "bert/embeddings/word_embeddings_2" in names:
        return "albert_zh"
    if any(name.startswith("bert/encoder/transformer/group_") for name in names):
        return "google_albert"
    if any(name.startswith("bert/encoder/layer_") for name in names):
        return "google_bert"
    raise ValueError("these names are none of google_bert, google_albert, albert_zh")


def group_of(layer, num_layers, num_groups):
    """Group of a layer, in floating point like the original: it is not always a floor."""
    return int(layer / num_layers * num_groups)


def block_names(names, config):
    """Return one {role: variable scope} for every block that runs, in running order."""
    depth = config["num_hidden_layers"]
    if dialect_of(names) == "google_albert":
        groups, inner = config.get("num_hidden_groups", 1), config.get("inner_group_num", 1)
        scopes = [
            f"bert/encoder/transformer/group_{group_of(i, depth, groups)}/inner_group_{j}"
            for i in range(depth)
            for j in range(inner)
        ]
        suffixes = {
            "attention": "attention_1/self",
            "attention_output": "attention_1/output/dense",
            "attention_norm": "LayerNorm",
            "ffn_intermediate": "ffn_1/intermediate/dense",
            "ffn_output": "ffn_1/intermediate/output/dense",
            "ffn_norm": "LayerNorm_1",
        }
    else:
        shared = any(name.startswith("bert/encoder/layer_shared/") for name in names)
        scopes = [f"bert/encoder/layer_{'shared' if shared else i}" for i in range(depth)]
        suffixes = {
            "attention": "attention/self",
            "attention_output": "attention/output/dense",
            "attention_norm": "attention/output/LayerNorm",
            "ffn_intermediate": "intermediate/dense",
            "ffn_output": "output/dense",
            "ffn_norm": "output/LayerNorm",
        }
    return [{role: f"{scope}/{end}" for role, end in suffixes.items()} for scope in scopes]


# ---- the network -----------------------------------------------------------------------------


def embed(v, dialect, input_ids, segment_ids, epsilon):
    """Return (normalised sum, input of the first block)."""
    scope = "bert/embeddings"
    length = input_ids.shape[1]
    positions = v[f"{scope}/position_embeddings"]  # [P, E], albert_zh [P, H]
    if length > len(positions):
        raise ValueError(f"{length} tokens, but the file knows {len(positions)} positions")
    x = v[f"{scope}/word_embeddings"][input_ids]  # [B, S, E]
    if dialect == "albert_zh":
        x = x @ v[f"{scope}/word_embeddings_2"]  # [B, S, E] @ [E, H] -> [B, S, H]
    x = x + v[f"{scope}/token_type_embeddings"][segment_ids] + positions[:length]
    x = layer_norm(v, f"{scope}/LayerNorm", x, epsilon)
    projection = "bert/encoder/embedding_hidden_mapping_in"
    if f"{projection}/kernel" in v:
        return x, dense(v, projection, x)  # [B, S, E], [B, S, H]
    return x, x


def attend(v, scope, x, mask, num_heads):
    """Self-attention up to, and without, the output's dense layer: [B, S, H] -> [B, S, H]."""
    batch, length, hidden = x.shape
    head_size = hidden // num_heads

    def split(y):  # [B, S, H] -> [B, N, S, D]
        return y.reshape(batch, length, num_heads, head_size).transpose(0, 2, 1, 3)

    query, key, value = (split(dense(v, f"{scope}/{n}", x)) for n in ("query", "key", "value"))
    scores = query @ key.transpose(0, 1, 3, 2) / math.sqrt(head_size)  # [B, N, F, T]
    scores = scores + (1.0 - mask[:, None, None, :]) * MASK_BIAS
    context = softmax(scores) @ value  # [B, N, F, D]
    return context.transpose(0, 2, 1, 3).reshape(batch, length, hidden)


def run_block(v, names, x, mask, num_heads, act, pre_norm, epsilon):
    """One transformer block, [B, S, H] -> [B, S, H]."""

    def attention(y):
        return dense(
            v, names["attention_output"], attend(v, names["attention"], y, mask, num_heads)
        )

    def feed_forward(y):  # through [B, S, I]
        return dense(v, names["ffn_output"], act(dense(v, names["ffn_intermediate"], y)))

    if pre_norm:
        x = x + attention(layer_norm(v, names["attention_norm"], x, epsilon))
        return x + feed_forward(layer_norm(v, names["ffn_norm"], x, epsilon))
    x = layer_norm(v, names["attention_norm"], x + attention(x), epsilon)
    return layer_norm(v, names["ffn_norm"], x + feed_forward(x), epsilon)


def mlm_logits(v, dialect, x, act, epsilon):
    """Scores of every vocabulary entry at every position, before the softmax: [B, S, V]."""
    scope = "cls/predictions"
    h = act(dense(v, f"{scope}/transform/dense", x))  # [B, S, E], albert_zh [B, S, H]
    h = layer_norm(v, f"{scope}/transform/LayerNorm", h, epsilon)
    if dialect == "albert_zh":
        h = h @ v["bert/embeddings/word_embeddings_2"].T  # [B, S, H] @ [H, E]
    return h @ v["bert/embeddings/word_embeddings"].T + v[f"{scope}/output_bias"]


def forward(
    arrays,
    config,
    input_ids,
    segment_ids=None,
    input_mask=None,
    *,
    activation=None,
    epsilon=1e-12,
):
    """Run the model whose variables are given; no dropout.

    Args:
        arrays: {checkpoint name: array}. A leading ``module/`` is taken off; variables that
            play no part (optimizer slots, other heads) are ignored.
        config: The original JSON config, as a dict.
        input_ids: [B, S] integers.
        segment_ids: [B, S]; None means all 0.
        input_mask: [B, S], 1 for keys that may be seen, 0 for hidden ones; None means all 1.
        activation: A key of ``ACTIVATIONS`` to use instead of the config's ``hidden_act``, in
            the blocks and in the masked-LM head.
        epsilon: Added to the variance in every layer normalisation.

    Returns:
        A dict of float64 arrays. Always: ``embedding_norm`` [B, S, E] (H for BERT and
        albert_zh), ``embedding_output`` [B, S, H] (input of the first block), ``layer_0``, ...
        one for each block that runs (L * J of them), ``sequence_output`` [B, S, H]. If their
        variables are there: ``pooled_output`` [B, H], ``mlm_logits`` [B, S, V],
        ``nsp_logits`` [B, 2].
    """
    v = {k.removeprefix("module/"): np.asarray(a, np.float64) for k, a in arrays.items()}
    dialect = dialect_of(v)
    name = config["hidden_act"] if activation is None else activation
    act = ACTIVATIONS[(name or "linear").lower()]
    pre_norm = dialect == "albert_zh" and config["ln_type"] not in (None, "postln")
    input_ids = np.asarray(input_ids)
    segment_ids = np.zeros_like(input_ids) if segment_ids is None else np.asarray(segment_ids)
    mask = np.asarray(np.ones_like(input_ids) if input_mask is None else input_mask, np.float64)

    out = {}
    normed, x = embed(v, dialect, input_ids, segment_ids, epsilon)
    out["embedding_norm"], out["embedding_output"] = normed, x
    for i, names in enumerate(block_names(v, config)):
        x = run_block(v, names, x, mask, config["num_attention_heads"], act, pre_norm, epsilon)
        out[f"layer_{i}"] = x
    out["sequence_output"] = x  # the pre-norm model has no normalisation at its end
    if "bert/pooler/dense/kernel" in v:
        out["pooled_output"] = np.tanh(dense(v, "bert/pooler/dense", x[:, 0]))
    if "cls/predictions/transform/dense/kernel" in v:
        out["mlm_logits"] = mlm_logits(v, dialect, x, act, epsilon)
    if "cls/seq_relationship/output_weights" in v:
        weights = v["cls/seq_relationship/output_weights"]  # [2, H]
        out["nsp_logits"] = out["pooled_output"] @ weights.T + v["cls/seq_relationship/output_bias"]
    return out

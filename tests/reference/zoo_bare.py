"""References of the models without biases, scales and offsets: RoFormer V2 and GAU-alpha.

Returned, as a dict: ``hidden_states`` (the input of the first block first), ``sequence_output``,
``mlm_logits`` and ``mlm`` [B, S, V].
"""

import math

import numpy as np

from reference.forward import softmax, swish
from reference.zoo_bert import inputs_of
from reference.zoo_parts import (
    activation_of,
    as_float64,
    kernel,
    rms_norm,
    rotate,
    self_attention,
    visible_keys,
    weights_over,
)

#: Brings H back to E before the token table. Published files have E = H and no such variable, so
#: the name is this file's own.
OUTPUT_MAPPING = "cls/predictions/output_mapping"

MAPPING = "bert/encoder/embedding_hidden_mapping_in"


def embed(v, ids, segments, epsilon):
    """Tokens and segments, no positions."""
    scope = "bert/embeddings"
    x = v[f"{scope}/word_embeddings"][ids] + v[f"{scope}/token_type_embeddings"][segments]
    x = rms_norm(x, epsilon)
    return kernel(v, MAPPING, x) if f"{MAPPING}/kernel" in v else x


def with_mlm(v, states):
    """Return all outputs; the masked-LM head has nothing of its own but the way back to E."""
    x = states[-1]
    if f"{OUTPUT_MAPPING}/kernel" in v:
        x = kernel(v, OUTPUT_MAPPING, x)
    logits = x @ v["bert/embeddings/word_embeddings"].T
    return {
        "hidden_states": states,
        "sequence_output": states[-1],
        "mlm_logits": logits,
        "mlm": softmax(logits),
    }


def roformer_v2(
    arrays, config, ids, segments=None, *, mask=None, activation=None, epsilon=1e-7, causal=False
):
    """RoFormer V2: rotary, post-norm, and nothing is learned but matrices."""
    v, act = as_float64(arrays), activation_of(config, activation)
    ids, segments, mask = inputs_of(ids, segments, mask)
    visible = visible_keys(mask, causal=causal)
    x = embed(v, ids, segments, epsilon)
    states = [x]
    for layer in range(config["num_hidden_layers"]):
        scope = f"bert/encoder/layer_{layer}"
        attended, _ = self_attention(
            v,
            f"{scope}/attention",
            x,
            visible,
            config["num_attention_heads"],
            position="rotary",
            project=kernel,
        )
        x = rms_norm(x + attended, epsilon)
        wide = act(kernel(v, f"{scope}/intermediate/dense", x))
        x = rms_norm(x + kernel(v, f"{scope}/output/dense", wide), epsilon)
        states.append(x)
    return with_mlm(v, states)


def gated_attention(v, scope, x, visible):
    """The gated attention unit of arXiv:2202.10447, one head, with "softmax_plus" weights.

    The scores are multiplied by log(n) / log(512), n being the number of keys that the query
    sees, 16 if it sees fewer.
    """
    units = len(v[f"{scope}/o_dense/kernel"])
    mixed = swish(kernel(v, f"{scope}/i_dense", x))
    u, value, z = mixed[..., :units], mixed[..., units : 2 * units], mixed[..., 2 * units :]
    query = z * v[f"{scope}/q_scaleoffset/gamma"]
    key = z * v[f"{scope}/k_scaleoffset/gamma"]
    query, key = (rotate(y[:, :, None, :])[:, :, 0, :] for y in (query, key))
    gathered = np.zeros_like(value)
    for b, i in np.ndindex(x.shape[:2]):
        row = key[b] @ query[b, i] / math.sqrt(z.shape[-1])
        seen = visible[b, i]
        row = row * math.log(max(int(seen.sum()), 16)) / math.log(512)
        gathered[b, i] = weights_over(row, seen) @ value[b]
    return kernel(v, f"{scope}/o_dense", u * gathered)


def gau_alpha(arrays, config, ids, segments=None, *, mask=None, epsilon=1e-7, causal=False):
    """GAU-alpha: gated attention units alone, no feed-forward layers; U units, key size K.

    The activation is swish whatever the config says, and U and K are read off the variables.
    """
    v = as_float64(arrays)
    ids, segments, mask = inputs_of(ids, segments, mask)
    visible = visible_keys(mask, causal=causal)
    x = embed(v, ids, segments, epsilon)
    states = [x]
    for layer in range(config["num_hidden_layers"]):
        x = rms_norm(
            x + gated_attention(v, f"GAU_alpha/encoder/layer_{layer}/gau", x, visible), epsilon
        )
        states.append(x)
    return with_mlm(v, states)

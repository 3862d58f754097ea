"""References of the decoders with one stack: GPT, GPT-2, and the Chinese GPT-2 "GPT2_ML".

Returned, as a dict: ``hidden_states`` (the input of the first block first, then every block's
output), ``sequence_output`` (after the last normalisation, where the model has one),
``lm_logits`` and ``lm`` [B, S, V]. No token sees a later one, nor padding.
"""

from reference.forward import dense, layer_norm, softmax
from reference.zoo_bert import Settings, inputs_of, post_norm_blocks
from reference.zoo_parts import (
    activation_of,
    as_float64,
    attend,
    self_attention,
    split_heads,
    visible_keys,
)


def outputs(states, final, table):
    """Return all outputs; the token table [V, H] is the language model's head, without bias."""
    logits = final @ table.T
    return {
        "hidden_states": states,
        "sequence_output": final,
        "lm_logits": logits,
        "lm": softmax(logits),
    }


def gpt(arrays, config, ids, segments=None, *, mask=None, activation=None, epsilon=1e-12):
    """GPT: blocks like BERT's, no normalisation of the embeddings.

    A file without a segment table has no segments.
    """
    v = as_float64(arrays)
    ids, segments, mask = inputs_of(ids, segments, mask)
    scope = "gpt/embeddings"
    words = v[f"{scope}/word_embeddings"]
    x = words[ids] + v[f"{scope}/position_embeddings"][: ids.shape[1]]
    if f"{scope}/token_type_embeddings" in v:
        x = x + v[f"{scope}/token_type_embeddings"][segments]
    act, visible = activation_of(config, activation), visible_keys(mask, causal=True)
    settings = Settings(config["num_attention_heads"], act, visible, epsilon)
    states = post_norm_blocks(v, "gpt/transformer", x, config["num_hidden_layers"], settings)
    return outputs(states, states[-1], words)


def gpt2(arrays, config, ids, *, mask=None, activation=None, epsilon=1e-5):
    """GPT-2: every block normalises what it reads, and the last output is normalised."""
    v, act = as_float64(arrays), activation_of(config, activation)
    ids, _, mask = inputs_of(ids, None, mask)
    visible = visible_keys(mask, causal=True)
    words = v["gpt/embeddings/word_embeddings"]
    x = words[ids] + v["gpt/embeddings/position_embeddings"][: ids.shape[1]]
    states = [x]
    for layer in range(config["num_hidden_layers"]):
        scope = f"gpt/transformer/layer_{layer}"
        y = layer_norm(v, f"{scope}/attention/input/LayerNorm", x, epsilon)
        attended, _ = self_attention(
            v, f"{scope}/attention", y, visible, config["num_attention_heads"]
        )
        x = x + attended
        y = layer_norm(v, f"{scope}/input/LayerNorm", x, epsilon)
        wide = act(dense(v, f"{scope}/intermediate/dense", y))
        x = x + dense(v, f"{scope}/output/dense", wide)
        states.append(x)
    return outputs(states, layer_norm(v, "gpt/output/LayerNorm", x, epsilon), words)


def gpt2_ml(arrays, config, ids, *, mask=None, activation=None, epsilon=1e-5):
    """GPT2_ML, which is Grover: one normalisation between the sub-layers, one after both.

    The feed-forward layer reads the normalised sum, but is added to the sum itself.
    """
    v, act = as_float64(arrays), activation_of(config, activation)
    ids, _, mask = inputs_of(ids, None, mask)
    visible = visible_keys(mask, causal=True)
    words = v["newslm/embeddings/word_embed"]
    x = words[ids] + v["newslm/embeddings/pos_embed"][: ids.shape[1]]
    x = layer_norm(v, "newslm/embeddings/LayerNorm_embed_norm", x, epsilon)
    states = [x]
    for layer in range(config["num_hidden_layers"]):
        scope = f"newslm/layer{layer:02d}"
        query, key, value = (
            split_heads(dense(v, f"{scope}/{name}_layer", x), config["num_attention_heads"])
            for name in ("query", "key", "value")
        )
        context, _ = attend(query, key, value, visible)
        x = x + dense(v, f"{scope}/context_projection_layer", context)
        y = layer_norm(v, f"{scope}/LayerNorm_mlp_ln0", x, epsilon)
        wide = act(dense(v, f"{scope}/intermediate", y))
        x = x + dense(v, f"{scope}/output", wide)
        x = layer_norm(v, f"{scope}/LayerNorm_mlp_ln1", x, epsilon)
        states.append(x)
    return outputs(states, x, words)

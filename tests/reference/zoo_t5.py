"""Reference of T5 (Raffel et al. 2020) in three layouts: "t5.1.0", "t5.1.1" and "mt5.1.1".

Shapes: B batch, F decoder length, T encoder length, N heads, K head size, V vocabulary.
Matrices are [in, out]; a table of relative positions is [N, buckets]; the separate head of the
later layouts, ``decoder/logits/kernel``, is [H, V].

``t5`` takes, and nothing else of the config than its numbers of heads and layers is read:

* ``encoder_ids``, ``decoder_ids``: [B, T] and [B, F]; 0 is padding;
* ``layout``: one of ``LAYOUTS``;
* ``encoder_mask``, ``decoder_mask``: true for keys that are no padding; None means ids other
  than 0, and the decoder's first token whatever its id;
* ``cross_position_bias``: whether the decoder's table also acts on the way to the encoder;
* ``residual_scores``: whether each self-attention adds the scores of the one before it in its
  stack to its own (RealFormer);
* ``scale_output``: whether the decoder's output is multiplied by H^-0.5 before the head; None
  means only where the head is the token table;
* ``activation``: None means relu, or GELU by tanh where the layout has a gate;
* ``epsilon``: of every normalisation.

It returns a dict: ``encoder_states`` and ``decoder_states``, lists with the input of the first
block first; ``encoder_output`` and ``decoder_output``, normalised and not scaled; ``lm_logits``
and ``lm`` [B, F, V].
"""

import numpy as np

from reference.forward import ACTIVATIONS, softmax
from reference.zoo_parts import (
    as_float64,
    attend,
    bucket_bias,
    rms_norm,
    split_heads,
    visible_keys,
)

LAYOUTS = ("t5.1.0", "t5.1.1", "mt5.1.1")


class Stack:
    """The encoder or the decoder: its variables, names and sizes."""

    def __init__(self, v, name, config, layout, activation, epsilon, residual_scores):
        if layout not in LAYOUTS:
            raise ValueError(f"unknown layout {layout!r}; the layouts are {LAYOUTS}")
        self.v, self.name, self.epsilon = v, name, epsilon
        self.residual_scores = residual_scores
        self.gated = layout != "t5.1.0"
        self.act = ACTIVATIONS[activation or ("gelu_tanh" if self.gated else "relu")]
        self.norm_name = "rms_norm" if layout == "mt5.1.1" else "layer_norm"
        self.final_name = "rms_norm" if layout == "mt5.1.1" else "final_layer_norm"
        self.heads, self.depth = config["num_attention_heads"], config["num_hidden_layers"]
        first = f"{name}/block_000/layer_000/SelfAttention/relative_attention_bias"
        self.relative_table = v[first]  # [N, buckets], of all blocks

    def scope(self, block, layer):
        return f"{self.name}/block_{block:03d}/layer_{layer:03d}"

    def norm(self, scope, x):
        return rms_norm(x, self.epsilon) * self.v[f"{scope}/scale"]

    def attention(self, block, layer, kind, x, memory, visible, bias, previous=None):
        """x plus what its normalised self gathers, and the scores; no memory means from itself."""
        scope = f"{self.scope(block, layer)}/{kind}"
        y = self.norm(f"{self.scope(block, layer)}/{self.norm_name}", x)
        read = y if memory is None else memory
        query = split_heads(y @ self.v[f"{scope}/q"], self.heads)
        key = split_heads(read @ self.v[f"{scope}/k"], self.heads)
        value = split_heads(read @ self.v[f"{scope}/v"], self.heads)
        context, scores = attend(
            query,
            key,
            value,
            visible,
            scaled=False,
            bias=bias,
            previous=previous if self.residual_scores else None,
        )
        return x + context @ self.v[f"{scope}/o"], scores

    def feed_forward(self, block, layer, x):
        scope = f"{self.scope(block, layer)}/DenseReluDense"
        y = self.norm(f"{self.scope(block, layer)}/{self.norm_name}", x)
        if self.gated:
            wide = self.act(y @ self.v[f"{scope}/wi_0/kernel"]) * (
                y @ self.v[f"{scope}/wi_1/kernel"]
            )
        else:
            wide = self.act(y @ self.v[f"{scope}/wi/kernel"])
        return x + wide @ self.v[f"{scope}/wo/kernel"]

    def final_norm(self, x):
        return self.norm(f"{self.name}/{self.final_name}", x)


def encode(stack, ids, mask):
    """Return the list of states and the normalised last one."""
    x = stack.v["shared/embedding"][ids]
    visible = visible_keys(mask)
    bias = bucket_bias(stack.relative_table, ids.shape[1], ids.shape[1], bidirectional=True)
    states, scores = [x], None
    for block in range(stack.depth):
        x, scores = stack.attention(block, 0, "SelfAttention", x, None, visible, bias, scores)
        x = stack.feed_forward(block, 1, x)
        states.append(x)
    return states, stack.final_norm(x)


def decode(stack, ids, mask, memory, memory_mask, cross_position_bias):
    """Return the list of states and the normalised last one."""
    length, read = ids.shape[1], memory.shape[1]
    x = stack.v["shared/embedding"][ids]
    visible = visible_keys(mask, causal=True)
    memory_visible = visible_keys(memory_mask, queries=length)
    bias = bucket_bias(stack.relative_table, length, length, bidirectional=False)
    cross_bias = None
    if cross_position_bias:
        cross_bias = bucket_bias(stack.relative_table, length, read, bidirectional=False)
    states, scores = [x], None
    for block in range(stack.depth):
        x, scores = stack.attention(block, 0, "SelfAttention", x, None, visible, bias, scores)
        x, _ = stack.attention(block, 1, "EncDecAttention", x, memory, memory_visible, cross_bias)
        x = stack.feed_forward(block, 2, x)
        states.append(x)
    return states, stack.final_norm(x)


def first_seen(ids):
    """The decoder's mask: its first token is padding's id and is seen all the same."""
    mask = ids != 0
    mask[:, 0] = True
    return mask


def t5(
    arrays,
    config,
    encoder_ids,
    decoder_ids,
    *,
    layout="t5.1.0",
    encoder_mask=None,
    decoder_mask=None,
    cross_position_bias=False,
    residual_scores=False,
    scale_output=None,
    activation=None,
    epsilon=1e-6,
):
    """Run encoder and decoder; the module says what goes in and what comes back."""
    v = as_float64(arrays)
    encoder_ids, decoder_ids = np.asarray(encoder_ids), np.asarray(decoder_ids)
    encoder_mask = encoder_ids != 0 if encoder_mask is None else encoder_mask
    decoder_mask = first_seen(decoder_ids) if decoder_mask is None else decoder_mask
    encoder, decoder = (
        Stack(v, name, config, layout, activation, epsilon, residual_scores)
        for name in ("encoder", "decoder")
    )
    out = {}
    out["encoder_states"], memory = encode(encoder, encoder_ids, encoder_mask)
    out["decoder_states"], x = decode(
        decoder, decoder_ids, decoder_mask, memory, encoder_mask, cross_position_bias
    )
    out["encoder_output"], out["decoder_output"] = memory, x
    separate = layout != "t5.1.0"
    if not separate if scale_output is None else scale_output:
        x = x * x.shape[-1] ** -0.5
    head = v["decoder/logits/kernel"] if separate else v["shared/embedding"].T
    out["lm_logits"] = x @ head
    out["lm"] = softmax(out["lm_logits"])
    return out

"""References of BERT's relatives that keep its names, biases and normalisations.

``bert`` with the options of its masks, positions and norms; ``nezha``; ``roformer``. Each takes
{checkpoint name: array}, a config, token ids and segment ids [B, S], and returns a dict:

* ``hidden_states``: a list, the input of the first block first, then every block's output;
* ``sequence_output``: the last of them;
* if the variables are there, ``pooled_output`` [B, H], ``nsp_logits`` and ``nsp`` [B, 2],
  ``mlm_logits`` and ``mlm`` [B, S, V], the shorter names for what a softmax makes of them.
"""

from dataclasses import dataclass

import numpy as np

from reference.forward import dense, softmax
from reference.zoo_parts import (
    activation_of,
    as_float64,
    conditional_norm,
    hierarchical_table,
    self_attention,
    visible_keys,
)


@dataclass
class Settings:
    """What all blocks of one run have in common."""

    heads: int
    act: object
    visible: object
    """[B, F, T] booleans."""
    epsilon: float = 1e-12
    """Of every layer normalisation."""
    position: object = None
    """None for the table of positions, "rotary", or NEZHA's largest distance."""
    condition: object = None
    """[B, C] or [B, S, C] for conditional layer normalisation."""
    condition_act: str = "linear"
    """Of the hidden layer before it, if the variables have one."""
    residual_scores: bool = False
    """RealFormer: a layer adds the scores of the one before, which hold those of all before it."""

    def norm(self, v, scope, x):
        return conditional_norm(v, scope, x, self.epsilon, self.condition, self.condition_act)


def inputs_of(ids, segments, mask):
    """Return ids, segment ids (0 if there are none) and mask (no padding id 0 if none)."""
    ids = np.asarray(ids)
    segments = np.zeros_like(ids) if segments is None else np.asarray(segments)
    return ids, segments, np.asarray(ids != 0 if mask is None else mask, bool)


def post_norm_blocks(v, scope, x, depth, settings):
    """Run the blocks ``<scope>/layer_0``, ...; return the list of x and all outputs."""
    states, scores = [x], None
    for layer in range(depth):
        name = f"{scope}/layer_{layer}"
        attended, scores = self_attention(
            v,
            f"{name}/attention",
            x,
            settings.visible,
            settings.heads,
            position=settings.position,
            previous=scores if settings.residual_scores else None,
        )
        x = settings.norm(v, f"{name}/attention/output/LayerNorm", x + attended)
        wide = settings.act(dense(v, f"{name}/intermediate/dense", x))
        x = settings.norm(v, f"{name}/output/LayerNorm", x + dense(v, f"{name}/output/dense", wide))
        states.append(x)
    return states


def embed(v, ids, segments, settings, hierarchical, shared_segments):
    """Return the input of the first block; a file without a position table has no positions."""
    scope = "bert/embeddings"
    words = v[f"{scope}/word_embeddings"]
    kinds = words if shared_segments else v[f"{scope}/token_type_embeddings"]
    x = words[ids] + kinds[segments]
    if settings.position is None:
        table, length = v[f"{scope}/position_embeddings"], ids.shape[1]
        if hierarchical:
            table = hierarchical_table(table, length, 0.4 if hierarchical is True else hierarchical)
        if length > len(table):
            raise ValueError(f"{length} tokens, but there are {len(table)} positions")
        x = x + table[:length]
    x = settings.norm(v, f"{scope}/LayerNorm", x)
    mapping = "bert/encoder/embedding_hidden_mapping_in"
    return dense(v, mapping, x) if f"{mapping}/kernel" in v else x


def heads_of(v, x, settings):
    """Return the outputs whose variables are there."""
    out = {}
    if "bert/pooler/dense/kernel" in v:
        out["pooled_output"] = np.tanh(dense(v, "bert/pooler/dense", x[:, 0]))
    scope = "cls/seq_relationship"
    if f"{scope}/output_weights" in v:
        logits = out["pooled_output"] @ v[f"{scope}/output_weights"].T + v[f"{scope}/output_bias"]
        out["nsp_logits"], out["nsp"] = logits, softmax(logits)
    scope = "cls/predictions"
    if f"{scope}/transform/dense/kernel" in v:
        h = settings.act(dense(v, f"{scope}/transform/dense", x))
        h = settings.norm(v, f"{scope}/transform/LayerNorm", h)
        logits = h @ v["bert/embeddings/word_embeddings"].T + v[f"{scope}/output_bias"]
        out["mlm_logits"], out["mlm"] = logits, softmax(logits)
    return out


def bert(
    arrays,
    config,
    ids,
    segments=None,
    *,
    mask=None,
    application="encoder",
    activation=None,
    hierarchical=None,
    shared_segments=False,
    **settings,
):
    """BERT, and all that differs from it in positions or masks only.

    Args:
        arrays, config, ids, segments: See the module. Sizes of heads are read off the variables.
        mask: [B, S], true for keys that are no padding; None means ids other than 0.
        application: "encoder"; "lm", where no token sees a later one; "unilm", where the running
            sum of the segment ids says who sees whom.
        activation: A name to use instead of the config's ``hidden_act``.
        hierarchical: Whether the table reaches to the square of its length, or the alpha of it.
        shared_segments: Whether segment ids are rows of the token table.
        settings: The fields of ``Settings`` from ``epsilon`` on.
    """
    v = as_float64(arrays)
    ids, segments, mask = inputs_of(ids, segments, mask)
    by_segments = segments if application == "unilm" else None
    visible = visible_keys(mask, causal=application == "lm", segments=by_segments)
    act = activation_of(config, activation)
    settings = Settings(config["num_attention_heads"], act, visible, **settings)
    x = embed(v, ids, segments, settings, hierarchical, shared_segments)
    states = post_norm_blocks(v, "bert/encoder", x, config["num_hidden_layers"], settings)
    out = {"hidden_states": states, "sequence_output": states[-1]}
    return out | heads_of(v, states[-1], settings)


def nezha(arrays, config, ids, segments=None, *, max_distance=64, **options):
    """NEZHA (arXiv:1909.00204): fixed vectors of the distance on keys and values."""
    return bert(arrays, config, ids, segments, position=max_distance, **options)


def roformer(arrays, config, ids, segments=None, **options):
    """RoFormer (arXiv:2104.09864): queries and keys turn with their position."""
    return bert(arrays, config, ids, segments, position="rotary", **options)

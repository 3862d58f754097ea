"""What a configuration leaves to its family: words, activations, epsilons, defaults.

The configurations of the transformers library have words of their own for BERT's; a key that
is absent means what the original code of the family does.
"""

from kerasbert import activations

# Only files written by the transformers library have these; there "gelu" is the erf form.
_HUGGING_FACE_KEYS = {"architectures", "layer_norm_eps", "model_type", "transformers_version"}

# The families whose original code means the tanh form by "gelu".
_TANH_GELU_FAMILIES = ("bert", "albert", "nezha", "gpt", "gpt2", "t5")

_EPSILONS = {
    "gpt": 1e-5,
    "gpt2": 1e-5,
    "gpt2_ml": 1e-5,
    "roformer_v2": 1e-7,
    "gau_alpha": 1e-7,
    "t5": 1e-6,
}

WITHOUT_SEGMENTS = ("distilbert", "gpt2", "gpt2_ml", "t5")

# What transformers writes as model_type: the family.
FAMILY_OF_MODEL_TYPE = {"mt5": "t5"}

_DISTILBERT_WORDS = {
    "dim": "hidden_size",
    "hidden_dim": "intermediate_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
}
_GPT2_WORDS = {
    "n_embd": "hidden_size",
    "n_inner": "intermediate_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_positions": "max_position_embeddings",
    "activation_function": "hidden_act",
    "resid_pdrop": "hidden_dropout_prob",
    "attn_pdrop": "attention_probs_dropout_prob",
    "layer_norm_epsilon": "layer_norm_eps",
}
_T5_WORDS = {
    "d_model": "hidden_size",
    "d_kv": "attention_head_size",
    "d_ff": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "dropout_rate": "hidden_dropout_prob",
    "layer_norm_epsilon": "layer_norm_eps",
}
WORDS = {
    "distilbert": _DISTILBERT_WORDS,
    "gpt2": _GPT2_WORDS,
    "t5": _T5_WORDS,
    "mt5": _T5_WORDS,
}


def from_hugging_face(values):
    """Whether only the transformers library can have written these keys."""
    return bool(_HUGGING_FACE_KEYS & values.keys())


def in_berts_words(values):
    """Returns a copy of a configuration with BERT's words for those of its model_type."""
    kind = values.get("model_type")
    words = WORDS.get(kind, {}) if isinstance(kind, str) else {}
    values = {words.get(key, key): value for key, value in values.items()}
    if kind == "gpt2" and values.get("intermediate_size") is None and "hidden_size" in values:
        values["intermediate_size"] = 4 * values["hidden_size"]
    if words is _T5_WORDS and isinstance(values.get("feed_forward_proj"), str):
        # "gated-gelu" is the tanh form there, whatever "gelu" is elsewhere.
        gate, _, name = values["feed_forward_proj"].rpartition("-")
        name = "gelu_new" if (gate, name) == ("gated", "gelu") else name
        values.setdefault("hidden_act", [name, "linear"] if gate == "gated" else name)
    return values


def family_defaults(family):
    """Returns the keys that a configuration may leave out, as the family's code has them."""
    defaults = {"layer_norm_eps": _EPSILONS.get(family, 1e-12)}
    if family == "gau_alpha":
        defaults["num_attention_heads"] = 1
    return defaults


def native_gelu(family):
    """Returns the name of what the family's original code calls gelu."""
    return "gelu_tanh" if family in _TANH_GELU_FAMILIES else "gelu_erf"


def canonical_activation(value, values, family):
    """Returns our names of an activation, or a tuple of them for a gated layer.

    Args:
        value: what the configuration says, a name or a list of names.
        values: the configuration.
        family: family of the architecture.

    Raises:
        ConfigError: if a name is unknown.
    """
    gelu = "gelu_erf" if from_hugging_face(values) else native_gelu(family)
    if isinstance(value, list | tuple):
        return tuple(activations.canonical_name(name, gelu=gelu) for name in value)
    return activations.canonical_name(value, gelu=gelu)

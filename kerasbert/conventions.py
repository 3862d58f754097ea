"""What a configuration leaves to its family: words, activations, epsilons, defaults.

The configurations of the transformers library have words of their own for BERT's; a key that
is absent means what the original code of the family does.
"""

from kerasbert import activations

# Only files written by the transformers library have these; there "gelu" is the erf form.
_WRITTEN_BY_TRANSFORMERS = {"architectures", "model_type", "transformers_version"}
_HUGGING_FACE_KEYS = {*_WRITTEN_BY_TRANSFORMERS, "layer_norm_eps"}

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

# Keys that only some families read; in the files of others they mean nothing.
READERS = {
    "tie_word_embeddings": ("t5",),
    "scale_decoder_outputs": ("t5",),
    "cross_position_bias": ("t5",),
    "num_decoder_layers": ("t5",),
    "relative_attention_num_buckets": ("t5",),
    "relative_attention_max_distance": ("t5",),
    "max_relative_position": ("nezha",),
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
    return _with_t5s_meanings(values, kind) if words is _T5_WORDS else values


def _with_t5s_meanings(values, kind):
    if isinstance(values.get("feed_forward_proj"), str):
        # "gated-gelu" is the tanh form there, whatever "gelu" is elsewhere.
        gate, _, name = values["feed_forward_proj"].rpartition("-")
        name = "gelu_new" if (gate, name) == ("gated", "gelu") else name
        values.setdefault("hidden_act", [name, "linear"] if gate == "gated" else name)
    # Before version 5 transformers took this key to tell T5 1.1, which does not scale, from 1.0.
    scales = kind == "t5" and values.get("tie_word_embeddings") is not False
    values.setdefault("scale_decoder_outputs", scales)
    if "hidden_dropout_prob" in values:
        values.setdefault("attention_probs_dropout_prob", values["hidden_dropout_prob"])
    return values


def epsilon_of(family):
    """Returns what the original code of a family adds to variances."""
    return _EPSILONS.get(family, 1e-12)


def family_defaults(family):
    """Returns the keys that a configuration may leave out, as the family's code has them."""
    defaults = {"layer_norm_eps": epsilon_of(family)}
    if family == "gau_alpha":
        defaults["num_attention_heads"] = 1
    return defaults


def pad_token_id(values, family):
    """Returns the id of padding, None if the model has none.

    BERT's own files say nothing of it, and its code takes no other id than 0.
    """
    if family == "roberta":
        return values.get("pad_token_id", 1)
    if family != "gpt2":
        return 0
    given = values.get("pad_token_id")
    if given is None:
        return None if _WRITTEN_BY_TRANSFORMERS & values.keys() else 0
    # The end of a text is a token to see, also where it was made to serve as padding.
    return None if given in (-1, values.get("eos_token_id")) else given


def native_gelu(family):
    """Returns our name of what the original code of a family calls "gelu"."""
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
    if isinstance(value, list | tuple) and value:
        return tuple(activations.canonical_name(name, gelu=gelu) for name in value)
    return activations.canonical_name(value, gelu=gelu)

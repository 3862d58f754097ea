"""Reads configurations of every style: Google, brightmart, Hugging Face, bert4keras' arguments.

Everything that depends on where a configuration came from is decided here: which GELU
"gelu" means, what other words stand for, and which keys must not be ignored.
"""

import json
import os

import numpy as np

from kerasbert.conventions import (
    FAMILY_OF_MODEL_TYPE,
    READERS,
    WITHOUT_SEGMENTS,
    canonical_activation,
    family_defaults,
    in_berts_words,
    pad_token_id,
)
from kerasbert.errors import ConfigError, listing

# bert4keras' names for keys of the configuration file.
ALIASES = {
    "dropout_rate": "hidden_dropout_prob",
    "attention_dropout_rate": "attention_probs_dropout_prob",
    "max_position": "max_position_embeddings",
    "segment_vocab_size": "type_vocab_size",
}

# What transformers writes as model_type, where it is not the name of the family.
_MODEL_TYPES = {"electra_generator": "electra"}

_SEQUENCES = (list, range, np.ndarray)

_REQUIRED = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
)

# Keys that the architecture gives itself, which no user has to hear of.
_OWN_KEYS = {
    "embedding_order",
    "forces_projection",
    "layout",
    "scale_decoder_outputs",
    "stacks_built",
    "tie_word_embeddings",
}

# Keys we do not act on, with the only values for which that is correct.
_NEUTRAL_VALUES = {
    "position_embedding_type": (None, "absolute"),
    "is_decoder": (None, False),
    "add_cross_attention": (None, False),
    "pruned_heads": (None, {}),
    "rotary_value": (None, False),
    "scale_attn_weights": (None, True),
    "scale_attn_by_inverse_layer_idx": (None, False),
}


def read_config(config):
    """Reads a configuration given as a path, a dict or None.

    Args:
        config: path of a JSON file, a mapping, or None for no keys at all.

    Returns:
        A new dict and a text that names its source, for errors.

    Raises:
        ConfigError: if the file is absent, is not JSON or holds no JSON object.
    """
    if config is None:
        return {}, "the arguments (no config was given)"
    if isinstance(config, dict):
        return dict(config), "the config dict"
    if not isinstance(config, str | os.PathLike):
        raise ConfigError(
            f"config is {config!r}, a {type(config).__name__}.\n"
            "Expected the path of a config file, a dict, or a folder with config and checkpoint."
        )
    path = os.path.expanduser(os.fspath(config))
    try:
        with open(path, encoding="utf-8-sig") as file:
            values = json.load(file)
    except FileNotFoundError as error:
        swapped = os.path.exists(f"{path}.index")
        hint = "\nIt is a checkpoint: are config and checkpoint swapped?" if swapped else ""
        raise ConfigError(
            f"No such config file: {path}.\nExpected a JSON file such as bert_config.json.{hint}"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"Cannot read the config file {path}: {error}.\n"
            "Expected a JSON file such as bert_config.json. If it is a checkpoint, pass it as "
            "checkpoint=."
        ) from error
    if not isinstance(values, dict):
        raise ConfigError(
            f"The config file {path} holds a JSON {type(values).__name__}.\n"
            "Expected an object with keys such as hidden_size."
        )
    return values, f"the config file {path}"


def resolve_aliases(values):
    """Returns a copy of `values` in which bert4keras' names are replaced by BERT's.

    The alias wins over the file's own key: users add it to override the file.
    """
    values = in_berts_words(values)
    resolved = {key: value for key, value in values.items() if key not in ALIASES}
    resolved.update({ALIASES[key]: value for key, value in values.items() if key in ALIASES})
    return resolved


def config_style(values):
    """Names the release whose config files have these keys: "albert_zh", "google_albert" or None.

    Only the early albert_zh has `ln_type`, only Google's ALBERT has groups.
    """
    grouped = "num_hidden_groups" in values or "inner_group_num" in values
    if values.get("ln_type") is not None:
        return None if grouped else "albert_zh"
    return "google_albert" if grouped else None


def fields_of(values, family, source):
    """Returns the keys of a configuration in BERT's words, the family's conventions filled in.

    Args:
        values: dict of keys, as `read_config` returns it.
        family: family of the architecture, such as "bert".
        source: what to call `values` in errors.

    Raises:
        ConfigError: if a required key is missing or one cannot be honoured.
    """
    values = resolve_aliases(values)
    defaults = family_defaults(family)
    found = listing(sorted(map(str, values.keys() - _OWN_KEYS)))
    missing = [key for key in _REQUIRED if values.get(key, defaults.get(key)) is None]
    if missing:
        raise ConfigError(
            f"Missing in {source}: {', '.join(missing)}.\n"
            f"Found the keys: {found or 'none'}.\n"
            "Pass the config file that belongs to the checkpoint, or give the values "
            "as keyword arguments."
        )
    _refuse_unsupported(values, family, source)
    values = {k: v for k, v in values.items() if family in READERS.get(k, (family,))}
    return {**defaults, **values, **_conventions(values, family)}


def _conventions(values, family):
    """The fields whose default or meaning depends on the family and the origin of the file."""
    groups = _or_default(values.get("num_hidden_groups"), 1)
    layers = values.get("unshare_layers")
    fields = {
        "family": family,
        "hidden_act": canonical_activation(values["hidden_act"], values, family),
        "embedding_size": _or_default(values.get("embedding_size"), values["hidden_size"]),
        "ln_type": _or_default(values.get("ln_type"), "postln"),
        "num_hidden_groups": groups,
        "inner_group_num": _or_default(values.get("inner_group_num"), 1),
        "sharing_groups": _or_default(values.get("sharing_groups"), groups),
        "unshare_layers": tuple(layers) if isinstance(layers, _SEQUENCES) else layers,
    }
    same_width = fields["embedding_size"] == values["hidden_size"]
    fields["forces_projection"] = bool(same_width) and bool(values.get("forces_projection"))
    for key in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        fields[key] = _or_default(values.get(key), 0.0)
    if config_style(values) == "albert_zh" and family == "albert":
        fields["embedding_order"] = values.get("embedding_order", "project_first")
    fields["pad_token_id"] = pad_token_id(values, family)
    if family in WITHOUT_SEGMENTS:
        fields["type_vocab_size"] = 0
    fields["hierarchical_position"] = values.get("hierarchical_position") or None
    return fields


def _or_default(value, default):
    return default if value is None else value


def _refuse_unsupported(values, family, source):
    model_type = values.get("model_type")
    if family.startswith("gpt") and values.get("tie_word_embeddings") is False:
        raise ConfigError(
            f"{source} says tie_word_embeddings=false, which the {family} family does not support "
            "here.\nExpected true: the token table is the head that predicts tokens."
        )
    told = FAMILY_OF_MODEL_TYPE.get(model_type, model_type) if model_type else None
    if isinstance(model_type, str) and told != _MODEL_TYPES.get(family, family):
        raise ConfigError(
            f"{source} says model_type={model_type!r}, but model= asks for the {family} family.\n"
            f"Expected a configuration of the {family} family.\n"
            f"Pass another model=, or the config file that belongs to the checkpoint."
        )
    if family != "nezha" and values.get("use_relative_position") is True:
        raise ConfigError(
            f"{source} says use_relative_position=true, but model= asks for the {family} family.\n"
            "Expected a configuration without it: only NEZHA has such positions.\n"
            "Pass model='nezha', or the config file that belongs to the checkpoint."
        )
    for key, neutral in _NEUTRAL_VALUES.items():
        if key in values and values[key] not in neutral:
            raise ConfigError(
                f"{source} says {key}={values[key]!r}, which kerasbert does not support.\n"
                f"Expected no {key}, or {neutral[-1]!r}: any other value changes the model."
            )

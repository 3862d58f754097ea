"""Writes a model as a checkpoint that the original TF1 code can read."""

import json
import os
from dataclasses import dataclass

from kerasbert.conventions import epsilon_of, native_gelu
from kerasbert.errors import CheckpointError, WeightMismatchError
from kerasbert.models.view import find_encoder
from kerasbert.weights.checkpoints import write_checkpoint
from kerasbert.weights.detect import dialects_of
from kerasbert.weights.dialects import ALBERT_ZH, ALBERT_ZH_UNSHARED, MT5, dialects_to_write
from kerasbert.weights.export import (
    Written,
    arrays_by_name,
    option_keys,
    path_to_write,
    refuse_inexpressible,
    refuse_other_classifier,
    segments_of_file,
    sharing_keys,
    variables_without_name,
)
from kerasbert.weights.grouping import config_of_file, is_unshared
from kerasbert.weights.pairing import edges

_DIALECTS = dialects_to_write(hugging_face=False)

# Where the checkpoints of a family have several tables of names, by `ModelConfig.layout`.
_LAYOUTS = {dialect.name: dialect for dialect in (MT5,)}

_T5_KEYS = (
    "attention_head_size",
    "num_decoder_layers",
    "relative_attention_num_buckets",
    "relative_attention_max_distance",
    "tie_word_embeddings",
    "scale_decoder_outputs",
    "cross_position_bias",
)

ORIGINAL_FAMILIES = tuple(_DIALECTS)


def save_weights_as_checkpoint(model, prefix, verbose=1, dialects=None):
    """Writes the encoder and its heads under the names of the original code.

    Beside the checkpoint goes its configuration, `PREFIX_config.json` (a final ".ckpt" of
    the prefix is dropped), because un-sharing changes it: an un-shared ALBERT is written
    with a group for every layer, which Google's code runs as it is. Both are written under
    temporary names first, so that a crash leaves the old files.

    Args:
        model: a Keras model that holds one encoder of kerasbert. Layers of your own on top
            have no name in these formats and are left out; the printed line says so.
        prefix: path of the checkpoint without `.index`, such as "out/albert_model.ckpt".
        verbose: 0 prints nothing, 1 one line.
        dialects: tuple of `Dialect`s of which the first is written; default that of the class
            the model was built by, or the built-in one.

    Returns:
        A dict with the paths: "checkpoint" (the prefix) and "config".

    Raises:
        WeightMismatchError: if the format cannot hold the model: copies that were trained
            apart would need one name, or a variable has none (unmerged LoRA).
        CheckpointError: if the files cannot be written.

    Example:
        >>> paths = save_weights_as_checkpoint(model, "out/albert_model.ckpt")
        Google ALBERT: ... variables written to out/albert_model.ckpt
        >>> again = build_transformer_model(paths["config"], paths["checkpoint"], model="albert")
        Google ALBERT: ... variables loaded (out/albert_model.ckpt)
    """
    prefix = path_to_write("prefix", prefix).removesuffix(".index")
    if os.path.isdir(prefix) or not os.path.basename(prefix):
        name = f"{find_encoder(model).config.family}_model.ckpt"
        raise CheckpointError(
            f"{prefix} is a folder.\nExpected a prefix, such as {os.path.join(prefix, name)}."
        )
    config_path = f"{prefix.removesuffix('.ckpt')}_config.json"
    written = write_original(model, prefix, config_path, dialects)
    if verbose:
        print(written.summary(prefix))
    return {"checkpoint": prefix, "config": config_path}


def write_original(model, prefix, config_path, dialects=None):
    """Writes checkpoint and configuration, and returns what was `Written`.

    Raises:
        As `save_weights_as_checkpoint` does.
    """
    view = find_encoder(model)
    dialect = dialect_to_write(config_of_file(view.config), dialects_of(view, dialects))
    part = part_to_write(model, view, dialect)
    write_checkpoint(prefix, part.arrays, texts={config_path: part.config_text})
    return part.written


@dataclass(frozen=True)
class Part:
    """An encoder in the form of a file.

    Attributes:
        arrays: dict from names to arrays.
        config_text: what its configuration file says.
        written: `Written`, once that is done.
    """

    arrays: dict
    config_text: str
    written: Written


def part_to_write(model, view, dialect):
    """Returns the `Part` of a checkpoint that one encoder of a model makes up.

    Raises:
        WeightMismatchError: if the dialect cannot hold the encoder.
    """
    config = config_of_file(view.config)
    refuse_inexpressible(
        model,
        dialect,
        ("ln_type", config.ln_type, dialect.ln_types),
        ("layer_norm_eps", config.layer_norm_eps, (epsilon_of(config.family),)),
        ("forces_projection", config.forces_projection, (False,)),
    )
    refuse_other_classifier(model, view, dialect)
    found = edges(view, dialect, "", config)
    left_out = variables_without_name(model, view, found)
    config, tables = segments_of_file(config, dialect, "")
    written = Written(dialect.title, len(found), left_out, tuple(option_keys(config)))
    text = json.dumps(_keys_of_file(config), indent=2) + "\n"
    return Part({**tables, **arrays_by_name(found, dialect)}, text, written)


def dialect_to_write(config, own=()):
    """Returns the dialect that `save_weights_as_checkpoint` writes.

    Args:
        config: `ModelConfig` of the file.
        own: `Dialect`s of a user's.

    Raises:
        WeightMismatchError: if the family has no original TF1 code.
    """
    if own:
        return own[0].for_task("task")
    if config.projects_first:
        return ALBERT_ZH_UNSHARED if is_unshared(config) else ALBERT_ZH
    if config.layout in _LAYOUTS:
        return _LAYOUTS[config.layout]
    if config.family not in _DIALECTS:
        raise WeightMismatchError(
            f"There is no original TF1 code of the {config.family} family.\n"
            f"Expected one of: {', '.join(_DIALECTS)}.\nUse save_pretrained instead."
        )
    return _DIALECTS[config.family].for_task("task")


def _keys_of_file(config):
    """The keys that the original code reads, and ours for what it cannot express."""
    gelu = native_gelu(config.family)
    names = config.hidden_act if isinstance(config.hidden_act, tuple) else (config.hidden_act,)
    # What the original code calls gelu; the other form it refuses by its name.
    names = ["gelu" if name == gelu else name for name in names]
    keys = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "intermediate_size": config.intermediate_size,
        "hidden_act": names if len(names) > 1 else names[0],
        "hidden_dropout_prob": config.hidden_dropout_prob,
        "attention_probs_dropout_prob": config.attention_probs_dropout_prob,
        "max_position_embeddings": config.max_position_embeddings,
        "type_vocab_size": config.type_vocab_size,
        "initializer_range": config.initializer_range,
    }
    if config.family != "bert":
        keys["embedding_size"] = config.embedding_size
    return {**keys, **_own_keys(config), **sharing_keys(config), **option_keys(config)}


def _own_keys(config):
    """The keys of single families, and those by which `model="auto"` tells them apart."""
    if config.projects_first:
        return {"ln_type": config.ln_type}
    if config.family == "albert":
        groups = {"num_hidden_groups": config.num_hidden_groups}
        return {**groups, "inner_group_num": config.inner_group_num}
    if config.family == "gpt2" and config.pad_token_id != 0:
        return {"pad_token_id": -1 if config.pad_token_id is None else config.pad_token_id}
    if config.family == "nezha":
        own = {"max_relative_position": config.max_relative_position}
        return {"use_relative_position": True, **own}
    if config.family == "roformer":
        return {"model_type": "roformer"}
    if config.family == "gau_alpha":
        return {"attention_key_size": config.attention_key_size}
    if config.family == "t5":
        return {key: getattr(config, key) for key in _T5_KEYS}
    return {}

"""Writes a model as a checkpoint that the original TF1 code can read."""

import json
import os

import numpy as np

from kerasbert.depth import groups_for_separate_layers
from kerasbert.errors import CheckpointError, WeightMismatchError, listing
from kerasbert.models.view import find_encoder
from kerasbert.weights.checkpoints import write_checkpoint
from kerasbert.weights.dialects import ALBERT_ZH, ALBERT_ZH_UNSHARED, GOOGLE_ALBERT, GOOGLE_BERT
from kerasbert.weights.load import to_numpy
from kerasbert.weights.mapping import edges


def save_weights_as_checkpoint(model, prefix, verbose=1):
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
    view = find_encoder(model)
    prefix = os.path.expanduser(os.fspath(prefix)).removesuffix(".index")
    if os.path.isdir(prefix) or not os.path.basename(prefix):
        raise CheckpointError(
            f"{prefix} is a folder.\nExpected a prefix, such as "
            f"{os.path.join(prefix, view.config.family + '_model.ckpt')}."
        )
    config = _config_of_file(view.config)
    dialect = _dialect_for(config)
    _refuse_inexpressible(model, config, dialect)
    found = edges(view, dialect, "", config)
    left_out = _variables_without_name(model, view, found)
    config_path = f"{prefix.removesuffix('.ckpt')}_config.json"
    text = json.dumps(_keys_of_file(config), indent=2) + "\n"
    write_checkpoint(prefix, _arrays_by_name(found, dialect), texts={config_path: text})
    if verbose:
        also = (
            f"; left out, as the format has no name for them: {listing(left_out)}"
            if left_out
            else ""
        )
        print(f"{dialect.title}: {len(found)} variables written to {prefix}{also}")
    return {"checkpoint": prefix, "config": config_path}


def _refuse_inexpressible(model, config, dialect):
    """Refuses what the original code would silently compute in another way."""
    for key, value, possible in (
        ("ln_type", config.ln_type, dialect.ln_types),
        ("layer_norm_eps", config.layer_norm_eps, (1e-12,)),
    ):
        if value not in possible:
            raise WeightMismatchError(
                f"{model.name!r} has {key}={value!r}, which {dialect.title} cannot express.\n"
                f"Expected one of: {listing(possible)}.\nSave it with model.save instead."
            )


def _config_of_file(config):
    """The configuration with a group for every layer if some block was un-shared."""
    untouched = config.unshare is None and config.unshare_layers is None
    if config.family == "bert" or config.projects_first:
        return config
    groups = (
        config.sharing_groups if untouched else groups_for_separate_layers(config.num_hidden_layers)
    )
    return config.replace(num_hidden_groups=groups)


def _dialect_for(config):
    if config.family == "bert":
        return GOOGLE_BERT
    if not config.projects_first:
        return GOOGLE_ALBERT
    untouched = config.unshare is None and config.unshare_layers is None
    return ALBERT_ZH if untouched else ALBERT_ZH_UNSHARED


def _variables_without_name(model, view, found):
    """Paths of the variables that are not written; refuses those of the encoder itself."""
    named = {id(edge.variable) for edge in found}
    owners = {edge.path.partition("/")[0] for edge in found}
    own = [
        weight.path
        for name in sorted(owners)
        for weight in view.layer(name).weights
        if id(weight) not in named
    ]
    if own:
        raise WeightMismatchError(
            f"{model.name!r} has variables in its layers that no checkpoint format knows: "
            f"{listing(own)}.\nExpected plain kernels, biases and norms.\n"
            "Merge LoRA or undo quantisation first, or save the model with model.save."
        )
    return [weight.path for weight in model.weights if id(weight) not in named]


def _arrays_by_name(found, dialect):
    arrays, writers = {}, {}
    for edge in found:
        array = edge.row.convert(to_numpy(edge.variable))
        if edge.name in arrays and arrays[edge.name].tobytes() != array.tobytes():
            raise WeightMismatchError(
                f"{writers[edge.name]} and {edge.path} differ, but {dialect.title} has one name "
                f"for both: {edge.name}.\nExpected equal values.\n"
                "Save the model with model.save instead."
            )
        arrays[edge.name] = np.ascontiguousarray(array)
        writers.setdefault(edge.name, edge.path)
    return arrays


def _keys_of_file(config):
    """The keys that the original code reads, and ours for what it cannot express."""
    keys = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "intermediate_size": config.intermediate_size,
        # The tanh form is what the original code calls gelu; the erf form it refuses by name.
        "hidden_act": "gelu" if config.hidden_act == "gelu_tanh" else config.hidden_act,
        "hidden_dropout_prob": config.hidden_dropout_prob,
        "attention_probs_dropout_prob": config.attention_probs_dropout_prob,
        "max_position_embeddings": config.max_position_embeddings,
        "type_vocab_size": config.type_vocab_size,
        "initializer_range": config.initializer_range,
    }
    if config.family == "albert":
        keys["embedding_size"] = config.embedding_size
    if config.projects_first:
        keys["ln_type"] = config.ln_type
    elif config.family == "albert":
        keys["num_hidden_groups"] = config.num_hidden_groups
        keys["inner_group_num"] = config.inner_group_num
    if config.family == "albert" and (config.unshare or config.unshare_layers is not None):
        keys["unshare"] = config.unshare
        keys["unshare_layers"] = config.unshare_layers
        keys["sharing_groups"] = config.sharing_groups
    return keys

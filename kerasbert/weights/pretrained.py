"""Writes a model in the form of Hugging Face transformers."""

import json
import os
import shutil
import warnings
from pathlib import Path

import numpy as np

from kerasbert.conventions import WORDS
from kerasbert.errors import CheckpointError, KerasbertError, WeightMismatchError, listing
from kerasbert.models.view import find_encoder
from kerasbert.weights.checkpoints.replacement import Replacement
from kerasbert.weights.dialects import dialects_to_write
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
from kerasbert.weights.grouping import config_of_file
from kerasbert.weights.pairing import edges
from kerasbert.weights.waves import tables_of_waves

_DIALECTS = dialects_to_write(hugging_face=True)

# For each head, the layer that shows that the model has it, and the class for it there. The
# first that is present names the class; with the sentence head beside it a masked-LM head
# makes the pre-training model.
_CLASS_OF_LAYER = (
    ("Classifier", "ForSequenceClassification"),
    ("Token-Classifier", "ForTokenClassification"),
    ("Span-Classifier", "ForQuestionAnswering"),
    ("Discriminator-Prediction", "ForPreTraining"),
    ("MLM-Bias", "ForMaskedLM"),
    ("LM-Activation", "LMHeadModel"),
    ("Decoder-Output-LM-Activation", "ForConditionalGeneration"),
    ("NSP-Proba", "ForNextSentencePrediction"),
)

# These layers own no variable, so no row of a table tells whether a form knows their heads.
_WITHOUT_VARIABLES = {"LM-Activation", "Decoder-Output-LM-Activation"}

_ACTIVATION_NAMES = {"gelu_tanh": "gelu_new", "gelu_erf": "gelu", "swish": "silu"}

# The end of a text in OpenAI's vocabulary, which transformers takes for that of any GPT-2.
_END_OF_TEXT = 50256


def save_pretrained(model, folder, tokenizer=None, verbose=1):
    """Writes config.json, model.safetensors and the vocabulary as transformers reads them.

    All are written under temporary names first, so that a crash leaves the old ones. A bare
    BERT or ALBERT should be built with_pool=True: the base class of transformers has a pooler,
    which it otherwise fills at random and says so. A model whose segment input was removed
    gets a segment table of zeros, which other code insists on.

    Args:
        model: a Keras model that holds one encoder of kerasbert. Other layers of your own
            have no name there and are left out; the printed line says so.
        folder: where to write; made if needed.
        tokenizer: a `kerasbert.tokenizers.Tokenizer` or `SpTokenizer`, whose vocabulary and
            settings are to be written too; default none.
        verbose: 0 prints nothing, 1 one line.

    Returns:
        The path of the folder.

    Raises:
        WeightMismatchError: if transformers has no model of this kind, or the tokenizer has
            more tokens than the model.
        KerasbertError: if `tokenizer` is none of ours.
        CheckpointError: if the files cannot be written.

    Example:
        >>> save_pretrained(model, "out/hugging_face")
        Hugging Face albert: ... variables written to out/hugging_face
        'out/hugging_face'
    """
    folder = Path(path_to_write("folder", folder))
    if tokenizer is None:
        _warn_of_old_vocabulary(folder)
    written = write_pretrained(model, folder, tokenizer)
    if verbose:
        print(written.summary(folder))
    return str(folder)


def write_pretrained(model, folder, tokenizer=None):
    """Does what `save_pretrained` does, and returns what was `Written`."""
    view = find_encoder(model)
    config = config_of_file(view.config)
    dialect = hugging_face_dialect(config.family)
    _refuse_own_dialects(model, view)
    _refuse_other_architectures(model, config, dialect)
    refuse_other_classifier(model, view, dialect)
    _check_vocabulary(tokenizer, config)
    kind = _class_suffix(view, dialect)
    prefix = dialect.prefixes[0] if kind != "Model" else ""
    found = edges(view, dialect, prefix, config)
    left_out = variables_without_name(model, view, found)
    config, tables = segments_of_file(config, dialect, prefix)
    tables.update(_identity_projection(config, dialect, prefix))
    tables.update(tables_of_waves(config, prefix))
    arrays = {**tables, **arrays_by_name(found, dialect)}
    values = _config_values(config, dialect.class_stem + kind, view)
    _write(folder, arrays, values, {} if tokenizer is None else tokenizer.hugging_face_files())
    return Written(dialect.title, len(found), left_out)


def hugging_face_dialect(family):
    """Returns the dialect in which `save_pretrained` writes the models of a family.

    Raises:
        WeightMismatchError: if transformers has no such family.
    """
    if family not in _DIALECTS:
        raise WeightMismatchError(
            f"transformers has no model of the {family} family.\n"
            f"Expected one of: {', '.join(_DIALECTS)}.\n"
            "Use save_weights_as_checkpoint or model.save instead."
        )
    return _DIALECTS[family]


def _refuse_own_dialects(model, view):
    if view.dialect_names:
        raise WeightMismatchError(
            f"{model.name!r} was built by a class with name tables of its own "
            f"({listing(view.dialect_names)}), and transformers has no such model.\n"
            "Expected a model of a class that comes with kerasbert.\n"
            "Use save_weights_as_checkpoint or model.save."
        )


def _warn_of_old_vocabulary(folder):
    for name in ("vocab.txt", "spiece.model"):
        if os.path.exists(folder / name):  # Path.exists raises for a name that is too long
            warnings.warn(
                f"{folder / name} is left as it was, as no tokenizer= was given. Is it the "
                "vocabulary of this model?",
                stacklevel=3,
            )


def _check_vocabulary(tokenizer, config):
    if tokenizer is None:
        return
    if not hasattr(tokenizer, "hugging_face_files"):
        raise KerasbertError(
            f"tokenizer={tokenizer!r}.\n"
            "Expected a kerasbert.tokenizers.Tokenizer or SpTokenizer, or None."
        )
    if tokenizer.vocab_size > config.vocab_size:
        raise WeightMismatchError(
            f"The tokenizer has {tokenizer.vocab_size} tokens, the model vocab_size="
            f"{config.vocab_size}.\nExpected a vocabulary of the model.\n"
            "Pass the tokenizer that the model was built for (after keep_tokens: the cut one)."
        )


def _class_suffix(view, dialect):
    known = {row.ours.partition("/")[0] for row in dialect.top_rows} | _WITHOUT_VARIABLES
    present = [
        suffix for layer, suffix in _CLASS_OF_LAYER if layer in known and view.has_layer(layer)
    ]
    if present[:2] == ["ForMaskedLM", "ForNextSentencePrediction"]:
        return "ForPreTraining"
    return present[0] if present else "Model"


def _refuse_other_architectures(model, config, dialect):
    if config.stacks_built == ("decoder",):
        raise WeightMismatchError(
            f"{model.name!r} is a decoder alone, which is no model of transformers.\n"
            "Expected an encoder, or encoder and decoder.\n"
            "Write it with save_weights_as_checkpoint or model.save instead."
        )
    head_size = config.hidden_size // config.num_attention_heads
    if config.family == "t5":
        head_size = config.attention_head_size  # the only family with a key for it
    # transformers has a layer norm epsilon of its own in the configuration, so any will do.
    refuse_inexpressible(
        model,
        dialect,
        ("ln_type", config.ln_type, dialect.ln_types),
        ("embedding_order", config.embedding_order, (dialect.embedding_order,)),
        ("residual_attention_scores", config.residual_attention_scores, (False,)),
        ("cross_position_bias", config.cross_position_bias, (False,)),
        ("shared_segment_embeddings", config.shared_segment_embeddings, (False,)),
        ("attention_head_size", config.attention_head_size, (head_size,)),
        ("attention_key_size", config.attention_key_size, (head_size,)),
    )
    for depth in dialect.depths(config):
        size = config.num_hidden_layers / config.num_hidden_groups
        if config.family == "albert" and int(depth.layer / size) != depth.group:
            raise WeightMismatchError(
                f"{model.name!r} has {config.num_hidden_layers} layers in "
                f"{config.num_hidden_groups} groups, which transformers divides in another way.\n"
                f"Expected layer {depth.layer} to be in group {depth.group} there too.\n"
                "Write it with save_weights_as_checkpoint instead."
            )


def _identity_projection(config, dialect, prefix):
    """The projection that transformers has even if E == H, where it must change nothing."""
    if not dialect.forces_projection or config.has_projection:
        return {}
    values = {
        "kernel": np.eye(config.hidden_size, dtype="float32"),
        "bias": np.zeros(config.hidden_size, dtype="float32"),
    }
    return {
        row.names(prefix)[0]: values[row.ours.rpartition("/")[2]]
        for row in dialect.top_rows
        if row.ours.startswith("Embedding-Mapping/")
    }


def _config_values(config, class_name, view):
    values = {
        "architectures": [class_name],
        "model_type": config.family.removesuffix("_generator"),
        "vocab_size": config.vocab_size,
        "embedding_size": config.embedding_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "intermediate_size": config.intermediate_size,
        "hidden_act": _activation_name(config.hidden_act),
        "hidden_dropout_prob": config.hidden_dropout_prob,
        "attention_probs_dropout_prob": config.attention_probs_dropout_prob,
        "max_position_embeddings": config.max_position_embeddings,
        "type_vocab_size": config.type_vocab_size,
        "initializer_range": config.initializer_range,
        "layer_norm_eps": config.layer_norm_eps,
        "pad_token_id": config.pad_token_id,
        "tie_word_embeddings": True,
    }
    if config.family == "albert":
        values["num_hidden_groups"] = config.num_hidden_groups
        values["inner_group_num"] = config.inner_group_num
        values.update(sharing_keys(config))
    if config.family == "nezha":
        values["max_relative_position"] = config.max_relative_position
    for name in ("Classifier", "Token-Classifier"):
        if view.has_layer(name):
            labels = range(view.layer(name).units)
            values["id2label"] = {str(index): f"LABEL_{index}" for index in labels}
            values["label2id"] = {f"LABEL_{index}": index for index in labels}
    if config.family == "t5":
        values.update(_t5_values(config))
    if config.family == "gpt2":
        values["embd_pdrop"] = config.hidden_dropout_prob
        if config.vocab_size <= _END_OF_TEXT:
            values |= {"bos_token_id": None, "eos_token_id": None}
    values.update(option_keys(config))
    theirs = {ours: word for word, ours in WORDS.get(config.family, {}).items()}
    return {theirs.get(key, key): value for key, value in values.items()}


def _activation_name(activation):
    return _ACTIVATION_NAMES.get(activation, activation)


def _t5_values(config):
    """The keys that only T5 has; the activation stands in `feed_forward_proj`."""
    act, *gate = [config.hidden_act] if isinstance(config.hidden_act, str) else config.hidden_act
    act = {"gelu_tanh": "gelu" if gate else "gelu_new"}.get(act, _activation_name(act))
    return {
        "feed_forward_proj": f"gated-{act}" if gate else act,
        "num_decoder_layers": config.num_decoder_layers,
        "attention_head_size": config.attention_head_size,
        "relative_attention_num_buckets": config.relative_attention_num_buckets,
        "relative_attention_max_distance": config.relative_attention_max_distance,
        "is_encoder_decoder": config.stacks_built != ("encoder",),
        "decoder_start_token_id": config.pad_token_id,
        # By this key transformers tells whether the decoder's output is scaled.
        "tie_word_embeddings": config.scale_decoder_outputs,
    }


def _write(folder, arrays, values, vocabulary):
    # Imported late: only those who write this form need it.
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        with Replacement(folder) as files:
            config = files.aside(folder / "config.json")
            config.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
            weights = files.aside(folder / "model.safetensors")
            save_file(arrays, weights, metadata={"format": "pt"})
            # safetensors lets nobody but the user read its file, whatever the umask is.
            shutil.copymode(config, weights)
            for name, content in vocabulary.items():
                files.aside(folder / name).write_bytes(content)
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(
            f"Cannot write to {str(folder)!r}: {error}.\nEarlier files there are untouched.\n"
            "Check that the folder is writable and the disk not full."
        ) from error

"""Converts between all forms of a model: read, change, write, whole or not at all."""

import contextlib
import os
import shutil
import uuid
from pathlib import Path

import keras

from kerasbert.config_file import read_config
from kerasbert.errors import (
    CheckpointError,
    ConfigError,
    WeightMismatchError,
    did_you_mean,
    listing,
)
from kerasbert.factory import build_transformer_model
from kerasbert.folders import config_of
from kerasbert.models.unsharing import unshare as unshare_model
from kerasbert.models.view import find_encoder
from kerasbert.refold import fold, unfold, without_identity
from kerasbert.registry import AUTO, find_architecture
from kerasbert.request import check_overrides
from kerasbert.vocabulary_files import beside_keras, find_vocabulary
from kerasbert.weights.checkpoints import open_checkpoint
from kerasbert.weights.checkpoints.replacement import Replacement
from kerasbert.weights.detect import detect
from kerasbert.weights.export import path_to_write
from kerasbert.weights.heads import HEAD_LAYERS, heads_in, owner_of
from kerasbert.weights.pretrained import write_pretrained
from kerasbert.weights.save import write_original

FORMS = ("google", "albert_zh", "huggingface", "keras")


def convert(
    source,
    destination,
    to,
    *,
    config=None,
    model=AUTO,
    unshare=None,
    unshare_layers=None,
    keep_tokens=None,
    vocabulary=None,
    overrides=None,
    verbose=1,
):
    """Writes the model at `source` in another form, with its heads, config and vocabulary.

    Args:
        source: a checkpoint of any form (see `build_transformer_model`), or a `.keras` file.
        destination: what to write: a folder that does not exist yet, or for "keras" a
            `.keras` file. It is complete or absent.
        to: "google" (TF1 names of google-research), "albert_zh" (brightmart's early names),
            "huggingface" or "keras".
        config: config file of the source; default is the one beside it, or the shapes.
        model: see `build_transformer_model`; "electra" and "electra_generator" choose the
            tower of an ELECTRA pre-training checkpoint.
        unshare: see `build_transformer_model`.
        unshare_layers: see `build_transformer_model`.
        keep_tokens: path of a vocabulary file that lists the tokens to keep, in their new
            order, or "simplified" for bert4keras' choice (see `load_vocab`).
        vocabulary: vocabulary file of the source; default is the one beside it.
        overrides: dict of keys of the configuration, such as `{"num_hidden_layers": 12}`.
        verbose: 0 prints nothing, 1 what is read and written.

    Returns:
        `destination`, a string. The vocabulary of a `.keras` file is written beside it, as
        NAME_vocab.txt.

    Raises:
        ConfigError: for unknown or contradictory arguments.
        CheckpointError: if the source cannot be read or the destination cannot be written.
        WeightMismatchError: if the form cannot represent the model; says why.

    Example:
        >>> convert("albert_model.ckpt", "hugging_face", "huggingface", config="albert_config.json")
        Google ALBERT: ...
        'hugging_face'
    """
    if to not in FORMS:
        raise ConfigError(
            f"to={to!r}.{did_you_mean(to, FORMS)}\nExpected one of: {', '.join(FORMS)}."
        )
    overrides = check_overrides(overrides)
    destination = Path(path_to_write("destination", destination))
    _check_destination(destination, to)
    words = find_vocabulary(source, vocabulary)
    words = words if keep_tokens is None else _required(words, source).cut(keep_tokens)
    changes = {"unshare": unshare, "unshare_layers": unshare_layers}
    changes = {key: value for key, value in changes.items() if value is not None}
    if str(source).endswith(".keras"):
        network = _from_keras(source, changes, keep_tokens)
    else:
        changes.update(overrides)
        if keep_tokens is not None:
            changes["keep_tokens"] = words.kept
        network = _from_checkpoint(source, config, model, changes, verbose)
    network = _in_form(network, to)
    if words is not None:
        words.check_size(find_encoder(network).config.vocab_size)
    if to == "keras":
        line = _write_keras(network, destination, words)
    else:
        with _new_folder(destination) as folder:
            written = _write_folder(network, folder, to, words)
            _refuse_lost_heads(written, find_encoder(network).prefix, to)
        line = written.summary(destination)
    if verbose:
        print(line)
    return str(destination)


def _check_destination(destination, to):
    if (to == "keras") != (destination.suffix == ".keras"):
        raise ConfigError(
            f"The destination {destination} does not suit to={to!r}.\n"
            "Expected a name that ends in .keras for keras, and the name of a folder otherwise."
        )
    if os.path.exists(destination):
        raise CheckpointError(
            f"{destination} exists already.\nExpected a new name, so that nothing is overwritten.\n"
            "Pass another destination, or remove it first."
        )


def _required(words, source):
    if words is None:
        raise ConfigError(
            f"keep_tokens needs the vocabulary of {source}, but there is none beside it.\n"
            "Expected a file such as vocab.txt.\n"
            "Pass vocabulary= (--vocabulary)."
        )
    return words


def _from_keras(source, changes, keep_tokens):
    if keep_tokens is not None:
        raise ConfigError(
            f"keep_tokens cannot cut the Keras model {source}.\n"
            "Expected a checkpoint.\nConvert it to google or huggingface first, and cut that."
        )
    try:
        network = keras.models.load_model(source, compile=False)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CheckpointError(
            f"Cannot read the Keras model {source}: {str(error).splitlines()[0]}\n"
            "Expected a file written by model.save."
        ) from error
    return unshare_model(network, **{"unshare": "all", **changes}) if changes else network


def _from_checkpoint(source, config, model, changes, verbose):
    config = config_of(source) if config is None else config
    checkpoint = open_checkpoint(source)
    values, _ = read_config(config)
    # The tower is decided first, as its heads depend on it.
    architecture, _ = find_architecture(model, values, checkpoint)
    match = detect(checkpoint, architecture.family, architecture.dialects)
    heads = heads_in(checkpoint, match, values)
    name = architecture if model == AUTO else model
    return build_transformer_model(config, source, model=name, verbose=verbose, **heads, **changes)


def _in_form(network, to):
    config = find_encoder(network).config
    if to == "keras":
        return network
    if to == "albert_zh" and config.family != "albert":
        raise WeightMismatchError(
            f"The source is of the {config.family} family.\n"
            "Expected an ALBERT: early albert_zh has no other models."
        )
    if config.forces_projection and to != "huggingface":
        network = without_identity(network)
    if to == "albert_zh":
        return network if config.projects_first else unfold(network)
    return fold(network) if config.projects_first else network


def _refuse_lost_heads(written, prefix, to):
    lost = [path for path in written.left_out if owner_of(path, prefix) in HEAD_LAYERS]
    if lost:
        raise WeightMismatchError(
            f"{written.title} has no names for the head {listing(lost)}.\n"
            f"Expected heads that the form {to!r} can hold.\n"
            "Convert to huggingface or keras instead."
        )


@contextlib.contextmanager
def _new_folder(destination):
    """Yields a folder that becomes `destination` if nothing was raised."""
    new = destination.with_name(f".{uuid.uuid4().hex}")
    try:
        new.mkdir(parents=True)
        yield new
        os.rename(new, destination)
    except OSError as error:
        raise _not_written(destination, error) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _write_folder(network, folder, to, words):
    if to == "huggingface":
        return write_pretrained(network, folder, words and words.tokenizer())
    family = find_encoder(network).config.family
    written = write_original(
        network, str(folder / f"{family}_model.ckpt"), str(folder / f"{family}_config.json")
    )
    if words is not None:
        (folder / words.path.name).write_bytes(words.content())
    return written


def _write_keras(network, destination, words):
    try:
        with Replacement(destination.parent) as files:
            if words is not None:
                vocabulary = beside_keras(destination, words.path.suffix)
                files.aside(vocabulary).write_bytes(words.content())
            network.save(f"{files.stem}.keras")
            files.take(f"{files.stem}.keras", destination)
    except OSError as error:
        raise _not_written(destination, error) from error
    return f"Keras: {len(network.weights)} variables written to {destination}"


def _not_written(destination, error):
    return CheckpointError(
        f"Cannot write {destination}: {error}.\nNothing was left there.\n"
        "Check that the folder is writable and the disk not full."
    )

"""Writes what pre-training trains: one encoder, or both towers of ELECTRA in one checkpoint."""

from kerasbert.errors import KerasbertError, listing
from kerasbert.models.view import find_encoder, find_encoders
from kerasbert.weights.checkpoints import write_checkpoint
from kerasbert.weights.detect import dialects_of
from kerasbert.weights.dialects import ELECTRA_GENERATOR, ELECTRA_GENERATOR_UNTIED
from kerasbert.weights.export import path_to_write
from kerasbert.weights.grouping import config_of_file
from kerasbert.weights.save import dialect_to_write, part_to_write

_TABLE = "Embedding-Token"


def save_towers(model, prefix):
    """Writes the encoders of a model for pre-training as Google's code would.

    Both towers of ELECTRA go into one checkpoint; each has a configuration of its own,
    `PREFIX_config.json` the discriminator and `PREFIX_generator_config.json` the generator (a
    final ".ckpt" of the prefix is dropped). Of a model that has another one beside it to
    propose masks, only the large one is written.

    Args:
        model: a model of `kerasbert.pretraining`, or any with one encoder.
        prefix: path of the checkpoint without `.index`.

    Returns:
        A dict with the paths "checkpoint" (the prefix), "config", and "generator_config" if
        there is one.

    Raises:
        KerasbertError: if the model holds no encoder, or several that do not belong together.
        WeightMismatchError: if the original code has no such model.
        CheckpointError: if the files cannot be written.

    Example:
        >>> paths = save_towers(model, "out/model.ckpt")
        >>> sorted(paths)
        ['checkpoint', 'config']

    Source: google-research/electra `run_pretraining.py` for the names in the file.
    """
    prefix = path_to_write("prefix", prefix).removesuffix(".index")
    stem = prefix.removesuffix(".ckpt")
    parts = {"config": part_to_write(model, *_large(model))}
    if generator := _generator(model):
        parts["generator_config"] = part_to_write(model, *generator)
    files = {
        "config": f"{stem}_config.json",
        "generator_config": f"{stem}_generator_config.json",
    }
    arrays = {name: array for part in parts.values() for name, array in part.arrays.items()}
    texts = {files[key]: part.config_text for key, part in parts.items()}
    write_checkpoint(prefix, arrays, texts=texts)
    return {"checkpoint": prefix, **{key: files[key] for key in parts}}


def _large(model):
    """The encoder that is trained for use, and its dialect."""
    views = find_encoders(model)
    if len(views) > 1:
        views = [view for view in views if view.config.family != "electra_generator"]
    if len(views) != 1:
        # Says what is wrong with a model that has none, or several.
        find_encoder(model)
        raise KerasbertError(
            f"{model.name!r} holds several generators: "
            f"{listing(repr(view.prefix) for view in find_encoders(model))}.\n"
            "Expected one encoder, or one with a generator beside it."
        )
    view = views[0]
    return view, dialect_to_write(config_of_file(view.config), dialects_of(view))


def _generator(model):
    """The generator of an ELECTRA and its dialect, None in any other model."""
    views = {view.config.family: view for view in find_encoders(model)}
    if set(views) != {"electra", "electra_generator"}:
        return None
    small, large = views["electra_generator"], views["electra"]
    tied = small.layer(_TABLE) is large.layer(_TABLE)
    return small, ELECTRA_GENERATOR if tied else ELECTRA_GENERATOR_UNTIED

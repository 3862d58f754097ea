"""Loads a checkpoint into a model that is already built."""

import numpy as np
from keras import ops

from kerasbert.errors import CheckpointError
from kerasbert.models.view import find_encoder
from kerasbert.weights.checkpoints import open_checkpoint
from kerasbert.weights.detect import detect, dialects_of
from kerasbert.weights.loader import REPORT_ATTRIBUTE, Loader


def load_weights_from_checkpoint(
    model,
    checkpoint,
    strict=True,
    verbose=1,
    *,
    autoresize_weights=False,
    ignore_invalid_weights=False,
    dialects=None,
):
    """Loads a TensorFlow checkpoint into a model that is already built.

    If the file does not fit or is damaged, the model keeps the weights it had.

    Args:
        model: a Keras model that holds one encoder of kerasbert, possibly with layers of
            your own on top.
        checkpoint: see `build_transformer_model`.
        strict: whether model variables that the file lacks are an error. With False, heads
            and layers of your own may be missing; variables of the encoder never.
        verbose: 0 prints nothing, 1 one line, 2 the whole report.
        autoresize_weights: see `build_transformer_model`.
        ignore_invalid_weights: see `build_transformer_model`.
        dialects: tuple of `Dialect`s to read with, instead of the built-in ones of the family;
            default those of the class that the model was built by. A model that was reloaded
            from a .keras file needs them again.

    Returns:
        A `LoadReport`, which `model_report(model)` returns later too.

    Raises:
        CheckpointError: if the checkpoint cannot be found or read.
        WeightMismatchError: if it does not fit the model.

    Example:
        >>> report = load_weights_from_checkpoint(model, "albert_model.ckpt")
        Google ALBERT: ... variables loaded, ... unused (albert_model.ckpt)
        >>> report.missing
        []
    """
    checkpoint = open_checkpoint(checkpoint)
    view = find_encoder(model)
    loader = Loader(
        model,
        checkpoint,
        detect(checkpoint, view.config.family, dialects_of(view, dialects)),
        strict=strict,
        autoresize=autoresize_weights,
        ignore_invalid=ignore_invalid_weights,
    )
    loader.plan()
    return loader.run(verbose, try_first=True)


def model_report(model):
    """Returns the `LoadReport` of the last load into `model`, or into the one it was built on.

    Raises:
        CheckpointError: if no checkpoint was loaded into this model object.
        KerasbertError: if it holds no single encoder of kerasbert.

    Example:
        >>> print(model_report(model).headline())
        Google ALBERT: ... variables loaded, ...
    """
    report = getattr(find_encoder(model).mask_layer, REPORT_ATTRIBUTE, None)
    if report is None:
        raise CheckpointError(
            f"No checkpoint was loaded into the model {model.name!r}.\n"
            "Expected a model from build_transformer_model(config, checkpoint), or a call of "
            "load_weights_from_checkpoint; a model reloaded from a .keras file has no report."
        )
    return report


def to_numpy(variable):
    """Returns the value of a variable as a float32 numpy array, as checkpoints store it."""
    value = ops.convert_to_numpy(variable.value)
    return np.asarray(value, dtype="float32")

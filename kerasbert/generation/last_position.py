"""A model that gives its outputs at the last position only."""

import functools

import keras


def last_position(model):
    """Cuts the outputs of a model down to their last position.

    Args:
        model: a functional Keras model, whose outputs are of the shape (batch, length, ...).

    Returns:
        Model of the same inputs and layers, with outputs (batch, ...). Its `predict` shows no
        progress bar unless `verbose` is given: it is called for every token.
    """
    outputs = [output[:, -1] for output in model.outputs]
    cut = keras.Model(model.inputs, outputs[0] if len(outputs) == 1 else outputs)
    cut.predict = functools.partial(cut.predict, verbose=0)
    return cut

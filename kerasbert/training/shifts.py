"""Runs a model with something added to the vectors of its tokens.

Shapes: B batch, L length, E width of the token table.
"""

import keras
from keras import ops

from kerasbert.errors import ConfigError
from kerasbert.models.view import find_encoder

TABLE = "Embedding-Token"


@keras.saving.register_keras_serializable(package="kerasbert")
class Shift(keras.layers.Layer):
    """Adds the tensor that its attribute `shift` holds, if it holds one.

    Call arguments:
        inputs: float tensor (B, L, E).

    Returns:
        Float tensor (B, L, E), with the Keras mask of the input.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.shift = None

    def call(self, inputs):
        """Returns the sum."""
        return inputs if self.shift is None else inputs + ops.cast(self.shift, inputs.dtype)


class ShiftedGraph:
    """The graph of a model, run with shifted token vectors; its layers are the model's own.

    Args:
        model: functional model with one encoder of ours.

    Raises:
        ConfigError: if the encoder is a layer of the model, so that the graph hides it.
        KerasbertError: if there is not exactly one encoder.
    """

    def __init__(self, model):
        view = find_encoder(model)
        if view.model is not model:
            raise ConfigError(
                f"{model.name!r} calls the encoder {view.model.name!r} as one layer.\n"
                "Expected the layers of the encoder in the model itself, where the vectors of "
                "the tokens can be reached.\n"
                "Build your head on encoder.output, and the model on encoder.inputs."
            )
        self._table = view.layer(TABLE)
        calls = [node for node in view.calls(TABLE) if _looks_up(node.arguments.kwargs)]
        # With shared_segment_embeddings the second call looks up the segments.
        self._count = 1 if view.config.shared_segment_embeddings else len(calls)
        calls = calls[: self._count]
        paddings = [node.arguments.kwargs.get("mask") for node in calls]
        self._padded = [padding is not None for padding in paddings]
        vectors = [node.output_tensors[0] for node in calls]
        self._vectors = keras.Model(
            model.input, vectors + [padding for padding in paddings if padding is not None]
        )
        self._shifts = []
        self._graph = keras.models.clone_model(
            keras.Model(model.input, model.output), clone_function=_itself, call_function=self._call
        )

    def _call(self, layer, *args, **kwargs):
        outputs = layer(*args, **kwargs)
        if layer is not self._table or not _looks_up(kwargs) or len(self._shifts) == self._count:
            return outputs
        self._shifts.append(
            Shift(dtype=self._table.dtype_policy, name=f"shift-{len(self._shifts)}")
        )
        return self._shifts[-1](outputs)

    def zeros(self, inputs):
        """Returns shifts (B, L, E) of nothing, and (B, L, 1): 1 at real tokens, 0 at padding."""
        outputs = keras.tree.flatten(self._vectors(inputs))
        vectors, paddings = outputs[: self._count], iter(outputs[self._count :])
        zeros = [ops.zeros_like(vector, dtype="float32") for vector in vectors]
        real = [
            ops.cast(ops.not_equal(next(paddings), 0), "float32")[..., None]
            if padded
            else ops.ones_like(zero[..., :1])
            for zero, padded in zip(zeros, self._padded, strict=True)
        ]
        return zeros, real

    def __call__(self, inputs, shifts, **kwargs):
        """Returns the outputs of the model; `shifts` is a list like that of `zeros`, or None."""
        shifts = [None] * len(self._shifts) if shifts is None else shifts
        try:
            for layer, shift in zip(self._shifts, shifts, strict=True):
                layer.__dict__["shift"] = shift
            return self._graph(inputs, **kwargs)
        finally:
            for layer in self._shifts:
                layer.__dict__["shift"] = None


def _looks_up(arguments):
    return arguments.get("mode", "embedding") == "embedding"


def _itself(layer):
    return layer


def squares(shifts):
    """Returns the sum of the squares (B,) of all numbers that belong to one example."""
    return sum(ops.sum(ops.square(shift), axis=(1, 2)) for shift in shifts)


def of_length(shifts, length):
    """Returns shifts of the same direction whose norm over an example is `length`.

    One without a direction, as from an overflow in half precision or for an example of weight
    0, becomes 0.
    """
    # By the largest number first, whose square could be 0 or infinite.
    largest = [ops.max(ops.abs(shift), axis=(1, 2), keepdims=True) for shift in shifts]
    largest = ops.max(ops.stack(largest), axis=0)  # (B, 1, 1)
    usable = ops.logical_and(largest > 0, ops.isfinite(largest))
    shifts = [ops.where(usable, shift / ops.where(usable, largest, 1.0), 0.0) for shift in shifts]
    norm = ops.sqrt(ops.maximum(squares(shifts), 1.0))[:, None, None]
    return [length * shift / norm for shift in shifts]

"""Token tables, and the projection of factorised embeddings.

Shapes: B batch, L length, V vocabulary, E embedding size, H hidden size.
"""

import keras
from keras import ops

from kerasbert.errors import ConfigError


@keras.saving.register_keras_serializable(package="kerasbert")
class Embedding(keras.layers.Embedding):
    """A token table that also serves as the output matrix of a language model.

    `keras.layers.Embedding`, with two additions: `mode="dense"` multiplies by the
    transposed table, and the Keras mask of the output can be given.

    Args:
        *args: arguments of `keras.layers.Embedding`.
        **kwargs: its keyword arguments.

    Call arguments:
        inputs: int ids (B, L), or in mode "dense" a float tensor (B, L, E).
        mask: optional (B, L), non-zero at real tokens; gives the Keras mask of the output.
        mode: "embedding" or "dense".

    Returns:
        Float tensor (B, L, E), or (B, L, V) in mode "dense".

    Raises:
        ConfigError: if `mode` is neither of the two.

    Example:
        >>> table = Embedding(100, 16)
        >>> table(table(keras.ops.array([[5, 7]])), mode="dense").shape
        TensorShape([1, 2, 100])

    Source: Press and Wolf 2017 (arXiv:1608.05859).
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.supports_masking = True

    def call(self, inputs, mask=None, mode="embedding"):
        """Looks ids up, or multiplies by the transposed table; see the class for shapes."""
        if mode == "embedding":
            return super().call(inputs)
        if mode == "dense":
            return self._scores(inputs)
        raise ConfigError(f"mode={mode!r}.\nExpected 'embedding' or 'dense'.")

    def _scores(self, inputs):
        if any(size != 1 for size in inputs.shape[:-1]):
            return ops.matmul(inputs, ops.transpose(self.embeddings))
        # One token, as in generation: XLA on CPUs makes a slow loop of the other order and what
        # is added to it, 60 ms against 6 for a table of 21128 x 768, and 5 in halves.
        halves = 1 if self.input_dim % 2 or keras.backend.backend() == "torch" else 2
        table = ops.reshape(self.embeddings, (halves, self.input_dim // halves, self.output_dim))
        columns = ops.repeat(ops.reshape(inputs, (1, -1, 1)), halves, axis=0)
        return ops.reshape(ops.matmul(table, columns), (*inputs.shape[:-1], self.input_dim))

    def compute_mask(self, inputs, previous_mask=None):
        """Returns the bool mask (B, L) of the real tokens."""
        return None if previous_mask is None else ops.not_equal(previous_mask, 0)

    def compute_output_spec(self, inputs, mask=None, mode="embedding"):
        """Returns the symbolic output for `inputs`."""
        if mode == "embedding":
            shape = (*inputs.shape, self.output_dim)
        else:
            shape = (*inputs.shape[:-1], self.input_dim)
        return keras.KerasTensor(shape, dtype=self.compute_dtype)


@keras.saving.register_keras_serializable(package="kerasbert")
class TiedProjection(keras.layers.Dense):
    """A dense layer without bias that can be called in the other direction too.

    The early albert_zh projects tokens from E to H with it, and its masked-LM head goes
    back from H to E with the transpose of the same kernel.

    Args:
        units: width H of the output.
        **kwargs: arguments of `keras.layers.Dense`.

    Call arguments:
        inputs: float tensor (B, L, E), or (B, L, H) with `transpose`.
        transpose: whether to multiply by the transposed kernel.

    Returns:
        Float tensor (B, L, H), or (B, L, E) with `transpose`.

    Example:
        >>> projection = TiedProjection(32)
        >>> projection(projection(keras.ops.ones((2, 5, 16))), transpose=True).shape
        TensorShape([2, 5, 16])

    Source: brightmart/albert_zh `modeling.py`.
    """

    def __init__(self, units, **kwargs):
        kwargs["use_bias"] = False
        super().__init__(units, **kwargs)

    def build(self, input_shape):
        """Creates the kernel (E, H); the input width is free afterwards, for `transpose`."""
        super().build(input_shape)
        self.input_spec = None

    def call(self, inputs, transpose=False, training=None):
        """Multiplies by the kernel or by its transpose; see the class for shapes."""
        if transpose:
            return ops.matmul(inputs, ops.transpose(self.kernel))
        return super().call(inputs, training=training)

    def compute_output_spec(self, inputs, transpose=False, training=None):
        """Returns the symbolic output for `inputs`."""
        width = self.kernel.shape[0] if transpose else self.units
        return keras.KerasTensor((*inputs.shape[:-1], width), dtype=self.compute_dtype)

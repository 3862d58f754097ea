"""Sinusoidal position vectors as a layer and as the start of a table.

Shapes: B batch, L length, E width of the input, D size of a vector.
"""

import keras
from keras import ops

from kerasbert.layers.rotary import check_pairs, sinusoidal_embeddings
from kerasbert.layers.tables import MergingLayer


@keras.saving.register_keras_serializable(package="kerasbert")
class Sinusoidal(keras.initializers.Initializer):
    """Starts a table (n, D) with the sinusoidal vectors of the positions 0 to n - 1.

    Raises:
        ConfigError: if D, the second axis of the table, is odd.

    Example:
        >>> Sinusoidal()((2, 4)).numpy()[0].tolist()
        [0.0, 1.0, 0.0, 1.0]

    Source: Vaswani et al. 2017 (arXiv:1706.03762).
    """

    def __call__(self, shape, dtype=None):
        """Returns the initial value, a tensor of this shape."""
        rows, size = shape
        vectors = sinusoidal_embeddings(ops.arange(rows), size)
        return ops.cast(vectors, dtype or keras.config.floatx())


@keras.saving.register_keras_serializable(package="kerasbert")
class SinusoidalPositionEmbedding(MergingLayer):
    """Merges one fixed vector of sines and cosines per position into its input.

    With `merge_mode="zero"` it gives the vectors alone, which is what attention with rotary
    positions is called with.

    Args:
        output_dim: size D of the vectors, an even number.
        merge_mode: "add"; "mul", the product of the input and 1 + the vector; "concat", the
            vector after the input; or "zero", the vectors alone.
        custom_position_ids: whether a call without `positions` is an error.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: float tensor (B, L, E), or the list `[inputs, positions]`.
        positions: optional tensor (B, L) of integers, or of float32 numbers for positions
            between them; default 0, 1, 2, ….

    Returns:
        Float tensor (B, L, E); (B, L, E + D) with "concat"; with "zero" (B, L, D), or
        (1, L, D) if no positions are given.

    Raises:
        ConfigError: if `output_dim` is odd, an argument is none of these, D is not E where it
            has to be, or positions are missing.

    Example:
        >>> SinusoidalPositionEmbedding(8, "zero")(keras.ops.ones((2, 5, 16))).shape
        TensorShape([1, 5, 8])

    Source: Vaswani et al. 2017 (arXiv:1706.03762), sines and cosines alternating.
    """

    def __init__(self, output_dim, merge_mode="add", custom_position_ids=False, **kwargs):
        super().__init__(merge_mode, custom_position_ids, **kwargs)
        check_pairs("output_dim", output_dim)
        self.output_dim = output_dim

    def vectors(self, inputs, positions):
        """Returns the vectors (B, L, D) of the positions, or (1, L, D) of the first L."""
        if positions is None:
            positions = ops.arange(ops.shape(inputs)[1], dtype="int32")[None]
        return sinusoidal_embeddings(positions, self.output_dim)

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        return {**super().get_config(), "output_dim": self.output_dim}

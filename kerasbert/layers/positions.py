"""Position tables and what belongs to them.

Shapes: B batch, L length, E embedding size.
"""

import keras
from keras import ops

from kerasbert.errors import ConfigError, check_integer
from kerasbert.layers.composite import truncated_normal


@keras.saving.register_keras_serializable(package="kerasbert")
class PositionEmbedding(keras.layers.Layer):
    """Adds one learned vector per position.

    Args:
        input_dim: number of positions the table holds.
        initializer_range: standard deviation of the initial table.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: float tensor (B, L, E) with L at most `input_dim`.
        positions: optional int tensor (B, L), the row for each token; default 0, 1, 2, ….

    Returns:
        Float tensor (B, L, E).

    Raises:
        ConfigError: if `input_dim` is not a positive integer, or L is known and larger.

    Example:
        >>> PositionEmbedding(512)(keras.ops.ones((2, 5, 16))).shape
        TensorShape([2, 5, 16])

    Source: Devlin et al. 2018 (arXiv:1810.04805).
    """

    def __init__(self, input_dim, initializer_range=0.02, **kwargs):
        super().__init__(**kwargs)
        check_integer("input_dim", input_dim, minimum=1)
        self.supports_masking = True
        self.input_dim = input_dim
        self.initializer_range = initializer_range

    def build(self, inputs_shape, positions_shape=None):
        """Creates the table (input_dim, E)."""
        self.embeddings = self.add_weight(
            shape=(self.input_dim, inputs_shape[-1]),
            initializer=truncated_normal(self.initializer_range),
            name="embeddings",
        )

    def call(self, inputs, positions=None):
        """Returns `inputs` plus the rows of its positions."""
        length = inputs.shape[1]
        if length is not None and length > self.input_dim:
            raise ConfigError(
                f"{self.name}: the input has {length} positions, the table "
                f"max_position_embeddings={self.input_dim}.\n"
                f"Expected at most {self.input_dim}.\n"
                f"Cut the texts (tokenizer.encode(..., maxlen={self.input_dim})), or use a "
                "checkpoint with more positions."
            )
        if positions is not None:
            return inputs + ops.take(self.embeddings, positions, axis=0)
        return inputs + self.embeddings[: ops.shape(inputs)[1]]

    def compute_output_shape(self, inputs_shape, positions_shape=None):
        """The output has the shape of the input."""
        return inputs_shape

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        return {
            **super().get_config(),
            "input_dim": self.input_dim,
            "initializer_range": self.initializer_range,
        }


@keras.saving.register_keras_serializable(package="kerasbert")
class PositionsOfTokens(keras.layers.Layer):
    """Numbers the real tokens of each row, in RoBERTa's way.

    Args:
        pad_token_id: the position of padding; real tokens follow it.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: int tensor (B, L), zero at padding.

    Returns:
        Int tensor (B, L).

    Example:
        >>> PositionsOfTokens(1)(keras.ops.array([[1, 1, 0]])).numpy().tolist()
        [[2, 3, 1]]

    Source: Hugging Face transformers, `roberta`.
    """

    def __init__(self, pad_token_id, **kwargs):
        super().__init__(**kwargs)
        check_integer("pad_token_id", pad_token_id, minimum=0)
        self.pad_token_id = pad_token_id

    def call(self, inputs):
        """Returns the position of every token."""
        real = ops.cast(ops.not_equal(inputs, 0), "int32")
        return ops.cumsum(real, axis=1) * real + self.pad_token_id

    def compute_output_spec(self, inputs):
        """Returns the symbolic positions for `inputs`."""
        return keras.KerasTensor(inputs.shape, dtype="int32")

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        return {**super().get_config(), "pad_token_id": self.pad_token_id}


@keras.saving.register_keras_serializable(package="kerasbert")
class SingleSegmentEmbedding(keras.layers.Layer):
    """Adds the vector of segment 0 to every token.

    RoBERTa has a segment table but no segments; keeping it as it is keeps checkpoints exact.

    Args:
        input_dim: number of rows of the table, of which the first is used.
        initializer_range: standard deviation of the initial table.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: float tensor (B, L, E).

    Returns:
        Float tensor (B, L, E).

    Example:
        >>> SingleSegmentEmbedding(1)(keras.ops.ones((2, 5, 16))).shape
        TensorShape([2, 5, 16])
    """

    def __init__(self, input_dim, initializer_range=0.02, **kwargs):
        super().__init__(**kwargs)
        check_integer("input_dim", input_dim, minimum=1)
        self.supports_masking = True
        self.input_dim = input_dim
        self.initializer_range = initializer_range

    def build(self, input_shape):
        """Creates the table (input_dim, E)."""
        self.embeddings = self.add_weight(
            shape=(self.input_dim, input_shape[-1]),
            initializer=truncated_normal(self.initializer_range),
            name="embeddings",
        )

    def call(self, inputs):
        """Returns `inputs` plus the first row of the table."""
        return inputs + self.embeddings[0]

    def compute_output_shape(self, input_shape):
        """The output has the shape of the input."""
        return input_shape

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        return {
            **super().get_config(),
            "input_dim": self.input_dim,
            "initializer_range": self.initializer_range,
        }

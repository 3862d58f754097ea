"""Position tables and what belongs to them.

Shapes: B batch, L length, E embedding size, n rows of a table.
"""

import keras
from keras import ops

from kerasbert.errors import ConfigError, check_integer, check_number
from kerasbert.layers.tables import MergingLayer, TableLayer

# What hierarchical=True stands for.
_USUAL_ALPHA = 0.4


@keras.saving.register_keras_serializable(package="kerasbert")
class PositionEmbedding(MergingLayer, TableLayer):
    """Merges one learned vector per position into its input.

    Args:
        input_dim: number n of vectors the table holds.
        output_dim: their size D; None for the width E of the input.
        merge_mode: "add"; "mul", the product of the input and 1 + the vector; "concat", the
            vector after the input; or "zero", the vectors alone.
        hierarchical: whether the n vectors stand for n² positions, made of two each. A number
            alpha between 0 and 1, or True for 0.4. The first n positions stay as they are.
        embeddings_initializer: what the table starts with; None for BERT's.
        custom_position_ids: whether a call without `positions` is an error. L is not bounded
            then, since a position may occur more than once.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: float tensor (B, L, E) with L at most n, or n² if `hierarchical`; or the list
            `[inputs, positions]`.
        positions: optional int tensor (B, L), the row for each token; default 0, 1, 2, ….

    Returns:
        Float tensor (B, L, E); (B, L, E + D) with "concat"; with "zero" (B, L, D), or
        (1, L, D) if no positions are given.

    Raises:
        ConfigError: if an argument is none of these, L is known and too large, D is not E
            where it has to be, or positions are missing.

    Example:
        >>> PositionEmbedding(512)(keras.ops.ones((2, 5, 16))).shape
        TensorShape([2, 5, 16])
        >>> PositionEmbedding(3, hierarchical=True)(keras.ops.ones((2, 9, 16))).shape
        TensorShape([2, 9, 16])

    Source: Devlin et al. 2018 (arXiv:1810.04805); https://kexue.fm/archives/7947 for
    `hierarchical`.
    """

    def __init__(
        self,
        input_dim,
        output_dim=None,
        merge_mode="add",
        hierarchical=None,
        embeddings_initializer=None,
        custom_position_ids=False,
        **kwargs,
    ):
        super().__init__(
            input_dim=input_dim,
            output_dim=output_dim,
            merge_mode=merge_mode,
            embeddings_initializer=embeddings_initializer,
            custom_position_ids=custom_position_ids,
            **kwargs,
        )
        self.hierarchical = hierarchical
        self._alpha = _alpha(hierarchical)

    def build(self, inputs_shape, positions_shape=None):
        """Creates the table (n, D)."""
        super().build(inputs_shape, positions_shape)
        self.add_table(self.vector_size(inputs_shape))

    def vectors(self, inputs, positions):
        """Returns the vectors (B, L, D) of the positions, or (1, L, D) of the first L."""
        if not self.custom_position_ids:
            self._check_length(inputs.shape[1])
        if positions is not None:
            # Scripts of bert4keras may have made them an input of floats.
            return self._rows(ops.cast(positions, "int32"))
        length = ops.shape(inputs)[1]
        if self._alpha is None:
            return self.embeddings[None, :length]
        return self._rows(ops.arange(length, dtype="int32")[None])

    def _rows(self, positions):
        if self._alpha is None:
            return ops.take(self.embeddings, positions, axis=0)
        alpha = self._alpha
        table = (self.embeddings - alpha * self.embeddings[:1]) / (1 - alpha)  # (n, D)
        outer = ops.take(table, positions // self.input_dim, axis=0)
        inner = ops.take(table, positions % self.input_dim, axis=0)
        return alpha * outer + (1 - alpha) * inner

    @property
    def max_positions(self):
        """How many positions there are vectors for."""
        return self.input_dim if self._alpha is None else self.input_dim**2

    def _check_length(self, length):
        most = self.max_positions
        if length is not None and length > most:
            squared = "" if self._alpha is None else " squared, as it is hierarchical"
            raise ConfigError(
                f"{self.name}: the input has {length} positions, the table "
                f"max_position_embeddings={self.input_dim}{squared}.\n"
                f"Expected at most {most}.\n"
                f"Cut the texts (tokenizer.encode(..., maxlen={most})), or use a "
                "checkpoint with more positions."
            )

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        return {**super().get_config(), "hierarchical": self.hierarchical}


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
class SingleSegmentEmbedding(TableLayer):
    """Adds the vector of segment 0 to every token.

    RoBERTa has a segment table but no segments; keeping it as it is keeps checkpoints exact.

    Args:
        input_dim: number of rows of the table, of which the first is used.
        embeddings_initializer: what the table starts with; None for BERT's.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: float tensor (B, L, E).

    Returns:
        Float tensor (B, L, E).

    Example:
        >>> SingleSegmentEmbedding(1)(keras.ops.ones((2, 5, 16))).shape
        TensorShape([2, 5, 16])
    """

    def __init__(self, input_dim, embeddings_initializer=None, **kwargs):
        super().__init__(input_dim, embeddings_initializer=embeddings_initializer, **kwargs)

    def build(self, input_shape):
        """Creates the table (input_dim, E)."""
        self.add_table(input_shape[-1])

    def call(self, inputs):
        """Returns `inputs` plus the first row of the table."""
        return inputs + self.embeddings[0]

    def compute_output_shape(self, input_shape):
        """The output has the shape of the input."""
        return input_shape


def _alpha(hierarchical):
    """Returns the share of the outer vector, or None if there is none.

    Raises:
        ConfigError: if the argument is no number between 0 and 1, nor a bool or None.
    """
    if hierarchical is None or hierarchical is False:
        return None
    if hierarchical is True:
        return _USUAL_ALPHA
    hint = f", or True for {_USUAL_ALPHA}"
    check_number("hierarchical", hierarchical, above=0, below=1, hint=hint)
    return float(hierarchical)

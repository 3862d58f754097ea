"""The attention halves of a Transformer block.

Shapes: B batch, L length (Q of queries, K of keys), H hidden size, N heads, S key size.
"""

import keras
from keras import ops

from kerasbert.errors import ConfigError
from kerasbert.layers.attention import MultiHeadAttention, check_position_bias
from kerasbert.layers.gated_attention import GatedAttentionUnit
from kerasbert.layers.residual import ResidualLayer


@keras.saving.register_keras_serializable(package="kerasbert")
class SelfAttention(ResidualLayer, MultiHeadAttention):
    """Multi-head self-attention with its residual connection and layer normalisation.

    Args:
        heads: number N of heads.
        **kwargs: further arguments of `MultiHeadAttention` except `out_dim`, and those of
            `ResidualLayer`.

    Call arguments:
        inputs: float tensor (B, L, H).
        attention_mask: bool tensor (B, 1, L) or (B, L, L); False keys are not seen.
        position_bias: see `MultiHeadAttention`.
        p_bias: see `MultiHeadAttention`.
        previous_scores: scores (B, N, L, L) of the block before, to be added to these
            (RealFormer).
        condition: float tensor (B, C) or (B, L, C), where the norm is conditional.
        adapter: number of the use whose adapters count, see `CompositeLayer`.

    Returns:
        Float tensor (B, L, H), and with `return_attention_scores` also the scores
        (B, N, L, L), float32, `previous_scores` included.

    Raises:
        ConfigError: as `MultiHeadAttention` does, and if there is an `out_dim`.

    Example:
        >>> SelfAttention(heads=4)(keras.ops.ones((2, 5, 32))).shape
        TensorShape([2, 5, 32])

    Source: as `MultiHeadAttention`; google-research/bert `modeling.py`; He et al. 2020
    (arXiv:2012.11747) for the scores of the block before.
    """

    def __init__(self, heads, **kwargs):
        super().__init__(heads=heads, **kwargs)
        _refuse(self, out_dim=self.out_dim)

    def build(
        self,
        inputs_shape,
        attention_mask_shape=None,
        position_bias_shape=None,
        previous_scores_shape=None,
        condition_shape=None,
    ):
        """Makes and builds the sub-layers for inputs of shape (B, L, H)."""
        self.build_dense(inputs_shape, inputs_shape, inputs_shape)
        self.build_residual(inputs_shape, condition_shape)

    def output_width(self, query_width):
        """The output is added to the input."""
        return query_width

    def call(
        self,
        inputs,
        attention_mask=None,
        position_bias=None,
        p_bias=None,
        previous_scores=None,
        condition=None,
        adapter=None,
    ):
        """Returns the hidden state after attention; see the class for shapes."""
        return self.extend(
            inputs,
            None,
            attention_mask,
            position_bias,
            p_bias,
            previous_scores,
            condition,
            adapter,
        )[0]

    def extend(
        self,
        inputs,
        memory,
        attention_mask=None,
        position_bias=None,
        p_bias=None,
        previous_scores=None,
        condition=None,
        adapter=None,
    ):
        """Attends to the tokens of before as well, whose keys and values are kept.

        Args:
            inputs: float tensor (B, L, H) of the new tokens.
            memory: None, or the pair of keys (B, N, M, S) and values (B, N, M, D) of M tokens.
            attention_mask: bool tensor (B, 1 or L, M + L); the new tokens come last.
            position_bias: as in a call, but with "typical_relative" and "t5_relative" it may
                have an axis of rows in front; K is M + L.
            p_bias: as in a call.
            previous_scores: scores (B, N, L, M + L) of the block before.
            condition: as in a call.
            adapter: as in a call.

        Returns:
            What a call returns, and the pair of keys and values of the new tokens.
        """
        check_position_bias(p_bias, position_bias)
        hidden = self.before(inputs, condition)
        new = self.keys_and_values(hidden, hidden, position_bias, p_bias, adapter)
        memories = [new] if memory is None else [memory, new]
        outputs, scores = self.attend_to(
            hidden, memories, attention_mask, position_bias, p_bias, previous_scores, adapter
        )
        outputs = self.after(inputs, outputs, condition)
        if not self.return_attention_scores:
            return outputs, new
        if previous_scores is not None:
            # Keras has given them the type that the layer computes in.
            scores = scores + ops.cast(previous_scores, scores.dtype)
        return (outputs, scores), new

    def compute_mask(self, inputs, previous_mask=None):
        """The output has the Keras mask of the input."""
        return previous_mask

    def compute_output_spec(
        self, inputs, attention_mask=None, position_bias=None, p_bias=None, *args, **kwargs
    ):
        """Returns the symbolic output for `inputs`."""
        check_position_bias(p_bias, position_bias)
        return self.specify(inputs, inputs, self.return_attention_scores)


@keras.saving.register_keras_serializable(package="kerasbert")
class CrossAttention(ResidualLayer, MultiHeadAttention):
    """Attention to another sequence, with residual connection and layer normalisation.

    Args:
        heads: number N of heads.
        **kwargs: further arguments of `MultiHeadAttention` except `out_dim` and
            `return_attention_scores`, and those of `ResidualLayer`.

    Call arguments:
        inputs: float tensor (B, Q, H), the queries.
        context: float tensor (B, K, ·), the keys and values.
        attention_mask: bool tensor (B, 1, K) or (B, Q, K); False keys are not seen.
        position_bias: see `MultiHeadAttention`.
        p_bias: see `MultiHeadAttention`.
        condition: float tensor (B, C) or (B, Q, C), where the norm is conditional.
        adapter: number of the use whose adapters count, see `CompositeLayer`.

    Returns:
        Float tensor (B, Q, H).

    Raises:
        ConfigError: as `MultiHeadAttention` does, and if there is an argument that it lacks.

    Example:
        >>> CrossAttention(4)(keras.ops.ones((2, 5, 32)), keras.ops.ones((2, 7, 16))).shape
        TensorShape([2, 5, 32])

    Source: as `MultiHeadAttention`.
    """

    def __init__(self, heads, **kwargs):
        super().__init__(heads=heads, **kwargs)
        _refuse(self, out_dim=self.out_dim, return_attention_scores=self.return_attention_scores)

    def build(
        self,
        inputs_shape,
        context_shape,
        attention_mask_shape=None,
        position_bias_shape=None,
        condition_shape=None,
    ):
        """Makes and builds the sub-layers for (B, Q, H) and (B, K, ·)."""
        self.build_dense(inputs_shape, context_shape, context_shape)
        self.build_residual(inputs_shape, condition_shape)

    def output_width(self, query_width):
        """The output is added to the input."""
        return query_width

    def call(
        self,
        inputs,
        context,
        attention_mask=None,
        position_bias=None,
        p_bias=None,
        condition=None,
        adapter=None,
    ):
        """Returns the hidden state after attention; see the class for shapes."""
        memory = self.keys_and_values(context, context, position_bias, p_bias, adapter)
        return self.recall(
            inputs, memory, attention_mask, position_bias, p_bias, condition, adapter
        )

    def recall(
        self,
        inputs,
        memory,
        attention_mask=None,
        position_bias=None,
        p_bias=None,
        condition=None,
        adapter=None,
    ):
        """Returns what a call does, for the pair of keys and values of a context seen before."""
        check_position_bias(p_bias, position_bias)
        hidden = self.before(inputs, condition)
        outputs, _ = self.attend_to(
            hidden, [memory], attention_mask, position_bias, p_bias, adapter=adapter
        )
        return self.after(inputs, outputs, condition)

    def compute_mask(self, inputs, previous_mask=None):
        """The output has the Keras mask of the input."""
        return previous_mask

    def compute_output_spec(
        self, inputs, context, attention_mask=None, position_bias=None, p_bias=None, **kwargs
    ):
        """Returns the symbolic output for `inputs`."""
        check_position_bias(p_bias, position_bias)
        return self.specify(inputs, context, with_scores=False)


@keras.saving.register_keras_serializable(package="kerasbert")
class ResidualGatedAttention(ResidualLayer, GatedAttentionUnit):
    """`GatedAttentionUnit` with its residual connection and layer normalisation: a whole block.

    Args:
        units: as in `GatedAttentionUnit`.
        key_size: as in `GatedAttentionUnit`.
        **kwargs: further arguments of `GatedAttentionUnit`, whose `self_attention` has to stay
            True, and those of `ResidualLayer`.

    Call arguments:
        inputs: float tensor (B, L, H).
        attention_mask: bool tensor (B, 1, L) or (B, L, L); False keys are not seen.
        position_bias: sinusoidal vectors (1 or B, L, S), by which queries and keys are rotated.
        condition: float tensor (B, C) or (B, L, C), where the norm is conditional.
        adapter: number of the use whose adapters count, see `CompositeLayer`.

    Returns:
        Float tensor (B, L, H).

    Raises:
        ConfigError: as `GatedAttentionUnit` does.

    Example:
        >>> ResidualGatedAttention(64, key_size=16)(keras.ops.ones((2, 5, 32))).shape
        TensorShape([2, 5, 32])

    Source: as `GatedAttentionUnit`.
    """

    def __init__(self, units, key_size, **kwargs):
        super().__init__(units=units, key_size=key_size, **kwargs)

    def build(
        self,
        inputs_shape,
        attention_mask_shape=None,
        position_bias_shape=None,
        condition_shape=None,
    ):
        """Makes and builds the sub-layers for inputs of shape (B, L, H)."""
        self.build_dense(inputs_shape)
        self.build_residual(inputs_shape, condition_shape)

    def call(self, inputs, attention_mask=None, position_bias=None, condition=None, adapter=None):
        """Returns the hidden state after the block; see the class for shapes."""
        return self.extend(inputs, None, attention_mask, position_bias, condition, adapter)[0]

    def extend(
        self,
        inputs,
        memory,
        attention_mask=None,
        position_bias=None,
        condition=None,
        adapter=None,
    ):
        """Attends to the tokens of before as well, as `SelfAttention.extend` does.

        The memory is the pair of keys (B, M, S) and values (B, M, U).
        """
        hidden = self.before(inputs, condition)
        outputs, new = self.attend_from(hidden, memory, attention_mask, position_bias, adapter)
        return self.after(inputs, outputs, condition), new

    def compute_mask(self, inputs, previous_mask=None):
        """The output has the Keras mask of the input."""
        return previous_mask

    def compute_output_shape(
        self,
        inputs_shape,
        attention_mask_shape=None,
        position_bias_shape=None,
        condition_shape=None,
    ):
        """The output has the shape of the input."""
        return tuple(inputs_shape)


def _refuse(layer, **arguments):
    """Refuses arguments of `MultiHeadAttention` that mean nothing here."""
    for name, value in arguments.items():
        if value:
            raise ConfigError(
                f"{name}={value!r} for a {type(layer).__name__}.\n"
                "Expected none: the output is one tensor, added to the queries.\n"
                "Leave it away, or use MultiHeadAttention."
            )

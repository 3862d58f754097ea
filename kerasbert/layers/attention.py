"""The attention half of a Transformer block.

Shapes: B batch, L length, H hidden size, N heads, D = H / N head size.
"""

import math

import keras
from keras import ops

from kerasbert.errors import ConfigError, check_integer
from kerasbert.layers.composite import ResidualLayer

# Far below any score, yet finite in float32, in which the softmax is computed.
_MASKED_SCORE = -1e9


@keras.saving.register_keras_serializable(package="kerasbert")
class SelfAttention(ResidualLayer):
    """Multi-head self-attention with its residual connection and layer normalisation.

    Args:
        num_heads: number N of heads; must divide the width of the input.
        attention_rate: dropout rate of the attention probabilities, from 0 to 1.
        **kwargs: arguments of `ResidualLayer`.

    Call arguments:
        inputs: float tensor (B, L, H).
        attention_mask: bool tensor (B, 1, L) or (B, L, L); False keys are not seen. Each
            row must leave at least one key visible.

    Returns:
        Float tensor (B, L, H).

    Raises:
        ConfigError: if `num_heads` is not a positive integer that divides H.

    Example:
        >>> SelfAttention(num_heads=4)(keras.ops.ones((2, 5, 32))).shape
        TensorShape([2, 5, 32])

    Source: Vaswani et al. 2017 (arXiv:1706.03762); google-research/bert `modeling.py`.
    """

    def __init__(self, num_heads, attention_rate=0.0, **kwargs):
        super().__init__(**kwargs)
        check_integer("num_heads", num_heads, minimum=1)
        self.num_heads = num_heads
        self.attention_rate = attention_rate

    def build(self, inputs_shape, attention_mask_shape=None):
        """Makes and builds the sub-layers for inputs of shape (B, L, H)."""
        hidden_size = inputs_shape[-1]
        if hidden_size % self.num_heads:
            raise ConfigError(
                f"{self.name}: the input is {hidden_size} wide, not a multiple of "
                f"num_heads={self.num_heads}.\nExpected every head to have the same width."
            )
        self.query = self.built_dense("query", hidden_size, inputs_shape)
        self.key = self.built_dense("key", hidden_size, inputs_shape)
        self.value = self.built_dense("value", hidden_size, inputs_shape)
        self.output_dense = self.built_dense("output", hidden_size, inputs_shape)
        self.attention_dropout = keras.layers.Dropout(
            self.attention_rate, name="attention_dropout", dtype=self.dtype_policy
        )
        super().build(inputs_shape)

    def call(self, inputs, attention_mask=None):
        """Returns the hidden state after attention; see the class for shapes."""
        return self.residual(inputs, lambda hidden: self._attend(hidden, attention_mask))

    def _attend(self, hidden, attention_mask):
        # Scaled before the product, which in float16 would sooner overflow.
        scale = math.sqrt(self.num_heads / hidden.shape[-1])
        query = self._split_heads(self.query(hidden) * scale)  # (B, N, L, D)
        key = self._split_heads(self.key(hidden))  # (B, N, L, D)
        value = self._split_heads(self.value(hidden))  # (B, N, L, D)
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))  # (B, N, L, L)
        scores = ops.cast(scores, "float32")
        if attention_mask is not None:
            masked = ops.cast(ops.logical_not(attention_mask), "float32") * _MASKED_SCORE
            scores = scores + ops.expand_dims(masked, axis=1)
        probabilities = ops.cast(ops.softmax(scores, axis=-1), self.compute_dtype)
        context = ops.matmul(self.attention_dropout(probabilities), value)  # (B, N, L, D)
        context = ops.transpose(context, (0, 2, 1, 3))  # (B, L, N, D)
        return self.output_dense(ops.reshape(context, ops.shape(hidden)))  # (B, L, H)

    def _split_heads(self, tensor):
        length, width = ops.shape(tensor)[1], tensor.shape[-1]
        heads = ops.reshape(tensor, (-1, length, self.num_heads, width // self.num_heads))
        return ops.transpose(heads, (0, 2, 1, 3))

    def compute_output_shape(self, inputs_shape, attention_mask_shape=None):
        """The output has the shape of the input."""
        return inputs_shape

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "attention_rate": self.attention_rate,
        }

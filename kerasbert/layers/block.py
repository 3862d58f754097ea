"""A Transformer block as a pair of layers."""

from dataclasses import dataclass

import keras


@dataclass(frozen=True, eq=False)
class TransformerBlock:
    """An attention and a feed-forward layer, called in turn, a cross-attention between them.

    It is not a Keras layer: only a layer that is itself a node of the functional graph
    stays shared when a model is saved and loaded, and un-sharing replaces parts of blocks.

    Attributes:
        attention: a layer such as `SelfAttention`.
        feed_forward: a layer such as `ResidualFeedForward`, or None.
        cross_attention: a `CrossAttention`, or None.

    Example:
        >>> from kerasbert.layers import ResidualFeedForward, SelfAttention
        >>> block = TransformerBlock(SelfAttention(4), ResidualFeedForward(64, "relu"))
        >>> hidden, scores = block(keras.ops.ones((2, 5, 32)))
        >>> hidden.shape
        TensorShape([2, 5, 32])
    """

    attention: keras.layers.Layer
    feed_forward: keras.layers.Layer | None = None
    cross_attention: keras.layers.Layer | None = None

    def __call__(self, hidden, attention=None, cross_attention=None, condition=None):
        """Runs the block.

        Args:
            hidden: float tensor (B, L, H).
            attention: dict of further arguments of the attention layer, such as its mask.
            cross_attention: dict of further arguments of the cross-attention.
            condition: what conditional norms get, if they are conditional.

        Returns:
            The hidden state (B, L, H), and the attention scores if that layer returns them,
            else None.
        """
        condition = {} if condition is None else {"condition": condition}
        outputs = self.attention(hidden, **(attention or {}), **condition)
        hidden, scores = outputs if isinstance(outputs, list | tuple) else (outputs, None)
        if self.cross_attention is not None:
            hidden = self.cross_attention(hidden, **(cross_attention or {}), **condition)
        if self.feed_forward is not None:
            hidden = self.feed_forward(hidden, **condition)
        return hidden, scores

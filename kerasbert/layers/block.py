"""A Transformer block as a pair of layers."""

from dataclasses import dataclass

from kerasbert.layers.attention import SelfAttention
from kerasbert.layers.feed_forward import FeedForward


@dataclass(frozen=True, eq=False)
class TransformerBlock:
    """One attention and one feed-forward layer, called in turn.

    It is not a Keras layer: only a layer that is itself a node of the functional graph
    stays shared when a model is saved and loaded, and un-sharing replaces halves of blocks.

    Example:
        >>> block = TransformerBlock(SelfAttention(4), FeedForward(64, "relu"))
        >>> block(keras.ops.ones((2, 5, 32))).shape
        TensorShape([2, 5, 32])
    """

    attention: SelfAttention
    feed_forward: FeedForward

    def __call__(self, hidden, attention_mask=None):
        """Returns the hidden state (B, L, H) after the block."""
        return self.feed_forward(self.attention(hidden, attention_mask=attention_mask))

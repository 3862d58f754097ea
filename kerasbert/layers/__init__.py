"""The layers, all registered with Keras under the package name `kerasbert`."""

from kerasbert.layers.attention import SelfAttention
from kerasbert.layers.block import TransformerBlock
from kerasbert.layers.embeddings import Embedding, PositionEmbedding, TiedProjection
from kerasbert.layers.feed_forward import FeedForward
from kerasbert.layers.heads import BiasAdd, FirstToken, LastAxisSqueeze
from kerasbert.layers.masking import AttentionMask

__all__ = [
    "AttentionMask",
    "BiasAdd",
    "Embedding",
    "FeedForward",
    "FirstToken",
    "LastAxisSqueeze",
    "PositionEmbedding",
    "SelfAttention",
    "TiedProjection",
    "TransformerBlock",
]

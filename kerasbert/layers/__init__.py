"""The layers, all registered with Keras under the package name `kerasbert`."""

from kerasbert.layers.attention import SelfAttention
from kerasbert.layers.block import TransformerBlock
from kerasbert.layers.crf import ConditionalRandomField
from kerasbert.layers.embeddings import Embedding, TiedProjection
from kerasbert.layers.feed_forward import FeedForward
from kerasbert.layers.heads import BiasAdd, FirstToken, TakeFeature
from kerasbert.layers.masking import AttentionMask, PaddingMask
from kerasbert.layers.memm import MaximumEntropyMarkovModel
from kerasbert.layers.positions import (
    PositionEmbedding,
    PositionsOfTokens,
    SingleSegmentEmbedding,
)

__all__ = [
    "AttentionMask",
    "BiasAdd",
    "ConditionalRandomField",
    "Embedding",
    "FeedForward",
    "FirstToken",
    "MaximumEntropyMarkovModel",
    "PaddingMask",
    "PositionEmbedding",
    "PositionsOfTokens",
    "SelfAttention",
    "SingleSegmentEmbedding",
    "TakeFeature",
    "TiedProjection",
    "TransformerBlock",
]

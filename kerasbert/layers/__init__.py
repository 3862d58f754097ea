"""The layers, all registered with Keras under the package name `kerasbert`."""

from kerasbert.layers.attention import MultiHeadAttention
from kerasbert.layers.block import TransformerBlock
from kerasbert.layers.embeddings import Embedding, TiedProjection
from kerasbert.layers.feed_forward import FeedForward, ResidualFeedForward
from kerasbert.layers.heads import BiasAdd, FirstToken, TakeFeature
from kerasbert.layers.masking import AttentionMask, PaddingMask, VectorMask, ZeroPadding
from kerasbert.layers.normalization import LayerNormalization
from kerasbert.layers.positions import (
    PositionEmbedding,
    PositionsOfTokens,
    SingleSegmentEmbedding,
)
from kerasbert.layers.relative_positions import (
    RelativePositionEmbedding,
    RelativePositionEmbeddingT5,
)
from kerasbert.layers.residual_attention import CrossAttention, SelfAttention
from kerasbert.layers.scale_offset import ScaleOffset

__all__ = [
    "AttentionMask",
    "BiasAdd",
    "CrossAttention",
    "Embedding",
    "FeedForward",
    "FirstToken",
    "LayerNormalization",
    "MultiHeadAttention",
    "PaddingMask",
    "PositionEmbedding",
    "PositionsOfTokens",
    "ResidualFeedForward",
    "ScaleOffset",
    "SelfAttention",
    "SingleSegmentEmbedding",
    "TakeFeature",
    "TiedProjection",
    "TransformerBlock",
    "VectorMask",
    "ZeroPadding",
]

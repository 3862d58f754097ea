"""The layers, all registered with Keras under the package name `kerasbert`."""

from kerasbert.layers.attention import SelfAttention
from kerasbert.layers.block import TransformerBlock
from kerasbert.layers.embeddings import Embedding, TiedProjection
from kerasbert.layers.feed_forward import FeedForward
from kerasbert.layers.gated_attention import GatedAttentionUnit
from kerasbert.layers.heads import BiasAdd, FirstToken, TakeFeature
from kerasbert.layers.masking import AttentionMask, PaddingMask
from kerasbert.layers.positions import (
    PositionEmbedding,
    PositionsOfTokens,
    SingleSegmentEmbedding,
)
from kerasbert.layers.relative_positions import (
    RelativePositionEmbedding,
    RelativePositionEmbeddingT5,
)
from kerasbert.layers.scale_offset import ScaleOffset
from kerasbert.layers.sinusoidal import Sinusoidal, SinusoidalPositionEmbedding

__all__ = [
    "AttentionMask",
    "BiasAdd",
    "Embedding",
    "FeedForward",
    "FirstToken",
    "GatedAttentionUnit",
    "PaddingMask",
    "PositionEmbedding",
    "PositionsOfTokens",
    "RelativePositionEmbedding",
    "RelativePositionEmbeddingT5",
    "ScaleOffset",
    "SelfAttention",
    "SingleSegmentEmbedding",
    "Sinusoidal",
    "SinusoidalPositionEmbedding",
    "TakeFeature",
    "TiedProjection",
    "TransformerBlock",
]

"""The layers, all registered with Keras under the package name `kerasbert`."""

from kerasbert.layers.attention import MultiHeadAttention
from kerasbert.layers.block import TransformerBlock
from kerasbert.layers.crf import ConditionalRandomField
from kerasbert.layers.embeddings import Embedding, TiedProjection
from kerasbert.layers.feed_forward import FeedForward, ResidualFeedForward
from kerasbert.layers.gated_attention import GatedAttentionUnit
from kerasbert.layers.global_pointer import EfficientGlobalPointer, GlobalPointer
from kerasbert.layers.heads import BiasAdd, FirstToken, TakeFeature
from kerasbert.layers.loss import Loss
from kerasbert.layers.low_rank import LowRankAdapter
from kerasbert.layers.masking import AttentionMask, PaddingMask, VectorMask, ZeroPadding
from kerasbert.layers.memm import MaximumEntropyMarkovModel
from kerasbert.layers.normalization import LayerNormalization
from kerasbert.layers.places import KeepHardest, PutPlaces, SampleTokens, TakePlaces
from kerasbert.layers.pooling import GlobalAveragePooling1D, GlobalMaxPooling1D
from kerasbert.layers.positions import PositionEmbedding, PositionsOfTokens, SingleSegmentEmbedding
from kerasbert.layers.relative_positions import (
    RelativePositionEmbedding,
    RelativePositionEmbeddingT5,
    SinusoidalRelativePositionEmbedding,
)
from kerasbert.layers.residual_attention import (
    CrossAttention,
    ResidualGatedAttention,
    SelfAttention,
)
from kerasbert.layers.scale_offset import ScaleOffset
from kerasbert.layers.sinusoidal import SinusoidalPositionEmbedding

__all__ = [
    "AttentionMask",
    "BiasAdd",
    "ConditionalRandomField",
    "CrossAttention",
    "EfficientGlobalPointer",
    "Embedding",
    "FeedForward",
    "FirstToken",
    "GatedAttentionUnit",
    "GlobalAveragePooling1D",
    "GlobalMaxPooling1D",
    "GlobalPointer",
    "KeepHardest",
    "LayerNormalization",
    "Loss",
    "LowRankAdapter",
    "MaximumEntropyMarkovModel",
    "MultiHeadAttention",
    "PaddingMask",
    "PositionEmbedding",
    "PositionsOfTokens",
    "PutPlaces",
    "RelativePositionEmbedding",
    "RelativePositionEmbeddingT5",
    "ResidualFeedForward",
    "ResidualGatedAttention",
    "SampleTokens",
    "ScaleOffset",
    "SelfAttention",
    "SingleSegmentEmbedding",
    "SinusoidalPositionEmbedding",
    "SinusoidalRelativePositionEmbedding",
    "TakeFeature",
    "TakePlaces",
    "TiedProjection",
    "TransformerBlock",
    "VectorMask",
    "ZeroPadding",
]

"""RoBERTa as Hugging Face stores it, and DistilBERT.

The Chinese models called RoBERTa (HFL, brightmart, Zhuiyi) are BERTs: see `bert.py`.
"""

import keras

from kerasbert import activations
from kerasbert.layers import PaddingMask, PositionsOfTokens, SingleSegmentEmbedding
from kerasbert.models.encoder import Encoder


class RoBERTa(Encoder):
    """BERT without segments, with padding id 1 and positions counted over real tokens only.

    Source: Liu et al. 2019 (arXiv:1907.11692); Hugging Face transformers, `roberta`.
    """

    family = "roberta"
    supported_heads = ("with_pool", "with_mlm", "with_classifier")
    has_segment_input = False

    def padding(self, tokens):
        """Returns an int tensor (B, L) that is zero at padding."""
        mask = self.layer(PaddingMask, "Padding-Mask", pad_token_id=self.config.pad_token_id)
        return mask(tokens)

    def add_segments(self, hidden, segments, padding):
        """Adds the vector of the only segment in use."""
        segment = self.layer(
            SingleSegmentEmbedding,
            "Embedding-Segment",
            input_dim=self.config.type_vocab_size,
            embeddings_initializer=self.initializer,
        )
        return segment(hidden)

    def positions(self, padding):
        """Returns the rows of the position table, which begin after that of padding."""
        if self.position_ids is not None:
            return self.position_ids
        layer = self.layer(PositionsOfTokens, "Position-Ids", pad_token_id=self.config.pad_token_id)
        return layer(padding)

    def mlm_transform_activation(self):
        """The head has exact GELU whatever hidden_act says."""
        return activations.gelu_erf

    def sequence_features(self, hidden):
        """Returns what the classifier of whole texts sees (B, H)."""
        return self.first_token_features(hidden, keras.activations.tanh)


class DistilBERT(Encoder):
    """BERT with half the layers, without segments and pooler.

    Source: Sanh et al. 2019 (arXiv:1910.01108); Hugging Face transformers, `distilbert`.
    """

    family = "distilbert"
    supported_heads = ("with_mlm", "with_classifier")

    def sequence_features(self, hidden):
        """Returns what the classifier of whole texts sees (B, H)."""
        return self.first_token_features(hidden, keras.activations.relu)

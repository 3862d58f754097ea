"""GAU-alpha: one gated attention unit for a block."""

from types import MappingProxyType

from kerasbert.errors import ConfigError
from kerasbert.layers import ResidualGatedAttention
from kerasbert.models.roformer import RoFormerV2


class GAUAlpha(RoFormerV2):
    """RoFormer V2 whose blocks are gated attention units, without feed-forward part.

    `intermediate_size` is the width of gate and values, `attention_key_size` that of queries
    and keys.

    Source: ZhuiyiTechnology/GAU-alpha; https://kexue.fm/archives/9052; Hua et al. 2022
    (arXiv:2202.10447).
    """

    family = "gau_alpha"
    config_defaults = MappingProxyType({"attention_key_size": 128})
    initializer_order = 3

    def position_bias(self, hidden):
        """Returns the sinusoidal vectors (1 or B, L, S) by which queries and keys are rotated."""
        return {"position_bias": super().position_bias(hidden)["position_bias"]}

    def make_attention(self, block_name):
        """Returns the gated attention unit that is a block.

        Raises:
            ConfigError: if blocks should hand on their attention scores.
        """
        config = self.config
        if config.residual_attention_scores:
            raise ConfigError(
                "residual_attention_scores=True for a model of the gau_alpha family.\n"
                "Expected it to be left out: its blocks do not hand on their scores."
            )
        return self.layer(
            ResidualGatedAttention,
            f"{block_name}-GatedAttentionUnit",
            units=config.intermediate_size,
            key_size=config.attention_key_size,
            activation=config.hidden_act,
            normalization="softmax_plus",
            attention_dropout=config.attention_probs_dropout_prob,
            **self.residual_arguments(),
        )

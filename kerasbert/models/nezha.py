"""NEZHA: BERT whose attention knows distances instead of positions."""

from kerasbert.errors import ConfigError
from kerasbert.layers import SinusoidalRelativePositionEmbedding
from kerasbert.models.encoder import Encoder


class NEZHA(Encoder):
    """BERT without position table; fixed vectors of the distance join keys and values.

    Source: Wei et al. 2019 (arXiv:1909.00204); huawei-noah/Pretrained-Language-Model,
    NEZHA-TensorFlow `modeling.py`.
    """

    family = "nezha"

    def add_positions(self, hidden, padding):
        """Positions stand in the attention alone."""
        return hidden

    def position_bias(self, hidden):
        """Returns the vectors (L, L, D) of the distance of every key from every query.

        Raises:
            ConfigError: if positions are given, or keys and values have different widths.
        """
        config = self.config
        if self.position_ids is not None:
            raise ConfigError(
                "custom_position_ids=True, but NEZHA has no positions, only distances.\n"
                "Expected it to be left out.\n"
                "A model with positions that may be chosen is model='roformer'."
            )
        why = "NEZHA adds one vector to keys and values"
        self.require_equal("attention_key_size", "attention_head_size", why)
        vectors = self.layer(
            SinusoidalRelativePositionEmbedding,
            "Embedding-Relative-Position",
            input_dim=2 * config.max_relative_position + 1,
            output_dim=config.attention_key_size,
        )
        return {"position_bias": vectors(hidden), "p_bias": "typical_relative"}

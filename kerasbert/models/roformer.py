"""RoFormer and RoFormer V2: queries and keys are rotated by their positions."""

from kerasbert import activations
from kerasbert.errors import ConfigError
from kerasbert.layers import SinusoidalPositionEmbedding
from kerasbert.layers.initializers import DepthScaledNormal
from kerasbert.models.encoder import Encoder


class RoFormer(Encoder):
    """BERT with rotary positions in the place of a position table.

    Source: Su et al. 2021 (arXiv:2104.09864); ZhuiyiTechnology/roformer; Hugging Face
    transformers, `roformer`, for the classifier.
    """

    family = "roformer"

    def add_positions(self, hidden, padding):
        """Positions stand in the attention alone."""
        return hidden

    def position_bias(self, hidden):
        """Returns the sinusoidal vectors (1 or B, L, D) by which queries and keys are rotated."""
        waves = self.layer(
            SinusoidalPositionEmbedding,
            "Embedding-Rotary-Position",
            output_dim=self.config.attention_key_size,
            merge_mode="zero",
            custom_position_ids=self.options.custom_position_ids,
        )
        if self.position_ids is None:
            return {"position_bias": waves(hidden), "p_bias": "rotary"}
        return {"position_bias": waves(hidden, positions=self.position_ids), "p_bias": "rotary"}

    def sequence_features(self, hidden):
        """Returns what the classifier of whole texts sees (B, H)."""
        return self.first_token_features(hidden, activations.get(self.config.hidden_act))


class RoFormerV2(RoFormer):
    """RoFormer without biases, whose norms only divide by the root of the mean square.

    Source: ZhuiyiTechnology/roformer-v2; https://kexue.fm/archives/8998.
    """

    family = "roformer_v2"
    supported_heads = ("with_mlm",)
    use_bias = False
    initializer_order = 2

    @property
    def initializer(self):
        """A new initializer whose range depends on the depth of the model."""
        return DepthScaledNormal(self.config.num_hidden_layers, self.initializer_order)

    def dense(self, name, units, **arguments):
        """Returns a dense layer without bias."""
        return super().dense(name, units, use_bias=False, **arguments)

    def norm_arguments(self):
        """Returns the arguments of every norm of the model.

        Raises:
            ConfigError: if there is a condition for them.
        """
        if self.options.layer_norm_cond is not None:
            raise ConfigError(
                f"layer_norm_cond= was given for a model of the {self.family} family.\n"
                "Expected none: its norms have neither gamma nor beta that could be shifted.\n"
                "Choose another model, or condition its output."
            )
        without = {"zero_mean": False, "scale": False, "offset": False}
        return {**super().norm_arguments(), **without}

    def finish_embedding(self, hidden, segments, padding):
        """Adds segment vectors, then drops out and normalises."""
        hidden = self.add_segments(hidden, segments, padding)
        return self.normalize("Embedding-Norm", self.drop("Embedding-Dropout", hidden))

    def masked_lm(self, hidden):
        """Returns the masked-LM output (B, L, V); only the way back to E has weights."""
        activation = self.head_activation("with_mlm", self.options.with_mlm, default="softmax")
        if self.config.has_projection:
            hidden = self.dense("Output-Mapping", self.config.embedding_size)(hidden)  # (B, L, E)
        hidden = self.drop("Output-MLM-Dropout", hidden)
        logits = self.layers["Embedding-Token"](hidden, mode="dense")
        return self.float32_activation("Output-MLM-Activation", activation)(logits)

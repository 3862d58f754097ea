"""ALBERT: factorised embeddings and blocks that serve several depths."""

from kerasbert.layers import TiedProjection
from kerasbert.models.encoder import Encoder


class ALBERT(Encoder):
    """One block per (group, inner) position, called at every depth that has this position.

    A configuration with `embedding_order="project_first"` gives the architecture of
    brightmart's early albert_zh, which differs in embeddings and masked-LM head.

    Source: Lan et al. 2019 (arXiv:1909.11942); google-research/albert `modeling.py`;
    brightmart/albert_zh `modeling.py`.
    """

    family = "albert"

    def embed(self, tokens, segments, padding):
        """Returns the input (B, L, H) of the first block."""
        if not self.config.projects_first:
            return super().embed(tokens, segments, padding)
        hidden = self.projection(self.embed_tokens(tokens, padding))  # (B, L, H)
        return self.finish_embedding(hidden, segments, padding)

    def to_token_width(self, hidden):
        """Brings the transformed hidden state to the width E of the token table."""
        if not self.config.projects_first:
            return hidden
        return self.projection(hidden, transpose=True)  # (B, L, E)

    @property
    def projection(self):
        """The projection E -> H that the early albert_zh also uses backwards."""
        return self.layer(
            TiedProjection,
            "Embedding-Mapping",
            units=self.config.hidden_size,
            kernel_initializer=self.initializer,
        )


class ALBERTUnshared(ALBERT):
    """ALBERT with a block of its own at every depth, to be filled from the shared ones.

    The idea is to drop the sharing constraint when fine-tuning.
    """

    def __init__(self, config, options):
        super().__init__(config.replace(unshare="all", unshare_layers=None), options)

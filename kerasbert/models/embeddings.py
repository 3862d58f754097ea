"""From token ids to the input of the first block.

Shapes: B batch, L length, V vocabulary, E embedding size, H hidden size.
"""

import keras

from kerasbert.errors import ConfigError
from kerasbert.layers import Embedding, PositionEmbedding


class Embeddings:
    """The steps of `Encoder` that turn token ids (B, L) into the first hidden state (B, L, H)."""

    def embed(self, tokens, segments, padding):
        """Returns the input (B, L, H) of the first block."""
        hidden = self.embed_tokens(tokens, padding)  # (B, L, E)
        hidden = self.finish_embedding(hidden, segments, padding)
        if self.config.has_projection:
            hidden = self.dense("Embedding-Mapping", self.config.hidden_size)(hidden)  # (B, L, H)
        return hidden

    def embed_tokens(self, tokens, padding):
        """Returns the rows (B, L, E) of the token table, with their Keras mask attached."""
        table = self.layer(
            Embedding,
            "Embedding-Token",
            input_dim=self.config.vocab_size,
            output_dim=self.config.embedding_size,
            embeddings_initializer=self.initializer,
        )
        return table(tokens, mask=padding)

    def finish_embedding(self, hidden, segments, padding):
        """Adds segment and position vectors, then normalises and drops out."""
        hidden = self.add_segments(hidden, segments, padding)
        hidden = self.add_positions(hidden, padding)
        return self.drop("Embedding-Dropout", self.normalize("Embedding-Norm", hidden))

    def add_segments(self, hidden, segments, padding):
        """Adds the vectors of the segments, if the model has any."""
        if self.config.shared_segment_embeddings:
            self._refuse_shared_segments(segments)
        if segments is None:
            return hidden
        if self.config.shared_segment_embeddings:
            table = self.layers["Embedding-Token"]
        else:
            table = self.layer(
                Embedding,
                "Embedding-Segment",
                input_dim=self.config.type_vocab_size,
                output_dim=self.config.norm_width,
                embeddings_initializer=self.initializer,
            )
        # The sum keeps a Keras mask only if both of its terms have one.
        vectors = table(segments, mask=padding)
        return self.layer(keras.layers.Add, "Embedding-Token-Segment")([hidden, vectors])

    def _refuse_shared_segments(self, segments):
        """Refuses shared_segment_embeddings where it could not do anything, or not fit."""
        obstacle = None
        if segments is None:
            obstacle = "the model has no segment input"
        elif self.config.projects_first:
            obstacle = "segments are added after the projection, in another width"
        if obstacle:
            raise ConfigError(
                f"shared_segment_embeddings=True, but {obstacle}.\n"
                "Expected segments that are added to the rows of the token table.\n"
                "Leave shared_segment_embeddings out."
            )

    def add_positions(self, hidden, padding):
        """Adds the vectors of the positions."""
        position = self.layer(
            PositionEmbedding,
            "Embedding-Position",
            input_dim=self.config.max_position_embeddings,
            hierarchical=self.config.hierarchical_position,
            embeddings_initializer=self.initializer,
        )
        return position(hidden, positions=self.positions(padding))

    def positions(self, padding):
        """Returns the position (B, L) of every token, or None if tokens just count up."""
        return self.position_ids

"""The graph that all encoders share: inputs -> embeddings -> blocks -> heads -> Keras model.

Shapes: B batch, L length, V vocabulary, E embedding size, H hidden size.
"""

import keras

from kerasbert.layers import (
    AttentionMask,
    Embedding,
    FeedForward,
    PositionEmbedding,
    SelfAttention,
    TransformerBlock,
)
from kerasbert.layers.composite import truncated_normal
from kerasbert.models.heads import Heads


class Encoder(Heads):
    """Builds the functional Keras model of one encoder, top to bottom as in the BERT paper.

    Subclasses override the step in which they differ.

    Args:
        config: a `ModelConfig`.
        options: a `BuildOptions`.

    Attributes:
        model: the `keras.Model`.
        inputs, outputs: its symbolic tensors.
        layers: dict from a layer's name, without prefix, to the layer.
        hidden_states: the L + 1 symbolic hidden states, input of the first block first.

    Source: Devlin et al. 2018 (arXiv:1810.04805); layer names follow bert4keras.
    """

    family = None

    def __init__(self, config, options):
        self.refuse_other_heads(options)
        self.config = config
        self.options = options
        self.layers = {}
        self._build()

    def _build(self):
        # === Inputs ===
        self.inputs = self.make_inputs()
        tokens, *rest = self.inputs
        segments = rest.pop(0) if self.has_segment_input else None
        padding = rest.pop(0) if self.options.with_mask_input else self.padding(tokens)
        # === Embeddings ===
        attention_mask = self.attention_mask(padding)
        hidden = self.embed(tokens, segments, padding)
        # === Blocks ===
        self.hidden_states = [hidden]
        for block in self.make_blocks():
            hidden = block(hidden, attention_mask)
            self.hidden_states.append(hidden)
        # === Heads ===
        outputs = self.make_heads(hidden) or [hidden]
        if self.options.hidden_states:
            outputs = [*outputs, self.hidden_states]
        self.outputs = outputs[0] if len(outputs) == 1 else outputs
        # A single input is not wrapped, so that model(ids) is as right as model([ids]).
        inputs = self.inputs[0] if len(self.inputs) == 1 else self.inputs
        self.model = keras.Model(inputs, self.outputs, name=self.options.name)
        # The model computes nothing itself, but keras.Sequential makes its input with this
        # type, and token ids do not fit into float16.
        self.model.dtype_policy = keras.DTypePolicy("float32")

    # --- steps, in the order in which they are taken ---

    def make_inputs(self):
        """Returns the inputs: token ids, segment ids unless switched off, a mask if asked for."""
        names = ["Input-Token"]
        if self.has_segment_input:
            names.append("Input-Segment")
        if self.options.with_mask_input:
            names.append("Input-Mask")
        # Ids are integers whatever the precision: float16 turns id 20001 into 20000.
        return [
            keras.Input((self.options.sequence_length,), dtype="int32", name=self.full_name(name))
            for name in names
        ]

    @property
    def has_segment_input(self):
        """Whether the model distinguishes segments."""
        return self.config.type_vocab_size > 0

    def padding(self, tokens):
        """Returns an int tensor (B, L) that is zero at padding."""
        return tokens

    def attention_mask(self, padding):
        """Returns the bool mask (B, 1, L) that all blocks receive."""
        label = {"config": self.config.to_dict(), "prefix": self.options.prefix}
        return self.layer(AttentionMask, "Attention-Mask", label=label)(padding)

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
        hidden = self.norm("Embedding-Norm")(hidden)
        rate = self.config.hidden_dropout_prob
        return self.layer(keras.layers.Dropout, "Embedding-Dropout", rate=rate)(hidden)

    def add_segments(self, hidden, segments, padding):
        """Adds the vectors of the segments, if the model has any."""
        if segments is None:
            return hidden
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

    def add_positions(self, hidden, padding):
        """Adds the vectors of the positions."""
        position = self.layer(
            PositionEmbedding,
            "Embedding-Position",
            input_dim=self.config.max_position_embeddings,
            embeddings_initializer=self.initializer,
        )
        return position(hidden, positions=self.positions(padding))

    def positions(self, padding):
        """Returns the position (B, L) of every token, or None if tokens just count up."""
        return None

    def make_blocks(self):
        """Returns the block of every depth; depths that share one get the same object."""
        sharing = self.config.sharing
        attention = {name: self.make_attention(name) for name in sharing.names("attention")}
        feed_forward = {
            name: self.make_feed_forward(name) for name in sharing.names("feed_forward")
        }
        pairs = list(zip(sharing.names("attention"), sharing.names("feed_forward"), strict=True))
        blocks = {
            pair: TransformerBlock(attention[pair[0]], feed_forward[pair[1]]) for pair in pairs
        }
        return [blocks[pair] for pair in pairs]

    def make_attention(self, block_name):
        """Returns the attention layer of a block."""
        return self.layer(
            SelfAttention,
            f"{block_name}-MultiHeadSelfAttention",
            num_heads=self.config.num_attention_heads,
            attention_rate=self.config.attention_probs_dropout_prob,
            **self._residual_arguments(),
        )

    def make_feed_forward(self, block_name):
        """Returns the feed-forward layer of a block."""
        return self.layer(
            FeedForward,
            f"{block_name}-FeedForward",
            units=self.config.intermediate_size,
            activation=self.config.hidden_act,
            **self._residual_arguments(),
        )

    def _residual_arguments(self):
        config = self.config
        return {
            "rate": config.hidden_dropout_prob,
            "norm_first": config.ln_type == "preln",
            "epsilon": config.layer_norm_eps,
            "initializer_range": config.initializer_range,
        }

    # --- helpers ---

    @property
    def initializer(self):
        """A new initializer with the configured range, for layers a user adds."""
        return truncated_normal(self.config.initializer_range)

    def full_name(self, name):
        """Returns the name a layer has in the model."""
        return f"{self.options.prefix}{name}"

    def layer(self, cls, name, **arguments):
        """Returns the layer called `name`; makes it at the first request."""
        if name not in self.layers:
            arguments.setdefault("dtype", self.options.dtype)
            self.layers[name] = cls(name=self.full_name(name), **arguments)
        return self.layers[name]

    def dense(self, name, units, **arguments):
        """Returns a dense layer with BERT's initializer."""
        return self.layer(
            keras.layers.Dense,
            name,
            units=units,
            kernel_initializer=self.initializer,
            **arguments,
        )

    def norm(self, name):
        """Returns a layer normalisation with the configured epsilon."""
        return self.layer(keras.layers.LayerNormalization, name, epsilon=self.config.layer_norm_eps)

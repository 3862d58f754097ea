"""The graph that all encoders share: inputs -> embeddings -> blocks -> heads -> Keras model.

Shapes: B batch, L length, V vocabulary, E embedding size, H hidden size.
"""

from types import MappingProxyType

from kerasbert.errors import ConfigError, KerasbertError, listing
from kerasbert.layers import (
    AttentionMask,
    CrossAttention,
    ResidualFeedForward,
    SelfAttention,
    TransformerBlock,
)
from kerasbert.models.borrowing import check_widths
from kerasbert.models.checkpoints import Checkpoints
from kerasbert.models.embeddings import Embeddings
from kerasbert.models.heads import Heads
from kerasbert.models.parts import Parts


class Encoder(Embeddings, Heads, Checkpoints, Parts):
    """Builds the functional Keras model of one encoder, top to bottom as in the BERT paper.

    Subclasses override the step in which they differ.

    Args:
        config: a `ModelConfig`.
        options: a `BuildOptions`.

    Class attributes: `family`; `config_defaults`, a dict of keys that a configuration may leave
    out; `applications`, those that the family can have; `use_bias`, whether the dense layers of
    the blocks have a bias; `dialects`, a tuple of `kerasbert.weights.Dialect`s to read and write
    checkpoints with, in place of those that kerasbert has for the family.

    Attributes:
        model: the `keras.Model`; `input`, `output` are its own, or lists of them.
        inputs, outputs: lists of its symbolic tensors.
        layers: dict from a layer's name, without prefix, to the layer.
        hidden_states: the L + 1 symbolic hidden states, input of the first block first.

    Source: Devlin et al. 2018 (arXiv:1810.04805); layer names follow bert4keras.
    """

    family = None
    config_defaults = MappingProxyType({})
    applications = ("encoder", "lm", "unilm")
    use_bias = True
    dialects = ()

    def __init__(self, config, options):
        self.refuse_other_heads(options)
        super().__init__(config, options)
        try:
            self._build()
        except ValueError as error:
            # Keras says what does not fit, but not that the layer is another model's.
            if isinstance(error, KerasbertError) or not self._borrowed:
                raise
            raise ConfigError(
                f"layers= holds layers that do not fit: {str(error).splitlines()[0]}\n"
                "Expected layers of a builder made with the same configuration.\n"
                f"Taken were: {listing(self._borrowed)}."
            ) from error
        check_widths({name: self.layers[name] for name in self._borrowed})
        if options.layers and not self._borrowed:
            raise ConfigError(
                f"layers= holds none of the layers of this model, but {listing(options.layers)}.\n"
                "Expected names without the prefix of the other model.\n"
                "Pass builder.layers of build_transformer_model(..., return_keras_model=False)."
            )

    def _build(self):
        # === Inputs ===
        self.inputs = self.make_inputs()
        padding = self.padding(self.tokens) if self.mask is None else self.mask
        # === Embeddings ===
        hidden = self.embed(self.tokens, self.segments, padding)
        # === Blocks ===
        self.hidden_states = self.run_blocks(hidden, padding)
        # === Heads ===
        hidden = self.finish_blocks(self.hidden_states[-1])
        outputs = self.make_heads(hidden) or [hidden]
        if self.options.hidden_states:
            outputs = [*outputs, self.hidden_states]
        self.outputs = outputs
        self.set_label(self.layers["Attention-Mask"])
        self.model = self.make_model(self.inputs, outputs, self.options.name)

    # --- steps, in the order in which they are taken ---

    def make_inputs(self):
        """Returns the inputs: token ids, then those that the options ask for."""
        self.tokens = self.id_input("Input-Token")
        self.segments = self.id_input("Input-Segment") if self.has_segment_input else None
        custom = self.options.custom_position_ids
        self.position_ids = self.id_input("Input-Position") if custom else None
        self.mask = self.id_input("Input-Mask") if self.options.with_mask_input else None
        own = (self.tokens, self.segments, self.position_ids, self.mask)
        return [x for x in own if x is not None] + self.additional_inputs()

    @property
    def has_segment_input(self):
        """Whether the model distinguishes segments."""
        return self.config.type_vocab_size > 0

    def padding(self, tokens):
        """Returns an int tensor (B, L) that is zero at padding."""
        return tokens

    def attention_mask(self, padding):
        """Returns the bool mask (B, 1, L) or (B, L, L) that all blocks receive."""
        mask = self.new_layer(AttentionMask, "Attention-Mask", application=self.application)
        if self.application != "unilm":
            return mask(padding)
        if self.segments is None:
            raise ConfigError(
                "application='unilm', but the model has no segment input.\n"
                "Expected segments: they tell the text to read from the text to write.\n"
                "Leave type_vocab_size (segment_vocab_size) at 2, or choose another model."
            )
        return mask(padding, segments=self.segments)

    @property
    def application(self):
        """Who sees whom, see `AttentionMask`."""
        return self.options.application

    def position_bias(self, hidden):
        """Returns the arguments by which the attention of all blocks learns of positions."""
        return {}

    def run_blocks(self, hidden, padding):
        """Runs every block; returns the hidden states, input of the first block first."""
        arguments = {"attention_mask": self.attention_mask(padding), **self.position_bias(hidden)}
        return self.chain(self.make_blocks(), hidden, arguments)

    def chain(self, blocks, hidden, attention, **arguments):
        """Runs blocks one after the other.

        Args:
            blocks: list of `TransformerBlock`s.
            hidden: the input (B, L, H) of the first.
            attention: dict of further arguments of the attention layers, such as the mask.
            **arguments: further arguments of every block, such as `cross_attention`.

        Returns:
            List of the hidden states (B, L, H), the input of the first block first.
        """
        states, condition = [hidden], self.options.layer_norm_cond
        for block in blocks:
            hidden, scores = block(hidden, attention, condition=condition, **arguments)
            if scores is not None:
                attention = {**attention, "previous_scores": scores}
            states.append(hidden)
        return states

    def make_blocks(self, stack="encoder"):
        """Returns the block of every depth; depths that share one get the same object."""
        plan = self.config.stacks[stack]
        makers = {
            "attention": self.make_attention,
            "cross_attention": self.make_cross_attention,
            "feed_forward": self.make_feed_forward,
        }
        names = {part: [plan.prefix + n for n in plan.sharing.names(part)] for part in plan.layers}
        made = {part: {n: makers[part](n) for n in dict.fromkeys(names[part])} for part in names}
        blocks = {}
        for chosen in zip(*names.values(), strict=True):
            layers = {part: made[part][name] for part, name in zip(names, chosen, strict=True)}
            blocks.setdefault(chosen, TransformerBlock(**layers))
        return [blocks[chosen] for chosen in zip(*names.values(), strict=True)]

    def make_attention(self, block_name):
        """Returns the attention layer of a block."""
        return self.layer(
            SelfAttention,
            f"{block_name}-MultiHeadSelfAttention",
            return_attention_scores=self.config.residual_attention_scores,
            **self.attention_arguments(),
        )

    def make_cross_attention(self, block_name):
        """Returns the layer of a decoder's block that attends to the encoder."""
        return self.layer(
            CrossAttention, f"{block_name}-MultiHeadCrossAttention", **self.attention_arguments()
        )

    def attention_arguments(self):
        """Returns what the attention layers of all blocks have in common."""
        config = self.config
        return {
            "heads": config.num_attention_heads,
            "head_size": config.attention_head_size,
            "key_size": config.attention_key_size,
            "attention_dropout": config.attention_probs_dropout_prob,
            **self.residual_arguments(),
        }

    def make_feed_forward(self, block_name):
        """Returns the feed-forward layer of a block."""
        return self.layer(
            ResidualFeedForward,
            f"{block_name}-FeedForward",
            units=self.config.intermediate_size,
            activation=self.config.hidden_act,
            **self.residual_arguments(),
        )

    def finish_blocks(self, hidden):
        """Returns what the heads see of the last hidden state (B, L, H)."""
        return hidden

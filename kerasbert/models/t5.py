"""T5 and mT5: an encoder, a decoder, or both in one model.

Shapes: B batch, K length of the text to read, L length of the text to write, H hidden size,
V vocabulary.
"""

from types import MappingProxyType

import keras

from kerasbert.layers import (
    AttentionMask,
    Embedding,
    PaddingMask,
    RelativePositionEmbeddingT5,
    ScaleOffset,
    VectorMask,
    ZeroPadding,
)
from kerasbert.models.encoder import Encoder


class T5(Encoder):
    """Encoder and decoder of T5 1.0, whose head is the token table.

    Its inputs are the ids `Encoder-Input-Token` (B, K) and `Decoder-Input-Token` (B, L), of
    which the decoder's begin with the id of padding, 0; its output (B, L, V) are the
    probabilities of the next token. The builder also has `encoder` and `decoder`, models that
    share all layers with it; the decoder's inputs are `Input-Context` (B, K, H), zero at
    padding as the encoder gives it, and `Decoder-Input-Token`.

    Source: Raffel et al. 2019 (arXiv:1910.10683); google-research/text-to-text-transfer-
    transformer; Hugging Face transformers, `t5`.
    """

    family = "t5"
    config_defaults = MappingProxyType(
        {"stacks_built": ("encoder", "decoder"), "scale_decoder_outputs": True}
    )
    applications = ("encoder",)
    supported_heads = ("with_lm",)
    use_bias = False
    norm_placement = "pre"

    def _build(self):
        projection = "T5 has no projection between them"
        self.require_equal("embedding_size", "hidden_size", projection)
        width = "T5 has one for queries, keys and values"
        self.require_equal("attention_key_size", "attention_head_size", width)
        stacks = self.config.stacks_built
        inputs, outputs, context, padding = [], [], None, None
        if "encoder" in stacks:
            tokens = padding = self.id_input("Encoder-Input-Token")
            self.hidden_states, context = self.encode(tokens)
            self.encoder = self._part("Encoder", [tokens], context)
            inputs, outputs = [tokens], [context]
            mask_layer = self.layers["Encoder-Attention-Mask"]
            states = [self.hidden_states]
        if "decoder" in stacks:
            given = self.context_input()
            if "encoder" in stacks:
                tokens, self.hidden_states, output = self.decode(context, padding)
                states = [*states, self.hidden_states]
                inputs, outputs = [*inputs, tokens], [output]
            alone, own_states, output = self.decode(given, self.context_padding(given))
            self.decoder = self._part("Decoder", [given, alone], output)
            if "encoder" not in stacks:
                self.hidden_states, states = own_states, [own_states]
                inputs, outputs = [given, alone], [output]
                mask_layer = self.layers["Decoder-Attention-Mask"]
        if self.options.hidden_states:
            outputs = [*outputs, *states]
        self.inputs = [*inputs, *self.additional_inputs()]
        self.outputs = outputs
        self.set_label(mask_layer)
        self.model = self.make_model(self.inputs, outputs, self.options.name)

    # --- steps, in the order in which they are taken ---

    def encode(self, tokens):
        """Returns the hidden states, and the output (B, K, H), of the encoder."""
        hidden = self.drop("Encoder-Embedding-Dropout", self.embed_tokens(tokens, tokens))
        arguments = {
            "attention_mask": self._mask("Encoder", "encoder", tokens),
            "position_bias": self._relative_positions("Encoder", True)(hidden),
            "p_bias": "t5_relative",
        }
        states = self.chain(self.make_blocks("encoder"), hidden, arguments)
        output = self.normalize("Encoder-Output-Norm", states[-1])
        output = self.drop("Encoder-Output-Dropout", output)
        output = self.layer(ZeroPadding, "Encoder-Output-Masked")(output, padding=tokens)
        return states, output

    def context_input(self):
        """Returns the input of a decoder that is a model of its own, (B, K, H)."""
        shape = (self.options.sequence_length, self.config.hidden_size)
        return keras.Input(shape, name=self.full_name("Input-Context"))

    def context_padding(self, context):
        """Returns an int tensor (B, K) that is zero at padding."""
        return self.layer(VectorMask, "Context-Mask")(context)

    def decode(self, context, context_padding):
        """Returns token ids, hidden states, and the output, of the decoder for a context."""
        tokens = self.id_input("Decoder-Input-Token")
        padding = self.layer(
            PaddingMask, "Decoder-Padding-Mask", pad_token_id=0, starts_with_padding=True
        )(tokens)
        hidden = self.drop("Decoder-Embedding-Dropout", self.embed_tokens(tokens, padding))
        positions = self._relative_positions("Decoder", False)
        arguments = {
            "attention_mask": self._mask("Decoder", "lm", padding),
            "position_bias": positions(hidden),
            "p_bias": "t5_relative",
        }
        cross = {
            "context": context,
            "attention_mask": self._mask("Context", "encoder", context_padding),
        }
        if self.config.cross_position_bias:
            cross.update(position_bias=positions(hidden, context), p_bias="t5_relative")
        states = self.chain(self.make_blocks("decoder"), hidden, arguments, cross_attention=cross)
        output = self.normalize("Decoder-Output-Norm", states[-1])
        output = self.drop("Decoder-Output-Dropout", output)
        return tokens, states, self.language_model(output) if self.options.with_lm else output

    def language_model(self, hidden):
        """Returns the output of the language model (B, L, V)."""
        if self.config.scale_decoder_outputs:
            scale = self.config.hidden_size**-0.5
            layer = self.layer(ScaleOffset, "Decoder-Output-Scale", scale=scale, offset=False)
            hidden = layer(hidden)
        if self.config.tie_word_embeddings:
            table = self.layers["Embedding-Token"]
        else:
            table = self.layer(
                Embedding,
                "Decoder-Output-LM",
                input_dim=self.config.vocab_size,
                output_dim=self.config.hidden_size,
                embeddings_initializer=self.initializer,
            )
        logits = table(hidden, mode="dense")
        return self.float32_activation("Decoder-Output-LM-Activation", self.lm_activation())(logits)

    # --- helpers ---

    def attention_arguments(self):
        """Returns what the attention layers of all blocks have in common."""
        return {**super().attention_arguments(), "attention_scale": False}

    def norm_arguments(self):
        """Returns the arguments of every norm, which is of the RMS kind."""
        return {**super().norm_arguments(), "zero_mean": False, "offset": False}

    def _mask(self, name, application, padding):
        layer = self.layer(AttentionMask, f"{name}-Attention-Mask", application=application)
        return layer(padding)

    def _relative_positions(self, name, bidirectional):
        return self.layer(
            RelativePositionEmbeddingT5,
            f"{name}-Embedding-Relative-Position",
            input_dim=self.config.relative_attention_num_buckets,
            output_dim=self.config.num_attention_heads,
            max_distance=self.config.relative_attention_max_distance,
            bidirectional=bidirectional,
            embeddings_initializer=self.initializer,
        )

    def _part(self, part, inputs, output):
        """Returns a model of the encoder or the decoder alone."""
        name = f"{self.options.name}_{part}" if self.options.name else part
        return self.make_model([*inputs, *self.additional_inputs()], [output], name)


class T5Encoder(T5):
    """The encoder of T5 alone; its output (B, K, H) is zero at padding.

    Source: as `T5`.
    """

    config_defaults = MappingProxyType({"stacks_built": ("encoder",)})
    supported_heads = ()


class T5Decoder(T5):
    """The decoder of T5 alone, which gets the encoder's output as an input.

    Source: as `T5`.
    """

    config_defaults = MappingProxyType(
        {"stacks_built": ("decoder",), "scale_decoder_outputs": True}
    )


_UNTIED = {"tie_word_embeddings": False, "scale_decoder_outputs": False}


class T5V11(T5):
    """T5 1.1 and mT5: gated feed-forward layers, and a head of their own.

    Source: as `T5`; google-research/multilingual-t5.
    """

    config_defaults = MappingProxyType({**T5.config_defaults, **_UNTIED})


class T5V11Encoder(T5Encoder):
    """The encoder of `T5V11` alone."""


class T5V11Decoder(T5Decoder):
    """The decoder of `T5V11` alone."""

    config_defaults = MappingProxyType({**T5Decoder.config_defaults, **_UNTIED})


class MT5(T5V11):
    """mT5: `T5V11` whose checkpoints have names of their own."""

    config_defaults = MappingProxyType({**T5V11.config_defaults, "layout": "mt5"})


class MT5Encoder(T5V11Encoder):
    """The encoder of `MT5` alone."""

    config_defaults = MappingProxyType({**T5V11Encoder.config_defaults, "layout": "mt5"})


class MT5Decoder(T5V11Decoder):
    """The decoder of `MT5` alone."""

    config_defaults = MappingProxyType({**T5V11Decoder.config_defaults, "layout": "mt5"})

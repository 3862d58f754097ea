"""GPT, GPT-2 and GPT2_ML: decoders of one stack, which predict the next token.

Shapes: B batch, L length, V vocabulary, H hidden size.
"""

from kerasbert.layers import PaddingMask
from kerasbert.models.encoder import Encoder


class GPT(Encoder):
    """BERT's blocks, of which no token sees a later one; embeddings are not normalised.

    The output are the probabilities (B, L, V) of the token after each; the token table is the
    head, without a bias. "encoder" and "lm" are one application for it. Layer norms have the
    epsilon of the original code, 1e-5, where bert4keras has 1e-12.

    Source: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training";
    openai/finetune-transformer-lm; layer names follow bert4keras.
    """

    family = "gpt"
    supported_heads = ("with_lm",)

    @property
    def application(self):
        """Who sees whom, see `AttentionMask`; never later tokens, but with "unilm"."""
        return "unilm" if self.options.application == "unilm" else "lm"

    def embed(self, tokens, segments, padding):
        """Returns the input (B, L, H) of the first block."""
        why = f"the {self.family} family has no projection between them"
        self.require_equal("embedding_size", "hidden_size", why)
        return super().embed(tokens, segments, padding)

    def finish_embedding(self, hidden, segments, padding):
        """Adds segment and position vectors, then drops out."""
        hidden = self.add_segments(hidden, segments, padding)
        return self.drop("Embedding-Dropout", self.add_positions(hidden, padding))

    def make_heads(self, hidden):
        """Returns the output of the language model, unless it was switched off."""
        return [self.language_model(hidden)] if self.options.with_lm else []

    def language_model(self, hidden):
        """Returns the output of the language model (B, L, V)."""
        logits = self.layers["Embedding-Token"](hidden, mode="dense")
        return self.float32_activation("LM-Activation", self.lm_activation())(logits)


class GPT2(GPT):
    """Every block normalises what it reads, and the last hidden state is normalised too.

    There are no segments. Files of transformers have no id for padding: then none is hidden,
    which does no harm to the right of a text; `with_mask_input` hides what is left of it.

    Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners";
    openai/gpt-2; Hugging Face transformers, `gpt2`.
    """

    family = "gpt2"
    applications = ("encoder", "lm")
    norm_placement = "pre"

    def padding(self, tokens):
        """Returns an int tensor (B, L) that is zero at padding."""
        if self.config.pad_token_id == 0:
            return tokens
        mask = self.layer(PaddingMask, "Padding-Mask", pad_token_id=self.config.pad_token_id)
        return mask(tokens)

    def finish_blocks(self, hidden):
        """Returns the normalised last hidden state (B, L, H)."""
        return self.normalize("Output-Norm", hidden)


class GPT2ML(GPT):
    """Grover's blocks: one norm between attention and feed-forward layer, one after both.

    There are no segments; embeddings are normalised.

    Source: Zellers et al. 2019 (arXiv:1905.12616); imcaspar/gpt2-ml.
    """

    family = "gpt2_ml"
    applications = ("encoder", "lm")
    norm_placement = "both"

    def finish_embedding(self, hidden, segments, padding):
        """Adds position vectors, then normalises."""
        return self.normalize("Embedding-Norm", self.add_positions(hidden, padding))

    def attention_arguments(self):
        """Returns what the attention layers of all blocks have in common."""
        arguments = super().attention_arguments()
        return {**arguments, "norm": {**arguments["norm"], "placement": "none"}}

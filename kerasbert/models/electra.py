"""ELECTRA: a small generator that replaces tokens, a discriminator that finds them."""

import keras

from kerasbert import activations
from kerasbert.layers import LastAxisSqueeze
from kerasbert.models.encoder import Encoder


class ELECTRA(Encoder):
    """The discriminator, which is the tower to fine-tune.

    It has no pooler and no masked-LM head; `with_discriminator` adds the probability (B, L)
    that a token was replaced.

    Source: Clark et al. 2020 (arXiv:2003.10555); google-research/electra `modeling.py`.
    """

    family = "electra"
    supported_heads = ("with_discriminator",)

    def make_heads(self, hidden):
        """Returns the outputs of the heads that were asked for."""
        if not self.options.with_discriminator:
            return []
        return [self.discriminator(hidden)]

    def discriminator(self, hidden):
        """Returns the replaced-token output (B, L)."""
        activation = self.head_activation(
            "with_discriminator", self.options.with_discriminator, default="sigmoid"
        )
        dense = self.dense(
            "Discriminator-Dense",
            self.config.hidden_size,
            activation=activations.get(self.config.hidden_act),
        )
        score = self.dense("Discriminator-Prediction", 1, dtype="float32")(dense(hidden))
        score = self.layer(LastAxisSqueeze, "Discriminator-Squeeze")(score)
        return self.layer(
            keras.layers.Activation,
            "Discriminator-Activation",
            activation=activation,
            dtype="float32",
        )(score)


class ELECTRAGenerator(Encoder):
    """The generator, a BERT with a masked-LM head and often a quarter of the width.

    Source: as `ELECTRA`.
    """

    family = "electra_generator"
    supported_heads = ("with_mlm",)

"""ELECTRA: a small generator that replaces tokens, a discriminator that finds them."""

from kerasbert import activations
from kerasbert.models.encoder import Encoder


class ELECTRA(Encoder):
    """The discriminator, which is the tower to fine-tune.

    It has no pooler and no masked-LM head; `with_discriminator` adds the probability (B, L)
    that a token was replaced.

    Source: Clark et al. 2020 (arXiv:2003.10555); google-research/electra `modeling.py`.
    """

    family = "electra"
    applications = ("encoder",)
    supported_heads = ("with_discriminator", "with_classifier")

    def sequence_features(self, hidden):
        """Returns what the classifier of whole texts sees (B, H)."""
        # Hugging Face puts a GELU here whatever hidden_act says.
        return self.first_token_features(hidden, activations.gelu_erf)


class ELECTRAGenerator(Encoder):
    """The generator, a BERT with a masked-LM head and often a quarter of the width.

    Source: as `ELECTRA`.
    """

    family = "electra_generator"
    supported_heads = ("with_mlm",)

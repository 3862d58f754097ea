"""BERT, and RoBERTa in the form that Chinese checkpoints call by that name."""

from kerasbert.models.encoder import Encoder


class BERT(Encoder):
    """The encoder as it is: each depth has a block of its own.

    Source: Devlin et al. 2018 (arXiv:1810.04805); google-research/bert `modeling.py`.
    """

    family = "bert"

"""The architectures, and `build_transformer_model` under bert4keras' module name."""

from kerasbert.models.albert import ALBERT, ALBERTUnshared
from kerasbert.models.bert import BERT
from kerasbert.models.electra import ELECTRA, ELECTRAGenerator
from kerasbert.models.encoder import Encoder
from kerasbert.models.gau import GAUAlpha
from kerasbert.models.gpt import GPT, GPT2, GPT2ML
from kerasbert.models.nezha import NEZHA
from kerasbert.models.roberta import DistilBERT, RoBERTa
from kerasbert.models.roformer import RoFormer, RoFormerV2
from kerasbert.models.t5 import (
    MT5,
    T5,
    T5V11,
    MT5Decoder,
    MT5Encoder,
    T5Decoder,
    T5Encoder,
    T5V11Decoder,
    T5V11Encoder,
)
from kerasbert.models.view import hidden_state

__all__ = [
    "ALBERT",
    "BERT",
    "ELECTRA",
    "GPT",
    "GPT2",
    "GPT2ML",
    "MT5",
    "NEZHA",
    "T5",
    "T5V11",
    "ALBERTUnshared",
    "DistilBERT",
    "ELECTRAGenerator",
    "Encoder",
    "GAUAlpha",
    "MT5Decoder",
    "MT5Encoder",
    "RoBERTa",
    "RoFormer",
    "RoFormerV2",
    "T5Decoder",
    "T5Encoder",
    "T5V11Decoder",
    "T5V11Encoder",
    "build_transformer_model",
    "hidden_state",
]


def __getattr__(name):
    # The factory imports this package, so its name can only be looked up on demand.
    if name == "build_transformer_model":
        from kerasbert.factory import build_transformer_model

        return build_transformer_model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

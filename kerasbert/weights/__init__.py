"""Weights in and out: name tables, checkpoint files, reports."""

from kerasbert.weights.dialects import (
    ALBERT_ZH,
    ELECTRA,
    ELECTRA_GENERATOR,
    GAU_ALPHA,
    GOOGLE_ALBERT,
    GOOGLE_BERT,
    MT5,
    NEZHA,
    ROFORMER,
    ROFORMER_V2,
    T5,
)
from kerasbert.weights.dialects.gpt import GPT, GPT2, GPT2_ML
from kerasbert.weights.load import load_weights_from_checkpoint, model_report
from kerasbert.weights.mapping import Blocks, Dialect, Row, dense, norm, one_stack
from kerasbert.weights.names import variable_mapping
from kerasbert.weights.pretrained import save_pretrained
from kerasbert.weights.report import LoadReport
from kerasbert.weights.resize import orthogonally_resize
from kerasbert.weights.save import save_weights_as_checkpoint

__all__ = [
    "ALBERT_ZH",
    "ELECTRA",
    "ELECTRA_GENERATOR",
    "GAU_ALPHA",
    "GOOGLE_ALBERT",
    "GOOGLE_BERT",
    "GPT",
    "GPT2",
    "GPT2_ML",
    "MT5",
    "NEZHA",
    "ROFORMER",
    "ROFORMER_V2",
    "T5",
    "Blocks",
    "Dialect",
    "LoadReport",
    "Row",
    "dense",
    "load_weights_from_checkpoint",
    "model_report",
    "norm",
    "one_stack",
    "orthogonally_resize",
    "save_pretrained",
    "save_weights_as_checkpoint",
    "variable_mapping",
]

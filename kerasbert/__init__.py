"""Checkpoints of BERT, ALBERT, ELECTRA and their like as ordinary Keras 3 models."""

from kerasbert import layers, optimizers
from kerasbert.convert import convert
from kerasbert.factory import build_transformer_model
from kerasbert.generation import generate
from kerasbert.inspection import inspect_checkpoint
from kerasbert.models.unsharing import unshare
from kerasbert.models.view import hidden_state
from kerasbert.weights import (
    load_weights_from_checkpoint,
    model_report,
    save_pretrained,
    save_weights_as_checkpoint,
)

__version__ = "0.1.0"

__all__ = [
    "build_transformer_model",
    "convert",
    "generate",
    "hidden_state",
    "inspect_checkpoint",
    "layers",
    "load_weights_from_checkpoint",
    "model_report",
    "optimizers",
    "save_pretrained",
    "save_weights_as_checkpoint",
    "unshare",
]

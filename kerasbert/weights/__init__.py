"""Weights in and out: name tables, checkpoint files, reports."""

from kerasbert.weights.load import load_weights_from_checkpoint, model_report
from kerasbert.weights.pretrained import save_pretrained
from kerasbert.weights.report import LoadReport
from kerasbert.weights.save import save_weights_as_checkpoint

__all__ = [
    "LoadReport",
    "load_weights_from_checkpoint",
    "model_report",
    "save_pretrained",
    "save_weights_as_checkpoint",
]

"""From texts to batches for `fit`, `evaluate` and `predict`."""

from kerasbert.data.bucketed import BucketedDataset
from kerasbert.data.generator import DataGenerator
from kerasbert.data.padding import sequence_padding, truncate_sequences
from kerasbert.data.text_inputs import TextInputs

__all__ = [
    "BucketedDataset",
    "DataGenerator",
    "TextInputs",
    "sequence_padding",
    "truncate_sequences",
]

"""What bert4keras has under this name, from where it stands here."""

from kerasbert.data import DataGenerator, sequence_padding, truncate_sequences
from kerasbert.generation import AutoRegressiveDecoder

__all__ = [
    "AutoRegressiveDecoder",
    "DataGenerator",
    "sequence_padding",
    "truncate_sequences",
]

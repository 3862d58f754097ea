"""Pre-training: from plain text to records, and from records to batches."""

from kerasbert.pretraining.build import build_records
from kerasbert.pretraining.corpus import Corpus
from kerasbert.pretraining.dataset import PretrainingDataset
from kerasbert.pretraining.masking import Masking
from kerasbert.pretraining.sentences import split_sentences
from kerasbert.pretraining.settings import RecordSettings
from kerasbert.pretraining.vocabularies import (
    build_character_vocabulary,
    build_sentencepiece_model,
    build_wordpiece_vocabulary,
)
from kerasbert.pretraining.words import TokenTable

__all__ = [
    "Corpus",
    "Masking",
    "PretrainingDataset",
    "RecordSettings",
    "TokenTable",
    "build_character_vocabulary",
    "build_records",
    "build_sentencepiece_model",
    "build_wordpiece_vocabulary",
    "split_sentences",
]

"""Pre-training: from plain text to records and batches, objectives, and training that goes on."""

from kerasbert.pretraining.build import build_records
from kerasbert.pretraining.checkpoints import PretrainingCheckpoint
from kerasbert.pretraining.compiling import compile_objectives, pretraining_optimizer
from kerasbert.pretraining.corpus import Corpus
from kerasbert.pretraining.dataset import PretrainingDataset
from kerasbert.pretraining.electra import electra_model
from kerasbert.pretraining.masking import Masking
from kerasbert.pretraining.objectives import mask_proposal_model, masked_lm_model
from kerasbert.pretraining.pmi import pmi_embeddings
from kerasbert.pretraining.sentences import split_sentences
from kerasbert.pretraining.settings import RecordSettings
from kerasbert.pretraining.steps import for_model, train_steps
from kerasbert.pretraining.towers import electra_towers, small_generator
from kerasbert.pretraining.vocabularies import (
    build_character_vocabulary,
    build_sentencepiece_model,
    build_wordpiece_vocabulary,
)
from kerasbert.pretraining.word_order import shuffle_words, shuffled_batches
from kerasbert.pretraining.words import TokenTable
from kerasbert.weights.towers import save_towers

__all__ = [
    "Corpus",
    "Masking",
    "PretrainingCheckpoint",
    "PretrainingDataset",
    "RecordSettings",
    "TokenTable",
    "build_character_vocabulary",
    "build_records",
    "build_sentencepiece_model",
    "build_wordpiece_vocabulary",
    "compile_objectives",
    "electra_model",
    "electra_towers",
    "for_model",
    "mask_proposal_model",
    "masked_lm_model",
    "pmi_embeddings",
    "pretraining_optimizer",
    "save_towers",
    "shuffle_words",
    "shuffled_batches",
    "small_generator",
    "split_sentences",
    "train_steps",
]

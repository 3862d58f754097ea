"""Pre-training: objectives as Keras models, and training that can be stopped and goes on."""

from kerasbert.pretraining.checkpoints import PretrainingCheckpoint
from kerasbert.pretraining.compiling import compile_objectives, pretraining_optimizer
from kerasbert.pretraining.electra import electra_model
from kerasbert.pretraining.objectives import mask_proposal_model, masked_lm_model
from kerasbert.pretraining.pmi import pmi_embeddings
from kerasbert.pretraining.steps import for_model, train_steps
from kerasbert.pretraining.towers import electra_towers, small_generator
from kerasbert.pretraining.word_order import shuffle_words, shuffled_batches
from kerasbert.weights.towers import save_towers

__all__ = [
    "PretrainingCheckpoint",
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
    "train_steps",
]

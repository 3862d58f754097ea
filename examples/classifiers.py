"""What the examples of classification have in common: labelled texts, and models for them."""

import math

import keras
import numpy as np
from runs import batching, optimizer, use_xla
from shared import UsageError
from sklearn.metrics import accuracy_score

from kerasbert.data import BucketedDataset
from kerasbert.prediction import predict_texts
from kerasbert.training import recipe_for

# Of models with random weights; hidden_size is small, as is the time to learn.
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 256,
    "initializer_range": 0.12,  # about 1 / sqrt(hidden_size): 0.02 is for greater models
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
}
TINY = {**SIZES, "hidden_size": 32, "intermediate_size": 64, "initializer_range": 0.18}


class Labelled:
    """Texts with the numbers of their labels.

    Args:
        rows: tuples (text, label), or (text, second text, label).
        labels: the labels in the order of their numbers.

    Attributes:
        texts: N strings, or N pairs of them.
        numbers: int array (N,).
    """

    def __init__(self, rows, labels):
        self.texts = [row[0] if len(row) == 2 else row[:-1] for row in rows]
        self.numbers = np.array([labels.index(row[-1]) for row in rows])

    def batches(self, model, tokenizer, args, **options):
        """Returns the texts as batches of few lengths, for `fit`."""
        options = {**batching(args, len(self.texts)), **options}
        return BucketedDataset(model, tokenizer, self.texts, self.numbers, **options)

    def predicted(self, model, tokenizer, args):
        """Returns the probabilities (N, labels) that a model gives."""
        options = {"maxlen": args.maxlen, "verbose": 0, "jit_compile": False}
        return predict_texts(model, tokenizer, self.texts, **options)

    def accuracy(self, model, tokenizer, args):
        """Returns the share of the texts of which the likeliest label is right."""
        return accuracy_score(self.numbers, self.predicted(model, tokenizer, args).argmax(-1))


def label_names(train, *others):
    """Returns the labels of the rows to train on, sorted; other rows may have no others."""
    labels = sorted({row[-1] for row in train})
    if len(labels) < 2:
        raise UsageError(f"all texts of --train have the label {labels[0]!r}: expected two labels")
    for row in (row for rows in others for row in rows):
        if row[-1] not in labels:
            raise UsageError(f"no text of --train has the label {row[-1]!r} of {row[0][:40]!r}")
    return labels


def stand_in(train, rows):
    """Returns for each row whether its text, or pair, is one of those to train on: bools (N,)."""
    known = {row[:-1] for row in train}
    seen = np.array([row[:-1] in known for row in rows])
    if seen.all():
        raise UsageError("no text is left to score: all of them stand in --train too")
    return seen


def left_to_score(train, rows):
    """Returns the rows whose text, or pair, is none of those to train on."""
    return [row for row, seen in zip(rows, stand_in(train, rows), strict=True) if not seen]


def some_of(rows, limit):
    """Returns so many of the rows, always the same ones."""
    order = np.random.default_rng(0).permutation(len(rows))[:limit]
    return [rows[i] for i in order]


def guessing(train, scored):
    """Returns the accuracy of always taking the commonest label of the training data."""
    return np.mean(scored == np.bincount(train).argmax())


def add_head(encoder, features, num_labels, dropout):
    """Returns a model that makes probabilities (B, num_labels) of features (B, F)."""
    features = keras.layers.Dropout(dropout)(features)
    probabilities = keras.layers.Dense(num_labels, activation="softmax", dtype="float32")(features)
    return keras.Model(encoder.inputs, probabilities)


def compile_classifier(model, args, examples):
    """Compiles a model for a training on so many texts."""
    steps = args.epochs * math.ceil(examples / args.batch_size)
    if args.learning_rate is None:
        recipe = recipe_for(model)
        print(f"rate {recipe.learning_rate:g}: {recipe.source}", recipe.note, sep="\n")
        chosen = recipe.optimizer(model, steps)
    else:
        chosen = optimizer(args, steps)
    loss = "sparse_categorical_crossentropy"
    model.compile(chosen, loss, metrics=["accuracy"], jit_compile=use_xla(args, steps))

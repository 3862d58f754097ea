"""Tells whether two questions mean the same: both are read together by one encoder.

    python examples/sentence_pairs.py
    python examples/sentence_pairs.py --train train.txt --valid dev.txt
    python examples/sentence_pairs.py --config bert_config.json --checkpoint bert_model.ckpt \
        --vocab vocab.txt --train train.txt --valid dev.txt

Each line of the data has two texts and 1 or 0, tab separated, as AFQMC. The encoder reads
`[CLS] one [SEP] other [SEP]` (Devlin et al. 2018, arXiv:1810.04805); its head compares the means
of both texts, u and v, by |u - v| and u * v (Conneau et al. 2017, arXiv:1705.02364). As fewer
pairs mean the same than do not, average precision is what counts: it looks at the order of all
pairs, and guessing gives the share of ones. Without arguments it is a small BERT with random
weights, on made-up questions.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from classifiers import (
    SIZES,
    TINY,
    Labelled,
    add_head,
    compile_classifier,
    guessing,
    label_names,
    left_to_score,
)
from files import read_columns
from keras import ops
from runs import Run, load_encoder, starting_point
from shared import UsageError, main, sample
from sklearn.metrics import accuracy_score, average_precision_score, f1_score

from kerasbert import hidden_state
from kerasbert.layers import GlobalAveragePooling1D
from kerasbert.models.view import find_encoder


def read_pairs(path):
    """Returns rows (text, text, "0" or "1") of a file."""
    rows = read_columns(path, ("text", "text", "label"))
    for row in rows:
        if row[-1] not in ("0", "1"):
            raise UsageError(f"{path} has the label {row[-1]!r}: expected 0 or 1")
    return rows


def both_ways(rows):
    """Returns the rows, and each of them again with its texts exchanged."""
    return rows + [(second, first, label) for first, second, label in rows]


def comparison(encoder):
    """Returns features (B, 8 H) that compare the two texts of a pair.

    Both the vectors that go into the encoder are compared, which show what words the texts have in
    common, and those that come out of it.
    """
    tokens, segments = encoder.inputs
    real = ops.not_equal(tokens, find_encoder(encoder).config.pad_token_id)
    masks = [ops.logical_and(real, ops.equal(segments, number)) for number in (0, 1)]
    compared = []
    for vectors in (hidden_state(encoder, 0), hidden_state(encoder, -1)):
        first, second = (GlobalAveragePooling1D()(vectors, mask=mask) for mask in masks)
        compared += [first, second, ops.abs(first - second), first * second]
    return keras.layers.Concatenate()(compared)


def overlap(pair):
    """Returns the share of the pairs of neighbouring characters that both texts have."""
    first, second = ({text[i : i + 2] for i in range(max(len(text) - 1, 1))} for text in pair)
    return len(first & second) / len(first | second)


def scores_of(chances, right):
    """Returns the scores of chances (N,) that two texts mean the same; `right` are 0 or 1."""
    found = chances > 0.5
    return {
        "average precision": average_precision_score(right, chances),
        "F1": f1_score(right, found, zero_division=0),
        "accuracy": accuracy_score(right, found),
    }


def run(args):
    """Trains a model on pairs, and scores it."""
    session = Run("sentence_pairs", args)
    train, valid = read_pairs(args.train), read_pairs(args.valid)
    labels, given = label_names(train, valid), len(valid)
    valid = left_to_score(both_ways(train), valid)
    print(f"{len(train):,} pairs to train on, {len(valid):,} for validation", end=" ")
    print(f"({given - len(valid)} others stand in the training data too)")

    texts = [text for row in train for text in row[:-1]]
    at_least = 2 if len(train) > 1000 else 1
    config, tokenizer = starting_point(args, texts, at_least, **(TINY if args.quick else SIZES))
    train, valid = Labelled(both_ways(train), labels), Labelled(valid, labels)
    encoder = load_encoder(args, config, tokenizer)
    model = add_head(encoder, comparison(encoder), 2, dropout=0.1)
    compile_classifier(model, args, len(train.texts))
    session.fit(
        model,
        train.batches(model, tokenizer, args),
        validation_data=valid.batches(model, tokenizer, args, shuffle=False),
    )

    chances = valid.predicted(model, tokenizer, args)[:, 1]
    references = {
        "F1, always 1": f1_score(valid.numbers, np.ones_like(valid.numbers)),
        "accuracy, commonest label": guessing(train.numbers, valid.numbers),
        "average precision, overlap": average_precision_score(
            valid.numbers, [overlap(pair) for pair in valid.texts]
        ),
    }
    scores = scores_of(chances, valid.numbers)
    session.finish(
        model, scores, guess=valid.numbers.mean(), curve="accuracy", references=references
    )


if __name__ == "__main__":
    main(
        "sentence_pairs",
        run,
        description=__doc__.split("\n")[0],
        files={
            "train": (sample("pairs_train.tsv"), "pairs to train on"),
            "valid": (sample("pairs_valid.tsv"), "pairs for validation"),
        },
        maxlen=64,
        epochs=(3, 12),
        quick_epochs=12,
        rates=(None, 3e-3),
    )

"""Classifies texts: an encoder with a softmax on the mean of its last hidden states.

    python examples/sentence_classification.py
    python examples/sentence_classification.py --train train.tsv --valid dev.tsv --test test.tsv
    python examples/sentence_classification.py --config bert_config.json \
        --checkpoint bert_model.ckpt --vocab vocab.txt --train train.tsv --valid dev.tsv

Each line of the data is a text, a tab and its label; there may be any number of labels, and a
header that ends in `label`. A checkpoint is fine-tuned with the rate that its authors used, found
by `recipe_for` (Devlin et al. 2018, arXiv:1810.04805, section 4.1, who take the vector of [CLS]
in the place of the mean). Texts of --test that stand in --train as well do not count for the
first scores. Without arguments it is a small BERT with random weights, on made-up reviews.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

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
    stand_in,
)
from files import read_labelled
from runs import Run, load_encoder, starting_point
from shared import main, sample
from sklearn.metrics import accuracy_score, classification_report, f1_score

from kerasbert.layers import GlobalAveragePooling1D
from kerasbert.tokenizers import save_vocab
from kerasbert.training import CollapseWarning


def watch_for_collapse(data, model, tokenizer, args):
    """Returns the callback that warns if all texts get one label; none for very few texts."""
    inputs, numbers = data.batches(model, tokenizer, args, batch_size=256, num_buckets=1, seed=0)[0]
    if len(numbers) < 100 or np.bincount(numbers).max() > 0.9 * len(numbers):
        return []
    inputs = list(inputs) if isinstance(inputs, tuple) else inputs
    return [CollapseWarning(inputs, numbers, batch_size=256)]


def scores_of(found, right, seen):
    """Returns the scores of texts that were not seen in training, then those of all of them.

    Args:
        found: int array (N,) of the labels found.
        right: int array (N,) of the right ones.
        seen: bool array (N,).
    """
    scores = {
        "accuracy": accuracy_score(right[~seen], found[~seen]),
        "macro F1": f1_score(right[~seen], found[~seen], average="macro", zero_division=0),
    }
    if seen.any():
        scores["accuracy, seen texts included"] = accuracy_score(right, found)
    return scores


def keep(model, tokenizer, args):
    """Saves the model, and the vocabulary if it is new."""
    model.save(args.output / "sentence_classification.keras")
    if not args.config:
        tokens = tokenizer.ids_to_tokens(range(tokenizer.vocab_size))
        save_vocab(args.output / "vocab.txt", {token: i for i, token in enumerate(tokens)})


def run(args):
    """Trains a classifier, scores it, and keeps it."""
    session = Run("sentence_classification", args)
    train, valid = read_labelled(args.train), read_labelled(args.valid)
    scored = read_labelled(args.test) if args.test else valid
    labels, seen = label_names(train, valid, scored), stand_in(train, scored)
    valid = left_to_score(train, valid)
    print(f"{len(train):,} texts to train on, {len(valid):,} for validation, labels: {labels}")
    print(f"{len(seen):,} texts to score, {seen.sum():,} of them stand in the training data too")

    sizes = TINY if args.quick else SIZES
    texts = [text for text, _ in train]
    config, tokenizer = starting_point(args, texts, 2 if len(train) > 1000 else 1, **sizes)
    train, valid, scored = (Labelled(rows, labels) for rows in (train, valid, scored))
    encoder = load_encoder(args, config, tokenizer)
    features = GlobalAveragePooling1D()(encoder.output)
    model = add_head(encoder, features, len(labels), dropout=0.1)
    compile_classifier(model, args, len(train.texts))
    session.fit(
        model,
        train.batches(model, tokenizer, args),
        validation_data=valid.batches(model, tokenizer, args, shuffle=False),
        callbacks=watch_for_collapse(valid, model, tokenizer, args),
    )

    found = scored.predicted(model, tokenizer, args).argmax(-1)
    right = scored.numbers
    numbers = np.arange(len(labels))
    names = {"labels": numbers, "target_names": labels, "zero_division": 0}
    print("\n" + classification_report(right[~seen], found[~seen], **names))
    keep(model, tokenizer, args)
    guess = guessing(train.numbers, right[~seen])
    facts = {"scored": int((~seen).sum()), "left_out": int(seen.sum()), "labels": labels}
    session.finish(model, scores_of(found, right, seen), guess, **facts)


if __name__ == "__main__":
    main(
        "sentence_classification",
        run,
        description=__doc__.split("\n")[0],
        files={
            "train": (sample("reviews_train.tsv"), "texts to train on"),
            "valid": (sample("reviews_valid.tsv"), "texts for validation"),
            "test": (None, "texts to score, in the place of --valid"),
        },
        maxlen=96,
        epochs=(3, 12),
        quick_epochs=8,
        rates=(None, 1e-3),
        options=(),
    )

"""Trains the same classifier plainly and with adversarial shifts or R-Drop, on few texts.

    python examples/adversarial_training.py
    python examples/adversarial_training.py --train train.tsv --valid dev.tsv --limit 2000 \
        --method plain fgm rdrop gradient-penalty vat
    python examples/adversarial_training.py --config bert_config.json --checkpoint bert_model.ckpt \
        --vocab vocab.txt --train train.tsv --valid dev.tsv

FGM (Miyato et al. 2016, arXiv:1605.07725) adds the worst small shift of the token vectors,
R-Drop (Liang et al. 2021, arXiv:2106.14448) wants two passes with different dropout to agree;
see `kerasbert.training`. All methods start from the same weights and see the same batches. The
form of the data is that of sentence_classification.py; --limit takes few of the texts, always the
same ones. Without arguments it is a small BERT with random weights, on made-up reviews.
"""

import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
from classifiers import (
    SIZES,
    TINY,
    Labelled,
    add_head,
    compile_classifier,
    guessing,
    label_names,
    left_to_score,
    some_of,
)
from files import read_labelled
from runs import Run, load_encoder, starting_point
from shared import UsageError, main, sample

from kerasbert.layers import GlobalAveragePooling1D
from kerasbert.training import FGM, GradientPenalty, RDrop, VirtualAdversarial

METHODS = {
    "plain": lambda model, args: model,
    "fgm": lambda model, args: FGM(model, epsilon=args.epsilon),
    "rdrop": lambda model, args: RDrop(model),
    "gradient-penalty": lambda model, args: GradientPenalty(model),
    "vat": lambda model, args: VirtualAdversarial(model),
}
# Length of FGM's shift: a model that knows nothing yet learns nothing under a greater one.
EPSILONS = {"a checkpoint": 0.5, "random weights": 0.01}


def train_by(method, session, config, tokenizer, train, valid):
    """Trains a new model by a method; returns it, its accuracy and the seconds of processor."""
    args, started = session.args, time.process_time()
    print(f"\n=== {method}")
    keras.utils.set_random_seed(args.seed)  # the same weights and batches for each
    encoder = load_encoder(args, config, tokenizer)
    features = GlobalAveragePooling1D()(encoder.output)
    model = add_head(encoder, features, int(train.numbers.max()) + 1, dropout=0.1)
    trained = METHODS[method](model, args)
    compile_classifier(trained, args, len(train.texts))
    session.fit(
        trained,
        train.batches(model, tokenizer, args, seed=args.seed),
        label=method,
        validation_data=valid.batches(model, tokenizer, args, shuffle=False),
    )
    return model, valid.accuracy(model, tokenizer, args), time.process_time() - started


def run(args):
    """Trains by each method on the same texts, and compares."""
    if args.limit < 2:
        raise UsageError(f"--limit {args.limit}: expected at least 2 texts")
    if args.epsilon is None:
        args.epsilon = EPSILONS["a checkpoint" if args.config else "random weights"]
    session = Run("adversarial_training", args)
    train = read_labelled(args.train)
    given = read_labelled(args.valid)
    scored = left_to_score(train, given)
    train = some_of(train, args.limit)
    labels = label_names(train, scored)
    print(f"{len(train):,} texts to train on, {len(scored):,} to score", end=" ")
    print(f"({len(given) - len(scored)} others stand in the training data too), labels: {labels}")

    texts = [text for text, _ in train]
    sizes = TINY if args.quick else SIZES
    config, tokenizer = starting_point(args, texts, 2 if len(train) > 1000 else 1, **sizes)
    train, scored = Labelled(train, labels), Labelled(scored, labels)
    scores, seconds = {}, {}
    for method in args.method:
        model, accuracy, seconds[method] = train_by(
            method, session, config, tokenizer, train, scored
        )
        scores[f"accuracy, {method}"] = accuracy
    print(f"\n{'method':<34}{'seconds':>8}")
    for method, spent in seconds.items():
        print(f"{method:<34}{spent:>8.0f}")
    guess = guessing(train.numbers, scored.numbers)
    session.finish(model, scores, guess, curve="accuracy", texts=len(train.texts))


if __name__ == "__main__":
    main(
        "adversarial_training",
        run,
        description=__doc__.split("\n")[0],
        files={
            "train": (sample("reviews_train.tsv"), "texts to train on"),
            "valid": (sample("reviews_valid.tsv"), "texts to score"),
        },
        maxlen=96,
        epochs=(8, 12),
        quick_epochs=10,
        rates=(None, 3e-3),
        options=(
            ("--epsilon", {"type": float, "help": f"length of FGM's shift, default by {EPSILONS}"}),
            ("--limit", {"type": int, "default": 2000, "help": "texts to train on, at most"}),
            (
                "--method",
                {"nargs": "+", "choices": METHODS, "default": ["plain", "fgm", "rdrop"]},
            ),
        ),
    )

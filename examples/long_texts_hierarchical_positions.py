"""Classifies texts that are longer than the position table of the checkpoint.

    python examples/long_texts_hierarchical_positions.py
    python examples/long_texts_hierarchical_positions.py --config bert_config.json \
        --checkpoint bert_model.ckpt --vocab vocab.txt --data my_texts.tsv --maxlen 2048

A table of 512 positions serves up to 512 * 512 with `hierarchical_position` (Su 2020,
https://kexue.fm/archives/7947). The same encoder is fine-tuned twice: on texts that are cut to
the table, and on whole ones. Without arguments it is a small one with random weights and 16
positions, on made-up reviews of up to 64 characters whose last sentence tells the label.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

from kerasbert import build_transformer_model
from kerasbert.errors import KerasbertError
from kerasbert.tokenizers import Tokenizer

DATA = Path(__file__).parent / "data" / "long_reviews.tsv"


class UsageError(ValueError):
    """What was asked for cannot be done; the message is for the user."""


def read_labelled(path):
    """Returns pairs (text, label) of a file with a text, a tab and its label on each line."""
    lines = [line.strip() for line in path.read_text("utf-8").split("\n") if line.strip()]
    pairs = [tuple(map(str.strip, line.rpartition("\t")[::2])) for line in lines]
    if not pairs or not all(text and label for text, label in pairs):
        raise UsageError(f"{path}: expected text<TAB>label on each line")
    return pairs


def small_model(texts):
    """Returns a config of 16 positions and a tokenizer of the characters that occur."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens = special + sorted({char for text in texts for char in text})
    config = {
        "vocab_size": len(tokens),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "hidden_act": "gelu",
        "max_position_embeddings": 16,
    }
    return config, Tokenizer({token: n for n, token in enumerate(tokens)})


def classifier(args, config, num_labels, hierarchical):
    """Returns a compiled classifier, and the number of positions its encoder tells apart."""
    keras.utils.set_random_seed(args.seed)
    builder = build_transformer_model(
        config,
        args.checkpoint,
        hierarchical_position=hierarchical,
        with_pool=True,
        strict=False,  # a checkpoint without pooler will do, it starts fresh with a warning
        return_keras_model=False,
    )
    pooled = keras.layers.Dropout(0.1)(builder.output)
    probabilities = keras.layers.Dense(num_labels, activation="softmax", dtype="float32")(pooled)
    model = keras.Model(builder.inputs, probabilities)
    optimizer = keras.optimizers.AdamW(args.learning_rate, weight_decay=0.01, clipnorm=1.0)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model, builder.config.position_limit


def run(args):
    """Fine-tunes one encoder on cut and on whole texts, and prints both accuracies."""
    pairs = read_labelled(args.data)
    labels = sorted({label for _, label in pairs})
    pairs = [pairs[i] for i in np.random.default_rng(args.seed).permutation(len(pairs))]
    held_out = max(len(pairs) // 5, 1)
    texts, numbers = [t for t, _ in pairs], np.array([labels.index(x) for _, x in pairs])
    if args.config:
        config, tokenizer = args.config, Tokenizer(args.vocab, do_lower_case=True)
    else:
        config, tokenizer = small_model(texts)

    results = {}
    for name, hierarchical in (("cut to the table", None), ("whole texts", True)):
        model, limit = classifier(args, config, len(labels), hierarchical)
        maxlen = min(args.maxlen, limit)
        ids, segments = tokenizer.encode_batch(texts, maxlen=maxlen)
        print(f"\n=== {name}: {ids.shape[1]} tokens of at most {limit:,}")
        history = model.fit(
            [ids[held_out:], segments[held_out:]],
            numbers[held_out:],
            validation_data=([ids[:held_out], segments[:held_out]], numbers[:held_out]),
            batch_size=args.batch_size,
            epochs=args.epochs,
            verbose=2,
        )
        results[name] = (ids.shape[1], history.history["val_accuracy"][-1])
    print(f"\n{'texts':<20}{'tokens':>8}{'validation accuracy':>22}")
    for name, (length, accuracy) in results.items():
        print(f"{name:<20}{length:>8}{accuracy:>22.1%}")


def parse_arguments():
    """Returns the arguments of the command line, checked."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--config", type=Path, help="config file of a checkpoint")
    add("--checkpoint", type=Path, help="prefix of a checkpoint, or its folder")
    add("--vocab", type=Path, help="its vocab.txt")
    add("--data", type=Path, default=DATA, help="file with text<TAB>label on each line")
    add("--maxlen", type=int, default=2048, help="tokens per text, default %(default)s")
    add("--epochs", type=int, default=12, help="default %(default)s")
    add("--batch-size", type=int, default=16, help="default %(default)s")
    add("--learning-rate", type=float, help="default 3e-5, or 3e-3 for random weights")
    add("--seed", type=int, default=0, help="of weights and batches, default %(default)s")
    add("--quick", action="store_true", help="two epochs")
    args = parser.parse_args()
    if len({value is None for value in (args.config, args.checkpoint, args.vocab)}) > 1:
        raise UsageError("--config, --checkpoint and --vocab belong together: give all or none")
    args.epochs = 2 if args.quick else args.epochs
    if args.learning_rate is None:
        args.learning_rate = 3e-5 if args.config else 3e-3
    if min(args.epochs, args.batch_size, args.maxlen - 2, args.learning_rate) <= 0:
        raise UsageError("expected positive numbers, and --maxlen of at least 3")
    return args


def main():
    """Runs the example; a mistake of the user gives one line and exit status 2."""
    try:
        run(parse_arguments())
    except (UsageError, KerasbertError, OSError) as error:
        print("long_texts: error:", *str(error).split("\n"), file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

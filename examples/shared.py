"""What the examples on labelled texts have in common."""

import argparse
import sys
from collections import Counter
from pathlib import Path

from kerasbert.errors import KerasbertError
from kerasbert.tokenizers import Tokenizer


class UsageError(ValueError):
    """What was asked for cannot be done; the message is for the user."""


def read_labelled(path):
    """Returns pairs (text, label) of a file with a text, a tab and its label on each line."""
    lines = [line.strip() for line in path.read_text("utf-8").split("\n") if line.strip()]
    pairs = [tuple(map(str.strip, line.rpartition("\t")[::2])) for line in lines]
    if not pairs or not all(text and label for text, label in pairs):
        raise UsageError(f"{path}: expected text<TAB>label on each line")
    return pairs


def small_model(texts, at_least=1, **sizes):
    """Returns a config with these sizes and a tokenizer of characters that occur so often."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    counts = Counter(char for text in texts for char in text)
    characters = sorted(char for char, count in counts.items() if count >= at_least)
    # A number or a Latin word has as many pieces as characters.
    pieces = [f"##{char}" for char in characters if char.isascii() and char.isalnum()]
    tokens = special + characters + pieces
    config = {
        "vocab_size": len(tokens),
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "hidden_act": "gelu",
        **sizes,
    }
    return config, Tokenizer({token: n for n, token in enumerate(tokens)})


def parse_arguments(description, data, maxlen, epochs, quick_epochs, rates, test=None):
    """Returns the arguments of the command line, checked.

    Args:
        description: what the example does, in one line.
        data: path of the texts that come with it.
        maxlen: default length of a text in tokens.
        epochs: default number of epochs.
        quick_epochs: that of --quick.
        rates: default learning rates of a checkpoint and of random weights.
        test: what --test is, for an example that has it; its data are then JSON.
    """
    parser = argparse.ArgumentParser(description=description)
    add = parser.add_argument
    add("--config", type=Path, help="config file of a checkpoint")
    add("--checkpoint", type=Path, help="prefix of a checkpoint, or its folder")
    add("--vocab", type=Path, help="its vocab.txt")
    form = "JSON file as SQuAD's" if test else "file with text<TAB>label on each line"
    add("--data", type=Path, default=data, help=form)
    if test:
        add("--test", type=Path, help=test)
    add("--maxlen", type=int, default=maxlen, help="tokens per text, default %(default)s")
    add("--epochs", type=int, default=epochs, help="default %(default)s")
    add("--batch-size", type=int, default=16, help="default %(default)s")
    add("--learning-rate", type=float, help="default {}, or {} for random weights".format(*rates))
    add("--seed", type=int, default=0, help="of weights and batches, default %(default)s")
    add("--quick", action="store_true", help=f"{quick_epochs} epochs")
    args = parser.parse_args()
    if len({value is None for value in (args.config, args.checkpoint, args.vocab)}) > 1:
        raise UsageError("--config, --checkpoint and --vocab belong together: give all or none")
    args.epochs = quick_epochs if args.quick else args.epochs
    if args.learning_rate is None:
        args.learning_rate = rates[0] if args.config else rates[1]
    if min(args.epochs, args.batch_size, args.maxlen - 2, args.learning_rate) <= 0:
        raise UsageError("expected positive numbers, and --maxlen of at least 3")
    return args


def main(name, run, **defaults):
    """Runs an example; a mistake of the user gives one line and exit status 2."""
    try:
        run(parse_arguments(**defaults))
    except (UsageError, KerasbertError, OSError) as error:
        print(f"{name}: error:", *str(error).split("\n"), file=sys.stderr)
        sys.exit(2)

"""Command lines of the examples, and what they say to a user's mistake."""

import argparse
import math
import sys
from pathlib import Path

from kerasbert.errors import KerasbertError

HERE = Path(__file__).parent
CHECKPOINT = ("config", "checkpoint", "vocab")


class UsageError(ValueError):
    """What was asked for cannot be done; the message is for the user."""


def sample(name):
    """Returns the path of one of the small made-up files that come with the examples."""
    return HERE / "data" / name


def parse_arguments(
    description, files, maxlen, epochs, quick_epochs, rates, batch_size=32, options=()
):
    """Returns the arguments of the command line, checked.

    Args:
        description: what the example does, in one line.
        files: `{name: (default path, help)}` of the data. Those with a default belong together;
            one whose default is None may be left out.
        maxlen: default length of a text in tokens.
        epochs: default numbers of epochs for the user's files and for the sample.
        quick_epochs: that of --quick.
        rates: default learning rates of a checkpoint, None for that of a recipe, and of random
            weights.
        batch_size: default number of texts in a batch.
        options: further options, as pairs of a name and what `add_argument` takes.
    """
    parser = argparse.ArgumentParser(description=description)
    add = parser.add_argument
    rate = "by family and size" if rates[0] is None else rates[0]
    add_checkpoint(parser)
    for name, (_, text) in files.items():
        add(f"--{name}", type=Path, help=text)
    add("--maxlen", type=int, default=maxlen, help="tokens per text, default %(default)s")
    add("--epochs", type=int, help="default {}, or {} for the sample".format(*epochs))
    add("--batch-size", type=int, default=batch_size, help="default %(default)s")
    add("--learning-rate", type=float, help=f"default {rate}, or {rates[1]} for random weights")
    add("--seed", type=int, default=0, help="of weights and batches, default %(default)s")
    add("--output", type=Path, default=HERE / "output", help="folder for what it leaves")
    add("--quick", action="store_true", help=f"a tiny model, epochs: {quick_epochs}")
    for name, settings in options:
        add(name, **settings)
    args = parser.parse_args()
    together(args, CHECKPOINT)
    own_files = together(args, [name for name, (default, _) in files.items() if default])
    if not own_files:
        for name, (default, _) in files.items():
            if getattr(args, name) is not None:
                raise UsageError(f"--{name} goes with data of yours, not with the sample")
            setattr(args, name, default)
    if args.quick or args.epochs is None:
        args.epochs = quick_epochs if args.quick else epochs[0 if own_files else 1]
    if args.learning_rate is None:
        args.learning_rate = rates[0] if args.config else rates[1]
    _check_numbers(args)
    return args


def add_checkpoint(parser):
    """Adds the options that name a checkpoint of the user's."""
    parser.add_argument("--config", type=Path, help="config file of a checkpoint")
    text = "the checkpoint: a prefix, a file or a folder"
    parser.add_argument("--checkpoint", type=Path, help=text)
    parser.add_argument("--vocab", type=Path, help="its vocab.txt, or its SentencePiece .model")


def together(args, names):
    """Returns whether these options were given, all of them; some only are a mistake."""
    given = [getattr(args, name) is not None for name in names]
    if any(given) != all(given):
        listed = " and ".join(f"--{name}" for name in names)
        raise UsageError(f"{listed} belong together: give all or none")
    return all(given)


def _check_numbers(args):
    positive = [args.epochs, args.batch_size, args.maxlen - 2]
    positive += [] if args.learning_rate is None else [args.learning_rate]
    if not all(0 < number < math.inf for number in positive):
        raise UsageError("expected positive numbers, and --maxlen of at least 3")
    if not 0 <= args.seed < 2**32:
        raise UsageError(f"--seed {args.seed}: expected a number from 0 to {2**32 - 1}")


def main(name, run, **settings):
    """Runs an example; a mistake of the user gives one line and exit status 2."""
    in_one_line(name, lambda: run(parse_arguments(**settings)))


def in_one_line(name, function):
    """Calls a function; a mistake of the user gives one line and exit status 2."""
    try:
        function()
    except (UsageError, KerasbertError, OSError) as error:
        print(f"{name}: error:", *str(error).split("\n"), file=sys.stderr)
        sys.exit(2)

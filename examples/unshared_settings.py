"""What the study of un-sharing and that of the layers run with: command line, checkpoint, sizes."""

import argparse
import hashlib
import math
from pathlib import Path

import keras
import results
from files import read_text
from runs import small_model
from shared import CHECKPOINT, HERE, UsageError, add_checkpoint, together
from unshared_tasks import TASKS

from kerasbert import build_transformer_model, save_weights_as_checkpoint
from kerasbert.tokenizers import save_vocab

# What a command line may say in the place of what stands in a `Task`.
NUMBERS = {
    "texts": (int, "how many texts are trained on"),
    "scored": (int, "how many texts are scored"),
    "epochs": (int, "how many epochs there are"),
    "maxlen": (int, "tokens per text"),
    "batch_size": (int, "texts in a batch"),
    "learning_rate": (float, "the highest rate"),
}
QUICK = {"texts": 24, "scored": 8, "epochs": 2}


def study_arguments(description, tasks, options):
    """Returns the arguments of the command line, checked.

    Args:
        description: what the study does, in one line.
        tasks: names of the tasks whose data it takes, if no option says so.
        options: further options, as pairs of a name and what `add_argument` takes.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.set_defaults(tasks=tasks)
    add_checkpoint(parser)
    parser.add_argument("--data", type=Path, help="folder of data sets; default made-up texts")
    for name, (kind, text) in NUMBERS.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=kind, metavar="N", help=f"{text}; default by task")
    parser.add_argument("--output", type=Path, help="folder for what it leaves; default results")
    parser.add_argument("--quick", action="store_true", help="a tiny model, few texts, 2 epochs")
    for name, settings in options:
        parser.add_argument(name, **settings)
    args = parser.parse_args()
    together(args, CHECKPOINT)
    check_positive(args, NUMBERS)
    if args.maxlen is not None and args.maxlen < 3:
        raise UsageError(f"--maxlen {args.maxlen}: expected at least 3")
    args.output = args.output or HERE / ("output" if args.quick else "results")
    for path in (path for task in args.tasks for path in files_of(args, task).values()):
        if not path.is_file():
            raise UsageError(f"{path}: no such file")
    return args


def check_positive(args, names):
    """Refuses numbers that are given, and not above 0."""
    for name in names:
        number = getattr(args, name)
        if number is not None and not 0 < number < math.inf:
            raise UsageError(f"--{name.replace('_', '-')} {number}: expected a number above 0")


def check_seeds(seeds):
    """Refuses what is no seed."""
    for seed in seeds:
        if not 0 <= seed < 2**32:
            raise UsageError(f"seed {seed}: expected a number from 0 to {2**32 - 1}")


def make_ready(args):
    """Makes the folder for output, and takes the default checkpoint if none is given."""
    args.output.mkdir(parents=True, exist_ok=True)
    if args.config is None:
        args.config, args.checkpoint, args.vocab = default_checkpoint(args)


def files_of(args, task):
    """Returns `{option: path}` of the data of a task."""
    if args.data is None:
        return TASKS[task].samples
    files = results.TASKS[TASKS[task].data].files
    return {option: args.data / path for option, path in files.items()}


def numbers_of(args, task):
    """Returns the sizes of the training of a task: given ones, those of --quick, its own."""
    given = {name: getattr(args, name) for name in NUMBERS if getattr(args, name) is not None}
    own = {name: getattr(TASKS[task], name) for name in NUMBERS}
    return {**own, **(QUICK if args.quick else {}), **given}


def default_checkpoint(args):
    """Returns the paths of config, checkpoint and vocabulary of a small ALBERT.

    It has random weights, and the characters of the data. What an earlier call has left in the
    folder for output is taken again.
    """
    folder = args.output / "random_albert"
    paths = folder / "albert_config.json", folder / "albert.ckpt", folder / "vocab.txt"
    if paths[-1].exists():
        return paths
    files = {path for task in args.tasks for path in files_of(args, task).values()}
    size, layers = (32, 2) if args.quick else (192, 4)
    config, tokenizer = small_model(
        map(read_text, sorted(files)),
        at_least=1 if args.data is None else 3,
        embedding_size=size // 2,
        hidden_size=size,
        intermediate_size=4 * size,
        num_hidden_layers=layers,
        max_position_embeddings=128,
        initializer_range=size**-0.5,
    )
    keras.utils.set_random_seed(0)
    folder.mkdir(exist_ok=True)
    model = build_transformer_model(config, model="albert", with_mlm=True)
    save_weights_as_checkpoint(model, paths[1], verbose=0)
    tokens = tokenizer.ids_to_tokens(range(tokenizer.vocab_size))
    # The last file: where it is, the others are complete.
    save_vocab(paths[-1], {token: n for n, token in enumerate(tokens)})
    return paths


def fingerprint(args):
    """Returns some digits that tell this checkpoint from others, wherever it lies."""
    place = args.checkpoint
    if place.is_dir():
        found = sorted(path for path in place.rglob("*") if path.is_file())
    else:
        names = place.name, f"{place.name}."  # a file, or the prefix of several
        found = sorted(
            p for p in place.parent.iterdir() if p.name == names[0] or p.name.startswith(names[1])
        )
    if not found:
        raise UsageError(f"{place}: no such checkpoint")
    digest = hashlib.sha256()
    for path in (args.config, args.vocab, *found):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]

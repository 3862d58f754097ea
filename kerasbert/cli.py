"""The commands `kerasbert inspect` and `kerasbert convert`."""

import argparse
import sys

from kerasbert.convert import FORMS, convert
from kerasbert.errors import KerasbertError
from kerasbert.inspection import inspect_checkpoint


def main(arguments=None):
    """Runs a command.

    Args:
        arguments: list of strings; default is the command line.

    Returns:
        0, or 2 if the command was refused, with the reason on stderr.
    """
    options = vars(_parser().parse_args(arguments))
    command = options.pop("command")
    try:
        command(**options)
    except KerasbertError as error:
        print(f"kerasbert: error: {error}", file=sys.stderr)
        return 2
    return 0


def _inspect(**options):
    print(inspect_checkpoint(**options))


def _parser():
    parser = argparse.ArgumentParser(prog="kerasbert", description="Looks into checkpoints.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    inspect = commands.add_parser("inspect", help="say what a checkpoint holds")
    inspect.set_defaults(command=_inspect)
    inspect.add_argument("path", help="checkpoint: prefix, file or folder")
    conversion = commands.add_parser("convert", help="write a checkpoint in another form")
    conversion.set_defaults(command=convert)
    conversion.add_argument("source", help="checkpoint (prefix, file or folder) or .keras file")
    conversion.add_argument("destination", help="new folder, or .keras file")
    conversion.add_argument("--to", required=True, choices=FORMS, help="the form to write")
    conversion.add_argument(
        "--unshare",
        nargs="?",
        const="all",
        choices=("all", "attention", "feed_forward"),
        help="give the layers of an ALBERT blocks of their own (default: all)",
    )
    conversion.add_argument(
        "--unshare-layers", type=int, nargs="+", metavar="LAYER", help="which layers; default all"
    )
    conversion.add_argument(
        "--keep-tokens",
        metavar="VOCAB",
        help="file with the tokens to keep, in their new order, or 'simplified'",
    )
    conversion.add_argument(
        "--vocabulary", metavar="VOCAB", help="vocabulary of the source; default: beside it"
    )
    for command in (inspect, conversion):
        command.add_argument("--config", help="config file; default: the only one in the folder")
        command.add_argument("--model", default="auto", help="as model= in Python; default: auto")
    return parser

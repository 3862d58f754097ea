"""The commands `kerasbert inspect` and `kerasbert convert`."""

import argparse
import json
import signal
import sys

import kerasbert
from kerasbert.convert import FORMS, convert
from kerasbert.errors import KerasbertError
from kerasbert.inspection import inspect_checkpoint


def main(arguments=None):
    """Runs a command.

    Args:
        arguments: list of strings; default is the command line.

    Returns:
        0; 2 if the command was refused, with the reason on stderr; 130 if interrupted.
    """
    options = vars(_parser().parse_args(arguments))
    command = options.pop("command")
    options["overrides"] = dict(options["overrides"] or ())
    # So that what is half written is removed again.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        command(**options)
    except KeyboardInterrupt:
        print("kerasbert: interrupted", file=sys.stderr)
        return 130
    except KerasbertError as error:
        print(f"kerasbert: error: {error}", file=sys.stderr)
        return 2
    return 0


def _numbers(text):
    return [int(number) for number in text.split(",")]


def _override(text):
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value  # a word


def _inspect(**options):
    print(inspect_checkpoint(**options))


def _parser():
    parser = argparse.ArgumentParser(prog="kerasbert", description="Looks into checkpoints.")
    parser.add_argument("--version", action="version", version=f"kerasbert {kerasbert.__version__}")
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
        choices=("all", "attention", "feed_forward"),
        help="give the layers of an ALBERT blocks of their own",
    )
    conversion.add_argument(
        "--unshare-layers", type=_numbers, metavar="0,1,…", help="which layers; default all"
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
        command.add_argument(
            "--set",
            dest="overrides",
            type=_override,
            action="append",
            metavar="KEY=VALUE",
            help="override a key of the config, such as num_hidden_layers=12",
        )
    return parser

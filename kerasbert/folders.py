"""Finds the config file that belongs to a checkpoint, and the other way round."""

import json
import os
from pathlib import Path

from kerasbert.errors import ConfigError, listing

# What the configurations of the families call their sizes.
_TELLING = {"hidden_size", "n_layers", "n_embd", "d_model"}

_HUGGING_FACE_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".json")


def locate(config, checkpoint):
    """Resolves folders: one passed as config holds the checkpoint too, and the other way round.

    Returns:
        The path of the config file (or `config` as it is), and the checkpoint.

    Raises:
        ConfigError: if the folder holds no config file, or several.
    """
    if config is None:
        return _config_beside(checkpoint), checkpoint
    if not isinstance(config, str | os.PathLike) or not os.fspath(config):
        return config, checkpoint
    folder = Path(os.path.expanduser(os.fspath(config)))
    # Not Path.is_dir, which raises where a folder may not be entered or a name is too long.
    if not os.path.isdir(folder):
        return config, checkpoint
    # Without a checkpoint of its own the folder must hold one: no silent random weights.
    return _single(configs_in(folder), folder), folder if checkpoint is None else checkpoint


def _config_beside(checkpoint):
    """The config in a folder passed as checkpoint, or the only one beside a file or prefix."""
    if not isinstance(checkpoint, str | os.PathLike) or not os.fspath(checkpoint):
        return None
    path = Path(os.path.expanduser(os.fspath(checkpoint)))
    if os.path.isdir(path):
        found = configs_in(path)
        return _single(found, path) if found else None
    fixed = path.parent / "config.json"
    if path.suffix in _HUGGING_FACE_SUFFIXES and _is_config(fixed):
        return fixed  # there the name is fixed
    return config_of(path)


def config_of(checkpoint):
    """Returns the config file that must be that of a checkpoint: the only one in its folder.

    Args:
        checkpoint: path of a folder, a file or a prefix.

    Returns:
        A path, or None if there is none or more than one.
    """
    if not isinstance(checkpoint, str | os.PathLike):
        return None
    path = Path(os.path.expanduser(os.fspath(checkpoint)))
    found = configs_in(path if os.path.isdir(path) else path.parent)
    return found[0] if len(found) == 1 else None


def configs_in(folder):
    """Lists the config files in a folder."""
    return [path for path in sorted(Path(folder).glob("*.json")) if _is_config(path)]


def _single(found, folder):
    if len(found) != 1:
        names = f": {listing(path.name for path in found)}" if found else ""
        raise ConfigError(
            f"The folder {folder} holds {len(found)} config files{names}.\n"
            "Expected one JSON file with hidden_size.\nPass the path of the config file itself, or "
            "config=None and checkpoint= to take the sizes from a checkpoint."
        )
    return found[0]


def _is_config(path):
    try:
        if not path.is_file():  # to open a named pipe would wait for ever
            return False
        values = json.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(values, dict) and bool(_TELLING & values.keys())

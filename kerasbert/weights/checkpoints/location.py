"""From what a user passes as `checkpoint` to the prefix of a TensorFlow checkpoint."""

import os
import re
from pathlib import Path

from kerasbert.errors import CheckpointError, listing

_DATA_SUFFIX = re.compile(r"\.data-\d{5}-of-\d{5}$")
_OTHER_FORMATS = {
    ".keras": "a whole Keras model; load it with keras.models.load_model(path)",
    ".h5": "Keras weights; build the model without checkpoint, then model.load_weights(path)",
    ".hdf5": "Keras weights; build the model without checkpoint, then model.load_weights(path)",
    ".npz": "a numpy archive; pass dict(numpy.load(path))",
    ".zip": "an archive; unpack it and pass the folder",
    ".gz": "an archive; unpack it and pass the folder",
}


def find_checkpoint(path):
    """Finds the one TensorFlow checkpoint that `path` stands for.

    Args:
        path: a prefix such as "albert_model.ckpt", its `.index`, `.meta` or `.data-…` file, a
            folder that holds one checkpoint or a `checkpoint` state file, or an unpacked
            TF-Hub module. "~" is expanded.

    Returns:
        The prefix, a string.

    Raises:
        CheckpointError: if nothing is there, if a part is missing, if a folder holds several,
            or if the file is of another kind.
    """
    if not isinstance(path, str | os.PathLike):
        raise CheckpointError(
            f"checkpoint is {path!r}, a {type(path).__name__}.\n"
            "Expected a path or a dict of arrays."
        )
    if not os.fspath(path) or "\0" in os.fspath(path):
        raise CheckpointError(
            f"checkpoint={path!r}.\nExpected a path, neither empty nor with null bytes."
        )
    path = Path(os.path.expanduser(os.fspath(path)))
    if path.is_dir():
        return _in_folder(path)
    prefix = path
    if path.suffix in (".index", ".meta"):
        prefix = path.with_suffix("")
    elif _DATA_SUFFIX.search(path.name):
        prefix = path.with_name(_DATA_SUFFIX.sub("", path.name))
    _check_complete(prefix, path)
    return str(prefix)


def checkpoints_in(folder):
    """Lists the prefixes of the checkpoints in `folder`."""
    return sorted(str(index.with_suffix("")) for index in Path(folder).glob("*.index"))


def _in_folder(folder):
    state = folder / "checkpoint"
    if state.is_file():
        recorded = _recorded_prefix(state)
        # Google's archives carry the path of a machine of theirs; the name alone is useful.
        if recorded and (folder / f"{recorded}.index").is_file():
            _check_complete(folder / recorded, folder)
            return str(folder / recorded)
    prefixes = checkpoints_in(folder) or checkpoints_in(folder / "variables")
    if len(prefixes) == 1:
        _check_complete(Path(prefixes[0]), folder)
        return prefixes[0]
    if prefixes:
        raise CheckpointError(
            f"The folder {folder} holds {len(prefixes)} checkpoints.\n"
            f"Expected one.\nPass one of: {listing(prefixes)}."
        )
    for data in sorted(folder.glob("*.data-*-of-*")):
        _check_complete(data.with_name(_DATA_SUFFIX.sub("", data.name)), data)
    raise CheckpointError(
        f"The folder {folder} holds no checkpoint.\n"
        "Expected files NAME.index and NAME.data-00000-of-00001 (TensorFlow), or "
        "model.safetensors or pytorch_model.bin (Hugging Face)."
    )


def _recorded_prefix(state):
    text = state.read_text("utf-8", errors="replace")
    match = re.search(r'^model_checkpoint_path:\s*"(.+)"', text, re.MULTILINE)
    return re.split(r"[/\\]", match.group(1))[-1] if match else None


def _check_complete(prefix, given):
    index = Path(f"{prefix}.index")
    data = sorted(prefix.parent.glob(f"{_glob_escape(prefix.name)}.data-*-of-*"))
    if index.is_file() and data:
        return
    if index.is_file() or data:
        there, absent = ("index", "data-00000-of-00001") if index.is_file() else ("data", "index")
        raise CheckpointError(
            f"The checkpoint {prefix} is incomplete: there is a .{there} file but no "
            f"{prefix.name}.{absent}.\n"
            "Expected both files side by side.\nCopy or unpack the missing one."
        )
    if given.is_file():
        kind = _OTHER_FORMATS.get(given.suffix, "no checkpoint")
        raise CheckpointError(
            f"{given} is {kind}.\n"
            "Expected the prefix of a TensorFlow checkpoint, such as bert_model.ckpt, or a "
            "safetensors or PyTorch file."
        )
    near = checkpoints_in(prefix.parent) if prefix.parent.is_dir() else []
    hint = f"That folder holds: {listing(near)}." if near else "That folder holds no checkpoint."
    if not prefix.parent.is_dir():
        hint = f"There is no folder {prefix.parent}."
    raise CheckpointError(f"No checkpoint at {prefix}.\nExpected a file {index}.\n{hint}")


def _glob_escape(name):
    return re.sub(r"([*?\[])", r"[\1]", name)

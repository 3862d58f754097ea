"""Finds the weights in what Hugging Face calls a model: a folder, or one of its files."""

import os
from pathlib import Path

from kerasbert.weights.checkpoints.safetensors import SafetensorsCheckpoint
from kerasbert.weights.checkpoints.shards import explained
from kerasbert.weights.checkpoints.torch_pickle import TorchCheckpoint

_READERS = (SafetensorsCheckpoint, TorchCheckpoint)

_IN_FOLDER = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


def find_huggingface_file(path):
    """Opens the safetensors or PyTorch weights at `path`, if it has any.

    In a folder, names decide: model.safetensors, then its index, then pytorch_model.bin, then
    its index. A file is recognised by its first bytes, whatever it is called; one of an
    unknown kind by `.safetensors`, `.bin`, `.pt` or `.pth`, so that the reader says what is
    wrong with it.

    Args:
        path: a folder or a file. "~" is expanded.

    Returns:
        A `SafetensorsCheckpoint`, a `TorchCheckpoint`, or None if there is neither.

    Raises:
        CheckpointError: if there is one but it cannot be opened.

    Example:
        >>> find_huggingface_file("albert_config.json") is None
        True
        >>> find_huggingface_file("bert-base-chinese").source  # doctest: +SKIP
        'bert-base-chinese/model.safetensors'

    Source: `WEIGHTS_NAME` and its like in `transformers.utils`.
    """
    if not isinstance(path, str | os.PathLike) or "\0" in os.fsdecode(path):
        return None
    path = Path(os.path.expanduser(os.fsdecode(path)))
    with explained(path):
        if path.is_dir():
            candidates = (path / name for name in _IN_FOLDER)
            path = next((file for file in candidates if file.is_file()), None)
        elif not path.is_file():
            path = None
    reader = path and _reader_for(path)
    return reader(path) if reader else None


def _reader_for(path):
    stem = path.name.removesuffix(".index.json")
    if stem == path.name:
        for reader in _READERS:
            if reader.recognises(path):
                return reader
    suffix = Path(stem).suffix
    return next((reader for reader in _READERS if suffix in reader.suffixes), None)

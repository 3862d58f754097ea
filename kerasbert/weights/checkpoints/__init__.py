"""Checkpoint files as lazy mappings from a name to a shape, a dtype and a way to read."""

import os

from kerasbert.errors import CheckpointError, listing
from kerasbert.weights.checkpoints.arrays import ArrayCheckpoint
from kerasbert.weights.checkpoints.huggingface import find_huggingface_file
from kerasbert.weights.checkpoints.location import checkpoints_in, find_checkpoint
from kerasbert.weights.checkpoints.tensorflow import TensorFlowCheckpoint, write_checkpoint

__all__ = ["ArrayCheckpoint", "TensorFlowCheckpoint", "open_checkpoint", "write_checkpoint"]


def open_checkpoint(checkpoint):
    """Opens a checkpoint given as a path or as a dict of arrays; reads no array yet.

    Args:
        checkpoint: a dict from names to arrays, or a path: the prefix of a TensorFlow
            checkpoint, its `.index` or `.data-…` file, a safetensors or PyTorch file or its
            index of shards, or a folder that holds one of these.

    Returns:
        An object with `source`, `shapes` (dict from name to tuple) and `read(name)`.

    Raises:
        CheckpointError: if there is no such checkpoint or it cannot be opened.
    """
    if isinstance(checkpoint, dict):
        return ArrayCheckpoint(checkpoint)
    file = find_huggingface_file(checkpoint)
    if file is None:
        return TensorFlowCheckpoint(find_checkpoint(checkpoint))
    folder = os.path.expanduser(checkpoint)
    if os.path.isdir(folder) and (others := checkpoints_in(folder)):
        raise CheckpointError(
            f"The folder {checkpoint} holds several checkpoints: {file.source}, "
            f"{listing(others)}.\nExpected one.\nPass the path of the one you mean."
        )
    return file

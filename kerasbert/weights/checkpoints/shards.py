"""What the readers of Hugging Face's file formats share: shards, errors and raw arrays.

A checkpoint is one file, or several ("shards") under an index in JSON. Arrays are read from
the file into memory of their own and not mapped: mapped pages count as memory of the process
until the file is closed, a file that shrinks meanwhile would kill it, and reading is as fast.

bfloat16, which numpy lacks, becomes float32 without loss; every other type stays as it is.
"""

import contextlib
import json
import math
import os
import stat
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kerasbert.errors import CheckpointError, did_you_mean, listing

#: Names of the types that can be read, and what one element is in a file.
STORED_DTYPES = {
    "bool": "|u1",
    "uint8": "|u1",
    "int8": "|i1",
    "uint16": "<u2",
    "int16": "<i2",
    "uint32": "<u4",
    "int32": "<i4",
    "uint64": "<u8",
    "int64": "<i8",
    "float16": "<f2",
    "bfloat16": "<u2",
    "float32": "<f4",
    "float64": "<f8",
    "complex64": "<c8",
    "complex128": "<c16",
}

#: A header, an index or a table of contents past this size is not one of an encoder.
MAX_HEADER = 1 << 20

#: numpy 1 has no more axes.
MAX_AXES = 32
_MAX_ELEMENTS = 1 << 48

#: Arrays begin at a multiple of this: TensorFlow copies others before it computes with them.
ALIGNMENT = 64

_LFS_POINTER = b"version https://git-lfs.github.com"


class FileOrShards:
    """Base of the two readers: one file, or the shards that an index names.

    A tensor that the index does not list but a shard holds is offered as well.

    Args:
        path: the file or the `.json` index.

    Attributes:
        source: the path.
        shapes: dict from tensor name to shape.

    Raises:
        CheckpointError: if a file is absent, damaged, or holds what cannot be read.

    Source: `index.json` as `transformers.modeling_utils` writes it.
    """

    #: Opens one file: a class with `shapes`, `dtypes` (of `STORED_DTYPES`) and `read(name)`.
    file_type = None
    suffixes = ()

    def __init__(self, path):
        if not isinstance(path, str | os.PathLike) or "\0" in os.fsdecode(path):
            raise CheckpointError(
                f"checkpoint is {path!r}.\nExpected a path.\nPass that of a file."
            )
        path = Path(os.path.expanduser(os.fsdecode(path)))
        self.source = str(path)
        self._owners = self._open_shards(path) if path.suffix == ".json" else self._open(path)
        self.shapes = {name: file.shapes[name] for name, file in self._owners.items()}

    def read(self, name):
        """Reads one tensor into a numpy array of its own.

        Raises:
            CheckpointError: if there is no tensor of that name, or the file is damaged.
        """
        if name not in self._owners:
            raise CheckpointError(
                f"{self.source} holds no tensor {name!r}.{did_you_mean(name, self.shapes)}\n"
                f"Expected one of its {len(self.shapes)} names.\nSee the attribute shapes."
            )
        return self._owners[name].read(name)

    def _open(self, path):
        file = self.file_type(path)
        if not file.shapes:
            raise damaged(path, "it holds no tensors")
        for name, shape in file.shapes.items():
            # An axis of length 0 hides the others from every check against the file's size.
            if len(shape) > MAX_AXES or math.prod(length or 1 for length in shape) > _MAX_ELEMENTS:
                raise damaged(path, f"the shape of {name[:80]!r} makes no sense")
        unreadable = [
            f"{name[:80]} ({dtype})"
            for name, dtype in file.dtypes.items()
            if dtype not in STORED_DTYPES
        ]
        if unreadable:
            raise CheckpointError(
                f"{path} holds tensors of a type that numpy lacks: {listing(unreadable)}.\n"
                f"Expected one of {', '.join(STORED_DTYPES)}.\n"
                "Convert them with the program that wrote them, for example to float16."
            )
        return dict.fromkeys(file.shapes, file)

    def _open_shards(self, index):
        places = _read_index(index)
        shards = {name: self._open(index.with_name(name)) for name in sorted(set(places.values()))}
        owners = {tensor: file for shard in shards.values() for tensor, file in shard.items()}
        absent = [tensor[:80] for tensor, name in places.items() if tensor not in shards[name]]
        if absent:
            raise damaged(index, f"its shards lack {listing(absent)}")
        owners.update({tensor: shards[name][tensor] for tensor, name in places.items()})
        return owners


def _read_index(index):
    with opened(index) as (file, size):
        if size > MAX_HEADER:
            raise damaged(index, f"{size} bytes are too many for an index")
        text = file.read()
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise damaged(index, f"it is no JSON ({str(error)[:80]})") from error
    places = content.get("weight_map") if isinstance(content, dict) else None
    names = places.values() if isinstance(places, dict) else ()
    if not names or not all(isinstance(name, str) for name in names):
        raise damaged(index, "it has no weight_map from tensors to files")
    for name in set(names):
        # An index from elsewhere shall not make us open files outside of its folder.
        if name in ("", ".", "..") or any(mark in name for mark in "/\\:\0"):
            raise CheckpointError(
                f"{index} names the shard {name[:120]!r}.\n"
                "Expected the bare name of a file in the same folder.\n"
                "Put the shards beside the index and correct it."
            )
        with explained(index):
            found = index.with_name(name).is_file()
        if not found:
            raise CheckpointError(
                f"{index} names the shard {name[:120]!r}, which is not there.\n"
                "Expected all shards in the folder of the index.\nCopy or download it."
            )
    return places


# ---- files and arrays ------------------------------------------------------------------------


@contextlib.contextmanager
def opened(path):
    """Opens a regular file for reading; yields it and its size."""
    with explained(path):
        # Asked first: opening a named pipe would wait for ever.
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("not a file")
        with open(path, "rb") as file:
            yield file, status.st_size


@contextlib.contextmanager
def explained(path):
    """Turns the OSErrors of a block into CheckpointErrors."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"Cannot open {path}: {error.strerror or error}.\n"
            "Expected a file that exists and that you may read.\n"
            "Check the path and the permissions."
        ) from error


def damaged(path, reason):
    """Returns the error for a file that is not what it should be."""
    action = "Download or copy it again"
    with contextlib.suppress(OSError), open(path, "rb") as file:
        if file.read(len(_LFS_POINTER)) == _LFS_POINTER:
            reason = "it is a pointer of Git LFS, not the file itself"
            action = "Run `git lfs pull` in its folder"
    return CheckpointError(
        f"Cannot read {path}: {reason}.\n"
        "Expected an undamaged file of safetensors or of torch.save, or an index of such.\n"
        f"{action}."
    )


class Place(NamedTuple):
    """A run of bytes in a file: one tensor, or a storage that tensors are views of."""

    start: int
    size: int
    compressed: int = 0
    """Size in the file if it is deflated, 0 if it is stored as it is."""
    checksum: int = 0
    """CRC-32 of the whole, 0 if unknown."""

    def read(self, file, path, dtype, start=0, count=None):
        """Reads `count` elements at byte `start` of the place, as they are stored.

        The checksum is compared if that is all of it.
        """
        count = self.size // width_of(dtype) if count is None else count
        if self.compressed:
            stored = np.frombuffer(self._inflate(file, path), STORED_DTYPES[dtype], count, start)
            stored, size = stored.copy(), stored.nbytes
        else:
            file.seek(self.start + start)
            stored = _aligned(count * width_of(dtype)).view(STORED_DTYPES[dtype])
            size = file.readinto(stored.view("uint8"))
        if size != stored.nbytes:
            raise damaged(path, "it was shortened since it was opened")
        if self.checksum and stored.nbytes == self.size and zlib.crc32(stored) != self.checksum:
            raise damaged(path, "a checksum is not that of its data")
        return stored

    def _inflate(self, file, path):
        file.seek(self.start)
        engine = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            # The limit matters: a few bytes can inflate to any number.
            data = engine.decompress(file.read(self.compressed), self.size)
        except zlib.error as error:
            raise damaged(path, f"a compressed part is broken ({error})") from error
        if len(data) != self.size:
            raise damaged(path, "a compressed part is too short")
        return data


def _aligned(size):
    """Returns new memory of `size` bytes."""
    memory = np.empty(size + ALIGNMENT, "uint8")
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def width_of(dtype):
    """Returns the bytes of one element in a file, for a `STORED_DTYPES` name."""
    return np.dtype(STORED_DTYPES[dtype]).itemsize


def decode(stored, dtype):
    """Gives stored elements their meaning: widens bfloat16, makes bools of bytes."""
    if dtype == "bool":
        return stored != 0
    if dtype == "bfloat16":
        wide = stored.astype("<u4")
        wide <<= 16
        return wide.view("<f4")
    return stored

"""Reads the files of `torch.save` without torch, and without running anything they say.

Both layouts are a pickle that describes tensors as views of numbered storages, and the
storages as plain bytes: members of a zip archive (torch 1.6 and later), or one after the other
behind the pickle (before). `pickle_stream` reads the pickle and says why not `pickle` itself.
"""

import io
import itertools
import math
import struct
import zipfile
from pickle import UnpicklingError

import numpy as np

from kerasbert.errors import CheckpointError
from kerasbert.weights.checkpoints.pickle_stream import (
    MAX_BYTES,
    TORCH_NAMES,
    ForbiddenNameError,
    PickleStream,
    Tensor,
    find_storage,
)
from kerasbert.weights.checkpoints.shards import (
    MAX_HEADER,
    STORED_DTYPES,
    FileOrShards,
    Place,
    damaged,
    decode,
    opened,
    width_of,
)

_ZIP_START = b"PK\x03\x04"
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_MAGIC_BYTES = _LEGACY_MAGIC.to_bytes(10, "little")
_LEGACY_PROTOCOL = 1001
_TAR_MARK, _TAR_PLACE = b"ustar", 257

#: Where training programs put the state dict, in the order in which it is looked for.
_WRAPPERS = ("state_dict", "model_state_dict", "model")

#: What `zipfile` raises for archives that are none.
_ZIP_ERRORS = (zipfile.BadZipFile, struct.error, NotImplementedError, ValueError, OverflowError)

_MAX_RATIO = 100
#: Small tensors may be larger than their file: expanded ones repeat a few numbers.
_GRACE = 1 << 20


# ---- the two layouts: each gives the object and a dict from storage keys to places -----------


def _read_legacy(file, path, size):
    """Source: `_legacy_save` in `torch.serialization`."""
    storages = {}

    def collect(identity):
        storage = find_storage(identity)
        storages[storage.key] = storage
        return storage

    magic, protocol, system = (PickleStream(file).load() for _ in range(3))
    if magic != _LEGACY_MAGIC or protocol != _LEGACY_PROTOCOL or type(system) is not dict:
        raise UnpicklingError("its first values are not those of torch.save")
    if system.get("little_endian") is False:
        raise _big_endian(path)
    content = PickleStream(file, TORCH_NAMES, collect).load()
    keys = PickleStream(file).load()
    places = {}
    for key in keys if type(keys) is list else ():
        if type(key) is not str or key not in storages or key in places:
            raise UnpicklingError("its list of storages is not that of its tensors")
        elements = int.from_bytes(file.read(8), "little")
        places[key] = Place(file.tell(), elements * width_of(storages[key].dtype))
        if places[key].start + places[key].size > size:
            raise UnpicklingError(f"it ends within storage {key[:80]!r}")
        file.seek(places[key].size, io.SEEK_CUR)
    return content, places


class _SmallReads(io.BufferedReader):
    """Keeps `zipfile` from taking a table of contents of any size into memory."""

    def read(self, size=-1):
        if size is not None and size > MAX_HEADER:
            raise zipfile.BadZipFile(f"{size} bytes are too many for a table of contents")
        return super().read(size)


def _members(path):
    """Returns a dict from the names in the archive to places.

    Source: APPNOTE.TXT of PKWARE, sections 4.3.7 (local headers) and 4.3.12.
    """
    with _SmallReads(io.FileIO(path)) as file:
        try:
            archive = zipfile.ZipFile(file)
            return _locate(file, archive.infolist(), archive.start_dir)
        except OSError as error:
            raise zipfile.BadZipFile("its table of contents points outside of it") from error


def _locate(file, infos, end_of_members):
    members, ends = {}, []
    for info in infos:
        _check_member(info, members)
        name = info.orig_filename.encode("utf-8" if info.flag_bits & 0x800 else "cp437")
        file.seek(info.header_offset)
        mark, name_size, extra_size = struct.unpack("<4s22xHH", file.read(30).ljust(30))
        if mark != _ZIP_START or file.read(name_size) != name:
            raise zipfile.BadZipFile(f"no member begins at byte {info.header_offset}")
        compressed = info.compress_size if info.compress_type else 0
        start = info.header_offset + 30 + name_size + extra_size
        members[info.filename] = Place(start, info.file_size, compressed, info.CRC)
        ends.append((info.header_offset, start + info.compress_size))
    ends = [*sorted(ends), (end_of_members, 0)]
    if any(end > following for (_, end), (following, _) in itertools.pairwise(ends)):
        raise zipfile.BadZipFile("its members overlap")
    return members


def _check_member(info, others):
    name, size, packed = info.filename, info.file_size, info.compress_size
    if name in others or name != info.orig_filename or ".." in name.split("/") or "\\" in name:
        raise zipfile.BadZipFile(f"a member is called {name[:80]!r}, which is taken or no name")
    if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise zipfile.BadZipFile(f"{name[:80]!r} is encrypted or compressed in an unknown way")
    if info.compress_type == zipfile.ZIP_STORED and size != packed:
        raise zipfile.BadZipFile(f"{name[:80]!r} has two sizes")
    if size > max(_GRACE, _MAX_RATIO * packed) or (size and not packed):
        raise zipfile.BadZipFile(f"{name[:80]!r} would grow from {packed} bytes to {size}")


def _read_zip(file, path):
    """Source: `PyTorchStreamWriter` in `caffe2/serialize/inline_container.cc`."""
    members = _members(path)
    pickles = [name for name in members if name.count("/") < 2 and _is_pickle(name)]
    if len(pickles) != 1:
        raise zipfile.BadZipFile(f"it holds {len(pickles)} files data.pkl in its first folder")
    folder = pickles[0].removesuffix("data.pkl")
    order = members.get(f"{folder}byteorder")
    if order and _small_member(file, path, order) != b"little":
        raise _big_endian(path)
    described = io.BytesIO(_small_member(file, path, members[pickles[0]]))
    content = PickleStream(described, TORCH_NAMES, find_storage).load()
    start = f"{folder}data/"
    return content, {
        name.removeprefix(start): place for name, place in members.items() if name.startswith(start)
    }


def _is_pickle(name):
    return name.split("/")[-1] == "data.pkl"


def _small_member(file, path, place):
    if place.size > MAX_BYTES:
        raise UnpicklingError(f"a part of {place.size} bytes describes its tensors")
    return place.read(file, path, "uint8").tobytes()


def _big_endian(path):
    return CheckpointError(
        f"{path} was written on a big-endian machine.\n"
        "Expected little-endian numbers.\nSave it anew with torch on an ordinary machine."
    )


# ---- the checkpoint --------------------------------------------------------------------------


class _TorchFile:
    """One file: its tensors, and the places of the storages that they are views of."""

    def __init__(self, path):
        self._path = path
        with opened(path) as (file, self._size):
            content, self._places = self._describe(file)
        self._tensors = _state_dict(path, content)
        self.shapes = {name: tensor.shape for name, tensor in self._tensors.items()}
        self.dtypes = {name: tensor.dtype for name, tensor in self._tensors.items()}
        for name, tensor in self._tensors.items():
            self._check(name, tensor)

    def read(self, name):
        tensor = self._tensors[name]
        place = self._places[tensor.storage.key]
        start = tensor.storage.shift + tensor.offset * width_of(tensor.dtype)
        with opened(self._path) as (file, _):
            stored = place.read(file, self._path, tensor.dtype, start, _span(tensor))
        flat = decode(stored, tensor.dtype)
        if _is_contiguous(tensor):
            return flat.reshape(tensor.shape)
        # The stride of an axis of length 1 is never used, and may be any number.
        steps = zip(tensor.shape, tensor.strides, strict=True)
        strides = [stride * flat.itemsize if length > 1 else 0 for length, stride in steps]
        return np.lib.stride_tricks.as_strided(flat, tensor.shape, strides).copy()

    def _describe(self, file):
        path = self._path
        head = file.read(_TAR_PLACE + len(_TAR_MARK))
        file.seek(0)
        try:
            if head.startswith(_ZIP_START):
                return _read_zip(file, path)
            if _LEGACY_MAGIC_BYTES in head[:32]:
                return _read_legacy(file, path, self._size)
        except CheckpointError:
            raise
        except ForbiddenNameError as error:
            raise CheckpointError(
                f"Refused {path}: {error}, which is no part of a state dict.\n"
                "Expected tensors in dicts and nothing else; nothing of the file was run.\n"
                "If you trust its origin, open it with torch and save model.state_dict() anew."
            ) from error
        except (UnpicklingError, *_ZIP_ERRORS) as error:
            raise damaged(path, str(error)[:200]) from error
        if head[_TAR_PLACE:] == _TAR_MARK:
            raise CheckpointError(
                f"{path} is a tar archive of torch before 0.1.10.\n"
                "Expected a file of a later torch.save.\n"
                "Load it with torch and save it anew."
            )
        raise damaged(path, "it does not begin as a file of torch.save does")

    def _check(self, name, tensor):
        """Compares what the pickle says with what is there, before anything is allocated."""
        if tensor.dtype not in STORED_DTYPES:
            return  # refused by `FileOrShards`, together with all others
        storage, place = tensor.storage, self._places.get(tensor.storage.key)
        if place is None:
            raise damaged(self._path, f"the data of {name[:120]!r} is not in it")
        width = width_of(tensor.dtype)
        end = storage.shift + (tensor.offset + _span(tensor)) * width
        if max(end, storage.size) > place.size:
            raise damaged(self._path, f"{name[:120]!r} is larger than its data")
        if math.prod(tensor.shape) * width > max(self._size, place.size) + _GRACE:
            raise damaged(self._path, f"{name[:120]!r} is larger than the whole file")


def _span(tensor):
    """Elements of the storage from the first to the last one, those between included."""
    if 0 in tensor.shape:
        return 0
    steps = zip(tensor.shape, tensor.strides, strict=True)
    return 1 + sum((length - 1) * stride for length, stride in steps)


def _is_contiguous(tensor):
    expected = 1
    for length, stride in zip(reversed(tensor.shape), reversed(tensor.strides), strict=True):
        if length != 1 and stride != expected:
            return 0 in tensor.shape
        expected *= length
    return True


def _state_dict(path, content):
    """From the object in the file to a dict of tensors; what else it holds is left out."""
    if type(content) is dict:
        for wrapper in _WRAPPERS:
            inner = content.get(wrapper)
            if type(inner) is dict and any(isinstance(value, Tensor) for value in inner.values()):
                content = inner
                break
        tensors = {name: value for name, value in content.items() if isinstance(value, Tensor)}
        if tensors and all(type(name) is str for name in tensors):
            return tensors
    raise CheckpointError(
        f"{path} holds no state dict.\n"
        f"Expected a dict from names to tensors, or one under {' or '.join(_WRAPPERS)}.\n"
        "Save model.state_dict() with torch.save."
    )


class TorchCheckpoint(FileOrShards):
    """A `pytorch_model.bin`, or the index of a sharded one, as a lazy mapping.

    Neither torch is needed, nor is anything run that the file says: a name in it outside of a
    short list is an error. Opening reads the description of the tensors and no tensor. A
    state dict inside a training checkpoint is found under "state_dict", "model_state_dict" or
    "model". In the zip layout, `read` compares the CRC-32 that torch wrote, if the tensor
    is a whole storage. bfloat16 comes as float32, float16 stays; float8 is refused.

    Args:
        path: the file, or a `.bin.index.json` with its shards beside it.

    Raises:
        CheckpointError: see `FileOrShards`.

    Example:
        >>> checkpoint = TorchCheckpoint("pytorch_model.bin")  # doctest: +SKIP
        >>> checkpoint.read("bert.embeddings.word_embeddings.weight").shape  # doctest: +SKIP
        (21128, 768)

    Source: `torch.serialization` and `torch._utils`.
    """

    file_type = _TorchFile
    suffixes = (".bin", ".pt", ".pth")

    @staticmethod
    def recognises(path):
        """Whether a file starts as one of `torch.save`, and holds a pickle if it is a zip."""
        with opened(path) as (file, _):
            head = file.read(32)
        if not head.startswith(_ZIP_START):
            return _LEGACY_MAGIC_BYTES in head
        try:
            return any(_is_pickle(name) for name in _members(path))
        except _ZIP_ERRORS:
            return False

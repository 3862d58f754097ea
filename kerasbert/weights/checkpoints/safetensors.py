"""Reads safetensors files: tensors under a header in JSON."""

import json

from safetensors import SafetensorError, safe_open

from kerasbert.weights.checkpoints.shards import (
    MAX_HEADER,
    FileOrShards,
    Place,
    damaged,
    decode,
    explained,
    opened,
)

_DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
}


class _SafetensorsFile:
    """One file. The library checks the header; the arrays are read at the offsets it gives.

    Its own `get_tensor` maps the whole file and cannot give numpy bfloat16.
    """

    def __init__(self, path):
        self._path = path
        header = self._read_header()
        self.shapes, self.dtypes, self._places = {}, {}, {}
        try:
            with explained(path), safe_open(path, framework="numpy") as library:
                for name in library.keys():  # noqa: SIM118 (it is no dict)
                    tensor = library.get_slice(name)
                    code = tensor.get_dtype()
                    self.shapes[name] = tuple(tensor.get_shape())
                    self.dtypes[name] = _DTYPES.get(code, code)
                    start, end = header[name]["data_offsets"]
                    self._places[name] = Place(self._data + start, end - start)
        except (SafetensorError, KeyError) as error:
            reason = str(error).removeprefix("Error while deserializing header: ")
            raise damaged(path, f"its header is wrong ({reason[:120]})") from error

    def read(self, name):
        dtype = self.dtypes[name]
        with opened(self._path) as (file, _):
            stored = self._places[name].read(file, self._path, dtype)
        return decode(stored, dtype).reshape(self.shapes[name])

    def _read_header(self):
        with opened(self._path) as (file, size):
            length = int.from_bytes(file.read(8), "little")
            self._data = 8 + length
            if self._data > size:
                raise damaged(self._path, f"of its {size} bytes, the header would be {length}")
            if length > MAX_HEADER:
                raise damaged(self._path, f"{length} bytes are too many for a header")
            text = file.read(length)
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise damaged(self._path, f"its header is no JSON ({str(error)[:80]})") from error


class SafetensorsCheckpoint(FileOrShards):
    """A safetensors file, or the index of a sharded one, as a lazy mapping.

    Opening reads the header only; `read` reads one tensor. bfloat16 comes as float32, float16
    stays; float8 and other types that numpy lacks are refused at opening.

    Args:
        path: a `.safetensors` file, or a `.safetensors.index.json` with its shards beside it.

    Raises:
        CheckpointError: see `FileOrShards`.

    Example:
        >>> from safetensors.numpy import save_file
        >>> save_file({"pooler.dense.bias": np.zeros(768, "float32")}, "pooler.safetensors")
        >>> checkpoint = SafetensorsCheckpoint("pooler.safetensors")
        >>> checkpoint.shapes
        {'pooler.dense.bias': (768,)}
        >>> checkpoint.read("pooler.dense.bias").dtype
        dtype('float32')

    Source: the section "Format" of the README of huggingface/safetensors.
    """

    file_type = _SafetensorsFile
    suffixes = (".safetensors",)

    @staticmethod
    def recognises(path):
        """Whether a file starts as safetensors do: the length of the header, then "{"."""
        with opened(path) as (file, size):
            head = file.read(9)
        return head[8:] == b"{" and 0 < int.from_bytes(head[:8], "little") <= size - 8

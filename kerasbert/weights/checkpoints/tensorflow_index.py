"""Checks the index of a TensorFlow checkpoint, before TensorFlow reads it.

TensorFlow's reader ends the whole process on an entry that it cannot parse or whose shape is
none (`CHECK` in `checkpoint_reader.cc`), which a file with right checksums can bring about.
The index is a sorted table of LevelDB, from names to protocol buffers.
"""

import math
from pathlib import Path

_FOOTER = 48
_MAGIC = bytes.fromhex("57fb808b247547db")
_MAX_AXES = 254
_FIRST_REFERENCE = 100


def check_index(path):
    """Refuses an index at which TensorFlow would end the process.

    Args:
        path: the `.index` file.

    Raises:
        ValueError: says what is wrong.
        OSError: if it cannot be read.

    Source: `tensorflow/core/lib/io/table_format.txt` and `tensor_bundle.proto`.
    """
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import tensor_bundle_pb2

    data = Path(path).read_bytes()
    try:
        for name, value in _entries(data):
            if name:  # the entry without a name describes the whole
                _check(name, tensor_bundle_pb2.BundleEntryProto.FromString(value))
    except (LookupError, DecodeError) as error:
        raise ValueError(f"its index is damaged ({error})") from error


def _check(name, entry):
    lengths = [axis.size for axis in entry.shape.dim]
    fine = not entry.shape.unknown_rank and len(lengths) <= _MAX_AXES
    fine = fine and all(length >= 0 for length in lengths)
    # An axis of length 0 does not keep the product of the others from an overflow.
    if not fine or math.prod(length or 1 for length in lengths) >= 2**63:
        raise ValueError(f"the shape of {name.decode(errors='replace')[:80]!r} makes no sense")
    if not 0 < entry.dtype < _FIRST_REFERENCE:
        raise ValueError(f"{name.decode(errors='replace')[:80]!r} has no type")
    for part in entry.slices:
        if any(extent.start < 0 or extent.length < 0 for extent in part.extent):
            raise ValueError(f"a part of {name.decode(errors='replace')[:80]!r} makes no sense")


def _entries(data):
    if len(data) < _FOOTER or data[-8:] != _MAGIC:
        raise ValueError("its index is truncated, or no index")
    footer = data[-_FOOTER:]
    place = 0
    for _ in range(2):  # past the place of the block of properties
        _, place = _varint(footer, place)
    for _, handle in _block(data, footer, place):
        yield from _block(data, handle, 0)


def _block(data, handle, place):
    """The pairs of key and value in the block to which a handle points."""
    start, place = _varint(handle, place)
    size, _ = _varint(handle, place)
    end = start + size
    if end >= len(data) or size < 4:
        raise ValueError("its index points outside of itself")
    if data[end]:
        raise ValueError("its index is compressed, as none of TensorFlow is")
    end -= 4 + 4 * int.from_bytes(data[end - 4 : end], "little")
    key, place = b"", start
    while place < end:
        shared, place = _varint(data, place)
        more, place = _varint(data, place)
        length, place = _varint(data, place)
        if shared > len(key) or place + more + length > end:
            raise ValueError("its index has an entry that does not end")
        key = key[:shared] + data[place : place + more]
        place += more + length
        yield key, data[place - length : place]


def _varint(data, place):
    value = 0
    for shift in range(0, 64, 7):
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    raise ValueError("its index has a number that does not end")

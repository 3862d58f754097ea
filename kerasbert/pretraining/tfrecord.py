"""The frame of TFRecord files: records of bytes with their lengths and checksums.

A record is its length (8 bytes), the checksum of these, its bytes, and their checksum; little
endian. A checksum is a turned CRC-32C.

Source: TensorFlow, core/lib/io/record_writer.h; RFC 3720, appendix B.4, for CRC-32C.
"""

import os
import struct
from typing import NamedTuple

import numpy as np

from kerasbert.errors import CorpusError

_HEAD = struct.Struct("<QI")
_TAIL = struct.Struct("<I")
_FRAME = _HEAD.size + _TAIL.size

# Checksums are made for so many bytes at once, side by side.
_SIDE_BY_SIDE = 1 << 24


class Stretch(NamedTuple):
    """Some records of a file, one behind the other.

    Attributes:
        path: of the file.
        start: the byte the first one starts at.
        stop: the byte behind the last one.
        count: how many there are.
    """

    path: str
    start: int
    stop: int
    count: int


def _table():
    values = np.arange(256, dtype="uint32")
    for _ in range(8):
        values = (values >> 1) ^ np.where(values & 1, np.uint32(0x82F63B78), np.uint32(0))
    return values


_TABLE = _table()


def checksums(payloads):
    """Returns the checksums of many byte strings, as TFRecords have them.

    Args:
        payloads: N bytes objects.

    Returns:
        Array (N,) uint32.
    """
    lengths = np.array([len(payload) for payload in payloads], int)
    order = np.argsort(-lengths, kind="stable")
    crc = np.empty(len(payloads), "uint32")
    start = 0
    while start < len(order):
        longest = max(int(lengths[order[start]]), 1)
        part = order[start : start + max(_SIDE_BY_SIDE // longest, 1)]
        crc[part] = _crc([payloads[i] for i in part], lengths[part])
        start += len(part)
    return ((crc >> 15) | (crc << 17)) + np.uint32(0xA282EAD8)


def _crc(payloads, lengths):
    """Returns the CRC-32C of byte strings, the longest first; all advance byte by byte."""
    columns = np.zeros((len(payloads), int(lengths[0])), "uint8")
    columns[np.arange(columns.shape[1]) < lengths[:, None]] = np.frombuffer(
        b"".join(payloads), "uint8"
    )
    columns = np.ascontiguousarray(columns.T)
    crc = np.full(len(payloads), 0xFFFFFFFF, "uint32")
    # How many are longer than each place.
    reach = np.searchsorted(-lengths, -np.arange(len(columns)), side="left")
    for column, count in zip(columns, reach, strict=True):
        now = crc[:count]
        now[:] = _TABLE[(now ^ column[:count]) & 0xFF] ^ (now >> 8)
    return ~crc


def framed(records):
    """Returns the bytes of a file that holds some records.

    Args:
        records: list of bytes objects.
    """
    lengths = [struct.pack("<Q", len(record)) for record in records]
    heads, tails = checksums(lengths).tolist(), checksums(records).tolist()
    parts = []
    for length, head, record, tail in zip(lengths, heads, records, tails, strict=True):
        parts += [length, _TAIL.pack(head), record, _TAIL.pack(tail)]
    return b"".join(parts)


def stretches(path, most):
    """Finds the records of a file, without reading them.

    Args:
        path: of the file.
        most: how many records a stretch has, but for the last one.

    Returns:
        A list of `Stretch`; empty for an empty file.

    Raises:
        CorpusError: if the file ends inside of a record, or is none of TFRecords.
    """
    path, size, here, found = str(path), os.path.getsize(path), 0, []
    with open(path, "rb", buffering=1 << 16) as file:
        while here < size:
            start, count = here, 0
            while here < size and count < most:
                head = file.read(_HEAD.size)
                length = _HEAD.unpack(head)[0] if len(head) == _HEAD.size else size
                if here + length + _FRAME > size:
                    raise _broken(path, here, "ends inside of a record")
                if here == 0:
                    _check(path, here, [head[:8]], [_HEAD.unpack(head)[1]])
                here += length + _FRAME
                file.seek(here)
                count += 1
            found.append(Stretch(path, start, here, count))
    return found


def read_stretch(stretch):
    """Returns the records of a stretch, after checking their checksums.

    Args:
        stretch: a `Stretch`.

    Returns:
        A list of bytes objects.

    Raises:
        CorpusError: if a checksum is wrong; names the file and the place.
    """
    with open(stretch.path, "rb") as file:
        file.seek(stretch.start)
        content = file.read(stretch.stop - stretch.start)
    records, sums, lengths, length_sums, here = [], [], [], [], 0
    for _ in range(stretch.count):
        begin = here + _HEAD.size
        if begin > len(content):
            raise _broken(stretch.path, stretch.start + here, "ends inside of a record")
        length, length_sum = _HEAD.unpack_from(content, here)
        end = begin + length
        if end + _TAIL.size > len(content):
            raise _broken(stretch.path, stretch.start + here, "ends inside of a record")
        lengths.append(content[here : here + 8])
        length_sums.append(length_sum)
        records.append(content[begin:end])
        sums.append(_TAIL.unpack_from(content, end)[0])
        here = end + _TAIL.size
    _check(stretch.path, stretch.start, lengths, length_sums)
    _check(stretch.path, stretch.start, records, sums)
    return records


def _check(path, start, payloads, sums):
    wrong = np.flatnonzero(checksums(payloads) != np.array(sums, "uint32"))
    if len(wrong):
        raise _broken(path, start, f"has a wrong checksum, {wrong[0]} records after that place")


def _broken(path, place, what):
    return CorpusError(
        f"{path}, from byte {place} on, {what}.\n"
        "Expected an uncompressed file of TFRecords, whole.\n"
        "Unpack it, copy it again, or delete it and run build_records again."
    )

"""Headers of safetensors files, and indexes of shards, that are wrong."""

import json
import struct

import pytest

from harness import refused
from kerasbert.errors import CheckpointError
from weights.mangling import judged as judged

# ---- safetensors -----------------------------------------------------------------------------


def safetensors_file(header, data=bytes(240), length=None):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def entry(dtype="F32", shape=(12, 5), offsets=(0, 240), **more):
    return {"weight": {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}}


HEADERS = {
    **{
        f"type {dtype!r}": safetensors_file(entry(dtype))
        for dtype in (
            "F33",
            "",
            "f32",
            "float32",
            "F16",
            "F64",
            "F8_E4M3",
            "F8_E5M2",
            None,
            4,
            ["F32"],
        )
    },
    **{
        f"shape {shape}": safetensors_file(entry(shape=shape))
        for shape in ((61,), (2**62,), (2**62, 4), (2**70,), (-1,), (1.5,), "60", None, ((60,),))
    },
    **{
        f"offsets {offsets}": safetensors_file(entry(offsets=offsets))
        for offsets in (
            (0, 241),
            (1, 241),
            (240, 0),
            (-4, 236),
            (0, 2**63),
            (0,),
            (0, 1, 240),
            None,
        )
    },
    "an enormous shape of nothing": safetensors_file(
        entry(shape=(0, 2**62, 2**62), offsets=(0, 0)), b""
    ),
    "65 axes": safetensors_file(entry(shape=(1,) * 64 + (60,))),
    "no tensors": safetensors_file({}, b""),
    "metadata alone": safetensors_file({"__metadata__": {"format": "pt"}}, b""),
    "no offsets": safetensors_file({"weight": {"dtype": "F32", "shape": [60]}}),
    "data too many": safetensors_file(entry(), bytes(241)),
    "data too few": safetensors_file(entry(), bytes(239)),
    "a hole": safetensors_file(
        {**entry(), "bias": entry("F32", [1], [248, 252])["weight"]}, bytes(252)
    ),
    "two in one place": safetensors_file({**entry(), "bias": entry("F32", [1], [0, 4])["weight"]}),
    "a name twice": safetensors_file(
        json.dumps(entry()).encode()[:-1] + b"," + json.dumps(entry(shape=(1,))).encode()[1:]
    ),
    "a length of nothing": safetensors_file(entry(), length=0),
    "a length past the end": safetensors_file(entry(), length=10_000),
    "an enormous length": safetensors_file(entry(), length=2**63),
    "a longer header": safetensors_file(entry(), length=100),
    "deep JSON": safetensors_file(b'{"weight":' + b"[" * 200_000 + b"]" * 200_000 + b"}"),
    "a header of two megabytes": safetensors_file(json.dumps(entry()).encode() + b" " * (2 << 20)),
    "a list": safetensors_file(b'["weight", 1, 2, 3]'),
    "a text": safetensors_file(b'{"weight": "F32"}'),
    "bytes that are no text": safetensors_file(b'{"weight\xff\xfe": 1}'),
    "half of a letter": safetensors_file(
        json.dumps(entry()).encode().replace(b"weight", b"\\ud800")
    ),
}


@pytest.mark.parametrize("name", HEADERS)
def test_header(name, judged):
    with refused(CheckpointError, "model.safetensors"):
        judged({"model.safetensors": HEADERS[name]})


INDEXES = {
    "nothing": b"",
    "no JSON": b"weight_map: {}",
    "no weight_map": b'{"metadata": {}}',
    "a list": b'["weight_map"]',
    "a number": b"5",
    "an empty weight_map": b'{"weight_map": {}}',
    "a text for a weight_map": b'{"weight_map": "shard.bin"}',
    "a list for a weight_map": b'{"weight_map": ["shard.bin"]}',
    "deep JSON": b'{"weight_map":' + b"[" * 200_000,
    "two megabytes": b'{"weight_map": {"a": "shard"}}' + b" " * (2 << 20),
    "bytes that are no text": b'{"weight_map": {"\xff": "shard.bin"}}',
    **{
        f"shard {shard!r}": json.dumps({"weight_map": {"weight": shard}}).encode()
        for shard in (
            "../s",
            "/etc/passwd",
            "a/b",
            "a\\b",
            "C:s",
            "..",
            ".",
            "",
            "a\0b",
            5,
            None,
            ["s"],
        )
    },
    "a shard that is not there": b'{"weight_map": {"weight": "shard-2"}}',
    "itself": b'{"weight_map": {"weight": "INDEX"}}',
    "an enormous name": json.dumps({"weight_map": {"weight": "a" * 9000}}).encode(),
}


@pytest.mark.parametrize("index", ["model.safetensors.index.json", "pytorch_model.bin.index.json"])
@pytest.mark.parametrize("name", INDEXES)
def test_index(name, index, judged):
    with refused(CheckpointError, index, "too many" if name == "two megabytes" else ""):
        judged({index: INDEXES[name].replace(b"INDEX", index.encode())})

"""PyTorch files whose pickle would run something, or take all memory or time."""

import struct

import pytest

from harness import default_and_slow, refused
from kerasbert.errors import CheckpointError
from weights.mangling import (
    CONTAINERS,
    EMPTY,
    HOSTILE,
    group,
    legacy_file,
    named,
    number,
    pickled,
    storage_id,
    tensor,
    text,
    zip_file,
)
from weights.mangling import judged as judged

# ---- pickles that would run something --------------------------------------------------------


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickle(name, container, judged):
    described = pickled(EMPTY, b"(", text("weight"), HOSTILE[name], b"u")
    with refused(CheckpointError, "pytorch_model.bin", name, "nothing of the file was run"):
        judged({"pytorch_model.bin": CONTAINERS[container](described)})


MAGIC = number(0x1950A86A20F9469CFC6C)
ELSEWHERE = {
    "magic number": pickled(MAGIC, HOSTILE["os.system"]),
    "protocol": pickled(MAGIC) + pickled(HOSTILE["os.system"]),
    "system": pickled(MAGIC) + pickled(number(1001)) + pickled(HOSTILE["os.system"]),
    "list of keys": legacy_file().split(pickled(b"](", *map(text, "0123"), b"e"))[0]
    + pickled(HOSTILE["os.system"]),
}


@pytest.mark.parametrize("part", ELSEWHERE)
def test_hostile_pickle_elsewhere_in_a_legacy_file(part, judged):
    with refused(CheckpointError, "os.system", "nothing of the file was run"):
        judged({"pytorch_model.bin": ELSEWHERE[part]})


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickle_alone(name, judged):
    with refused(CheckpointError, "it does not begin as a file of torch.save does"):
        judged({"pytorch_model.bin": pickled(HOSTILE[name])})


HOSTILE_OPCODES = {
    "INST": b"(" + text("touch canary") + b"ios\nsystem\n",
    "OBJ": b"(" + named("collections", "OrderedDict") + b"o",
    "NEWOBJ": named("collections", "OrderedDict") + b")\x81",
    "EXT1": b"\x82\x01",
    "call of a text": text("os.system") + b")R",
    "call of a tensor": tensor(storage_id("0", "FloatStorage", 60, False), (12, 5)) + b")R",
    "state of a constructor": named("torch._utils", "_rebuild_tensor_v2") + b"}b",
    "state of a storage": storage_id("0", "FloatStorage", 60, False) + b"}b",
    "items for a constructor": named("torch", "Size") + b"(NNu",
    "another persistent id": group(text("module"), text("os"), text("system")) + b"Q",
    "protocol 0": b"cos\nsystem\n(S'touch canary'\ntR",
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name", HOSTILE_OPCODES)
def test_opcodes_that_torch_never_writes(name, container, judged):
    described = pickled(EMPTY, b"(", text("weight"), HOSTILE_OPCODES[name], b"u")
    fact = "a state for something else" if name.startswith("state") else ""
    with refused(CheckpointError, "pytorch_model.bin", fact):
        judged({"pytorch_model.bin": CONTAINERS[container](described)})


# ---- pickles that would take all memory or time ----------------------------------------------

LAUGHS = b"()q\x00" + b"".join(b"h\x00h\x00\x86q\x00" for _ in range(60)) + b"t"
SIZE, DEVICE = named("torch", "Size"), named("torch", "device")
MANY_INDICES = b"".join(b"r" + struct.pack("<I", n * 9973) for n in range(300_000))


def repeated(constructor, item, length, calls):
    """One long tuple, remembered, and passed to the constructor again and again."""
    return constructor + b"q\x00(" + item * length + b"tq\x01" + b"h\x00h\x01R" * calls


# What ends it, and the pickle.
BOMBS = {
    "memo index of a billion": ("no state dict", b"Nr" + struct.pack("<I", 0x3FFFFFFF)),
    "many memo indices": ("steps", b"N" + MANY_INDICES),
    "tuples in tuples as a key": ("a tuple as a key", b"})" + b"\x85" * 90_000 + b"Ns"),
    "tuples in tuples": ("no state dict", b")" + b"\x85" * 90_000),
    "lists in lists": ("no state dict", b"]" * 45_000 + b"a" * 44_999),
    "dicts in dicts": ("no state dict", b"}" + b"N}" * 30_000 + b"s" * 30_000),
    "a tuple of two to the sixty": ("no state dict", LAUGHS),
    "a tuple of two to the sixty as a key": ("a tuple as a key", b"}" + LAUGHS + b"Ns"),
    "a list in itself": ("no state dict", b"]q\x00h\x00ah\x00a"),
    "endless dicts": ("steps", b"}" * 3_000_000),
    "endless marks": ("steps", b"(" * 3_000_000),
    "endless calls": ("steps", repeated(SIZE, b")", 1, 500_000)),
    "long arguments": ("30000 arguments", repeated(DEVICE, b"N", 30_000, 20_000)),
    "long sizes": (
        "a size that counts nothing",
        repeated(SIZE, b"(" + b"K\x01" * 30_000 + b"t", 1, 20_000),
    ),
    "a text of four gigabytes": ("bytes", b"X\xff\xff\xff\xff" + b"a" * 100),
    "a text of wide letters": ("no state dict", text("a" * 4_000_000 + "𝄞")),
    "texts without end": ("bytes", text("a" * 250) * 20_000),
    "a name without end": ("", b"c" + b"a" * 5_000_000),
    "numbers without end": ("bytes", (b"\x8a\xff" + b"\x7f" * 255) * 20_000),
}


# Of either container the pickle is read by the same code, which test_hostile_pickle shows.
@pytest.mark.parametrize("container", default_and_slow(["zip", "legacy"], ["zip"]))
@pytest.mark.parametrize("name", BOMBS)
def test_pickle_bomb(name, container, judged):
    fact, bomb = BOMBS[name]
    described = pickled(EMPTY, b"(", text("weight"), bomb, b"u")
    make = {"zip": zip_file, "legacy": lambda data: legacy_file(data, [])}[container]
    with refused(CheckpointError, "pytorch_model.bin", fact):
        judged({"pytorch_model.bin": make(described)})

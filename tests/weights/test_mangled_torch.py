"""PyTorch files that lie about their tensors, and archives that play tricks."""

import struct
import zipfile

import pytest

from harness import refused
from kerasbert.errors import CheckpointError
from weights.mangling import (
    CONTAINERS,
    EMPTY,
    group,
    legacy_file,
    members_of,
    number,
    pickled,
    state_dict,
    storage_id,
    tensor,
    text,
    zip_file,
    zipped,
)
from weights.mangling import judged as judged

# ---- pickles that lie ------------------------------------------------------------------------


def lies(legacy):
    """Descriptions of one tensor of storage 0, which has 60 float32."""

    def stored(key="0", kind="FloatStorage", elements=60):
        return storage_id(key, kind, elements, legacy)

    yield "a shape past the storage", tensor(stored(), (61,))
    yield "an offset past the storage", tensor(stored(), (60,), 1)
    yield "an enormous offset", tensor(stored(), (1,), 2**62)
    yield "an offset beyond all integers", tensor(stored(), (1,), 2**1000)
    yield "an enormous shape", tensor(stored(), (2**40,), strides=(1,))
    yield "a shape beyond all integers", tensor(stored(), (2**1000, 2**1000), strides=(1, 1))
    yield "an enormous shape of one number", tensor(stored(), (2**40,), strides=(0,))
    yield "an enormous shape of few numbers", tensor(stored(), (10**5, 10**5), strides=(0, 1))
    yield "an enormous shape of nothing", tensor(stored(), (0, 2**62, 2**62), strides=(1, 1, 1))
    yield "strides past the storage", tensor(stored(), (6, 10), strides=(20, 1))
    yield "enormous strides", tensor(stored(), (2, 2), strides=(2**62, 1))
    yield "a negative length", tensor(stored(), (-1,), strides=(1,))
    yield "a negative stride", tensor(stored(), (2, 2), 10, (-2, 1))
    yield "a negative offset", tensor(stored(), (2,), -1)
    yield "more strides than lengths", tensor(stored(), (4,), strides=(1, 1))
    yield "33 axes", tensor(stored(), (1,) * 33, strides=(1,) * 33)
    yield (
        "a stored minus",
        tensor(stored(), (60,), tail=b"\x89" + EMPTY + b"}(" + text("neg") + b"\x88u"),
    )
    yield "an absent storage", tensor(stored(key="17"), (60,))
    yield "a storage outside of the folder", tensor(stored(key="../data.pkl"), (60,))
    yield "a storage that is no storage", tensor(stored("archive/version", "ByteStorage", 2), (2,))
    yield "a storage that is too short", tensor(stored(elements=61), (60,))
    yield "a storage that is too wide", tensor(stored(kind="DoubleStorage"), (60,))
    yield "a negative storage", tensor(stored(elements=-60), (60,))
    yield "an enormous storage", tensor(stored(elements=2**61), (2**61,))
    yield "a storage of an unknown type", tensor(stored(kind="QUInt4x2Storage"), (60,))
    yield "a storage of another type", tensor(stored(kind="Size"), (60,))
    yield "no storage", tensor(text("0"), (60,))
    yield "a storage of half a description", tensor(group(text("storage")) + b"Q", (60,))
    yield "no tensor", stored()
    yield "a number", number(5)


LIES = {container: dict(lies(container == "legacy")) for container in CONTAINERS}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("lie", LIES["zip"])
def test_lie(lie, container, judged):
    described = pickled(EMPTY, b"(", text("weight"), LIES[container][lie], b"u")
    make = {"zip": zip_file, "legacy": lambda data: legacy_file(data, ["0"])}[container]
    with refused(CheckpointError, "pytorch_model.bin") as caught:
        judged({"pytorch_model.bin": make(described)})
    assert "opcode" not in str(caught.value), "the lie was not even read"


ENORMOUS = tensor(storage_id("0", "FloatStorage", 2**40, True), (2**40,))

# What is wrong, and the file.
LEGACY_LIES = {
    "no keys": ("is not in it", legacy_file(keys=[])),
    "a key twice": ("list of storages", legacy_file(keys=["0", "1", "2", "3", "3"])),
    "a key too many": ("list of storages", legacy_file(keys=["0", "1", "2", "3", "4"])),
    "other keys": ("list of storages", legacy_file(keys=["a", "b", "c", "d"])),
    "fewer elements": ("ends within", legacy_file(elements=[59, 7, 9, 1])),
    "more elements": ("ends within", legacy_file(elements=[61, 7, 9, 1])),
    "negative elements": ("ends within", legacy_file(elements=[-1, 7, 9, 1])),
    "enormous elements": ("ends within", legacy_file(elements=[60, 7, 9, 2**60])),
    "enormous everywhere": (
        "ends within",
        legacy_file(pickled(EMPTY, b"(", text("weight"), ENORMOUS, b"u"), ["0"], [2**40]),
    ),
    "another protocol": (
        "first values",
        legacy_file().replace(pickled(number(1001)), pickled(number(1002))),
    ),
    "another magic number": (
        "does not begin",
        legacy_file().replace(b"\x6c\xfc\x9c", b"\x6c\xfc\x9d"),
    ),
}


@pytest.mark.parametrize("lie", LEGACY_LIES)
def test_lie_of_a_legacy_file(lie, judged):
    fact, data = LEGACY_LIES[lie]
    with refused(CheckpointError, "pytorch_model.bin", fact):
        judged({"pytorch_model.bin": data})


# ---- archives that play tricks ---------------------------------------------------------------


def central(data, name, field, value):
    """Changes a field of a member in the table of contents, given by its place there."""
    place = data.rindex(name.encode()) - 46 + field
    return data[:place] + value + data[place + len(value) :]


def local(data, name, field, value):
    place = data.index(name.encode()) - 30 + field
    return data[:place] + value + data[place + len(value) :]


def first_of(name):
    return struct.pack("<I", zip_file().index(name.encode()) - 30)


PAIRS = list(members_of().items())
DATA = "archive/data/0"
DEFLATED = zipped(PAIRS, zipfile.ZIP_DEFLATED)
BLOWN_UP = zipped([*PAIRS[:2], (DATA, bytes(64 << 20)), *PAIRS[3:]], zipfile.ZIP_DEFLATED)
LONG_NAMES = [(f"archive/{n:0200}", b"") for n in range(5_000)]


def sizes(packed, size):
    return struct.pack("<II", packed, size)


# What is wrong, and the archive.
TRICKS = {
    "no pickle": ("0 files data.pkl", zipped(PAIRS[1:])),
    "two pickles": ("2 files data.pkl", zipped([*PAIRS, ("other/data.pkl", state_dict())])),
    "a pickle twice": ("taken", zipped([*PAIRS, ("archive/data.pkl", state_dict())])),
    "a storage twice": ("taken", zipped([*PAIRS, (DATA, bytes(240))])),
    "no storage": ("is not in it", zipped(PAIRS[:2])),
    "a short storage": ("larger than", zipped([*PAIRS[:2], (DATA, bytes(239)), *PAIRS[3:]])),
    "a way out": ("no name", zipped([*PAIRS, ("archive/../../canary", b"")])),
    "a way out of Windows": ("no name", zipped([*PAIRS, ("archive\\..\\canary", b"")])),
    "a null in a name": ("no name", zip_file().replace(b"/version", b"/vers\0on")),
    "a name in one place": ("no member", local(zip_file(), DATA, 30, b"archive/data/9")),
    "encrypted": ("encrypted", central(zip_file(), DATA, 8, b"\x01")),
    "an unknown compression": ("unknown way", central(zip_file(), DATA, 10, b"\x63")),
    "bzip2": ("unknown way", zipped(PAIRS, zipfile.ZIP_BZIP2)),
    "another checksum": ("checksum", central(zip_file(), DATA, 16, b"abcd")),
    "a larger size": ("two sizes", central(zip_file(), DATA, 20, sizes(240, 2**31))),
    "larger sizes": ("overlap", central(zip_file(), DATA, 20, sizes(2**31, 2**31))),
    "overlapping members": ("overlap", central(zip_file(), DATA, 20, sizes(300, 300))),
    "a place of another": ("no member", central(zip_file(), "archive/data/1", 42, first_of(DATA))),
    "a place outside": ("no member", central(zip_file(), DATA, 42, struct.pack("<I", 2**31))),
    "made of nothing": ("would grow", central(DEFLATED, DATA, 20, sizes(0, 240))),
    "a bomb": ("would grow", BLOWN_UP),
    "a bomb that hides": ("checksum", central(BLOWN_UP, DATA, 24, struct.pack("<I", 240))),
    "a pickle that is a bomb": (
        "would grow",
        zipped({"archive/data.pkl": b"N" * (9 << 20)}, zipfile.ZIP_DEFLATED),
    ),
    "a large pickle": ("describes its tensors", zipped({"archive/data.pkl": bytes(5 << 20)})),
    "a large table of contents": ("table of contents", zipped([*PAIRS, *LONG_NAMES])),
}


@pytest.mark.parametrize("trick", TRICKS)
def test_trick_of_an_archive(trick, judged):
    fact, data = TRICKS[trick]
    with refused(CheckpointError, "pytorch_model.bin", fact):
        judged({"pytorch_model.bin": data})

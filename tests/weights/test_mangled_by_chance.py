"""Checkpoint files that were spoilt by chance: read right, or refused; and what sound ones say."""

import io
import json
import random
import struct
import zipfile

import numpy as np
import pytest
from safetensors.numpy import save as safetensors_bytes

from fixtures import write_checkpoint
from harness import refused
from kerasbert.errors import CheckpointError
from kerasbert.weights.checkpoints.huggingface import find_huggingface_file
from weights.mangling import (
    ARRAYS,
    CONTAINERS,
    EMPTY,
    group,
    legacy_file,
    members_of,
    named,
    number,
    pickled,
    storage_id,
    tensor,
    text,
    zip_file,
    zipped,
)
from weights.mangling import judged as judged


def without_checksums(data):
    """The same archive as torch writes it on demand: every CRC-32 is 0."""
    for info in zipfile.ZipFile(io.BytesIO(data)).infolist():
        data = data.replace(struct.pack("<I", info.CRC), bytes(4))
    return data


def index_of(file):
    weight_map = dict.fromkeys(ARRAYS, file)
    return json.dumps({"metadata": {"total_size": 300}, "weight_map": weight_map}).encode()


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """From a kind of file to the files of one sound checkpoint, {name: bytes}."""
    folder = tmp_path_factory.mktemp("sound")
    write_checkpoint(folder / "model.ckpt", ARRAYS)
    tensorflow = {path.name: path.read_bytes() for path in folder.glob("model.ckpt.*")}
    shard = {"shard.safetensors": safetensors_bytes(ARRAYS)}
    return {
        "safetensors": {"model.safetensors": safetensors_bytes(ARRAYS)},
        "safetensors shards": {"model.safetensors.index.json": index_of(*shard), **shard},
        "zip": {"pytorch_model.bin": zip_file()},
        "zip without checksums": {"pytorch_model.bin": without_checksums(zip_file())},
        "zip deflated": {"pytorch_model.bin": zipped(members_of(), zipfile.ZIP_DEFLATED)},
        "legacy": {"pytorch_model.bin": legacy_file()},
        "torch shards": {
            "pytorch_model.bin.index.json": index_of("shard.bin"),
            "shard.bin": legacy_file(),
        },
        "tensorflow": tensorflow,
    }


# (kind, the file that is spoilt, whether the format has checksums)
TARGETS = [
    ("safetensors", "model.safetensors", False),
    ("safetensors shards", "model.safetensors.index.json", False),
    ("safetensors shards", "shard.safetensors", False),
    ("zip", "pytorch_model.bin", True),
    ("zip without checksums", "pytorch_model.bin", False),
    ("zip deflated", "pytorch_model.bin", True),
    ("legacy", "pytorch_model.bin", False),
    ("torch shards", "pytorch_model.bin.index.json", False),
    ("tensorflow", "model.ckpt.index", True),
    ("tensorflow", "model.ckpt.data-00000-of-00001", True),
]
targets = pytest.mark.parametrize(("kind", "file", "checked"), TARGETS)


# ---- sound files -----------------------------------------------------------------------------


def assert_sound(arrays):
    assert arrays.keys() == ARRAYS.keys()
    for name, array in arrays.items():
        assert array.dtype == ARRAYS[name].dtype and array.tobytes() == ARRAYS[name].tobytes()


@pytest.mark.parametrize("kind", dict.fromkeys(kind for kind, _, _ in TARGETS))
def test_sound_files(kind, sound, judged):
    assert_sound(judged(sound[kind]))


@pytest.mark.parity
@pytest.mark.parametrize("container", CONTAINERS)
def test_torch_reads_the_files_made_here(container):
    torch = pytest.importorskip("torch")
    data = io.BytesIO(CONTAINERS[container]())
    assert_sound({name: value.numpy() for name, value in torch.load(data).items()})


def part_of_storage(first, elements):
    view = group(text("view"), number(first), number(elements))
    parts = (text("storage"), named("torch", "FloatStorage"), text("0"), text("cpu"), number(60))
    part = tensor(group(*parts, view) + b"Q", (4, 5))
    return legacy_file(pickled(EMPTY, b"(", text("part"), part, b"u"), ["0"])


def test_part_of_a_legacy_storage(judged):
    """Torch before 0.4 could save a storage as a part of another one."""
    arrays = judged({"pytorch_model.bin": part_of_storage(10, 20)})
    part = ARRAYS["bert.embeddings.weight"].ravel()[10:30].reshape(4, 5)
    assert arrays.keys() == {"part"} and arrays["part"].tobytes() == part.tobytes()
    with refused(CheckpointError, "a storage outside of another"):
        judged({"pytorch_model.bin": part_of_storage(50, 20)})


@pytest.mark.parametrize("container", CONTAINERS)
def test_the_stride_of_a_single_row_may_be_anything(container, judged):
    storage = storage_id("0", "FloatStorage", 60, container == "legacy")
    described = tensor(storage, (1, 4, 1), strides=(2**70, 15, 2**62))
    described = pickled(EMPTY, b"(", text("column"), described, b"u")
    make = {"zip": zip_file, "legacy": lambda data: legacy_file(data, ["0"])}[container]
    column = judged({"pytorch_model.bin": make(described)})["column"]
    assert column.tobytes() == ARRAYS["bert.embeddings.weight"].ravel()[::15].tobytes()


def test_every_byte_but_zero_is_true(judged):
    data = safetensors_bytes({"mask": np.array([True, False, True])})
    mask = judged({"model.safetensors": data[:-3] + b"\x02\x00\xff"})["mask"]
    assert mask.tobytes() == b"\x01\x00\x01"


# ---- spoilt by chance ------------------------------------------------------------------------


@targets
@pytest.mark.parametrize("seed", range(10))
def test_truncated(kind, file, checked, seed, sound, judged):
    data = sound[kind][file]
    cut = 0 if seed == 0 else random.Random(f"{file}{seed}").randrange(len(data))
    with refused(CheckpointError):
        judged({**sound[kind], file: data[:cut]}, first=next(iter(sound[kind])))


def flipped(data, rng):
    for _ in range(rng.choice((1, 1, 1, 4))):
        data[rng.randrange(len(data))] ^= rng.randrange(1, 256)


def spliced(data, rng):
    place = rng.randrange(len(data))
    new = bytes(rng.randrange(256) for _ in range(rng.randrange(9)))
    data[place : place + rng.randrange(9)] = rng.choice((new, bytes(len(new)), b"\xff" * len(new)))


@targets
@pytest.mark.parametrize("change", [flipped, spliced], ids=lambda change: change.__name__)
@pytest.mark.parametrize("seed", range(14))
def test_changed(kind, file, checked, change, seed, sound, judged):
    """What a format without checksums holds may be other numbers, and still be a checkpoint."""
    data = bytearray(sound[kind][file])
    change(data, random.Random(f"{file}{seed}"))
    try:
        arrays = judged({**sound[kind], file: bytes(data)}, first=next(iter(sound[kind])))
    except CheckpointError as error:
        with refused(CheckpointError):
            raise error
    else:
        assert sum(array.nbytes for array in arrays.values()) < 10_000
        if checked:
            assert_sound(arrays)


@pytest.mark.parametrize("kind", ["safetensors", "legacy", "zip without checksums"])
def test_a_flipped_bit_of_a_number_changes_this_number(kind, sound, judged):
    ((name, data),) = sound[kind].items()
    number = ARRAYS["bert.pooler.bias"][3:4].tobytes()
    assert data.count(number) == 1
    place = data.index(number)
    arrays = judged({name: data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]})
    assert (arrays.pop("bert.pooler.bias") != ARRAYS["bert.pooler.bias"]).nonzero()[0] == [3]
    assert all(array.tobytes() == ARRAYS[name].tobytes() for name, array in arrays.items())


@pytest.mark.parametrize("kind", ["safetensors", "zip", "zip deflated", "legacy"])
def test_file_that_shrinks_after_opening(kind, sound, tmp_path):
    ((name, data),) = sound[kind].items()
    path = tmp_path / name
    path.write_bytes(data)
    checkpoint = find_huggingface_file(path)
    path.write_bytes(data[:200])
    with refused(CheckpointError, path):
        for tensor_name in checkpoint.shapes:
            checkpoint.read(tensor_name)
    path.unlink()
    with refused(CheckpointError, path, cause=FileNotFoundError):
        checkpoint.read("scale")

"""Damaged and hostile weights on their way through `build_transformer_model`.

Where a format has a checksum, whatever is damaged is refused or was of no meaning. Where it has
none, a changed number is a number like any other: then the tests say which changes may load, and
that nothing else of the model moved.
"""

import contextlib
import json
import os
import random

import numpy as np
import pytest
from safetensors.numpy import save as safetensors_bytes

from fixtures import write_checkpoint
from harness import default_and_slow, refused
from kerasbert import save_pretrained, save_weights_as_checkpoint
from kerasbert.errors import CheckpointError, KerasbertError, WeightMismatchError
from kerasbert.weights.checkpoints import open_checkpoint
from weights.mangling import (
    CONTAINERS,
    EMPTY,
    HOSTILE,
    OTHERS,
    legacy_file,
    number,
    pickled,
    storage_id,
    tensor,
    text,
    values,
    zip_file,
)
from weights.mangling import builds as builds
from weights.mangling import tiny_bert as tiny_bert

INDEX, DATA = "model.ckpt.index", "model.ckpt.data-00000-of-00001"
NAME = "encoder.layer.0.output.dense.weight"


def arrays_of(path):
    checkpoint = open_checkpoint(path)
    return {name: checkpoint.read(name) for name in checkpoint.shapes}


@pytest.fixture(scope="module")
def arrays(tiny_bert, tmp_path_factory):
    """The tiny model in the names of Hugging Face."""
    return arrays_of(save_pretrained(tiny_bert, tmp_path_factory.mktemp("bert"), verbose=0))


@pytest.fixture(scope="module")
def google_arrays(tiny_bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("google")
    return arrays_of(save_weights_as_checkpoint(tiny_bert, folder / "m", verbose=0)["checkpoint"])


@pytest.fixture(scope="module")
def sound(tiny_bert, arrays, tmp_path_factory):
    """From a kind of checkpoint to the files of a sound folder, {name: bytes}."""
    folder = tmp_path_factory.mktemp("sound")
    save_pretrained(tiny_bert, folder / "hf", verbose=0)
    save_weights_as_checkpoint(tiny_bert, folder / "tf" / "model.ckpt", verbose=0)
    hf, tf = (
        {path.name: path.read_bytes() for path in (folder / kind).iterdir()}
        for kind in ("hf", "tf")
    )
    config = {"config.json": hf["config.json"]}
    names = sorted(arrays)
    parts = {f"part-{n}.safetensors": names[n::2] for n in range(2)}
    index = {"weight_map": {name: part for part in parts for name in parts[part]}}
    shards = {
        part: safetensors_bytes({name: arrays[name] for name in parts[part]}) for part in parts
    }
    return {
        "safetensors": hf,
        "shards": {
            **config,
            "model.safetensors.index.json": json.dumps(index).encode(),
            **shards,
        },
        "zip": {**config, "pytorch_model.bin": zip_file(arrays=arrays)},
        "legacy": {**config, "pytorch_model.bin": legacy_file(arrays=arrays)},
        "tensorflow": tf,
    }


# (kind, the file that is spoilt)
TARGETS = [
    ("safetensors", "model.safetensors"),
    ("shards", "model.safetensors.index.json"),
    ("shards", "part-1.safetensors"),
    ("zip", "pytorch_model.bin"),
    ("legacy", "pytorch_model.bin"),
    ("tensorflow", INDEX),
    ("tensorflow", DATA),
]
targets = pytest.mark.parametrize(("kind", "file"), TARGETS)


def same(model, other):
    return all(
        a.tobytes() == b.tobytes() for a, b in zip(values(model), values(other), strict=True)
    )


@pytest.mark.parametrize("kind", dict.fromkeys(kind for kind, _ in TARGETS))
def test_sound_folders(kind, sound, builds, tiny_bert):
    assert same(builds(sound[kind]), tiny_bert)


# ---- spoilt by chance ------------------------------------------------------------------------


@targets
@pytest.mark.parametrize("seed", range(8))
def test_truncated(kind, file, seed, sound, builds):
    data = sound[kind][file]
    cut = (0, len(data) - 1)[seed] if seed < 2 else random.Random(seed).randrange(len(data))
    with refused(CheckpointError):
        builds({**sound[kind], file: data[:cut]})


def flipped(data, place, rng):
    return data[:place] + bytes([data[place] ^ rng.randrange(1, 256)]) + data[place + 1 :]


@pytest.mark.parametrize(("kind", "file"), [target for target in TARGETS if target[0] != "shards"])
@pytest.mark.parametrize("seed", default_and_slow(range(16), range(5)))
def test_flipped_byte(kind, file, seed, sound, builds, tiny_bert):
    """Anywhere in the file: with checksums, the model is refused or the same to the last bit."""
    rng, data = random.Random(seed), sound[kind][file]
    files = {**sound[kind], file: flipped(data, rng.randrange(len(data)), rng)}
    try:
        model = builds(files)
    except KerasbertError as error:
        assert isinstance(error, CheckpointError)
    else:
        if kind in ("zip", "tensorflow"):
            assert same(model, tiny_bert)
        else:  # at most some numbers of one array
            pairs = zip(values(model), values(tiny_bert), strict=True)
            assert sum(a.tobytes() != b.tobytes() for a, b in pairs) <= 1


def end_of_header(data):
    return 8 + int.from_bytes(data[:8], "little")


@pytest.mark.parametrize("seed", range(24))
def test_flipped_byte_of_a_header(seed, sound, builds, tiny_bert):
    """Every letter of a header has a meaning but the metadata's and the spaces at its end."""
    rng, data = random.Random(seed), sound["safetensors"]["model.safetensors"]
    header = data[: end_of_header(data)]
    place = rng.randrange(len(header))
    start = header.index(b'"format"')
    idle = start < place < header.index(b"}", start) or place >= len(header.rstrip())
    files = {**sound["safetensors"], "model.safetensors": flipped(data, place, rng)}
    if not idle:
        with refused(CheckpointError) if place < 8 else pytest.raises(CheckpointError):
            builds(files)
        return
    with contextlib.suppress(CheckpointError):
        assert same(builds(files), tiny_bert)


@pytest.mark.parametrize("kind", ["safetensors", "legacy", "zip", "tensorflow"])
@pytest.mark.parametrize("seed", default_and_slow(range(8), range(3)))
def test_flipped_byte_of_a_number(kind, seed, sound, arrays, google_arrays, builds, tiny_bert):
    """Formats without a checksum give one other number; those with one refuse."""
    rng = random.Random(seed)
    file = {"safetensors": "model.safetensors", "tensorflow": DATA}.get(kind, "pytorch_model.bin")
    stored = google_arrays if kind == "tensorflow" else arrays
    name = rng.choice(sorted(name for name in stored if name.endswith(("weight", "kernel"))))
    data = sound[kind][file]
    place = data.index(stored[name].tobytes()) + rng.randrange(stored[name].nbytes)
    files = {**sound[kind], file: flipped(data, place, rng)}
    if kind in ("zip", "tensorflow"):
        with refused(CheckpointError):
            builds(files)
        return
    pairs = zip(values(builds(files)), values(tiny_bert), strict=True)
    changed = sum((a.view("uint32") != b.view("uint32")).sum() for a, b in pairs)
    assert changed == 1


# ---- files that are something else -----------------------------------------------------------


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin", INDEX, DATA])
@pytest.mark.parametrize("other", OTHERS)
def test_another_kind_of_file(other, file, sound, builds):
    kind = "tensorflow" if "ckpt" in file else "zip" if "bin" in file else "safetensors"
    with refused(CheckpointError, "model"):
        builds({**sound[kind], file: OTHERS[other]})


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickle(name, container, sound, arrays, builds):
    """In the place of a tensor among sound ones; the canary would lie in the current folder."""
    pairs = [
        text(key) + tensor(storage_id("0", "FloatStorage", value.size, container == "legacy"), (1,))
        for key, value in arrays.items()
    ]
    described = pickled(EMPTY, b"(", *pairs, text(NAME), HOSTILE[name], b"u")
    make = {"zip": zip_file, "legacy": lambda data: legacy_file(data, ["0"])}[container]
    with refused(CheckpointError, "pytorch_model.bin", name, "nothing of the file was run"):
        builds({**sound["zip"], "pytorch_model.bin": make(described)})
    assert os.listdir() == ["model"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickle_in_the_place_of_safetensors(name, sound, builds):
    with refused(CheckpointError, "model.safetensors"):
        builds({**sound["safetensors"], "model.safetensors": pickled(HOSTILE[name])})


# ---- numbers of another type -----------------------------------------------------------------


@pytest.mark.parametrize("some", [True, False])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "int64", "complex64"])
def test_no_floats(dtype, some, sound, arrays, builds):
    """Integers in the place of weights are quantised: their scale is not known here."""
    other = {
        name: value.astype(dtype) if name == NAME or not some else value
        for name, value in arrays.items()
    }
    with refused(WeightMismatchError, dtype, NAME if some else ""):
        builds({**sound["safetensors"], "model.safetensors": safetensors_bytes(other)})


@pytest.mark.parametrize("dtype", ["bool", "int32", "complex64", "S5"])
def test_no_floats_in_tensorflow(dtype, sound, google_arrays, builds, tmp_path):
    name = "bert/encoder/layer_0/output/dense/kernel"
    other = {**google_arrays, name: google_arrays[name].astype(dtype)}
    prefix = write_checkpoint(tmp_path / "other" / "model.ckpt", other)
    files = {file: (tmp_path / "other" / file).read_bytes() for file in (INDEX, DATA)}
    os.rename(os.path.dirname(prefix), tmp_path / "done")
    with refused(WeightMismatchError, name):
        builds({**sound["tensorflow"], **files})


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_floats(dtype, sound, arrays, builds, tiny_bert):
    other = {name: value.astype(dtype) for name, value in arrays.items()}
    model = builds({**sound["safetensors"], "model.safetensors": safetensors_bytes(other)})
    for one, exact in zip(values(model), values(tiny_bert), strict=True):
        np.testing.assert_array_equal(one, exact.astype(dtype).astype("float32"))


# ---- tensors that are not what they say ------------------------------------------------------


def with_header(data, change):
    """A safetensors file whose header went through a function."""
    end = end_of_header(data)
    header = json.loads(data[8:end])
    new = json.dumps(change(header) or header).encode()
    return len(new).to_bytes(8, "little") + new + data[end:]


SHAPES = [[2**40], [2**62, 2**62], [2**31, 2**31], [10**30], [0, 2**62], [-8, -8], [64], [8, 8, 1]]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shape_in_safetensors(shape, sound, builds):
    data = sound["safetensors"]["model.safetensors"]
    spoilt = with_header(data, lambda header: header[NAME].update(shape=shape))
    with refused(CheckpointError if shape not in ([64], [8, 8, 1]) else WeightMismatchError):
        builds({**sound["safetensors"], "model.safetensors": spoilt})


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize(
    "shape", [(2**40,), (2**62, 2**62), (10**5, 10**5), (0, 2**62), (8, 4)], ids=str
)
def test_shape_in_torch(shape, container, sound, builds):
    storage = storage_id("0", "FloatStorage", 60, container == "legacy")
    strides = (0,) * (len(shape) - 1) + (1,)
    described = pickled(EMPTY, b"(", text(NAME), tensor(storage, shape, strides=strides), b"u")
    make = {"zip": zip_file, "legacy": lambda data: legacy_file(data, ["0"])}[container]
    with refused(CheckpointError if shape != (8, 4) else WeightMismatchError):
        builds({**sound["zip"], "pytorch_model.bin": make(described)})


@pytest.mark.parametrize(
    "name", ["embeddings.word_embeddings.weight", NAME, "embeddings.LayerNorm.bias"]
)
@pytest.mark.parametrize("change", ["absent", "another name", "twice"])
def test_names(name, change, sound, builds):
    def spoil(header):
        entry = header[name] if change == "twice" else header.pop(name)
        if change != "absent":
            header[f"{name}_2"] = entry
        return header

    data = sound["safetensors"]["model.safetensors"]
    with pytest.raises(CheckpointError):
        builds({**sound["safetensors"], "model.safetensors": with_header(data, spoil)})


def test_a_shard_of_another_model(sound, arrays, builds):
    wide = {name: np.zeros((*value.shape, 2), "float32") for name, value in arrays.items()}
    with refused(WeightMismatchError, "model.safetensors.index.json"):
        builds({**sound["shards"], "part-1.safetensors": safetensors_bytes(wide)})


def test_a_long_number_in_a_pickle(sound, builds):
    described = pickled(EMPTY, b"(", text(NAME), number(2**2000), b"u")
    with refused(CheckpointError, "no state dict"):
        builds({**sound["zip"], "pytorch_model.bin": zip_file(described)})

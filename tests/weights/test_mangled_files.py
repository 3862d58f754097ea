"""Damaged and hostile checkpoint files: read right, or refused; quickly, and nothing is run.

Every input is made from small sound files by a fixed rule or a fixed seed. The torch files are
put together here opcode by opcode, so that no torch is needed and every lie can be told.
"""

import contextlib
import io
import json
import os
import random
import struct
import sys
import tarfile
import time
import tracemalloc
import warnings
import zipfile

import numpy as np
import pytest
from safetensors.numpy import save as safetensors_bytes

from fixtures import write_checkpoint
from harness import refused
from kerasbert.errors import CheckpointError
from kerasbert.weights.checkpoints import TensorFlowCheckpoint, shards
from kerasbert.weights.checkpoints.huggingface import find_huggingface_file
from kerasbert.weights.checkpoints.safetensors import SafetensorsCheckpoint
from kerasbert.weights.checkpoints.torch_pickle import TorchCheckpoint

SECONDS = 2
MEMORY = 50 << 20

ARRAYS = {
    "bert.embeddings.weight": np.linspace(-1, 1, 60, dtype="float32").reshape(12, 5),
    "bert.pooler.bias": np.linspace(2, 3, 7, dtype="float32"),
    "position_ids": np.arange(9, dtype="int64").reshape(1, 9),
    "scale": np.array(0.5, "float32"),
}

# ---- pickles, opcode by opcode ---------------------------------------------------------------

STORAGES = {"float32": "FloatStorage", "int64": "LongStorage"}


def text(value):
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def number(value):
    size = value.bit_length() // 8 + 1
    return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)


def group(*items):
    return b"(" + b"".join(items) + b"t"


def named(module, name):
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


def pickled(*parts):
    return b"\x80\x02" + b"".join(parts) + b"."


EMPTY = named("collections", "OrderedDict") + b")R"


def storage_id(key, kind, elements, legacy):
    view = (b"N",) if legacy else ()
    parts = (text("storage"), named("torch", kind), text(key), text("cpu"), number(elements))
    return group(*parts, *view) + b"Q"


def tensor(storage, shape, offset=0, strides=None, tail=b"\x89" + EMPTY):
    if strides is None:
        strides = [int(np.prod(shape[n + 1 :])) for n in range(len(shape))]
    axes = [group(*map(number, values)) for values in (shape, strides)]
    rebuild = named("torch._utils", "_rebuild_tensor_v2")
    return rebuild + group(storage, number(offset), *axes, tail) + b"R"


def state_dict(legacy=False):
    pairs = []
    for n, (name, array) in enumerate(ARRAYS.items()):
        storage = storage_id(str(n), STORAGES[array.dtype.name], array.size, legacy)
        pairs.append(text(name) + tensor(storage, array.shape))
    return pickled(EMPTY, b"(", *pairs, b"u")


def storages():
    return [array.tobytes() for array in ARRAYS.values()]


def legacy_file(described=None, keys=None, elements=None):
    described = state_dict(legacy=True) if described is None else described
    keys = [str(n) for n in range(len(ARRAYS))] if keys is None else keys
    elements = [array.size for array in ARRAYS.values()] if elements is None else elements
    system = b"}(" + text("protocol_version") + number(1001) + text("little_endian") + b"\x88u"
    start = pickled(number(0x1950A86A20F9469CFC6C)) + pickled(number(1001)) + pickled(system)
    end = pickled(b"](", *map(text, keys), b"e")
    data = [struct.pack("<q", n) + raw for n, raw in zip(elements, storages(), strict=False)]
    return start + described + end + b"".join(data)


def members_of(described=None):
    return {
        "archive/data.pkl": state_dict() if described is None else described,
        "archive/byteorder": b"little",
        **{f"archive/data/{n}": raw for n, raw in enumerate(storages())},
        "archive/version": b"3\n",
    }


def zipped(members, compression=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about names that come twice
        for name, data in members.items() if isinstance(members, dict) else members:
            archive.writestr(zipfile.ZipInfo(name), data, compression)
    return buffer.getvalue()


def zip_file(described=None):
    return zipped(members_of(described))


CONTAINERS = {"zip": zip_file, "legacy": legacy_file}

# ---- sound files of every kind, which are then spoilt by chance ------------------------------


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


def open_any(path):
    """As the library opens a path, without the search in folders."""
    if path.name.startswith("model.ckpt"):
        return TensorFlowCheckpoint(str(path.with_name("model.ckpt")))
    return find_huggingface_file(path)


# ---- the judge -------------------------------------------------------------------------------

FORBIDDEN = {"os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.Popen"}
FORBIDDEN |= {"pickle.find_class", "marshal.loads", "ctypes.dlopen", "socket.connect", "os.remove"}
_watch = {"on": False, "seen": []}


def _audit(event, arguments):
    if not _watch["on"]:
        return
    writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
    if writes or event in FORBIDDEN:
        _watch["seen"].append((event, str(arguments)[:200]))


sys.addaudithook(_audit)


def listing(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """A function that writes files, opens the first and reads all of it; gives the arrays.

    It fails if that takes long or much memory, runs something or writes something.
    """
    monkeypatch.chdir(tmp_path)

    def judge(files, first=None, reader=open_any):
        for name, data in files.items():
            (tmp_path / name).write_bytes(data)
        before = listing(tmp_path)

        def read_all():
            checkpoint = reader(tmp_path / (first or next(iter(files))))
            arrays = {name: checkpoint.read(name) for name in checkpoint.shapes}
            assert {name: array.shape for name, array in arrays.items()} == checkpoint.shapes
            return arrays

        _watch.update(on=True, seen=[])
        start = time.process_time()
        try:
            return read_all()
        finally:
            seconds = time.process_time() - start
            peak = peak_memory(read_all)
            _watch["on"] = False
            assert not _watch["seen"]
            assert listing(tmp_path) == before
            assert seconds < SECONDS and peak < MEMORY, f"{seconds} s, {peak} bytes"

    return judge


def peak_memory(function):
    """In a run of its own: counting makes Python several times slower."""
    tracemalloc.start()
    try:
        with contextlib.suppress(CheckpointError):
            function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def assert_sound(arrays):
    assert arrays.keys() == ARRAYS.keys()
    for name, array in arrays.items():
        assert array.dtype == ARRAYS[name].dtype and array.tobytes() == ARRAYS[name].tobytes()


@pytest.mark.parametrize("kind", dict.fromkeys(kind for kind, _, _ in TARGETS))
def test_sound_files(kind, sound, judged):
    assert_sound(judged(sound[kind]))


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


# ---- pickles that would run something --------------------------------------------------------

CALL = group(text("touch canary")) + b"R"
STACK = b"\x93"
HOSTILE = {
    "os.system": named("os", "system") + CALL,
    "posix.system": named("posix", "system") + CALL,
    "nt.system": named("nt", "system") + CALL,
    "os.popen": text("os") + text("popen") + STACK + CALL,
    "subprocess.Popen": named("subprocess", "Popen") + CALL,
    "builtins.eval": named("builtins", "eval") + group(text("open('canary', 'w')")) + b"R",
    "__builtin__.eval": named("__builtin__", "eval") + group(text("open('canary', 'w')")) + b"R",
    "builtins.exec": named("builtins", "exec") + group(text("open('canary', 'w')")) + b"R",
    "builtins.getattr": named("builtins", "getattr")
    + group(named("builtins", "__import__") + group(text("os")) + b"R", text("system"))
    + b"R"
    + CALL,
    "builtins.open": named("builtins", "open") + group(text("canary"), text("w")) + b"R",
    "importlib.import_module": named("importlib", "import_module") + CALL,
    "runpy.run_path": named("runpy", "run_path") + CALL,
    "pickle.loads": named("pickle", "loads") + CALL,
    "torch.load": named("torch", "load") + CALL,
    "torch.storage._load_from_bytes": named("torch.storage", "_load_from_bytes") + CALL,
    "torch.hub.load": named("torch.hub", "load") + CALL,
    "numpy.load": named("numpy", "load") + CALL,
    "operator.attrgetter": named("operator", "attrgetter") + CALL,
    "collections.OrderedDict.fromkeys": text("collections") + text("OrderedDict.fromkeys") + STACK,
    "torch._utils._rebuild_tensor_v2.__globals__": named(
        "torch._utils", "_rebuild_tensor_v2.__globals__"
    ),
    "kerasbert.errors.os": named("kerasbert.errors", "os"),
    "__main__.Trainer": named("__main__", "Trainer") + b")\x81}b",
}


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


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name", BOMBS)
def test_pickle_bomb(name, container, judged):
    fact, bomb = BOMBS[name]
    described = pickled(EMPTY, b"(", text("weight"), bomb, b"u")
    make = {"zip": zip_file, "legacy": lambda data: legacy_file(data, [])}[container]
    with refused(CheckpointError, "pytorch_model.bin", fact):
        judged({"pytorch_model.bin": make(described)})


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


# ---- files that are something else -----------------------------------------------------------


def tar_file():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("storages"), io.BytesIO())
    return buffer.getvalue()


OTHERS = {
    "nothing": b"",
    "one byte": b"\x80",
    "zeros": bytes(10_000),
    "a text": b"Not a checkpoint.\n" * 20,
    "a page of a server": b"<!DOCTYPE html><html>404</html>",
    "a config": b'{"hidden_size": 768}',
    "a pointer of Git LFS": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
    "a zip of texts": zipped({"readme.txt": b"hello"}),
    "an empty zip": zipped({}),
    "a tar": tar_file(),
    "gzip": b"\x1f\x8b\x08\0" + bytes(100),
    "HDF5": b"\x89HDF\r\n\x1a\n" + bytes(100),
    "a pickle of numbers": pickled(b"K\x05"),
    "noise": random.Random(1).randbytes(5_000),
    "a pickled dict": pickled(EMPTY),
}
NAMES = {
    "model.safetensors": SafetensorsCheckpoint,
    "pytorch_model.bin": TorchCheckpoint,
    "model.ckpt.index": lambda path: TensorFlowCheckpoint(str(path.with_suffix(""))),
}


@pytest.mark.parametrize("file", NAMES)
@pytest.mark.parametrize("other", OTHERS)
def test_another_kind_of_file(other, file, judged):
    files = {file: OTHERS[other]}
    if file == "model.ckpt.index":
        files["model.ckpt.data-00000-of-00001"] = bytes(100)
    with refused(CheckpointError):
        judged(files, reader=NAMES[file])


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("other", OTHERS)
def test_another_kind_of_file_is_not_passed_on(other, file, judged):
    """Its name promises weights: the search for a reader ends in an error, not in None."""
    with refused(CheckpointError, file):
        judged({file: OTHERS[other]})


def test_words_for_what_is_met_most(judged):
    with refused(CheckpointError, "model.safetensors", "Git LFS", "git lfs pull"):
        judged({"model.safetensors": OTHERS["a pointer of Git LFS"]})
    with refused(CheckpointError, "pytorch_model.bin", "0.1.10", "save it anew"):
        judged({"pytorch_model.bin": OTHERS["a tar"]})
    with refused(CheckpointError, "pytorch_model.bin", "Download"):
        judged({"pytorch_model.bin": OTHERS["nothing"]})


# ---- what the system refuses -----------------------------------------------------------------

HUGGINGFACE = [SafetensorsCheckpoint, TorchCheckpoint]


@pytest.mark.parametrize("reader", HUGGINGFACE)
def test_absent_file_folder_and_pipe(reader, tmp_path):
    for name in ("absent", "absent/model.bin", "absent.index.json", ".", "n" * 5000):
        with refused(CheckpointError, tmp_path / name, cause=OSError):
            reader(tmp_path / name)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.bin")
        with refused(CheckpointError, "pipe.bin", "not a file"):
            reader(tmp_path / "pipe.bin")
        assert find_huggingface_file(tmp_path / "pipe.bin") is None


@pytest.mark.parametrize("reader", [*HUGGINGFACE, find_huggingface_file])
def test_no_permission(reader, tmp_path, monkeypatch):
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes(ARRAYS))

    def denied(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(shards, "open", denied, raising=False)
    with refused(CheckpointError, "Permission denied", "permissions", cause=PermissionError):
        reader(tmp_path / "model.safetensors")


@pytest.mark.parametrize("reader", [*HUGGINGFACE, find_huggingface_file])
def test_folder_without_permission(reader, tmp_path):
    if not hasattr(os, "geteuid") or os.geteuid() == 0:
        pytest.skip("needs a user whom permissions bind: this one is root, or not on Unix")
    folder = tmp_path / "locked"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(safetensors_bytes(ARRAYS))
    folder.chmod(0)
    try:
        with refused(CheckpointError, "Permission denied", cause=PermissionError):
            reader(folder / "model.safetensors")
    finally:
        folder.chmod(0o700)


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

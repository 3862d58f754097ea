"""Damaged and hostile checkpoint files, and the judge of what happens when they are read.

Every input is made from small sound files by a fixed rule or a fixed seed. The torch files are
put together here opcode by opcode, so that no torch is needed and every lie can be told.

Tests import the fixtures from here: ``judged`` for readers, ``builds`` and
``tiny_bert`` for whole models.
"""

import contextlib
import io
import random
import resource
import struct
import sys
import tarfile
import time
import tracemalloc
import warnings
import zipfile

import numpy as np
import pytest

from fixtures import tiny_config
from harness import to_numpy
from kerasbert import build_transformer_model, load_weights_from_checkpoint
from kerasbert.errors import CheckpointError, KerasbertError
from kerasbert.weights.checkpoints import TensorFlowCheckpoint
from kerasbert.weights.checkpoints.huggingface import find_huggingface_file

# What these find takes hours: the limit catches it, and no slow machine comes near.
HANG_SECONDS = 60
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


def state_dict(legacy=False, arrays=ARRAYS):
    pairs = []
    for n, (name, array) in enumerate(arrays.items()):
        storage = storage_id(str(n), STORAGES[array.dtype.name], array.size, legacy)
        pairs.append(text(name) + tensor(storage, array.shape))
    return pickled(EMPTY, b"(", *pairs, b"u")


def storages(arrays=ARRAYS):
    return [array.tobytes() for array in arrays.values()]


def legacy_file(described=None, keys=None, elements=None, arrays=ARRAYS):
    described = state_dict(True, arrays) if described is None else described
    keys = [str(n) for n in range(len(arrays))] if keys is None else keys
    elements = [array.size for array in arrays.values()] if elements is None else elements
    system = b"}(" + text("protocol_version") + number(1001) + text("little_endian") + b"\x88u"
    start = pickled(number(0x1950A86A20F9469CFC6C)) + pickled(number(1001)) + pickled(system)
    end = pickled(b"](", *map(text, keys), b"e")
    pairs = zip(elements, storages(arrays), strict=False)
    data = [struct.pack("<q", n) + raw for n, raw in pairs]
    return start + described + end + b"".join(data)


def members_of(described=None, arrays=ARRAYS):
    return {
        "archive/data.pkl": state_dict(arrays=arrays) if described is None else described,
        "archive/byteorder": b"little",
        **{f"archive/data/{n}": raw for n, raw in enumerate(storages(arrays))},
        "archive/version": b"3\n",
    }


def zipped(members, compression=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about names that come twice
        for name, data in members.items() if isinstance(members, dict) else members:
            archive.writestr(zipfile.ZipInfo(name), data, compression)
    return buffer.getvalue()


def zip_file(described=None, arrays=ARRAYS):
    return zipped(members_of(described, arrays))


CONTAINERS = {"zip": zip_file, "legacy": legacy_file}


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

# ---- the readers ----------------------------------------------------------------------------


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
    # An import, such as that of a codec at its first use, reads the code of a module so.
    imports = event == "marshal.loads" and "importlib" in sys._getframe(1).f_code.co_filename
    if writes or (event in FORBIDDEN and not imports):
        _watch["seen"].append((event, str(arguments)[:200]))


sys.addaudithook(_audit)


def listing(folder):
    """What lies under a folder: the bytes of its files, and its folders."""
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}


@contextlib.contextmanager
def nothing_run_or_written(folder):
    """Fails if the block runs something, opens a file for writing or changes the folder."""
    before = listing(folder)
    _watch.update(on=True, seen=[])
    try:
        yield
    finally:
        _watch["on"] = False
        assert not _watch["seen"], _watch["seen"]
        assert listing(folder) == before


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """A function that writes files, opens the first and reads all of it; gives the arrays.

    It fails if that hangs, takes much memory, runs something or writes something.
    """
    monkeypatch.chdir(tmp_path)

    def judge(files, first=None, reader=open_any):
        for name, data in files.items():
            (tmp_path / name).write_bytes(data)

        def read_all():
            checkpoint = reader(tmp_path / (first or next(iter(files))))
            arrays = {name: checkpoint.read(name) for name in checkpoint.shapes}
            assert {name: array.shape for name, array in arrays.items()} == checkpoint.shapes
            return arrays

        with nothing_run_or_written(tmp_path):
            start = time.process_time()
            try:
                return read_all()
            finally:
                seconds = time.process_time() - start
                peak = peak_memory(read_all)
                assert seconds < HANG_SECONDS and peak < MEMORY, f"{seconds} s, {peak} bytes"

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


# ---- whole models ----------------------------------------------------------------------------

BERT = tiny_config(
    "google_bert",
    hidden_size=8,
    intermediate_size=8,
    max_position_embeddings=8,
    num_attention_heads=2,
    num_hidden_layers=1,
    vocab_size=16,
)


@pytest.fixture(scope="session")
def tiny_bert():
    """A model with numbers of its own in every place."""
    model = build_transformer_model(BERT)
    rng = np.random.default_rng(5)
    for weight in model.weights:
        weight.assign(rng.normal(size=tuple(weight.shape)))
    return model


def values(model):
    """The numbers of a model in one list of arrays."""
    return [to_numpy(weight) for weight in model.weights]


def put(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture
def builds(tmp_path, monkeypatch, tiny_bert):
    """A function that writes files into a folder and builds a model from it.

    Beyond what `judged` says: where no model comes out, loading the same files into one that
    exists is refused too, unless the configuration was at fault, and leaves every number.
    """
    monkeypatch.chdir(tmp_path)
    expected = values(tiny_bert)

    def build(files, load_too=True, **options):
        folder = put(tmp_path / "model", files)
        with nothing_run_or_written(tmp_path):
            start, peak = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            try:
                return build_transformer_model(folder, verbose=0, **options)
            except KerasbertError as error:
                assert str(error).count("\n") >= 1, "says what is wrong, and what was expected"
                if load_too:
                    with pytest.raises(KerasbertError):
                        load_weights_from_checkpoint(tiny_bert, folder, verbose=0)
                raise
            finally:
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
                assert time.process_time() - start < HANG_SECONDS and peak << 10 < MEMORY
                assert all(map(np.array_equal, values(tiny_bert), expected))

    return build

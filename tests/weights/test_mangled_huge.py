"""Files that ask for all memory or time, that could end the process, or that may not be read.

One program imports the library once and forks for every case; a child has a limit of memory and
of time, gives up the rights of root where permissions shall bind, and reports how
`build_transformer_model` ended. Nothing of TensorFlow runs before the forks, so that its threads
are those of the child.
"""

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import kerasbert
from kerasbert import save_pretrained, save_weights_as_checkpoint
from kerasbert.weights.checkpoints import open_checkpoint
from weights.mangling import BERT, put
from weights.mangling import tiny_bert as tiny_bert

pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork") or not os.path.exists("/proc/self/statm"),
    reason="forks, and reads its memory in /proc: not on this system",
)

PROGRAM = """
import encodings.utf_8_sig, json, os, resource, signal, sys
import keras, kerasbert, tensorflow
from kerasbert.errors import CheckpointError, ConfigError
# What is imported late, as long as the environment may be read.
from tensorflow.core.protobuf import tensor_bundle_pb2
import safetensors, zipfile

def attempt(config, checkpoint, bound):
    pages = int(open("/proc/self/statm").read().split()[0])
    limit = pages * resource.getpagesize() + (1 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(8)
    if bound and os.geteuid() == 0:
        os.seteuid(65534)  # permissions do not bind root
    try:
        kerasbert.build_transformer_model(config, checkpoint, verbose=0)
    except (CheckpointError, ConfigError) as error:
        return f"refused: {error}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return "built"

verdicts = {}
for name, arguments in json.load(open(sys.argv[1])).items():
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.write(theirs, attempt(*arguments).encode()[:4000])
        os._exit(0)
    os.close(theirs)
    said = os.read(ours, 4000).decode()
    os.close(ours)
    status = os.waitpid(child, 0)[1]
    verdicts[name] = said or f"killed by signal {os.WTERMSIG(status)}"
print("VERDICTS" + json.dumps(verdicts))
"""


# ---- configurations --------------------------------------------------------------------------

# What the tiny model of the file is said to be.
CONFIGS = [
    *((key, 10**9) for key in BERT if key.endswith(("_size", "_embeddings", "_layers", "_heads"))),
    ("hidden_size", 10**30),
    ("vocab_size", 2**70),
    ("vocab_size", 10**12),
    ("vocab_size", 2**31),
    ("num_hidden_layers", 10**6),
    ("num_hidden_layers", 10**400),
    ("inner_group_num", 10**9),
    ("inner_group_num", 10**400),
    ("num_hidden_groups", 10**400),
    ("embedding_size", 10**9),
    ("sharing_groups", 10**400),
]

# ---- indexes of TensorFlow, with right checksums ---------------------------------------------


@functools.cache  # the same arrays stand in every file
def crc32c(data):
    """The checksum of such files, in the form in which they store it."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    value ^= 0xFFFFFFFF
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(value):
    data = b""
    while value >= 128:
        data += bytes([value & 127 | 128])
        value >>= 7
    return data + bytes([value])


def block(entries):
    data, starts = b"", []
    for key, value in entries:
        starts.append(len(data))
        data += b"\0" + varint(len(key)) + varint(len(value)) + key + value
    starts = starts or [0]
    data += b"".join(n.to_bytes(4, "little") for n in [*starts, len(starts)])
    return data + b"\0" + crc32c(data + b"\0").to_bytes(4, "little")


def table(entries):
    """A sorted table of LevelDB with one block.

    Source: `tensorflow/core/lib/io/table_format.txt`.
    """
    content, empty = block(entries), block([])
    places, start = [], 0
    for size in (len(content), len(empty)):
        places.append(varint(start) + varint(size - 5))
        start += size
    last = block([(b"\xff", places[0])])
    footer = places[1] + varint(start) + varint(len(last) - 5)
    return content + empty + last + footer.ljust(40, b"\0") + bytes.fromhex("57fb808b247547db")


def entry(number, kind, value):
    """One field of a protocol buffer: 0 for numbers, 2 for bytes."""
    body = varint(value % 2**64) if kind == 0 else varint(len(value)) + value
    return varint(number << 3 | kind) + body


HEADER = entry(1, 0, 1) + entry(3, 2, entry(1, 0, 1))
KERNEL = "bert/encoder/layer_0/output/dense/kernel"
FIELDS = {"dtype": 1, "shard": 3, "offset": 4, "size": 5}


def shape_of(*lengths):
    return b"".join(entry(2, 2, entry(1, 0, length)) for length in lengths)


def entries_of(arrays, spoil=None):
    """The index of arrays that stand one after the other; `spoil` changes that of the kernel."""
    offset, entries = 0, []
    for name in sorted(arrays):
        array = arrays[name]
        fields = {"dtype": 1, "shard": 0, "offset": offset, "size": array.nbytes}
        fields["shape"], fields["more"] = shape_of(*array.shape), b""
        fields["checksum"] = crc32c(array.tobytes())
        if name == KERNEL and spoil:
            fields.update(spoil)
        numbers = b"".join(entry(n, 0, fields[key]) for key, n in FIELDS.items())
        checksum = b"\x35" + fields["checksum"].to_bytes(4, "little")
        data = numbers + entry(2, 2, fields["shape"]) + checksum + fields["more"]
        entries.append((name.encode(), fields.get("all", data)))
        offset += array.nbytes
    return entries


# What is wrong with the entry of one kernel.
ENTRIES = {
    "no entry": {"all": b""},
    "bytes that are no entry": {"all": b"\xff" * 20},
    "a field that ends early": {"all": b"\x12\x7f\x01"},
    "a negative length": {"shape": shape_of(-8, 8)},
    "negative lengths": {"shape": shape_of(-8, -8)},
    "an enormous length": {"shape": shape_of(2**40)},
    "a length beyond all": {"shape": shape_of(2**63 - 1)},
    "lengths that overflow": {"shape": shape_of(2**62, 2**62)},
    "lengths that overflow to 64": {"shape": shape_of(2**32 + 8, 2**32, 8)},
    "an enormous length of nothing": {"shape": shape_of(0, 2**62, 2**62)},
    "an unknown shape": {"shape": entry(3, 0, 1)},
    "300 axes": {"shape": shape_of(*[1] * 300)},
    "no type": {"dtype": 0},
    "an unknown type": {"dtype": 99},
    "a negative type": {"dtype": -1},
    "a reference": {"dtype": 101},
    "a resource": {"dtype": 20},
    "a variant": {"dtype": 21},
    "a text": {"dtype": 7},
    "a wider type": {"dtype": 2},
    "a place outside": {"offset": 10**6},
    "a place beyond all": {"offset": 2**63 - 1},
    "a negative place": {"offset": -8},
    "a short size": {"size": 8},
    "an enormous size": {"size": 2**62},
    "a negative size": {"size": -256},
    "another shard": {"shard": 1},
    "a shard beyond all": {"shard": 2**31 - 1},
    "a negative shard": {"shard": -1},
    "a slice": {"more": entry(7, 2, entry(1, 2, entry(1, 0, 0) + entry(2, 0, 4)))},
    "a slice of nothing": {"more": entry(7, 2, b"")},
    "a negative slice": {"more": entry(7, 2, entry(1, 2, entry(1, 0, -4) + entry(2, 0, -4)))},
    "another checksum": {"checksum": 1},
}


def tables(entries):
    """What is wrong with the table as a whole, and its bytes."""
    sound = table([(b"", HEADER), *entries])
    yield "no header", table(entries)
    yield "an empty header", table([(b"", b""), *entries])
    yield "a header that is none", table([(b"", b"\xff" * 9), *entries])
    yield "no shards", table([(b"", entry(1, 0, 0)), *entries])
    yield "a negative number of shards", table([(b"", entry(1, 0, -1)), *entries])
    yield "a billion shards", table([(b"", entry(1, 0, 10**9)), *entries])
    yield "a later version", table([(b"", entry(1, 0, 1) + entry(3, 2, entry(2, 0, 9**9)))])
    yield "no entries", table([(b"", HEADER)])
    yield "a name that is no text", table([(b"", HEADER), *entries, (b"\xff\xfe", entries[0][1])])
    yield "another footer", sound[:-48] + b"\xff" * 40 + sound[-8:]
    yield "nothing but a footer", sound[-48:]


# ---- the run ---------------------------------------------------------------------------------


def name_of(key, value):
    return f"{key} {value:.0e}" if value < 10**300 else f"{key} 1e+400"


def config_cases(folder, tiny_bert):
    save_pretrained(tiny_bert, folder, verbose=0)
    config = json.loads((folder / "config.json").read_text())
    weights = (folder / "model.safetensors").read_bytes()
    for n, (key, value) in enumerate([("hidden_size", 8), *CONFIGS]):
        text = json.dumps({**config, key: value}).encode()
        files = {"config.json": text, "model.safetensors": weights}
        yield name_of(key, value), put(folder / str(n), files)


def index_cases(folder, tiny_bert):
    paths = save_weights_as_checkpoint(tiny_bert, folder / "model.ckpt", verbose=0)
    config = Path(paths["config"]).read_bytes()
    checkpoint = open_checkpoint(folder)
    arrays = {name: checkpoint.read(name) for name in checkpoint.shapes}
    data = b"".join(arrays[name].tobytes() for name in sorted(arrays))
    spoilt = {name: table([(b"", HEADER), *entries_of(arrays, ENTRIES[name])]) for name in ENTRIES}
    sound = entries_of(arrays)
    indexes = {
        "sound": table([(b"", HEADER), *sound]),
        "big-endian": table([(b"", HEADER + entry(2, 0, 1)), *sound]),
        **spoilt,
        **dict(tables(sound)),
    }
    for n, (name, index) in enumerate(indexes.items()):
        files = {"config.json": config, "m.index": index, "m.data-00000-of-00001": data}
        yield f"index: {name}", put(folder / str(n), files)


# What may not be read, and with which permissions.
LOCKS = {
    "a folder": (".", 0),
    "a folder that can only be entered": (".", 0o111),
    "a folder that can only be listed": (".", 0o444),
    "a config": ("config.json", 0),
    "weights": ("model.safetensors", 0),
    "an index": ("m.index", 0),
    "data": ("m.data-00000-of-00001", 0),
}
GIVEN = ["the folder", "the config and the folder", "the config and the weights"]


def locked_cases(folder, tiny_bert):
    """Arguments by name; "weights" are a file of safetensors or the prefix of a checkpoint."""
    folder.chmod(0o755)
    for lock, (name, mode) in {"no lock": (".", 0o755), **LOCKS}.items():
        place = folder / lock
        if name.startswith("m."):
            save_weights_as_checkpoint(tiny_bert, place / "m", verbose=0)
        else:
            save_pretrained(tiny_bert, place, verbose=0)
        for path in place.iterdir():
            path.chmod(0o644)
        place.chmod(0o755)
        (place / name).chmod(mode)
        config = str(place / ("m_config.json" if name.startswith("m.") else "config.json"))
        weights = str(place / ("m" if name.startswith("m.") else "model.safetensors"))
        given = [(str(place), None), (config, str(place)), (config, weights)]
        for form, arguments in zip(GIVEN, given, strict=True):
            yield f"{lock}, {form}", [*arguments, True]


@pytest.fixture(scope="module")
def verdicts(tiny_bert, tmp_path_factory):
    """How each case ended, by its name."""
    folder = tmp_path_factory.mktemp("huge")
    cases = {
        **dict(config_cases(folder / "configs", tiny_bert)),
        **dict(index_cases(folder / "indexes", tiny_bert)),
    }
    listed = {name: [str(path), None, False] for name, path in cases.items()}
    # The folders of pytest are for its own user alone.
    with tempfile.TemporaryDirectory() as public:
        listed |= dict(locked_cases(Path(public), tiny_bert))
        (folder / "cases.json").write_text(json.dumps(listed))
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(folder / "cases.json")],
            capture_output=True,
            text=True,
            cwd=Path(kerasbert.__file__).parents[1],
            check=False,
        )
        for path in Path(public).iterdir():
            path.chmod(0o700)
    assert "VERDICTS" in done.stdout, done.stderr[-2000:]
    return json.loads(done.stdout.rpartition("VERDICTS")[2])


def refused_by(verdict):
    assert verdict.startswith("refused: "), verdict


@pytest.mark.parametrize(
    "name",
    ["hidden_size 8e+00", "index: sound", "index: big-endian", *(f"no lock, {n}" for n in GIVEN)],
)
def test_sound_ones_are_built(name, verdicts):
    assert verdicts[name] == "built"


@pytest.mark.parametrize("name", [name_of(*pair) for pair in CONFIGS])
def test_enormous_configuration(name, verdicts):
    refused_by(verdicts[name])
    assert name.split()[0] in verdicts[name]


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("lock", LOCKS)
def test_what_may_not_be_read(lock, given, verdicts):
    verdict = verdicts[f"{lock}, {given}"]
    if lock == "a folder that can only be entered" and given != "the folder":
        assert verdict == "built", "whoever knows the names may read the files"
    else:
        refused_by(verdict)


@pytest.mark.parametrize("name", [*ENTRIES, *dict(tables([(b"x", b"")]))])
def test_index_with_right_checksums(name, verdicts):
    refused_by(verdicts[f"index: {name}"])

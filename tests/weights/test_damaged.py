"""Files that are absent, incomplete, damaged or of another kind; and loads that fail midway."""

import os
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

from fixtures import make_arrays, object_checkpoint, tiny_config, write_checkpoint, write_config
from harness import refused, to_numpy
from kerasbert import build_transformer_model, load_weights_from_checkpoint, model_report
from kerasbert.errors import CheckpointError, KerasbertError, WeightMismatchError
from kerasbert.weights.checkpoints import ArrayCheckpoint, TensorFlowCheckpoint

CONFIG = tiny_config("google_bert", num_hidden_layers=1)
ARRAYS = make_arrays("google_bert", CONFIG, 1)
DATA = "data-00000-of-00001"


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    prefix = tmp_path_factory.mktemp("sound") / "bert_model.ckpt"
    write_checkpoint(prefix, ARRAYS)
    return prefix


@pytest.fixture
def copy(sound, tmp_path):
    """Prefix of a copy that a test may spoil."""
    for suffix in ("index", DATA):
        shutil.copy(f"{sound}.{suffix}", tmp_path)
    return tmp_path / sound.name


@pytest.fixture(scope="module")
def model():
    return build_transformer_model(CONFIG, with_nsp=True, with_mlm=True)


def build(checkpoint, **options):
    return build_transformer_model(CONFIG, checkpoint, verbose=0, **options)


def values(model):
    return [to_numpy(weight) for weight in model.weights]


def part(prefix, suffix):
    return Path(f"{prefix}.{suffix}")


def offset_of(name):
    """Where a variable begins in the data file: they stand in the order of their names."""
    return sum(ARRAYS[other].nbytes for other in sorted(ARRAYS) if other < name)


def flip(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


# ---- nothing there, or only a part -----------------------------------------------------------


def test_no_such_checkpoint(copy, tmp_path):
    with refused(CheckpointError, tmp_path / "albert_model.ckpt", copy):
        build(tmp_path / "albert_model.ckpt")
    with refused(CheckpointError, tmp_path / "nowhere", "no folder"):
        build(tmp_path / "nowhere" / "model.ckpt")


def test_no_checkpoint_in_that_folder(tmp_path):
    with refused(CheckpointError, tmp_path / "model.ckpt", "no checkpoint"):
        build(tmp_path / "model.ckpt")


@pytest.mark.parametrize("value", [5, b"model.ckpt", ["model.ckpt"], True, ("a", "b")])
def test_what_is_no_path(value):
    with refused(CheckpointError, repr(value), type(value).__name__, "path", "dict"):
        build(value)


@pytest.mark.parametrize("value", ["", "a\0b"])
def test_what_is_no_path_either(value, copy, monkeypatch):
    # An unset variable in a script must not mean "whatever lies in the current folder".
    monkeypatch.chdir(copy.parent)
    with refused(CheckpointError, "checkpoint"):
        build(value)


@pytest.mark.parametrize(("kept", "gone"), [("index", DATA), (DATA, "index")])
@pytest.mark.parametrize("given", ["", ".index", f".{DATA}", "folder"])
def test_half_a_checkpoint(copy, kept, gone, given):
    part(copy, gone).unlink()
    with refused(
        CheckpointError, copy if given != "folder" else copy.parent, f"{copy.name}.{gone}"
    ):
        build(copy.parent if given == "folder" else f"{copy}{given}")


def test_another_number_of_shards(copy):
    part(copy, DATA).rename(part(copy, "data-00000-of-00002"))
    with refused(CheckpointError, copy):
        build(copy)


def test_folders(copy, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    with refused(CheckpointError, empty, "no checkpoint", ".index", "safetensors"):
        build(empty)
    (empty / "pytorch_model.bin").write_bytes(b"PK")
    with refused(CheckpointError, empty, "pytorch_model.bin", "torch.save"):
        build(empty)
    for name in ("model.ckpt-10", "model.ckpt-20"):
        for suffix in ("index", DATA):
            shutil.copy(part(copy, suffix), tmp_path / f"{name}.{suffix}")
    names = ("model.ckpt-10", "model.ckpt-20", copy.name)
    with refused(CheckpointError, tmp_path, 3, *(tmp_path / name for name in names)):
        build(tmp_path)


@pytest.mark.parametrize(
    "state",
    [
        'model_checkpoint_path: "/cns/yv-d/home/model.ckpt-best"\n',
        'model_checkpoint_path: "C:\\\\old\\\\model.ckpt"\nall_model_checkpoint_paths: "x"\n',
        "",
        "\0\xff garbage",
    ],
)
def test_a_state_file_from_another_machine(copy, state):
    (copy.parent / "checkpoint").write_text(state)
    build(copy.parent)


def test_a_state_file_that_helps(copy):
    write_checkpoint(copy.parent / "other.ckpt", {"x": np.zeros(2, "float32")})
    for recorded in ("bert_model.ckpt", f"/cns/x/{copy.name}", str(copy)):
        (copy.parent / "checkpoint").write_text(f'model_checkpoint_path: "{recorded}"\n')
        build(copy.parent)
    (copy.parent / "checkpoint").write_text('model_checkpoint_path: "/cns/x/best"\n')
    with refused(CheckpointError, 2, copy, copy.parent / "other.ckpt"):
        build(copy.parent)


# ---- damaged ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [0, 1, 1000, -1])
def test_truncated_data(copy, kept):
    size = part(copy, DATA).stat().st_size
    os.truncate(part(copy, DATA), kept % size)
    with refused(CheckpointError, copy, "truncated", kept % size, size):
        build(copy)


@pytest.mark.parametrize("kept", [0, 1, 47, 48, 500, -1])
def test_truncated_index(copy, kept):
    os.truncate(part(copy, "index"), kept % part(copy, "index").stat().st_size)
    with refused(CheckpointError, copy, "index", cause=Exception):
        build(copy)


@pytest.mark.parametrize("text", [b"\n", b"model_checkpoint_path: 'x'\n", b"{}" * 500, b"\0" * 900])
@pytest.mark.parametrize("both", [True, False])
def test_text_in_place_of_a_checkpoint(copy, text, both):
    part(copy, "index").write_bytes(text)
    if both:
        part(copy, DATA).write_bytes(text)
    with refused(CheckpointError, copy, cause=Exception):
        build(copy)


def test_no_flipped_byte_of_the_index_goes_unnoticed(copy, model):
    index = part(copy, "index")
    whole = index.read_bytes()
    load_weights_from_checkpoint(model, copy, verbose=0)
    expected = values(model)
    for position in range(0, len(whole), len(whole) // 30):
        flip(index, position)
        try:
            load_weights_from_checkpoint(model, copy, verbose=0)
        except KerasbertError as error:
            assert str(copy) in str(error)
        for now, before in zip(values(model), expected, strict=True):
            np.testing.assert_array_equal(now, before)
        index.write_bytes(whole)


@pytest.mark.parametrize(
    "name",
    [
        "bert/embeddings/LayerNorm/beta",
        "bert/embeddings/word_embeddings",
        "bert/encoder/layer_0/output/dense/kernel",
        "cls/predictions/output_bias",
    ],
)
def test_a_flipped_byte_of_the_data(copy, model, name):
    load_weights_from_checkpoint(model, ARRAYS, verbose=0)
    before, report = values(model), model_report(model)
    others = {other: value + 1 for other, value in ARRAYS.items()}
    write_checkpoint(copy, others)
    flip(part(copy, DATA), offset_of(name) + 5)
    with refused(CheckpointError, copy, name, cause=Exception):
        load_weights_from_checkpoint(model, copy, verbose=0)
    for now, then in zip(values(model), before, strict=True):
        np.testing.assert_array_equal(now, then)
    assert model_report(model) is report
    with refused(CheckpointError, copy, name, cause=Exception):
        build(copy, with_nsp=True, with_mlm=True)


def test_damage_in_what_is_not_read_does_not_matter(copy):
    flip(part(copy, DATA), offset_of("cls/predictions/output_bias"))
    build(copy)


# ---- loads that fail midway ------------------------------------------------------------------


@pytest.mark.backends
@pytest.mark.parametrize("error", [CheckpointError("x\ny"), MemoryError(), KeyboardInterrupt()])
@pytest.mark.parametrize("reads", [0, 1, 9, 20])
def test_a_load_that_fails_leaves_every_variable(model, monkeypatch, error, reads):
    load_weights_from_checkpoint(model, ARRAYS, verbose=0)
    before, count = values(model), iter(range(100))

    def read(self, name):
        if next(count) == reads:
            raise error
        return ARRAYS[name] + 1

    monkeypatch.setattr(ArrayCheckpoint, "read", read)
    with pytest.raises(type(error)):
        load_weights_from_checkpoint(model, ARRAYS, verbose=0)
    assert next(count) == reads + 1
    for now, then in zip(values(model), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_a_refused_load_leaves_every_variable(model):
    load_weights_from_checkpoint(model, ARRAYS, verbose=0)
    before = values(model)
    more = {name: value + 1 for name, value in ARRAYS.items()}
    for spoilt in (
        more | {"cls/predictions/output_bias": np.zeros(3, "float32")},
        {name: value for name, value in more.items() if "seq_relationship" not in name},
        more | {"bert/encoder/layer_1/output/dense/bias": np.zeros(32, "float32")},
    ):
        with pytest.raises(WeightMismatchError):
            load_weights_from_checkpoint(model, spoilt, verbose=0)
        for now, then in zip(values(model), before, strict=True):
            np.testing.assert_array_equal(now, then)


def test_a_failed_build_leaves_no_file(copy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_config(tmp_path / "config.json", CONFIG)
    flip(part(copy, DATA), offset_of("bert/encoder/layer_0/output/dense/kernel"))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    for options in ({}, {"model": "albert"}, {"hidden_size": 64}, {"with_mlmm": True}):
        with pytest.raises(KerasbertError):
            build_transformer_model(tmp_path, **options)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


# ---- files of another kind -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("model.keras", ("Keras model", "keras.models.load_model")),
        ("model.weights.h5", ("Keras weights", "load_weights(")),
        ("model.h5", ("Keras", "load_weights(")),
        ("chinese_L-12.zip", ("archive", "unpack")),
        ("albert_base_v2.tar.gz", ("archive", "unpack")),
        ("arrays.npz", ("numpy.load",)),
        ("bert_config.json", ("no checkpoint",)),
        ("vocab.txt", ("no checkpoint",)),
        ("bert_model.ckpt", ("no checkpoint",)),
    ],
)
def test_files_of_other_kinds(tmp_path, name, facts):
    (tmp_path / name).write_bytes(b"\x89HDF\r\n")
    with refused(CheckpointError, tmp_path / name, "prefix of a TensorFlow checkpoint", *facts):
        build(tmp_path / name)


def test_what_keras_itself_saves_is_recognised(tmp_path, model):
    for name, call in (("m.keras", "load_model"), ("m.weights.h5", "load_weights")):
        (model.save if call == "load_model" else model.save_weights)(tmp_path / name)
        with refused(CheckpointError, name, call):
            load_weights_from_checkpoint(model, tmp_path / name)
    assert keras.models.load_model(tmp_path / "m.keras").count_params() == model.count_params()


def test_an_object_based_checkpoint(tmp_path):
    prefix = object_checkpoint(tmp_path / "tf2" / "ckpt-1")
    for given in (prefix, f"{prefix}.index", tmp_path / "tf2"):
        with refused(CheckpointError, prefix, "object-based", "save_weights_as_checkpoint"):
            build(given)
    with pytest.raises(CheckpointError):
        TensorFlowCheckpoint(prefix)


@pytest.mark.parametrize(
    "value",
    [None, "text", b"bytes", object(), [[1.0], [1.0, 2.0]], {"a": 1}, 1j, ["a"], np.array(["x"])],
    ids=lambda value: type(value).__name__,
)
def test_a_dict_of_what_are_no_arrays(value):
    name = "bert/embeddings/word_embeddings"
    with refused(CheckpointError, name, type(value).__name__):
        build({**ARRAYS, name: value})


def test_a_dict_with_other_keys():
    with refused(CheckpointError, 7, "names"):
        build({**ARRAYS, 7: np.zeros(3)})

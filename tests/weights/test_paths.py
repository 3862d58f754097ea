"""Every spelling of the place of a checkpoint that users were seen to try."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from fixtures import make_arrays, tiny_config, write_checkpoint, write_config
from harness import to_numpy
from kerasbert import build_transformer_model, load_weights_from_checkpoint, model_report
from kerasbert.weights.checkpoints import find_checkpoint, open_checkpoint

CONFIG = tiny_config("google_albert")
ARRAYS = make_arrays("google_albert", CONFIG, 1)
DATA = "data-00000-of-00001"
MEANT = ARRAYS["bert/pooler/dense/kernel"]


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("sound") / "model.ckpt", ARRAYS)


def put(sound, prefix):
    """Copy the checkpoint to another prefix; return it as a path."""
    Path(prefix).parent.mkdir(parents=True, exist_ok=True)
    for suffix in ("index", DATA):
        shutil.copy(f"{sound}.{suffix}", f"{prefix}.{suffix}")
    return Path(prefix)


def is_read(given, prefix):
    """Whether what was given is found at the prefix, and its numbers come out."""
    assert find_checkpoint(given) == str(prefix)
    checkpoint = open_checkpoint(given)
    assert checkpoint.source == str(prefix)
    assert checkpoint.shapes == {name: array.shape for name, array in ARRAYS.items()}
    return np.array_equal(checkpoint.read("bert/pooler/dense/kernel"), MEANT)


@pytest.mark.parametrize("kind", [str, Path])
@pytest.mark.parametrize("suffix", ["", ".index", f".{DATA}", ".meta"])
@pytest.mark.parametrize("meta", [True, False])
def test_prefix_and_each_of_its_files(sound, tmp_path, kind, suffix, meta):
    prefix = put(sound, tmp_path / "model.ckpt")
    if meta:
        Path(f"{prefix}.meta").write_bytes(b"\0 graph")
    assert is_read(kind(f"{prefix}{suffix}"), prefix)


class FsPath:
    """Something like a path, as other libraries have."""

    def __init__(self, text):
        self.text = text

    def __fspath__(self):
        return self.text


def test_anything_with_fspath(sound):
    assert is_read(FsPath(sound), sound)


NAMES = [
    "model",
    "model.ckpt",
    "model.ckpt-125000",
    "model.ckpt-best",
    "模型 权重.ckpt",
    "with space",
    "dot.in.name",
    "model[1].ckpt",
    "a[x]b",
    "star*",
    "why?",
    "{a,b}",
    "back\\slash",
    "[",
    "é\u0301",
    "100%s",
    "-dash",
]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_files(sound, tmp_path, name):
    prefix = put(sound, tmp_path / name)
    for suffix in ("", ".index", f".{DATA}"):
        assert is_read(f"{prefix}{suffix}", prefix)
    assert is_read(tmp_path, prefix)


@pytest.mark.parametrize("name", [*NAMES, "model.index", "v1.0", "deep/er"])
def test_names_of_folders(sound, tmp_path, name):
    prefix = put(sound, tmp_path / name / "bert_model.ckpt")
    assert is_read(prefix, prefix)
    assert is_read(prefix.parent, prefix)
    assert is_read(f"{prefix.parent}{os.sep}", prefix)


@pytest.mark.parametrize("name", ["模型 x", "a[x]b"])
def test_the_whole_way_from_an_odd_folder(sound, tmp_path, name):
    prefix = put(sound, tmp_path / name / "model[1].ckpt")
    write_config(prefix.parent / "albert_config.json", CONFIG)
    model = build_transformer_model(prefix.parent, model="albert", with_pool=True, verbose=0)
    np.testing.assert_array_equal(to_numpy(model.get_layer("Pooler-Dense").kernel), MEANT)
    assert model_report(model).source == str(prefix)
    assert load_weights_from_checkpoint(model, prefix, verbose=0).missing == []


def test_relative_paths(sound, tmp_path, monkeypatch):
    put(sound, tmp_path / "here" / "model.ckpt")
    monkeypatch.chdir(tmp_path / "here")
    for given in ("model.ckpt", "./model.ckpt", "../here/model.ckpt.index", ".", Path()):
        checkpoint = open_checkpoint(given)
        assert np.array_equal(checkpoint.read("bert/pooler/dense/kernel"), MEANT)


def test_home(sound, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    prefix = put(sound, tmp_path / "models" / "model.ckpt")
    write_config(prefix.parent / "albert_config.json", CONFIG)
    for given in ("~/models/model.ckpt", Path("~/models/model.ckpt.index"), "~/models"):
        assert is_read(given, prefix)
    build_transformer_model("~/models/albert_config.json", "~/models/", model="albert", verbose=0)
    build_transformer_model(Path("~/models"), model="albert", verbose=0)


def test_links(sound, tmp_path):
    prefix = put(sound, tmp_path / "real" / "model.ckpt")
    (tmp_path / "link").symlink_to(prefix.parent, target_is_directory=True)
    assert is_read(tmp_path / "link", tmp_path / "link" / "model.ckpt")


@pytest.mark.parametrize("module_prefix", [True, False])
def test_an_unpacked_hub_module(tmp_path, module_prefix):
    arrays = make_arrays("google_albert", CONFIG, 1, module_prefix=module_prefix, heads=True)
    folder = tmp_path / "albert_zh_base"
    prefix = write_checkpoint(folder / "variables" / "variables", arrays)
    (folder / "saved_model.pb").write_bytes(b"\x08\x01")
    (folder / "assets").mkdir()
    plain = build_transformer_model(CONFIG, ARRAYS, model="albert", with_mlm=True, verbose=0)
    for given in (folder, folder / "variables", prefix):
        model = build_transformer_model(CONFIG, given, model="albert", with_mlm=True, verbose=0)
        for ours, theirs in zip(model.weights, plain.weights, strict=True):
            np.testing.assert_array_equal(to_numpy(ours), to_numpy(theirs))
        report = model_report(model)
        assert (report.missing, report.unused) == ([], [])
        assert report.read[0].startswith("module/") is module_prefix


def test_a_folder_that_is_named_like_the_checkpoint_beside_it(sound, tmp_path):
    # A training run may leave model.ckpt.index and an export folder model.ckpt/.
    prefix = put(sound, tmp_path / "model")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "notes.txt").write_text("export")
    assert is_read(f"{prefix}.index", prefix)


def test_several_shards(tmp_path):
    import tensorflow as tf

    names = sorted(ARRAYS)
    parts = []
    for number, half in enumerate((names[::2], names[1::2])):
        parts.append(str(tmp_path / f"part-{number}"))
        tf.raw_ops.SaveV2(
            prefix=parts[-1],
            tensor_names=half,
            shape_and_slices=[""] * len(half),
            tensors=[tf.constant(ARRAYS[name]) for name in half],
        )
    prefix = tmp_path / "whole" / "model.ckpt"
    prefix.parent.mkdir()
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=str(prefix))
    assert len(list(prefix.parent.glob("*.data-*"))) == 2
    for given in (prefix, f"{prefix}.data-00001-of-00002", prefix.parent):
        assert is_read(given, prefix)


def test_a_longer_name_beside_it_is_another_checkpoint(sound, tmp_path):
    put(sound, tmp_path / "model.ckpt-1")
    prefix = put(sound, tmp_path / "model.ckpt-10")
    os.truncate(tmp_path / f"model.ckpt-1.{DATA}", 5)
    assert is_read(prefix, prefix)


def test_nothing_is_written_and_nothing_is_held(sound, tmp_path):
    prefix = put(sound, tmp_path / "read only" / "model.ckpt")
    before = sorted(prefix.parent.iterdir())
    checkpoint = open_checkpoint(prefix)
    checkpoint.read("bert/pooler/dense/bias")
    assert sorted(prefix.parent.iterdir()) == before
    assert str(tmp_path) not in os.getcwd()

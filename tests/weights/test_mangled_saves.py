"""Saving that fails half way: the files that were there stay, and no new one."""

import contextlib
import errno
import os
import resource
from pathlib import Path

import pytest
import safetensors.numpy
import tensorflow as tf

from harness import refused
from kerasbert import build_transformer_model, save_pretrained, save_weights_as_checkpoint
from kerasbert.errors import CheckpointError
from weights.mangling import BERT, listing, values
from weights.mangling import tiny_bert as tiny_bert

# From a name to the function, what its path is within a folder, and the files that it makes.
WRITERS = {
    "pretrained": (save_pretrained, ".", ["config.json", "model.safetensors"]),
    "checkpoint": (
        save_weights_as_checkpoint,
        "model.ckpt",
        ["model.ckpt.data-00000-of-00001", "model.ckpt.index", "model_config.json"],
    ),
}
writers = pytest.mark.parametrize("writer", WRITERS)
FULL = OSError(errno.ENOSPC, "No space left on device")


def save(writer, model, folder):
    function, place, _ = WRITERS[writer]
    return function(model, folder / place, verbose=0)


@pytest.fixture(scope="module")
def other(tiny_bert):
    """The model to save where the tiny one was saved before."""
    model = build_transformer_model(BERT)
    for weight, value in zip(model.weights, values(tiny_bert), strict=True):
        weight.assign(value + 1)
    return model


STATES = ("new", "empty", "earlier")
states = pytest.mark.parametrize("state", STATES)


def prepared(tmp_path, state, writer, model):
    """Where to write: a folder that is absent, empty, or holds what was saved before."""
    folder = tmp_path / "out"
    if state != "new":
        folder.mkdir()
    if state == "earlier":
        save(writer, model, folder)
        (folder / "notes.txt").write_text("mine")
    return folder


def failing_at(function, count, error, late):
    """A function that raises at its call of that number; `late` after its work."""
    calls = []

    def call(*args, **kwargs):
        calls.append(args)
        if len(calls) == count and not late:
            raise error
        result = function(*args, **kwargs)
        if len(calls) == count:
            raise error
        return result

    return call


# What fails: the owner, the attribute, and how often each writer calls it.
CALLS = {
    "replace": (os, "replace", {"pretrained": 2, "checkpoint": 3}),
    "fsync": (os, "fsync", {"pretrained": 2, "checkpoint": 3}),
    "write_text": (Path, "write_text", {"pretrained": 1, "checkpoint": 1}),
    "save_file": (safetensors.numpy, "save_file", {"pretrained": 1, "checkpoint": 0}),
    "SaveV2": (tf.raw_ops, "SaveV2", {"pretrained": 0, "checkpoint": 1}),
}
MOMENTS = [
    (writer, call, count)
    for call, (_, _, times) in CALLS.items()
    for writer in WRITERS
    for count in range(1, times[writer] + 1)
]


@states
@pytest.mark.parametrize("error", [FULL, KeyboardInterrupt()], ids=["full", "interrupt"])
@pytest.mark.parametrize(("writer", "call", "count"), MOMENTS)
def test_error_half_way(writer, call, count, error, state, tmp_path, tiny_bert, other, monkeypatch):
    folder = prepared(tmp_path, state, writer, tiny_bert)
    before = listing(tmp_path)
    owner, name, _ = CALLS[call]
    late = call not in ("replace", "fsync")
    monkeypatch.setattr(owner, name, failing_at(getattr(owner, name), count, error, late))
    if error is FULL:
        with refused(CheckpointError, "No space left", "untouched", cause=OSError):
            save(writer, other, folder)
    else:
        with pytest.raises(KeyboardInterrupt):
            save(writer, other, folder)
    monkeypatch.undo()
    assert listing(tmp_path) == before
    save(writer, other, folder)  # and what failed once works now
    assert set(WRITERS[writer][2]) <= {path.name for path in folder.iterdir()}


@contextlib.contextmanager
def files_of_at_most(size):
    """What a full disk does: the system itself refuses to write more, in every language."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@states
@pytest.mark.parametrize("size", [0, 100, 1000, 2000])
@writers
def test_full_disk(writer, size, state, tmp_path, tiny_bert, other):
    folder = prepared(tmp_path, state, writer, tiny_bert)
    before = listing(tmp_path)
    with refused(CheckpointError, folder, "disk"), files_of_at_most(size):
        save(writer, other, folder)
    assert listing(tmp_path) == before


@pytest.mark.parametrize("state", ["empty", "earlier"])
@writers
def test_read_only_folder(writer, state, tmp_path, tiny_bert, other):
    if os.geteuid() == 0:
        pytest.skip("needs a user whom permissions bind: this one is root")
    folder = prepared(tmp_path, state, writer, tiny_bert)
    before = listing(tmp_path)
    folder.chmod(0o500)
    try:
        with refused(CheckpointError, folder, "Permission denied", "writable"):
            save(writer, other, folder)
        assert listing(tmp_path) == before
    finally:
        folder.chmod(0o700)


PLACES = ["a file", "under a file", "a long name", "a broken link", "a null"]


@pytest.mark.parametrize("place", PLACES)
@writers
def test_place_where_no_folder_can_be(writer, place, tmp_path, tiny_bert):
    (tmp_path / "a file").write_text("mine")
    (tmp_path / "a broken link").symlink_to(tmp_path / "no" / "where")
    before = listing(tmp_path)
    name = {"under a file": "a file/out", "a long name": "n" * 300, "a null": "a\0b"}
    with refused(CheckpointError):
        save(writer, tiny_bert, tmp_path / name.get(place, place))
    assert listing(tmp_path) == before


@pytest.mark.parametrize(
    ("writer", "name"), [(writer, name) for writer in WRITERS for name in WRITERS[writer][2]]
)
def test_folder_in_the_place_of_a_file(writer, name, tmp_path, tiny_bert):
    (tmp_path / name).mkdir()
    (tmp_path / name / "mine.txt").write_text("mine")
    before = listing(tmp_path)
    with refused(CheckpointError, tmp_path):
        save(writer, tiny_bert, tmp_path)
    assert listing(tmp_path) == before


@writers
def test_what_is_saved_may_be_read_by_others(writer, tmp_path, tiny_bert):
    """All files get the permissions that the user gives to new ones."""
    old = os.umask(0o022)
    try:
        save(writer, tiny_bert, tmp_path)
    finally:
        os.umask(old)
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(WRITERS[writer][2], "0o644")

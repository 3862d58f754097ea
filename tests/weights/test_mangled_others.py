"""Files that are something else than their name says, and what the system refuses."""

import os

import pytest
from safetensors.numpy import save as safetensors_bytes

from harness import refused
from kerasbert.errors import CheckpointError
from kerasbert.weights.checkpoints import TensorFlowCheckpoint, shards
from kerasbert.weights.checkpoints.huggingface import find_huggingface_file
from kerasbert.weights.checkpoints.safetensors import SafetensorsCheckpoint
from kerasbert.weights.checkpoints.torch_pickle import TorchCheckpoint
from weights.mangling import ARRAYS, OTHERS
from weights.mangling import judged as judged

# ---- files that are something else -----------------------------------------------------------

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

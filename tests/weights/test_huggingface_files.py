"""Files of safetensors and of torch.save: names, and values to the last bit."""

import json
import zipfile

import numpy as np
import pytest

from harness import refused
from kerasbert.errors import CheckpointError
from kerasbert.weights.checkpoints.huggingface import find_huggingface_file
from kerasbert.weights.checkpoints.safetensors import SafetensorsCheckpoint
from kerasbert.weights.checkpoints.torch_pickle import TorchCheckpoint

pytestmark = pytest.mark.parity

torch = pytest.importorskip("torch")
safetensors_torch = pytest.importorskip("safetensors.torch")

LAYOUTS = {"zip": True, "legacy": False}
layouts = pytest.mark.parametrize("layout", LAYOUTS)


def tensors():
    """One tensor of every type and of every way to look at a storage."""
    torch.manual_seed(0)
    base = torch.randn(6, 7, 8)
    special = torch.tensor([float("nan"), float("inf"), -0.0, 1e-40])
    return {
        "embeddings.weight": base,
        "transposed": base.transpose(0, 2),
        "part": base[1:3, 2],
        "every_second": base[:, ::2, 3],
        "last": base[5, 6, 7],
        "parameter": torch.nn.Parameter(torch.randn(3)),
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(0, 4),
        "empty_part": base[6:],
        "expanded": torch.arange(512).expand((1, -1)),
        "repeated": torch.tensor([1.5]).expand(300, 300),
        "special": special,
        "half": torch.randn(4, 3).half(),
        "bfloat16": torch.randn(5, 3).bfloat16(),
        "bfloat16_special": special.bfloat16(),
        "bfloat16_transposed": torch.randn(5, 3).bfloat16().T,
        "double": torch.randn(2).double(),
        "complex": torch.randn(3).to(torch.complex64),
        "int64": torch.tensor([-(2**62), 5]),
        "int32": torch.tensor([-5, 5], dtype=torch.int32),
        "int16": torch.tensor([-5, 5], dtype=torch.int16),
        "int8": torch.tensor([-5, 5], dtype=torch.int8),
        "uint8": torch.tensor([5, 250], dtype=torch.uint8),
        "uint16": torch.tensor([5, 65000], dtype=torch.uint16),
        "bool": torch.tensor([[True, False], [False, True]]),
        "名字": torch.ones(1),
    }


def bits(tensor):
    """What the reader should give for it."""
    tensor = tensor.detach()
    tensor = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    return tensor.contiguous().numpy()


def assert_same(checkpoint, expected):
    assert checkpoint.shapes == {name: tuple(value.shape) for name, value in expected.items()}
    for name, value in expected.items():
        array, value = checkpoint.read(name), bits(value)
        assert (array.dtype, array.shape) == (value.dtype, value.shape), name
        assert array.tobytes() == value.tobytes(), name
        assert array.flags.writeable and array.flags.c_contiguous


def save(content, path, layout="zip", **options):
    torch.save(content, path, _use_new_zipfile_serialization=LAYOUTS[layout], **options)
    return path


# ---- torch.save ------------------------------------------------------------------------------


@layouts
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_kind_of_tensor(layout, protocol, tmp_path):
    path = save(tensors(), tmp_path / "pytorch_model.bin", layout, pickle_protocol=protocol)
    assert_same(TorchCheckpoint(path), tensors())


@layouts
def test_state_dict_of_a_module(layout, tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4))
    module.register_buffer("position_ids", torch.arange(9).expand(1, -1))
    path = save(module.state_dict(), tmp_path / "model.pt", layout)
    assert_same(TorchCheckpoint(path), module.state_dict())


@layouts
def test_tied_weights_are_read_under_both_names(layout, tmp_path):
    table = torch.randn(9, 4)
    tied = {"word_embeddings.weight": table, "decoder.weight": table, "row": table[3]}
    assert_same(TorchCheckpoint(save(tied, tmp_path / "tied.bin", layout)), tied)


@layouts
@pytest.mark.parametrize("wrapper", ["state_dict", "model_state_dict", "model"])
def test_training_checkpoint(layout, wrapper, tmp_path):
    parameter = torch.nn.Parameter(torch.randn(4))
    optimizer = torch.optim.AdamW([parameter])
    parameter.sum().backward()
    optimizer.step()
    content = {
        "epoch": 3,
        "best": None,
        "size": torch.Size([2, 3]),
        "device": torch.device("cpu"),
        "dtype": torch.float32,
        "random": torch.get_rng_state(),
        "optimizer": optimizer.state_dict(),
        wrapper: {**tensors(), "version": 7, "names": ["a", ("b",)]},
    }
    assert_same(TorchCheckpoint(save(content, tmp_path / "last.pth", layout)), tensors())


def test_real_legacy_file(shared_dir):
    path = shared_dir / "weights/rxnmapper-albert/pytorch_model.bin"
    expected = torch.load(path, map_location="cpu", weights_only=True)
    assert len(expected) == 32
    assert_same(TorchCheckpoint(path), expected)
    assert_same(find_huggingface_file(path.parent), expected)


def test_archive_packed_anew(tmp_path):
    """`zip -r` compresses, and adds entries for folders."""
    source = zipfile.ZipFile(save(tensors(), tmp_path / "model.bin"))
    with zipfile.ZipFile(tmp_path / "packed.bin", "w", zipfile.ZIP_DEFLATED) as target:
        target.mkdir("model")
        for name in source.namelist():
            target.writestr(name, source.read(name))
    assert_same(TorchCheckpoint(tmp_path / "packed.bin"), tensors())


def test_checksums_are_compared(tmp_path):
    path = save({"weight": torch.arange(1000.0)}, tmp_path / "model.bin")
    data = bytearray(path.read_bytes())
    data[data.index(np.arange(1000, dtype="<f4").tobytes()) + 501] ^= 1
    path.write_bytes(data)
    checkpoint = TorchCheckpoint(path)
    with refused(CheckpointError, path, "checksum", "Download"):
        checkpoint.read("weight")


def test_file_without_checksums(tmp_path):
    torch.serialization.set_crc32_options(False)
    try:
        path = save(tensors(), tmp_path / "model.bin")
    finally:
        torch.serialization.set_crc32_options(True)
    assert_same(TorchCheckpoint(path), tensors())


def test_big_endian_is_refused(tmp_path):
    source = zipfile.ZipFile(save({"a": torch.ones(2)}, tmp_path / "model.bin"))
    with zipfile.ZipFile(tmp_path / "big.bin", "w") as target:
        for name in source.namelist():
            big = name.endswith("byteorder")
            target.writestr(name, b"big" if big else source.read(name))
    with refused(CheckpointError, "big.bin", "big-endian"):
        TorchCheckpoint(tmp_path / "big.bin")


def test_big_endian_legacy_is_refused(tmp_path):
    path = save({"a": torch.ones(2)}, tmp_path / "model.bin", "legacy")
    data = path.read_bytes()
    place = data.index(b"\x88", data.index(b"little_endian"))
    path.write_bytes(data[:place] + b"\x89" + data[place + 1 :])
    with refused(CheckpointError, path, "big-endian"):
        TorchCheckpoint(path)


@layouts
def test_types_that_numpy_lacks(layout, tmp_path):
    content = {"a": torch.ones(2), "fp8.weight": torch.ones(3).to(torch.float8_e4m3fn)}
    path = save(content, tmp_path / "model.bin", layout)
    with refused(CheckpointError, path, "fp8.weight (float8_e4m3fn)", "float16"):
        TorchCheckpoint(path)


@layouts
@pytest.mark.parametrize(
    ("content", "name"),
    [
        (lambda: torch.nn.Linear(2, 2), "torch.nn.modules.linear.Linear"),
        (lambda: {"a": torch.ones(2).to_sparse()}, "torch._utils._rebuild_sparse_tensor"),
        (lambda: {"a": np.float32(1)}, "numpy"),
    ],
)
def test_whole_modules_and_other_objects_are_refused(layout, content, name, tmp_path):
    path = save(content(), tmp_path / "model.bin", layout)
    with refused(CheckpointError, path, name, "nothing of the file was run"):
        TorchCheckpoint(path)


@pytest.mark.parametrize("content", [{}, [], torch.ones(2), {"a": 1}, {1: torch.ones(2)}])
def test_no_state_dict(content, tmp_path):
    path = save(content, tmp_path / "other.bin")
    with refused(CheckpointError, path, "no state dict"):
        TorchCheckpoint(path)


# ---- safetensors -----------------------------------------------------------------------------


def save_safetensors(content, path):
    copies = {name: value.detach().clone().contiguous() for name, value in content.items()}
    safetensors_torch.save_file(copies, path, {"format": "pt"})
    return path


def test_every_kind_of_tensor_in_safetensors(tmp_path):
    path = save_safetensors(tensors(), tmp_path / "model.safetensors")
    assert_same(SafetensorsCheckpoint(path), tensors())


def test_types_that_numpy_lacks_in_safetensors(tmp_path):
    content = {"a": torch.ones(2), "fp8.weight": torch.ones(3).to(torch.float8_e5m2)}
    path = save_safetensors(content, tmp_path / "model.safetensors")
    with refused(CheckpointError, path, "fp8.weight (F8_E5M2)", "float16"):
        SafetensorsCheckpoint(path)


def test_unknown_name(tmp_path):
    checkpoint = SafetensorsCheckpoint(save_safetensors(tensors(), tmp_path / "a.safetensors"))
    with refused(CheckpointError, "embedding.weight", "Did you mean 'embeddings.weight'?"):
        checkpoint.read("embedding.weight")


# ---- shards ----------------------------------------------------------------------------------


def save_shards(folder, suffix, tensors):
    """Writes the tensors in turn into three files, and the index."""
    write = save_safetensors if suffix == ".safetensors" else save
    stem = "model" if suffix == ".safetensors" else "pytorch_model"
    shards = {}
    for n, (name, value) in enumerate(tensors.items()):
        shards.setdefault(f"{stem}-{n % 3 + 1:05}-of-00003{suffix}", {})[name] = value
    for file, content in shards.items():
        write(content, folder / file)
    places = {name: file for file, content in shards.items() for name in content}
    index = folder / f"{stem}{suffix}.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))
    return index


SHARDED = {".safetensors": SafetensorsCheckpoint, ".bin": TorchCheckpoint}


@pytest.mark.parametrize("suffix", SHARDED)
def test_shards(suffix, tmp_path):
    index = save_shards(tmp_path, suffix, tensors())
    assert_same(SHARDED[suffix](index), tensors())
    for path in (index, tmp_path):
        found = find_huggingface_file(path)
        assert type(found) is SHARDED[suffix] and found.source == str(index)


@pytest.mark.parametrize("suffix", SHARDED)
def test_absent_shard(suffix, tmp_path):
    index = save_shards(tmp_path, suffix, tensors())
    shard = next(tmp_path.glob(f"*-00002-of-00003{suffix}"))
    shard.unlink()
    with refused(CheckpointError, index, shard.name, "not there"):
        SHARDED[suffix](index)


def test_tensor_that_its_shard_lacks(tmp_path):
    index = save_shards(tmp_path, ".safetensors", tensors())
    content = json.loads(index.read_text())
    content["weight_map"]["lost.weight"] = "model-00001-of-00003.safetensors"
    index.write_text(json.dumps(content))
    with refused(CheckpointError, index, "lost.weight"):
        SafetensorsCheckpoint(index)


# ---- what is found where ---------------------------------------------------------------------


def test_preference_in_a_folder(tmp_path):
    save_shards(tmp_path, ".bin", tensors())
    assert find_huggingface_file(tmp_path).source.endswith("pytorch_model.bin.index.json")
    save(tensors(), tmp_path / "pytorch_model.bin")
    assert find_huggingface_file(str(tmp_path)).source.endswith("pytorch_model.bin")
    save_shards(tmp_path, ".safetensors", tensors())
    assert find_huggingface_file(tmp_path).source.endswith("model.safetensors.index.json")
    save_safetensors(tensors(), tmp_path / "model.safetensors")
    assert find_huggingface_file(tmp_path).source.endswith("model.safetensors")


def test_files_are_known_by_their_content(tmp_path):
    for n, name in enumerate(("weights", "weights.ckpt", "model.safetensors.1")):
        assert_same(find_huggingface_file(save(tensors(), tmp_path / name)), tensors())
        legacy = save(tensors(), tmp_path / f"legacy{n}.data", "legacy")
        assert type(find_huggingface_file(legacy)) is TorchCheckpoint
        path = save_safetensors(tensors(), tmp_path / f"{n}.bin")
        assert type(find_huggingface_file(path)) is SafetensorsCheckpoint


def test_other_things_are_left_to_others(tmp_path):
    np.savez(tmp_path / "arrays.npz", a=np.ones(3))
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "albert_model.ckpt.index").write_bytes(bytes(100))
    for name in ("", "arrays.npz", "config.json", "albert_model.ckpt.index", "nothing", "a\0b"):
        assert find_huggingface_file(tmp_path / name) is None
    for other in (None, 3, {"a": 1}, b"path"):
        assert find_huggingface_file(other) is None


def test_home_and_paths_of_other_types(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    save_safetensors(tensors(), tmp_path / "model.safetensors")
    assert_same(find_huggingface_file("~"), tensors())
    assert_same(SafetensorsCheckpoint("~/model.safetensors"), tensors())
    for wrong in (None, 3, "a\0b"):
        with refused(CheckpointError, "path"):
            SafetensorsCheckpoint(wrong)

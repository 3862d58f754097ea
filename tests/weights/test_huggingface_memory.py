"""Files of safetensors and of torch.save are read lazily, in little memory."""

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

import kerasbert
from kerasbert.weights.checkpoints.huggingface import find_huggingface_file

pytestmark = pytest.mark.parity

torch = pytest.importorskip("torch")

from weights.test_huggingface_files import save, save_safetensors  # noqa: E402 - needs torch

READERS = {
    "model.safetensors": lambda content, path: save_safetensors(content, path),
    "zip.bin": lambda content, path: save(content, path),
    "legacy.bin": lambda content, path: save(content, path, "legacy"),
}


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A folder of 200 MB files: eight tensors of 25 MB each, none of them zero."""
    folder = tmp_path_factory.mktemp("large")
    content = {f"layer.{n}.weight": torch.randn(2500, 2500) for n in range(8)}
    for name, write in READERS.items():
        write(content, folder / name)
    return folder


def bytes_read():
    io = Path("/proc/self/io")
    if not io.exists():
        pytest.skip("counts the bytes read in /proc: this system has none")
    return int(io.read_text().split("rchar: ")[1].split()[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_opening_reads_the_description_only(name, large):
    before = bytes_read()
    checkpoint = find_huggingface_file(large / name)
    assert bytes_read() - before < 200_000
    assert len(checkpoint.shapes) == 8


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_one_array_at_a_time(name, large):
    checkpoint = find_huggingface_file(large / name)
    tracemalloc.start()
    try:
        for tensor in checkpoint.shapes:
            checkpoint.read(tensor)
        assert tracemalloc.get_traced_memory()[1] < 26 << 20
    finally:
        tracemalloc.stop()


MEASURE = """
import re, sys, types
for name in ("kerasbert", "kerasbert.weights", "kerasbert.weights.checkpoints"):
    package = types.ModuleType(name)
    package.__path__ = [sys.argv[1] + name.removeprefix("kerasbert").replace(".", "/")]
    sys.modules[name] = package
from kerasbert.weights.checkpoints.huggingface import find_huggingface_file
def status(field):
    return int(re.search(field + r":\\s+(\\d+)", open("/proc/self/status").read()).group(1))
before = status("VmRSS")
checkpoint = find_huggingface_file(sys.argv[2])
total = sum(float(checkpoint.read(name)[0, 0]) for name in checkpoint.shapes)
assert not {"torch", "tensorflow", "keras"} & sys.modules.keys()
print(status("VmHWM") - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_memory_of_the_process(name, large):
    """Mapped pages count too; and neither torch nor Keras is needed."""
    if not os.path.exists("/proc/self/status"):
        pytest.skip("reads the peak memory in /proc: this system has none")
    package = str(Path(kerasbert.__file__).parent)
    run = subprocess.run(
        [sys.executable, "-c", MEASURE, package, large / name], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < 64 << 10, f"{run.stdout.strip()} kB above the start"

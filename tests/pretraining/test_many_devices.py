"""Pre-training on several devices gives the losses of one, and writes and reads checkpoints."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

TESTS = Path(__file__).parents[1]


def run(how, folder, backend, devices=1):
    paths = os.pathsep.join(map(str, (TESTS.parent, TESTS, Path(__file__).parent)))
    flags = f"--xla_force_host_platform_device_count={devices}"
    environment = {"KERAS_BACKEND": backend, "PYTHONPATH": paths, "XLA_FLAGS": flags}
    script = Path(__file__).with_name("many_devices_run.py")
    done = subprocess.run(
        [sys.executable, str(script), how, str(folder)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "how"), [("tensorflow", "mirrored"), ("jax", "data")])
def test_two_devices_give_the_losses_of_one(backend, how, tmp_path):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"needs {backend}: not installed")
    one = run("one", tmp_path / "one", backend)
    two = run(how, tmp_path / "two", backend, devices=2)
    np.testing.assert_allclose(two["albert"], one["albert"], rtol=1e-4)
    assert two["electra"] == 4 and two["finite"]

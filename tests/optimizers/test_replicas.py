"""Two replicas under `MirroredStrategy` are one device with the whole batch."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

import kerasbert

RUN = Path(__file__).parent / "strategies_run.py"


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "tolerance"), [("float32", 1e-5), ("mixed_float16", 2e-2)])
def test_two_replicas_are_one_device(policy, tolerance):
    # Clipping, accumulation and every extension; devices are set before TensorFlow starts.
    if keras.backend.backend() != "tensorflow":
        pytest.skip("tf.distribute is TensorFlow's: another backend is active")
    environment = os.environ | {"PYTHONPATH": str(Path(kerasbert.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, str(RUN), policy],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-1500:]
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [name for name, _ in lines] == ["clipped", "lamb_accumulated", "everything"]
    assert all(float(worst) < tolerance for _, worst in lines), done.stdout

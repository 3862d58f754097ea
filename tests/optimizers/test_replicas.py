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
def test_two_replicas_are_one_device():
    # Clipping, accumulation and every extension; devices are set before TensorFlow starts.
    if keras.backend.backend() != "tensorflow":
        pytest.skip("tf.distribute is TensorFlow's: another backend is active")
    environment = os.environ | {"PYTHONPATH": str(Path(kerasbert.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, str(RUN)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-1500:]
    lines = [line.split() for line in done.stdout.splitlines()]
    found = {(policy, case): float(worst) for policy, case, worst in lines}
    exact = {("float32", case) for case in ("clipped", "lamb_accumulated", "everything")}
    scaled = {("mixed_float16", case) for case in ("clipped", "everything")}
    assert found.keys() == exact | scaled
    assert all(found[case] < 1e-5 for case in exact), done.stdout
    assert all(found[case] < 2e-2 for case in scaled), done.stdout

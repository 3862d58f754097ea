"""The comparison with other libraries runs, whichever of them are installed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("load_peers.py")


@pytest.mark.slow
def test_the_comparison_names_every_loader():
    command = [sys.executable, str(SCRIPT), "--layers", "1", "--runs", "1"]
    done = subprocess.run(command, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert re.search(r"^kerasbert .*\d\.\d", done.stdout, re.MULTILINE)
    assert "into a model that exists" in done.stdout
    for peer in ("transformers", "keras_hub"):
        assert re.search(rf"^{peer} .*(\d\.\d|not installed \()", done.stdout, re.MULTILINE)
    for verdict in ("time of kerasbert:", "peak memory of kerasbert:"):
        assert verdict in done.stdout

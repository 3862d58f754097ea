"""The environment in which bert4keras still runs: TensorFlow with the Keras of before Keras 3."""

import subprocess
import sys
from pathlib import Path

# bert4keras names a Keras of 2019 as what it needs: it comes without what it asks for.
PACKAGES = ("tensorflow==2.21.*", "tf_keras==2.21.*", "numpy", "six", "setuptools<80")
OLD_PACKAGES = ("--no-deps", "bert4keras==0.11.5")


def python_in(folder):
    """The interpreter of an environment."""
    # Not resolved: a link out of the environment would leave it.
    return str(Path(folder).absolute() / "bin" / "python")


def is_ready(folder):
    """Whether bert4keras is installed there."""
    if not folder or not Path(python_in(folder)).exists():
        return False
    question = [python_in(folder), "-m", "pip", "show", "--quiet", "bert4keras"]
    return subprocess.run(question, capture_output=True).returncode == 0


def make_environment(folder):
    """Makes the environment unless it is there; returns why that failed, or ""."""
    if is_ready(folder):
        return ""
    install = [python_in(folder), "-m", "pip", "install", "--quiet"]
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [*install, *PACKAGES],
        [*install, *OLD_PACKAGES],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return last_line(done.stderr)
    return ""


def last_line(text):
    """What went wrong, as far as one line says it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it ended without a message"

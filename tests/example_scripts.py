"""What the tests of the examples have in common."""

import importlib.util
import json
import re
import runpy
import sys
from pathlib import Path

import pytest

from test_examples import ROOT, run_script

EXAMPLES = ROOT / "examples"


def load(name):
    """Return a module of examples/, which imports others from there."""
    for package in ("matplotlib", "sklearn"):
        pytest.importorskip(package, reason="needs the extra `examples`")
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        spec.loader.exec_module(module)
    return module


def run_quick(name, output, *options):
    """Run an example with --quick in a process of its own; return its output and figures."""
    done = run_script(EXAMPLES / f"{name}.py", "--quick", "--output", output, *options)
    assert done.returncode == 0, done.stderr
    assert (Path(output) / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    return done.stdout, json.loads((Path(output) / f"{name}.json").read_text("utf-8"))


def check_mistake(name, options, message, monkeypatch, capsys):
    """A mistake of the user gives one line, in which the message is found, and status 2."""
    for package in ("matplotlib", "sklearn"):
        pytest.importorskip(package, reason="needs the extra `examples`")
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, options)])
    monkeypatch.syspath_prepend(EXAMPLES)
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{name}: error: ")
    assert re.search(message, line), line

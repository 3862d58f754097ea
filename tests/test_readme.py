"""Every python block of the README runs, and prints what the README says it prints."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

import fixtures
from kerasbert.cli import main

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")
# A block of code, and the block of text that shows its output, if that is the next thing.
BLOCKS = re.findall(r"^```python\n(.*?)^```\n(?:\n^```text\n(.*?)^```\n)?", README, re.M | re.S)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The files that the README speaks of, in the working directory."""
    config = fixtures.tiny_config("google_albert", hidden_act="relu")
    fixtures.write_config(tmp_path / "albert_config.json", config)
    arrays = fixtures.make_arrays("google_albert", config, seed=0)
    fixtures.write_checkpoint(tmp_path / "albert_model.ckpt", arrays)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"房间很干净电池用不久好,", "##好"]
    tokens += [f"[unused{n}]" for n in range(config["vocab_size"] - len(tokens))]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_blocks_run_in_order(files, step_by_step, do_not_compile):
    names = {"__name__": "__main__"}
    assert len(BLOCKS) > 10
    for number, (code, shown) in enumerate(BLOCKS, start=1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"README block {number}", "exec"), names)
        if shown:
            assert printed.getvalue() == shown, f"block {number}:\n{code}"


def test_commands_of_the_shell(files, capsys):
    commands = re.findall(r"^kerasbert ((?:inspect|convert) .+)$", README, re.M)
    assert len(commands) == 4
    for command in commands:
        assert main(shlex.split(command)) == 0, capsys.readouterr().err
    assert "Google ALBERT" in capsys.readouterr().out


def test_what_is_shown_in_chinese_is_what_is_shown_in_english():
    calls = set(re.findall(r"kerasbert\.(\w+)\(", README.split("## 中文")[1]))
    assert calls <= set(re.findall(r"(?:kerasbert\.)?(\w+)\(", README.split("## 中文")[0]))


def test_paths_and_links_exist():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    scripts = re.findall(r"^(?:.*&& )?python ((?:examples|tests)/\S+)", README, re.M)
    assert links and scripts
    for path in links + scripts:
        assert (ROOT / path).exists(), path


def test_commands_stand_first():
    commands = re.findall(r"^```bash\n(.*?)^```", README, re.M | re.S)
    assert commands[0] == 'pip install -e ".[examples]" && python examples/quickstart.py\n'
    assert commands[1] == 'pip install -e ".[test]" && python -m pytest\n'


def test_no_path_of_a_machine():
    assert not re.findall(r"(?:/home|/root|/tmp|/work|/usr)/|\.\./", README)

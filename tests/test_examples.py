"""The examples and the benchmark run, and say in one line what a user did wrong."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fixtures

ROOT = Path(__file__).resolve().parents[1]
QUICKSTART = ROOT / "examples" / "quickstart.py"


def run_script(path, *arguments):
    """Run a script in a process of its own; return what ``subprocess.run`` returns."""
    command = [sys.executable, str(path), *map(str, arguments)]
    # From a checkout, installed or not.
    environment = {**fixtures.os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(command, capture_output=True, encoding="utf-8", env=environment)


@pytest.fixture(scope="module")
def quickstart():
    pytest.importorskip("matplotlib", reason="needs the extra `examples`")
    pytest.importorskip("snownlp", reason="needs the extra `examples`")
    spec = importlib.util.spec_from_file_location("quickstart", QUICKSTART)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def files(tmp_path):
    """Arguments for a user's checkpoint, vocabulary and data."""
    config = fixtures.tiny_config("google_albert")
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"好坏书电池很不"]
    lines = [f"{'很' * (n % 3)}{'好坏'[n % 2]}书\t{'正负'[n % 2]}" for n in range(40)]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens), "utf-8")
    (tmp_path / "texts.tsv").write_text("\n".join(lines) + "\n\n", "utf-8")
    arrays = fixtures.make_arrays("google_albert", config, seed=0)
    return {
        "--config": fixtures.write_config(tmp_path / "albert_config.json", config),
        "--checkpoint": fixtures.write_checkpoint(tmp_path / "albert_model.ckpt", arrays),
        "--vocab": tmp_path / "vocab.txt",
        "--data": tmp_path / "texts.tsv",
        "--maxlen": 8,
        "--epochs": 1,
        "--output": tmp_path / "output",
    }


def command_line(options):
    return [str(part) for option in options.items() for part in option]


# ---- runs ------------------------------------------------------------------------------------


def check_output(text, folder):
    """What every successful run prints and leaves behind."""
    difference = re.search(r"difference between the outputs of both: (\S+)", text)
    assert float(difference[1]) < 1e-5
    rows = dict(re.findall(r"^(albert\w*) +([\d,]+) +\d+\.\d +\d+\.\d%$", text, re.M))
    assert list(rows) == ["albert", "albert_unshared"]
    shared, unshared = (int(count.replace(",", "")) for count in rows.values())
    assert shared < unshared
    assert re.search(r"^commonest label +\d+\.\d%$", text, re.M)
    assert (folder / "quickstart.png").read_bytes().startswith(b"\x89PNG")
    for name in ("albert.keras", "albert_unshared.keras"):
        assert (folder / name).stat().st_size > 1000
    return rows


@pytest.mark.slow
def test_quickstart_without_files(tmp_path):
    done = run_script(QUICKSTART, "--quick", "--output", tmp_path / "new" / "folder")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "new" / "folder"
    check_output(done.stdout, folder)
    assert "one name fills up to 2 blocks" in done.stdout
    assert (folder / "albert_model.ckpt.index").exists()
    assert (
        (folder / "vocab.txt").read_text("utf-8").startswith("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    )


@pytest.mark.slow
def test_quickstart_with_the_users_files(quickstart, files, monkeypatch, capsys):
    import keras

    monkeypatch.setattr(sys, "argv", ["quickstart.py", *command_line(files)])
    quickstart.main()
    check_output(capsys.readouterr().out, files["--output"])
    assert sorted(path.name for path in files["--output"].iterdir()) == [
        "albert.keras",
        "albert_unshared.keras",
        "quickstart.png",
    ]
    model = keras.models.load_model(files["--output"] / "albert_unshared.keras")
    assert model.output_shape == (None, 2)


@pytest.mark.slow
def test_benchmark_of_loading():
    done = run_script(ROOT / "tests" / "benchmarks" / "load.py", "--layers", 1, "--rounds", 1)
    assert done.returncode == 0, done.stderr
    assert re.search(r"loading has \d+\.\d\d x the speed of numpy", done.stdout)
    assert len(re.findall(r" above it   (?:met|MISSED)$", done.stdout, re.M)) == 2


def test_custom_architecture():
    done = run_script(ROOT / "examples" / "custom_architecture.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("['bert/encoder/layer_1/adapter/up/kernel']\n37,904 parameters\n")
    source = (ROOT / "examples" / "custom_architecture.py").read_text("utf-8")
    assert f"```python\n{source}```" in (ROOT / "README.md").read_text("utf-8")


# ---- mistakes --------------------------------------------------------------------------------


def test_a_mistake_gives_one_line_and_exit_status_2(tmp_path):
    done = run_script(QUICKSTART, "--data", tmp_path / "nowhere.tsv", "--output", tmp_path)
    assert done.returncode == 2
    assert done.stdout == "" and "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("quickstart.py: error: ") and "nowhere.tsv" in last


def missing(option):
    return lambda files: {**files, option: files[option].__class__(f"{files[option]}.nowhere")}


def without(*options):
    return lambda files: {key: value for key, value in files.items() if key not in options}


def data(content):
    def replace(files):
        files["--data"].write_bytes(content)
        return files

    return replace


def vocabulary_of_another_model(files):
    files["--vocab"].write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *map(str, range(99))])
    )
    return files


def bert_checkpoint(files):
    config = fixtures.tiny_config("google_bert")
    arrays = fixtures.make_arrays("google_bert", config, seed=0)
    return {**files, "--checkpoint": fixtures.write_checkpoint(files["--checkpoint"], arrays)}


MISTAKES = {
    "half a model": (without("--vocab"), "--config, --checkpoint and --vocab belong together"),
    "no data file": (missing("--data"), "No such file or directory: .*texts.tsv.nowhere"),
    "no checkpoint": (missing("--checkpoint"), "albert_model.ckpt.nowhere"),
    "no config": (missing("--config"), "albert_config.json.nowhere"),
    "no vocabulary": (missing("--vocab"), "vocab.txt.nowhere"),
    "no tab": (
        data("好书\t1\n坏书 0\n".encode()),
        r"line 2: expected text<TAB>label, got '坏书 0'",
    ),
    "no label": (data("好书\t1\n坏书\t\n".encode()), "line 2: expected text<TAB>label"),
    "no text": (data(b"\n\n"), "0 texts, 0 labels: expected at least 20 and 2"),
    "one label": (data("好书\t1\n".encode() * 30), "30 texts, 1 labels"),
    "not UTF-8": (data("好书\t1\n".encode("gbk")), "texts.tsv is not UTF-8"),
    "foreign vocabulary": (vocabulary_of_another_model, "--vocab has 103 tokens, .* only 100"),
    "too long": (lambda files: {**files, "--maxlen": 33}, "max_position_embeddings=32"),
    "too short": (lambda files: {**files, "--maxlen": 2}, "--maxlen of at least 3"),
    "no epoch": (lambda files: {**files, "--epochs": 0}, "expected positive numbers"),
    "no number": (lambda files: {**files, "--learning-rate": "nan"}, "expected positive numbers"),
    "negative seed": (lambda files: {**files, "--seed": -1}, "--seed -1: expected a number from 0"),
    "BERT": (
        bert_checkpoint,
        "is a checkpoint of Google BERT, but model= asks for the albert family",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name, quickstart, files, monkeypatch, capsys):
    change, message = MISTAKES[name]
    monkeypatch.setattr(sys, "argv", ["quickstart.py", *command_line(change(files))])
    with pytest.raises(SystemExit) as stop:
        quickstart.main()
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("quickstart.py: error: ")
    assert re.search(message, line)


# ---- the reviews -----------------------------------------------------------------------------


def test_reviews_are_unique_and_have_one_label(quickstart):
    pairs = quickstart.read_reviews()
    assert len(pairs) == len({text for text, _ in pairs}) == 17363
    train, validation = quickstart.split(pairs)
    assert len(validation) == 1736
    assert sorted(train + validation) == sorted(pairs)
    assert quickstart.split(pairs)[1] == validation
    assert [len(part) for part in quickstart.split(pairs, limit=400)] == [360, 40]


def test_every_special_token_has_the_id_of_its_line(quickstart, tmp_path):
    quickstart.write_vocabulary(tmp_path / "vocab.txt", ["好书好书 A4 a4", "\u2028\u2028"])
    lines = (tmp_path / "vocab.txt").read_text("utf-8").split("\n")
    assert lines[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert sorted(lines[5:]) == ["", "##4", "##a", "4", "a", "书", "好"]

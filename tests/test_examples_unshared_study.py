"""The study of un-sharing goes on where it stopped, and its table says what the runs say."""

import csv
import inspect
import json
import math
import subprocess
import sys
from types import SimpleNamespace

import pytest

from example_scripts import EXAMPLES, check_mistake, load
from test_examples import files, run_script  # noqa: F401

NAME = "unshared_study"
VARIANTS = ["albert", "albert_unshared", "attention", "feed_forward"]
TASKS = ["sentiment", "iflytek", "triples", "answers"]
STUB = """
import json, pathlib, sys
words = json.loads(sys.argv[1])
with open(pathlib.Path(__file__).parent / "started", "a") as file:
    print(words["task"], words["variant"], words["seed"], words["texts"], file=file)
if (words["variant"], words["seed"]) == ("albert_unshared", 1):
    sys.exit("stopped")
figures = json.loads((pathlib.Path(__file__).parent / "figures").read_text())
(pathlib.Path(words["output"]) / "figures.json").write_text(json.dumps(figures))
"""


def figures(*by_epoch, **others):
    return {
        "by_epoch": list(by_epoch),
        "guess": 0.25,
        "epoch_seconds": [30, 10, 12],
        "epoch_processor_seconds": [60, 20, 24],
        "peak_megabytes": 900,
        "parameters": 1234,
        "training_texts": 1000,
        "scored_texts": 50,
        "settings": {"epochs": 3, "checkpoint": "abc"},
        **others,
    }


@pytest.fixture(scope="module")
def study():
    return load(NAME)


@pytest.fixture(scope="module")
def report():
    return load("unshared_report")


@pytest.fixture(scope="module")
def settings():
    return load("unshared_settings")


@pytest.fixture
def kept():
    """Three seeds of the shared model, two of which the un-shared one has too, and one more."""
    return {
        "triples": {
            "albert": {
                "0": figures(0.2, 0.5, 0.4),
                "1": figures(0.3, 0.6, 0.7),
                "10": figures(0.1, 0.1, 0.1),
            },
            "albert_unshared": {
                "10": figures(0.2, 0.4, 0.3, parameters=4321),
                "1": figures(0.5, 0.5, 0.9, peak_megabytes=1000, parameters=4321),
                "2": figures(0.0, 0.0, 0.0, parameters=4321),
            },
        }
    }


# ---- the table -------------------------------------------------------------------------------


def test_statistics_by_hand(report, kept):
    shared, unshared = report.rows_of(kept)
    assert (shared["variant"], unshared["variant"]) == ("albert", "albert_unshared")
    assert shared["first"] == pytest.approx((0.2, 0.1))
    mean = (0.5 + 0.7 + 0.1) / 3
    deviation = math.sqrt(sum((x - mean) ** 2 for x in (0.5, 0.7, 0.1)) / 2)
    assert shared["best"] == pytest.approx((mean, deviation))
    # The first epoch compiles, and does not count.
    assert shared["seconds"] == (11, 0) and shared["processor_seconds"] == (22, 0)
    assert unshared["megabytes"] == pytest.approx((2800 / 3, math.sqrt(10000 / 3)))
    assert shared["first_gain"] is None and shared["best_gain"] is None
    # Seeds 1 and 10: 0.5 - 0.3 and 0.2 - 0.1, then 0.9 - 0.7 and 0.4 - 0.1.
    assert unshared["first_gain"] == pytest.approx((0.15, 0.1 / math.sqrt(2)))
    assert unshared["best_gain"] == pytest.approx((0.25, 0.1 / math.sqrt(2)))
    assert unshared["seeds"] == ["1", "2", "10"] and unshared["parameters"] == 4321


def test_a_single_seed_and_a_single_epoch(report):
    assert report.spread([0.5]) == (0.5, None)
    alone = figures(0.5, epoch_seconds=[7], epoch_processor_seconds=[9])
    assert report.measures(alone) == {
        "first": 0.5,
        "best": 0.5,
        "seconds": 7,
        "processor_seconds": 9,
        "megabytes": 900,
    }
    (row,) = report.rows_of({"answers": {"attention": {"0": alone}}, "sentiment": {}})
    assert row["best_gain"] is None and row["first"] == (0.5, None)


def test_the_table(report, kept):
    lines = report.table(report.rows_of(kept)).split("\n")
    assert lines[2] == (
        "| triples, F1 | albert | 1,234 | 20.0% ± 10.0% | 43.3% ± 30.6% |  |  | 11.0 ± 0.0 "
        "| 22.0 ± 0.0 | 900 ± 0 | 25.0% | 0, 1, 10 |"
    )
    assert "| +15.0% ± 7.1% | +25.0% ± 7.1% |" in lines[3]
    assert {line.count("|") for line in lines[:4]} == {13}
    assert lines[5] == (
        "- triples: 1,000 texts to train on, 50 to score, 3 epochs, checkpoint abc."
    )


def test_files(report, kept, tmp_path):
    rows = report.rows_of(kept)
    report.write_table(rows, tmp_path)
    report.plot(rows, tmp_path)
    with (tmp_path / f"{NAME}.csv").open(encoding="utf-8", newline="") as file:
        shared, unshared = csv.DictReader(file)
    assert float(unshared["best_gain"]) == 0.25 and shared["best_gain"] == ""
    assert float(shared["first_deviation"]) == 0.1 and unshared["seeds"] == "1 2 10"
    assert (tmp_path / f"{NAME}.md").read_text("utf-8") == report.table(rows)
    assert (tmp_path / f"{NAME}.png").read_bytes().startswith(b"\x89PNG")


# ---- going on --------------------------------------------------------------------------------


@pytest.fixture
def arguments(study, tmp_path, monkeypatch):
    """Arguments of a study whose runs are a script that trains nothing."""
    (tmp_path / "unshared_run.py").write_text(STUB, "utf-8")
    (tmp_path / "figures").write_text(json.dumps(figures(0.2, 0.4)), "utf-8")
    for name in ("config", "model.index", "model.data-0", "vocab"):
        (tmp_path / name).write_text(name, "utf-8")
    monkeypatch.setattr(study, "HERE", tmp_path)
    numbers = dict.fromkeys(("texts", "scored", "epochs", "maxlen", "batch_size", "learning_rate"))
    return SimpleNamespace(
        config=tmp_path / "config",
        checkpoint=tmp_path / "model",
        vocab=tmp_path / "vocab",
        tasks=["triples"],
        variants=["albert", "albert_unshared"],
        seeds=[0, 1],
        data=None,
        quick=False,
        output=tmp_path,
        **numbers | {"texts": 7},
    )


def started(folder):
    lines = (folder / "started").read_text("utf-8").splitlines()
    (folder / "started").unlink()
    return lines


def test_an_interrupted_study_goes_on(study, arguments, tmp_path, capfd):
    with pytest.raises(SystemExit) as stop:
        study.study(arguments)
    assert stop.value.code == 1
    assert "triples, albert_unshared, seed 1 failed" in capfd.readouterr().err
    runs = [f"triples {variant} {seed} 7" for seed in (0, 1) for variant in VARIANTS[:2]]
    assert started(tmp_path) == runs
    # What was done is kept, and in the table.
    kept = json.loads((tmp_path / f"{NAME}.json").read_text("utf-8"))
    seeds = {variant: list(found) for variant, found in kept["triples"].items()}
    assert seeds == {"albert": ["0", "1"], "albert_unshared": ["0"]}
    assert "| 0, 1 |" in (tmp_path / f"{NAME}.md").read_text("utf-8")

    stub = (tmp_path / "unshared_run.py").read_text("utf-8").replace('"albert_unshared", 1', "0, 0")
    (tmp_path / "unshared_run.py").write_text(stub, "utf-8")
    study.study(arguments)
    assert started(tmp_path) == runs[-1:]
    assert "| 0, 1 |" in (tmp_path / f"{NAME}.md").read_text("utf-8").split("\n")[3]
    study.study(arguments)
    assert not (tmp_path / "started").exists()


def test_other_settings_are_not_mixed(study, settings, arguments, tmp_path, monkeypatch):
    arguments.variants = ["albert"]
    study.study(arguments)
    arguments.texts = 8
    with pytest.raises(study.UsageError, match="runs of triples with texts 7, not 8"):
        study.study(arguments)
    arguments.texts = 7
    # Another task may have other sizes; another checkpoint is another study.
    arguments.tasks, arguments.texts = ["sentiment"], 9
    study.study(arguments)
    (tmp_path / "model.data-0").write_text("trained", "utf-8")
    with pytest.raises(study.UsageError, match="runs of sentiment with checkpoint"):
        study.study(arguments)


def test_a_checkpoint_is_known_by_its_files(settings, arguments, tmp_path):
    before = settings.fingerprint(arguments)
    (tmp_path / "model-2.index").touch()  # of another one
    assert settings.fingerprint(arguments) == before
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "model.safetensors").write_text("x", "utf-8")
    arguments.checkpoint = tmp_path / "folder"
    assert settings.fingerprint(arguments) != before
    arguments.checkpoint = tmp_path / "nothing"
    with pytest.raises(ValueError, match="nothing: no such checkpoint"):
        settings.fingerprint(arguments)


def test_the_runs(study, arguments):
    arguments.tasks, arguments.seeds = TASKS, [0]
    arguments.variants = []
    pairs = [(task, 0, variant) for task, variant in zip(TASKS, VARIANTS, strict=True)]
    assert study.plan(arguments, {}) == pairs
    arguments.variants, arguments.seeds = VARIANTS, [0, 2]
    runs = study.plan(arguments, {"answers": {"attention": {"2": {}}}})
    assert len(set(runs)) == len(runs) == 4 * 4 * 2 - 1
    assert ("answers", 2, "attention") not in runs


def test_sizes_of_a_training(settings, arguments):
    task = settings.TASKS["triples"]
    expected = {name: getattr(task, name) for name in settings.NUMBERS}
    assert settings.numbers_of(arguments, "triples") == expected | {"texts": 7}
    arguments.quick = True
    assert settings.numbers_of(arguments, "triples")["texts"] == 7
    assert settings.numbers_of(arguments, "triples")["epochs"] == 2


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_its_data(settings, name):
    data = settings.TASKS[name].data
    assert settings.results.TASKS[data].score.startswith(settings.TASKS[name].metric)
    assert all(path.is_file() for path in settings.TASKS[name].samples.values())
    # A sample is given under names that the task reads from the data set too.
    assert settings.TASKS[name].samples.keys() <= settings.results.TASKS[data].files.keys()


def test_memory_is_that_of_the_process_itself():
    function = inspect.getsource(load("unshared_run").peak_megabytes)
    code = f"import re, resource, sys\nfrom pathlib import Path\n{function}print(peak_megabytes())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8")
    # This process, which starts the other, has hundreds.
    assert 1 < int(done.stdout) < 100, done.stderr


# ---- mistakes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "nowhere"], "sentiment.train.data: no such file"),
        (["--config", "c"], "--config and --checkpoint and --vocab belong together"),
        (["--epochs", "0"], "--epochs 0: expected a number above 0"),
        (["--learning-rate", "nan"], "--learning-rate nan: expected a number above 0"),
        (["--maxlen", "2"], "--maxlen 2: expected at least 3"),
        (["--seeds", "0", "-1"], "seed -1: expected a number from 0"),
        (["--config=c", "--checkpoint=nowhere", "--vocab=v"], "nowhere: no such checkpoint"),
    ],
)
def test_mistakes(tmp_path, monkeypatch, capsys, options, message):
    check_mistake(NAME, [*options, "--output", tmp_path], message, monkeypatch, capsys)


def test_a_broken_file_of_figures(tmp_path, monkeypatch, capsys, files):  # noqa: F811
    (tmp_path / f"{NAME}.json").write_text("{", "utf-8")
    options = [
        part for name in ("--config", "--checkpoint", "--vocab") for part in (name, files[name])
    ]
    message = "unshared_study.json is no JSON file"
    check_mistake(NAME, [*options, "--output", tmp_path], message, monkeypatch, capsys)


# ---- training --------------------------------------------------------------------------------


@pytest.mark.slow
def test_quick(tmp_path):
    done = run_script(EXAMPLES / f"{NAME}.py", "--quick", "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    kept = json.loads((tmp_path / f"{NAME}.json").read_text("utf-8"))
    assert [(task, *runs) for task, runs in kept.items()] == list(zip(TASKS, VARIANTS, strict=True))
    for runs in kept.values():
        (found,) = (found for seeds in runs.values() for found in seeds.values())
        assert len(found["by_epoch"]) == len(found["epoch_seconds"]) == 2
        assert all(0 <= share <= 1 for share in found["by_epoch"])
        assert found["peak_megabytes"] >= found["megabytes_of_libraries"] > 50
    for ending in ("md", "csv", "png"):
        assert (tmp_path / f"{NAME}.{ending}").stat().st_size > 100


@pytest.mark.slow
def test_a_checkpoint_of_the_users(tmp_path, files):  # noqa: F811
    model = [
        part for name in ("--config", "--checkpoint", "--vocab") for part in (name, files[name])
    ]
    options = ["--tasks", "sentiment", "--variants", "attention", "--seeds", "5", "--epochs", "1"]
    options += ["--texts", "16", "--scored", "8", "--output", tmp_path]
    done = run_script(EXAMPLES / f"{NAME}.py", *model, *options)
    assert done.returncode == 0, done.stderr
    kept = json.loads((tmp_path / f"{NAME}.json").read_text("utf-8"))
    assert kept["sentiment"]["attention"]["5"]["settings"]["maxlen"] == 96
    assert not (tmp_path / "random_albert").exists()

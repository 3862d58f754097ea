"""The table of scores: made of the figures that are kept, all of which reach what is stated."""

import json

import pytest

from example_scripts import load

results = load("results")
KEPT = json.loads(results.KEPT.read_text("utf-8")) if results.KEPT.exists() else {}


def figures(score, **others):
    return {
        "scores": {"F1": score},
        "guess": 0.25,
        "parameters": 1234,
        "processor_seconds": 90,
        "date": "2026-11-30",
        **others,
    }


@pytest.fixture
def tasks(monkeypatch):
    found = {"names": results.Task("script", "texts", {"train": "a/b"}, "F1", ("--x", "1"), 0.5)}
    monkeypatch.setattr(results, "TASKS", found)
    return found


def test_the_table_is_that_of_the_figures():
    text = results.README.read_text("utf-8")
    assert results.with_table(text, KEPT) == text
    assert results.short_of(KEPT) == []
    assert KEPT.keys() <= results.TASKS.keys()


@pytest.mark.parametrize("name", results.TASKS)
def test_every_task_is_an_example(name):
    task = results.TASKS[name]
    source = (results.HERE / f"{task.script}.py").read_text("utf-8")
    assert all(f"--{option}" in source for option in task.files)


def test_a_row(tasks):
    kept = {"names": {"0": figures(0.5), "1": figures(0.75, processor_seconds=30)}}
    row = results.table(kept).split("\n")[-1]
    assert row == (
        "| [names](script.py) | texts | F1 | 50.0% | 62.5% | 50.0% … 75.0% | 25.0% | 0, 1 "
        "| 1,234 | 1.0 | 2026-11-30 |"
    )
    text = f"before\n{results.BEGIN}\nold\n{results.END}\nafter"
    assert results.with_table(text, kept).split("\n")[-4:] == [row, "", results.END, "after"]


def test_what_is_short_of_its_score_is_named(tasks):
    kept = {"names": {"0": figures(0.5), "1": figures(0.4)}}
    assert results.short_of(kept) == ["names: F1 40.0% with seed 1, expected at least 50.0%"]


def test_the_command(tasks, tmp_path):
    words = tasks["names"].command(tmp_path, 3, "out")
    expected = ["--train", f"{tmp_path}/a/b", "--x", "1", "--seed", "3", "--output", "out"]
    assert words[2:] == expected

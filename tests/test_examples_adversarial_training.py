"""The example of adversarial training compares methods on the same few texts."""

import pytest

from example_scripts import check_mistake, load, run_quick

NAME = "adversarial_training"


@pytest.fixture(scope="module")
def example():
    return load(NAME)


@pytest.mark.slow
def test_quick(tmp_path):
    text, figures = run_quick(NAME, tmp_path, "--method", "plain", "fgm")
    assert "112 texts to train on, 48 to score" in text
    assert list(figures["scores"]) == ["accuracy, plain", "accuracy, fgm"]
    assert all(score > 0.8 for score in figures["scores"].values())


@pytest.mark.slow
def test_other_methods_on_fewer_texts(tmp_path):
    options = ["--method", "rdrop", "gradient-penalty", "vat", "--limit", 20]
    text, figures = run_quick(NAME, tmp_path, *options)
    assert "20 texts to train on, 48 to score" in text
    assert list(figures["scores"]) == [
        f"accuracy, {method}" for method in ("rdrop", "gradient-penalty", "vat")
    ]


def test_some_rows_are_always_the_same(example):
    rows = [(str(i), "01"[i % 2]) for i in range(50)]
    some = example.some_of(rows, 20)
    assert len(set(some)) == 20 and set(some) < set(rows)
    assert some == example.some_of(rows, 20) and some != rows[:20]
    assert sorted(example.some_of(rows, 99)) == sorted(rows)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--limit=1"], "--limit 1: expected at least 2 texts"),
        (["--train=nowhere.tsv", "--valid=nowhere.tsv"], "nowhere.tsv"),
    ],
)
def test_mistakes(tmp_path, monkeypatch, capsys, options, message):
    check_mistake(NAME, [*options, f"--output={tmp_path}"], message, monkeypatch, capsys)

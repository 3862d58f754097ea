"""The example of long texts compares cut and whole ones, and reads both forms of data."""

import json
from types import SimpleNamespace

import pytest

from example_scripts import EXAMPLES, check_mistake, load, run_quick

NAME = "long_texts_hierarchical_positions"


@pytest.mark.slow
def test_quick(tmp_path):
    text, figures = run_quick(NAME, tmp_path)
    # The table has 32 positions, the longest text of the sample 69 characters.
    assert figures["tokens"] == {"whole texts": 71, "cut to the table": 32}
    assert "=== whole texts: 71 tokens of at most 1,024" in text
    assert set(figures["scores"]) == {"accuracy, whole texts", "accuracy, cut to the table"}
    # The label stands in the last sentence.
    assert figures["scores"]["accuracy, whole texts"] > figures["guess"] + 0.2


@pytest.mark.slow
def test_a_model_without_a_table_of_positions():
    example = load(NAME)
    args = SimpleNamespace(checkpoint=None, config=None, seed=0, maxlen=64)
    sizes = {**example.SIZES, "model_type": "roformer"}
    config, tokenizer = example.starting_point(args, ["好书"], **sizes)
    for hierarchical in (None, True):
        with pytest.raises(ValueError, match=r"hierarchical_position|no table of positions"):
            example.classifier(args, config, tokenizer, 2, hierarchical)


# ---- data ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files():
    return load("files")


def test_the_sample_has_no_leak(files):
    train, valid = (
        files.read_labelled(EXAMPLES / "data" / f"long_reviews_{part}.tsv")
        for part in ("train", "valid")
    )
    assert len(train) == 192 and len(valid) == 48
    assert not {text for text, _ in train} & {text for text, _ in valid}


def test_both_forms_of_labelled_texts_say_the_same(files, tmp_path):
    (tmp_path / "lines.tsv").write_text("text\tlabel\n很好\t软件\n 差 \t 1 \n\n", "utf-8")
    entries = [
        {"label": 7, "label_des": "软件", "sentence": "很好"},
        {"sentence": "差 ", "label": 1},
    ]
    lines = "\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    (tmp_path / "objects.json").write_text("\ufeff\n" + lines, "utf-8")
    expected = [("很好", "软件"), ("差", "1")]
    assert files.read_labelled(tmp_path / "lines.tsv") == expected
    assert files.read_labelled(tmp_path / "objects.json") == expected
    assert files.read_texts(tmp_path / "objects.json") == ["很好", "差"]
    (tmp_path / "lines.txt").write_text("\n很好\n  差\n", "utf-8")
    assert files.read_texts(tmp_path / "lines.txt") == ["很好", "差"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("好书\t1\n坏书 0\n", r"valid, line 2: expected text<TAB>label, got '坏书 0'"),
        (
            '{"sentence": "好", "label": "1"}\n{"sentence": "坏"}',
            r"valid, object 2: KeyError\('label'",
        ),
        (
            '{"sentence": "好", "label": "1"}\n{"sentence": 3, "label": 0}',
            "valid, object 2: Attrib",
        ),
        ('{"sentence": " ", "label": "1"}', r"valid, object 1: .*an empty sentence"),
        ('{"sentence": ', "valid, object 1: "),
        (" \n", "valid is empty"),
        ("好书\t2\n", "no text of --train has the label '2' of '好书'"),
    ],
)
def test_mistakes_in_data(tmp_path, monkeypatch, capsys, content, message):
    (tmp_path / "train").write_text("好书\t1\n坏书\t0\n", "utf-8")
    (tmp_path / "valid").write_text(content, "utf-8")
    options = [f"--{part}={tmp_path / part}" for part in ("train", "valid")]
    check_mistake(NAME, [*options, f"--output={tmp_path}"], message, monkeypatch, capsys)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--train=nowhere.tsv", "--valid=nowhere.tsv"], "nowhere.tsv"),
        (["--train=nowhere.tsv"], "--train and --valid belong together"),
        (["--config=c"], "--config and --checkpoint and --vocab belong together"),
        (["--epochs=0"], "expected positive numbers"),
    ],
)
def test_mistakes_in_arguments(tmp_path, monkeypatch, capsys, options, message):
    check_mistake(NAME, [*options, f"--output={tmp_path}"], message, monkeypatch, capsys)

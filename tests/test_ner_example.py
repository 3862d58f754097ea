"""The example of named entities runs, and reads what it says it reads."""

import importlib.util
import json
import re
import sys

import numpy as np
import pytest

from kerasbert.tokenizers import Tokenizer
from test_examples import ROOT, run_script

SCRIPT = ROOT / "examples" / "sequence_labeling_ner_crf.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("sequence_labeling_ner_crf", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_quick(tmp_path):
    done = run_script(SCRIPT, "--quick", "--output", tmp_path / "new" / "folder")
    assert done.returncode == 0, done.stderr
    assert "24 sentences to train on, 8 for validation; ['LOC', 'ORG', 'PER']" in done.stdout
    scores = re.findall(r"^entities: .* F1 (\S+)%$", done.stdout, re.M)
    assert len(scores) == 15 and max(map(float, scores)) > 60
    assert len(re.findall(r"^\S+ -> .*/(?:LOC|ORG|PER)$", done.stdout, re.M)) >= 2
    assert (tmp_path / "new" / "folder" / "ner_crf.keras").stat().st_size > 1000


@pytest.mark.parametrize(
    "tags, expected",
    [
        ("B-X I-X O B-X B-X", {(0, 1, "X"), (3, 3, "X"), (4, 4, "X")}),
        ("B-X M-X E-X O S-Y", {(0, 2, "X"), (4, 4, "Y")}),
        ("O I-X I-Y I-Y O", {(1, 1, "X"), (2, 3, "Y")}),
        ("O O", set()),
    ],
)
def test_entities_of_tags(example, tags, expected):
    tags = tags.split()
    assert example.entities_of(tags, [[i] for i in range(len(tags))]) == expected


def test_both_forms_of_data_say_the_same(example, tmp_path):
    (tmp_path / "columns.txt").write_text("张 B-P\n伟 E-P\n在 O\n京 S-L\n\n\n好 O", "utf-8")
    items = [
        {"text": "张伟在京", "label": {"P": {"张伟": [[0, 1]]}, "L": {"京": [[3, 3]]}}},
        {"text": "好", "label": {}},
    ]
    lines = "\n".join(json.dumps(item, indent=2) for item in items)
    (tmp_path / "stream.json").write_text(lines + "\n", "utf-8")
    expected = [("张伟在京", {(0, 1, "P"), (3, 3, "L")}), ("好", set())]
    assert example.read_data(tmp_path / "columns.txt") == expected
    assert example.read_data(tmp_path / "stream.json") == expected


def test_labels_go_to_tokens_and_back(example, tmp_path):
    data = example.read_data(ROOT / "examples" / "data" / "ner_valid.txt")
    data.append(("他在IBM工作 abc", {(2, 4, "ORG"), (8, 10, "PER")}))
    vocabulary = "".join(text for text, _ in data)
    example.write_vocabulary(tmp_path / "vocab.txt", [vocabulary])
    tokenizer = Tokenizer(tmp_path / "vocab.txt", do_lower_case=True)
    tags = ["O", *(f"{place}-{kind}" for kind in ("LOC", "ORG", "PER") for place in "BI")]
    inputs, labels, characters = example.encode(data, tokenizer, tags, maxlen=64)
    assert labels.shape == inputs[0].shape and not labels[np.array(inputs[0]) == 0].any()
    for (_, entities), row, where in zip(data, labels, characters, strict=True):
        found = example.entities_of([tags[label] for label in row[: len(where)]], where)
        assert found == entities


@pytest.mark.parametrize(
    "content, message",
    [
        ("张 B-P x\n", "line 1: expected a character and a tag"),
        ("张 O\n", "1 sentences without any entity"),
        ('{"text": "张"}', "character .*KeyError"),
        ('{"text": ', "character"),
    ],
)
def test_mistakes_in_data(example, tmp_path, monkeypatch, capsys, content, message):
    (tmp_path / "data.txt").write_text(content, "utf-8")
    options = [f"--{name}={tmp_path / 'data.txt'}" for name in ("train", "valid", "config")]
    options += ["--checkpoint=c", "--vocab=v", f"--output={tmp_path}"]
    monkeypatch.setattr(sys, "argv", ["example", *options])
    check_mistake(example, capsys, message)


@pytest.mark.parametrize(
    "options, message",
    [
        ([], "expected --config, --checkpoint, --vocab, --train, --valid as well, or --quick"),
        (["--quick", "--vocab=v"], "--quick takes no files"),
        (["--quick", "--maxlen=2"], "--maxlen of at least 3"),
    ],
)
def test_mistakes_in_arguments(example, monkeypatch, capsys, options, message):
    monkeypatch.setattr(sys, "argv", ["example", *options])
    check_mistake(example, capsys, message)


def check_mistake(example, capsys, message):
    with pytest.raises(SystemExit) as stop:
        example.main()
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("sequence_labeling_ner_crf.py: error: ")
    assert re.search(message, line)

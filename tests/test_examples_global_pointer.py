"""The example of GlobalPointer runs, measures rightly, and says what a user did wrong."""

import importlib.util
import json
import re
import sys
from types import SimpleNamespace

import keras
import numpy as np
import pytest

import fixtures
from kerasbert.layers import EfficientGlobalPointer, GlobalPointer
from kerasbert.tokenizers import Tokenizer
from test_examples import ROOT, command_line, run_script

SCRIPT = ROOT / "examples" / "entity_recognition_global_pointer.py"
LINES = [
    {
        "text": "李明在北京大学读书",
        "label": {"人": {"李明": [[0, 1]]}, "校": {"北京大学": [[3, 6]]}},
    },
    {"text": "北京很大", "label": {"地": {"北京": [[0, 1]]}}},
    {"text": "大学很好", "label": {}},
    {"text": "李明在北京", "label": {"人": {"李明": [[0, 1]]}, "地": {"北京": [[3, 4]]}}},
] * 4


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location(SCRIPT.stem, SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def files(tmp_path):
    """Arguments for a user's checkpoint, vocabulary and data."""
    config = fixtures.tiny_config("google_bert")
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"李明在北京大学读书很好"]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens), "utf-8")
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in LINES)
    (tmp_path / "train.json").write_text(text, "utf-8")
    # Objects over several lines are read as well.
    (tmp_path / "valid.json").write_text(json.dumps(LINES[0], indent=2) + "\n", "utf-8")
    arrays = fixtures.make_arrays("google_bert", config, seed=0)
    return {
        "--config": fixtures.write_config(tmp_path / "bert_config.json", config),
        "--checkpoint": fixtures.write_checkpoint(tmp_path / "bert_model.ckpt", arrays),
        "--vocab": tmp_path / "vocab.txt",
        "--train": tmp_path / "train.json",
        "--valid": tmp_path / "valid.json",
        "--head-size": 8,
        "--maxlen": 12,
        "--epochs": 1,
        "--output": tmp_path / "output",
    }


# ---- runs ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_without_files(tmp_path):
    done = run_script(SCRIPT, "--quick", "--output", tmp_path / "new" / "folder")
    assert done.returncode == 0, done.stderr
    assert "40 texts to train on, 8 for validation" in done.stdout
    rows = re.findall(r"^(\w+) +(\d+) +[\d.]+% +[\d.]+% +[\d.]+%$", done.stdout, re.M)
    assert [name for name, _ in rows] == ["organization", "person", "place", "all"]
    assert sum(int(count) for _, count in rows[:3]) == int(rows[3][1]) > 0
    assert (tmp_path / "new" / "folder" / "entity_recognition.keras").stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.parametrize("efficient", [False, True])
def test_with_the_users_files(efficient, example, files, monkeypatch, capsys):
    options = [*command_line(files), *(["--efficient"] * efficient)]
    # From a random encoder, and on texts it has seen: enough to learn them by heart.
    options += ["--learning-rate", "0.005", "--epochs", "100", "--batch-size", "4"]
    monkeypatch.setattr(sys, "argv", [SCRIPT.name, *options])
    example.main()
    output = capsys.readouterr().out
    assert re.search(r"^all +2 +100.0% +100.0% +100.0%$", output, re.M)
    assert "right  人: 李明 [0, 1]" in output and "wrong" not in output
    model = keras.models.load_model(files["--output"] / "entity_recognition.keras")
    assert type(model.layers[-1]) is (EfficientGlobalPointer if efficient else GlobalPointer)
    assert model.output_shape == (None, 3, None, None)


# ---- parts -----------------------------------------------------------------------------------


def test_the_sample_is_what_it_says(example):
    pairs = example.read_entities(example.SAMPLE)
    assert len(pairs) == len({text for text, _ in pairs}) == 48
    nested = 0
    for text, entities in pairs:
        for kind, first, last in entities:
            assert kind in {"person", "place", "organization"}
            assert not set(text[first : last + 1]) & set("，。的了")
            nested += any(first <= i and j <= last and k != kind for k, i, j in entities)
    assert nested >= 20
    for line in example.SAMPLE.read_text("utf-8").splitlines():
        entry = json.loads(line)
        for names in entry["label"].values():
            for name, spans in names.items():
                assert all(entry["text"][a : b + 1] == name for a, b in spans)


def batches_of(example, pairs, maxlen=12, batch_size=2):
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"在北京大学", "abc", "##d"]
    tokenizer = Tokenizer({token: n for n, token in enumerate(tokens)}, do_lower_case=True)
    args = SimpleNamespace(maxlen=maxlen, batch_size=batch_size, seed=0)
    return example.Batches(pairs, tokenizer, ["地", "校"], args)


def test_labels_and_entities_are_each_others_reverse(example):
    whole = {("校", 1, 4), ("地", 1, 2)}
    pairs = [
        ("在北京大学", whole),
        ("ABCD  北京", {("地", 6, 7), ("校", 0, 3)}),
        # The first is in the middle of a token, the second is cut off; neither can be found.
        ("abcd北京在北京在北京在北京大学", {("地", 1, 5), ("校", 13, 16), ("地", 4, 5)}),
    ]
    batches = batches_of(example, pairs)
    assert len(batches) == 2
    (ids, segments), labels = batches[0]
    assert ids.shape == segments.shape == (2, 12) and labels.shape == (2, 2, 12, 12)
    assert np.argwhere(labels[0]).tolist() == [[0, 2, 3], [1, 2, 5]]
    answers = iter([batches[0][1], batches[1][1]])
    oracle = SimpleNamespace(predict_on_batch=lambda inputs: next(answers) - 0.5)
    found = example.find_entities(oracle, batches)
    assert found == [whole, pairs[1][1], {("地", 4, 5)}]


def test_f1_by_hand(example):
    expected = [{("a", 0, 1), ("b", 2, 3)}, {("a", 0, 0)}, set()]
    found = [{("a", 0, 1), ("a", 2, 3)}, set(), {("b", 5, 6)}]
    assert example.measure(found, expected, {"a", "b"}) == (1 / 3, 1 / 3, 1 / 3)
    assert example.measure(found, expected, {"a"}) == (1 / 2, 1 / 2, 1 / 2)
    assert example.measure(found, expected, {"b"}) == (0, 0, 0)
    assert example.measure(expected, expected, {"a", "b"}) == (1, 1, 1)
    assert example.measure([set()], [set()], {"a"}) == (0, 0, 0)


def test_special_tokens_are_no_entities(example):
    pairs = [("北京", {("地", 0, 1)}), ("在北京大学", set())]
    batches = batches_of(example, pairs)
    (ids, _), labels = batches[0]
    real = ids != 0
    everything = real[:, None, :, None] & real[:, None, None, :] & np.ones_like(labels, bool)
    model = SimpleNamespace(predict_on_batch=lambda inputs: everything - 0.5)
    for (text, _), found in zip(pairs, example.find_entities(model, batches), strict=True):
        spans = {(k, i, j) for k in "地校" for i in range(len(text)) for j in range(len(text))}
        assert found == spans


# ---- mistakes --------------------------------------------------------------------------------


def data(content):
    def replace(files):
        files["--train"].write_bytes(content)
        return files

    return replace


def without(*options):
    return lambda files: {key: value for key, value in files.items() if key not in options}


MISTAKES = {
    "half a model": (without("--vocab"), "--config, --checkpoint and --vocab belong together"),
    "half the data": (without("--valid"), "--train and --valid belong together"),
    "no file": (lambda files: {**files, "--train": "nowhere.json"}, "No such file .*nowhere.json"),
    "no JSON": (data(b'{"text": "a", "label": {}} x'), "train.json, object 2: expected"),
    "no text": (data(b'{"sentence": "a"}'), "object 1: expected .*'text'"),
    "no object": (data(b"[1, 2]"), "object 1: expected"),
    "BIO": (data('{"text": "北京", "label": ["B", "I"]}'.encode()), "object 1: expected"),
    "past the end": (
        data('{"text": "北京", "label": {"地": {"北京": [[0, 2]]}}}'.encode()),
        "no characters 0 to 2 in '北京'",
    ),
    "no entity": (data(b'{"text": "a", "label": {}}'), "1 texts without any entity"),
    "not UTF-8": (data("北京".encode("gbk")), "train.json is not UTF-8"),
    "odd heads": (lambda files: {**files, "--head-size": 7}, "head_size=7 with RoPE=True"),
    "too short": (lambda files: {**files, "--maxlen": 2}, "--maxlen of at least 3"),
    "negative seed": (lambda files: {**files, "--seed": -1}, "--seed -1: expected a number from 0"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name, example, files, monkeypatch, capsys):
    change, message = MISTAKES[name]
    monkeypatch.setattr(sys, "argv", [SCRIPT.name, *command_line(change(files))])
    with pytest.raises(SystemExit) as stop:
        example.main()
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{SCRIPT.name}: error: ")
    assert re.search(message, line)

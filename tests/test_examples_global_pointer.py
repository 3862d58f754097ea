"""The example of GlobalPointer finds entities, measures rightly, and says what is wrong."""

import json
import re

import keras
import numpy as np
import pytest

import fixtures
from example_scripts import EXAMPLES, check_mistake, load, run_quick
from kerasbert.layers import EfficientGlobalPointer, GlobalPointer
from kerasbert.losses import MASKED_SCORE, global_pointer_crossentropy
from test_examples import command_line, run_script

pytest.importorskip("seqeval", reason="needs the extra `examples`")
NAME = "entity_recognition_global_pointer"
TYPES = ["人", "地", "校"]
LINES = [
    {
        "text": "李明在北京大学读书",
        "label": {"人": {"李明": [[0, 1]]}, "校": {"北京大学": [[3, 6]]}},
    },
    {"text": "北京很大", "label": {"地": {"北京": [[0, 1]]}}},
    {"text": "大学很好", "label": {}},
    {"text": "李明在北京", "label": {"人": {"李明": [[0, 1]]}, "地": {"北京": [[3, 4]]}}},
]


@pytest.fixture(scope="module")
def example():
    return load(NAME)


@pytest.fixture
def files(tmp_path):
    """Arguments for a user's checkpoint, vocabulary and data."""
    config = fixtures.tiny_config("google_bert")
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"李明在北京大学读书很好"]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens), "utf-8")
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in LINES * 4)
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
        "--output": tmp_path / "output",
    }


# ---- runs ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_quick(tmp_path):
    text, figures = run_quick(NAME, tmp_path / "new" / "folder")
    assert "40 texts to train on, 8 for validation; ['organization', 'person', 'place']" in text
    counts = dict(re.findall(r"^ *(\S+)(?: avg)? .* (\d+)$", text, re.M))
    assert sum(int(counts[kind]) for kind in ("organization", "person", "place")) == int(
        counts["micro"]
    )
    assert list(figures["scores"]) == ["F1", "precision", "recall"] and figures["guess"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("efficient", [False, True])
def test_with_the_users_files(efficient, files):
    options = [*command_line(files), *(["--efficient"] * efficient)]
    # From a random encoder, and on texts it has seen: enough to learn them by heart.
    options += ["--learning-rate", "0.002", "--epochs", "100", "--batch-size", "4"]
    done = run_script(EXAMPLES / f"{NAME}.py", *options)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^F1 +100.0%$", done.stdout, re.M), done.stdout
    assert "right  人: 李明 [0, 1]" in done.stdout and "wrong" not in done.stdout
    model = keras.models.load_model(files["--output"] / f"{NAME}.keras")
    assert type(model.layers[-1]) is (EfficientGlobalPointer if efficient else GlobalPointer)
    assert model.output_shape == (None, 3, None, None)


# ---- parts -----------------------------------------------------------------------------------


def test_places_and_entities_are_each_others_reverse(example, monkeypatch):
    pairs = [(line["text"], set()) for line in LINES]
    pairs[0][1].update({("校", 3, 6), ("地", 3, 4), ("地", 5, 6), ("人", 0, 1)})
    pairs[3][1].update({("地", 3, 4)})
    texts = [text for text, _ in pairs]
    _, tokenizer = load("runs").small_model(texts)
    places = example.places_of(pairs, example.characters_of(texts, tokenizer, 12), TYPES)
    assert places.shape == (4, 3, 2, 2)
    assert places[3].tolist() == [[[0, 0], [0, 0]], [[4, 5], [0, 0]], [[0, 0], [0, 0]]]

    def oracle(model, tokenizer, texts, **settings):
        scores = [np.full((3, len(text) + 2, len(text) + 2), -1.0) for text in texts]
        for row, kind, start, end in [
            (n, k, *p) for n, k, _ in np.ndindex(4, 3, 2) for p in places[n, k]
        ]:
            scores[row][kind, start, end] = 1.0
        return scores

    monkeypatch.setattr(example, "predict_texts", oracle)
    # [CLS] alone, which stands for nothing, is never found.
    assert example.find_entities(None, tokenizer, texts, TYPES, 12) == [e for _, e in pairs]


def test_loss_is_that_of_dense_labels(example):
    random = np.random.default_rng(0)
    scores = random.normal(size=(2, 3, 5, 5)).astype("float32")
    scores[1, :, 3:] = scores[1, :, :, 3:] = MASKED_SCORE  # padding
    places = np.zeros((2, 3, 2, 2), "int32")
    places[0, 0] = [[1, 2], [3, 3]]
    places[1, 2, 0] = [2, 2]
    labels = np.zeros(scores.shape, "float32")
    labels[0, 0, 1, 2] = labels[0, 0, 3, 3] = labels[1, 2, 2, 2] = 1
    loss = keras.ops.convert_to_numpy(example.span_loss(places, keras.ops.array(scores)))
    scores[:, :, 0, 0] = MASKED_SCORE  # [CLS] alone takes no part
    expected = global_pointer_crossentropy(labels, keras.ops.array(scores))
    np.testing.assert_allclose(loss, keras.ops.convert_to_numpy(expected), rtol=1e-5)


def test_f1_by_hand(example):
    expected = [{("a", 0, 1), ("b", 2, 3)}, {("a", 0, 0)}, set()]
    found = [{("a", 0, 1), ("a", 2, 3)}, set(), {("b", 5, 6)}]
    assert example.measure(expected, found, ["a", "b"]) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert example.measure(expected, found, ["a"]) == pytest.approx((1 / 2, 1 / 2, 1 / 2))
    assert example.measure(expected, found, ["b"]) == (0, 0, 0)
    assert example.measure(expected, expected, ["a", "b"]) == (1, 1, 1)
    more = [{*found[0], ("b", 2, 3)}, *found[1:]]
    assert example.measure(expected, more, ["a", "b"]) == pytest.approx((2 / 4, 2 / 3, 4 / 7))


# ---- mistakes --------------------------------------------------------------------------------


def without(*options):
    return lambda files: {key: value for key, value in files.items() if key not in options}


def train_on(text):
    def replace(files):
        files["--train"].write_bytes(text)
        return files

    return replace


def large_vocabulary(files):
    files["--vocab"].write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *map(str, range(99)), *"李明北京大学"])
    )
    return files


MISTAKES = {
    "half a model": (without("--vocab"), "--config and --checkpoint and --vocab belong together"),
    "half the data": (without("--valid"), "--train and --valid belong together"),
    "no file": (lambda files: {**files, "--train": "nowhere.json"}, "No such file .*nowhere.json"),
    "not UTF-8": (train_on("北京".encode("gbk")), "train.json is not UTF-8"),
    "no JSON": (train_on(b'{"text": "a", "label": {}} x'), "train.json, object 2: "),
    "no such type": (
        train_on(json.dumps(LINES[1]).encode()),
        "no entity of these types stands in --train, but in --valid: 人, 校",
    ),
    "negative seed": (lambda files: {**files, "--seed": -1}, "--seed -1: expected a number from 0"),
}

MISTAKES_BESIDE_A_MODEL = {
    "odd heads": (lambda files: {**files, "--head-size": 7}, "head_size=7 with RoPE=True"),
    "large vocabulary": (large_vocabulary, "has the token id 10"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name, files, monkeypatch, capsys):
    change, message = MISTAKES[name]
    check_mistake(NAME, command_line(change(files)), message, monkeypatch, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES_BESIDE_A_MODEL)
def test_mistakes_beside_a_model(name, files, monkeypatch, capsys):
    change, message = MISTAKES_BESIDE_A_MODEL[name]
    check_mistake(NAME, command_line(change(files)), message, monkeypatch, capsys)

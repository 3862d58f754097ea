"""The example of entities with a conditional random field finds them, and scores them rightly."""

import re

import keras
import numpy as np
import pytest

from example_scripts import EXAMPLES, check_mistake, load, run_quick

pytest.importorskip("seqeval", reason="needs the extra `examples`")
NAME = "sequence_labeling_ner_crf"
TAGS = ["O", "B-LOC", "I-LOC", "B-ORG", "I-ORG", "B-PER", "I-PER"]


@pytest.fixture(scope="module")
def example():
    return load(NAME)


@pytest.fixture(scope="module")
def pairs(example):
    """Texts, one of them with words of several characters."""
    pairs = example.read_entities(EXAMPLES / "data" / "ner_valid.txt")
    return [*pairs, ("他在IBM工作 abc", {("ORG", 2, 4), ("PER", 8, 10)})]


@pytest.mark.slow
def test_quick(tmp_path):
    text, figures = run_quick(NAME, tmp_path / "new" / "folder")
    assert "24 texts to train on, 8 for validation; ['LOC', 'ORG', 'PER']" in text
    assert list(figures["scores"]) == ["F1", "precision", "recall"]
    assert figures["scores"]["F1"] > 0.5
    assert (
        len(re.findall(r"^  (?:right|wrong)  (?:LOC|ORG|PER): \S+ \[\d+, \d+\]$", text, re.M)) >= 2
    )
    model = keras.models.load_model(tmp_path / "new" / "folder" / f"{NAME}.keras")
    assert model.output_shape == (None, None, 7)


def test_tags_go_to_tokens_and_back(example, pairs):
    texts = [text for text, _ in pairs]
    _, tokenizer = load("runs").small_model(texts)
    characters = example.characters_of(texts, tokenizer, 64)
    labels = example.token_labels(pairs, characters, TAGS)
    for (_, entities), where, row in zip(pairs, characters, labels, strict=True):
        assert len(row) == len(where) and row[0] == row[-1] == 0
        found = example.get_entities([TAGS[number] for number in row])
        assert example.in_characters(found, where) == entities
    # I, B and M are three tokens of one entity.
    assert [TAGS[number] for number in labels[-1][3:6]] == ["B-ORG", "I-ORG", "I-ORG"]


class Oracle:
    """Stands for a model that is sure of the right tags."""

    def __init__(self, labels):
        self.scores = [10.0 * np.eye(len(TAGS), dtype="float32")[row] for row in labels]

    def get_layer(self, name):
        from kerasbert.layers import ConditionalRandomField

        crf = ConditionalRandomField(name=name)
        crf.build((None, None, len(TAGS)))
        return crf


def test_what_the_model_is_sure_of_is_found(example, pairs, monkeypatch):
    texts = [text for text, _ in pairs]
    _, tokenizer = load("runs").small_model(texts)
    labels = example.token_labels(pairs, example.characters_of(texts, tokenizer, 16), TAGS)
    oracle = Oracle(labels)
    monkeypatch.setattr(example, "predict_texts", lambda model, *args, **settings: model.scores)
    found = example.find_entities(oracle, tokenizer, texts, TAGS, 16)
    inside = [{e for e in entities if e[2] < 14} for _, entities in pairs]
    assert found == inside and any(found)


def test_scores_are_of_whole_entities(example):
    texts = ["一二三四五", "六七"]
    expected = [{("a", 0, 1), ("b", 2, 4)}, {("a", 0, 0)}]
    found = [{("a", 0, 1), ("b", 3, 4)}, {("b", 0, 0)}]
    right, tagged = example.tag_texts(texts, expected), example.tag_texts(texts, found)
    assert example.f1_score(right, tagged, **example.STRICT) == pytest.approx(1 / 3)
    # Two in a row are not one.
    right = example.tag_texts(["一二"], [{("a", 0, 0), ("a", 1, 1)}])
    tagged = example.tag_texts(["一二"], [{("a", 0, 1)}])
    assert example.f1_score(right, tagged, **example.STRICT) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--train={}"], "--train and --valid belong together"),
        (["--train={}", "--valid=nowhere.txt"], "No such file .*nowhere.txt"),
        (["--train={}", "--valid={}.wrong"], "line 1: expected a character and its tag"),
        (["--train={}", "--valid={}.other"], "but in --valid: LOC"),
        (["--quick", "--vocab=v"], "--config and --checkpoint and --vocab belong together"),
        (["--quick", "--maxlen=2"], "--maxlen of at least 3"),
    ],
)
def test_mistakes(options, message, tmp_path, monkeypatch, capsys):
    data = tmp_path / "data.txt"
    data.write_text("张 B-P\n", "utf-8")
    (tmp_path / "data.txt.wrong").write_text("张伟 B-P\n", "utf-8")
    (tmp_path / "data.txt.other").write_text("张 B-LOC\n", "utf-8")
    options = [option.format(data) for option in options]
    check_mistake(NAME, [*options, f"--output={tmp_path}"], message, monkeypatch, capsys)

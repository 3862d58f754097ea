"""The example of extractive reading finds the best span of all parts of a passage."""

import json
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from example_scripts import check_mistake, load, run_quick
from test_examples import ROOT
from test_examples_questions import MASK, SEP, of

NAME = "reading_comprehension_extractive"


@pytest.fixture(scope="module")
def example():
    return load(NAME)


@pytest.fixture(scope="module")
def module():
    return load("questions")


@pytest.mark.slow
def test_quick(tmp_path):
    text, figures = run_quick(NAME, tmp_path)
    assert "320 of 320 questions to train on have a short answer" in text
    assert list(figures["scores"]) == ["F1", "exact"]
    assert figures["scores"]["F1"] > 0.05 and 0.2 < figures["guess"] < 0.4
    assert text.count("(right: ") == 6
    model = keras.models.load_model(tmp_path / f"{NAME}.keras")
    assert model.output_shape == (None, 2, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "nowhere.json"], "nowhere.json"),
        (["--test", "nowhere.json"], "--test goes with data of yours"),
        (["--data", ROOT / "pyproject.toml"], "expected JSON in the form of SQuAD"),
        (["--maxlen", "55"], "expected more than 55"),
        (["--config", "bert_config.json"], "belong together"),
    ],
)
def test_mistakes(options, message, tmp_path, monkeypatch, capsys):
    check_mistake(NAME, [*options, f"--output={tmp_path}"], message, monkeypatch, capsys)


def test_one_passage_cannot_be_split(tmp_path, monkeypatch, capsys):
    entry = {"question": "谁", "answers": [{"text": "周强"}]}
    content = {"data": [{"paragraphs": [{"context": "周强。", "qas": [entry]}]}]}
    (tmp_path / "one.json").write_text(json.dumps(content), "utf-8")
    options = ["--data", tmp_path / "one.json", "--output", tmp_path]
    check_mistake(NAME, options, "0 questions to train on, 1 to test", monkeypatch, capsys)


# ---- data ------------------------------------------------------------------------------------


def runs_by_force(asked, passage, longest):
    """For each character the longest run around it that is asked for."""
    found = []
    for n in range(len(passage)):
        runs = [
            j - i
            for i in range(n + 1)
            for j in range(n + 1, len(passage) + 1)
            if j - i <= longest and passage[i:j] in asked
        ]
        found.append(max(runs, default=0))
    return found


@pytest.mark.parametrize("longest", [0, 1, 3])
def test_runs_in_common(example, module, longest):
    random = np.random.default_rng(0)
    for _ in range(30):
        asked, passage = ("".join(random.choice(list("abcd"), n)) for n in random.integers(1, 9, 2))
        question = of(module, passage, 0, 1, asked=asked)
        expected = runs_by_force(asked, passage, longest)
        assert example.runs_in_common(question, longest) == expected


def test_what_is_read(example, module):
    question = of(module, "abxab", 1, 3, asked="ab")
    ids, segments = example.read([question, of(module, "c", 0, 1)], 12, 4)
    assert ids.dtype == segments.dtype == np.int32
    assert ids[0].tolist() == [2, *map(ord, "ab"), SEP, *map(ord, "abxab"), SEP, 0, 0]
    assert segments[0].tolist() == [0, 0, 0, 0, 3, 3, 1, 3, 3, 1, 0, 0]
    assert segments[1].tolist() == [0, 0, 1, 1, *[0] * 8]
    # The plain segments of a checkpoint.
    assert example.read([question], 12, 0)[1].tolist() == [[0] * 4 + [1] * 6 + [0] * 2]
    assert example.ends_of(question) == (5, 6)
    for part in (module.part_of(question, 2, 3), module.part_of(question, 0, 2)):
        # Cut through, or not there: the last [SEP].
        last = len(part.ids) + len(part.passage)
        assert example.ends_of(part) == (last, last)


def test_parts_to_learn_from(example, module):
    rng = np.random.default_rng(0)
    whole = of(module, "abcdefghijklmnopqrst", 4, 7, asked="xyz")
    parts = [example.draw(whole, 9, MASK, rng) for _ in range(400)]
    assert {len(part.passage) for part in parts} == {9}
    exercises = [MASK in part.ids for part in parts]
    elsewhere = [not 0 <= part.start < part.end <= 9 for part in parts]
    assert 0.15 < np.mean(exercises) < 0.35 and 0.05 < np.mean(elsewhere) < 0.25
    assert not any(a and b for a, b in zip(exercises, elsewhere, strict=True))


# ---- model -----------------------------------------------------------------------------------


def test_scores_of_the_passage_only(example):
    from kerasbert import build_transformer_model

    config = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config |= {"vocab_size": 20, "intermediate_size": 16, "max_position_embeddings": 16}
    config |= {"hidden_act": "gelu", "type_vocab_size": 6}
    model = example.add_scores(build_transformer_model(config, model="bert", verbose=0))
    segments = np.array([[0, 0, 1, 5, 1, 0, 0], [0, 1, 1, 1, 0, 0, 0]])
    scores = model.predict_on_batch([np.where(segments + 1, 7, 0), segments])
    assert scores.shape == (2, 2, 7)
    for row, allowed in zip(scores, segments > 0, strict=True):
        assert (row[:, ~allowed] == example.LOWEST).all() and (row[:, allowed] > -100).all()


def test_best_span_by_force(example):
    random = np.random.default_rng(0)
    for length in (1, 2, 7, 40):
        first, last = random.normal(size=(2, length))
        spans = {
            (first[i] + last[j], i, j + 1)
            for i in range(length)
            for j in range(i, min(i + example.MAX_ANSWER, length))
        }
        assert example.best_span(first, last) == pytest.approx(max(spans))


def test_answers_come_from_the_surest_part(example, module):
    args = SimpleNamespace(maxlen=8 + example.MAX_QUESTION + 1)
    assert example.room(args) == 8
    questions = [of(module, "abcdefghijklmnop", 0, 1), of(module, "xyz", 0, 1)]
    parts = [part for question in questions for part in module.windows(question, 8, 4)]

    def predict(inputs, **settings):
        assert len(inputs[0]) == len(parts) == 4
        scores = np.full((4, 2, args.maxlen), -50.0)
        for row, part in enumerate(parts):
            # Of the first passage "kl" is in the second part and in the third one, where nothing
            # else is likely; elsewhere all but [SEP] is unlikely, whatever the scores are.
            begin, end = len(part.ids), len(part.ids) + len(part.passage)
            scores[row, :, end] = [9.0, 3.0, 0.0, 0.0][row]
            if ord("k") in part.passage:
                scores[row, 0, begin + part.passage.index(ord("k"))] = 3.0
                scores[row, 1, begin + part.passage.index(ord("l"))] = 3.0
        scores[0, :, len(parts[0].ids)] = 8.0  # "a": higher, but [SEP] is higher still
        scores[3, :, len(parts[3].ids) + 1] = 1.0
        return scores

    found = example.find_answers(SimpleNamespace(predict=predict), questions, args, 0)
    assert found == ["kl", "y"]

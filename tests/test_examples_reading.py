"""The example of written answers learns to write spans, and measures rightly."""

import math
import re
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from example_scripts import check_mistake, load, run_quick
from test_examples import ROOT
from test_examples_questions import MASK, SEP, of

NAME = "reading_comprehension_by_seq2seq"


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
    rows = dict(
        re.findall(r"^(the clause|beam search, some|beam search among).* (\S+)%$", text, re.M)
    )
    assert len(rows) == 3 and rows["beam search among"] == "100.0"
    assert figures["test_loss"] < figures["loss_by_frequencies"]
    assert list(figures["scores"]) == ["F1", "exact"] and 0.2 < figures["guess"] < 0.4
    assert text.count("(right: ") == 6
    passage, _, answer = text.split("\n\n")[-3].split("\n")[-3:]
    assert answer.replace(" ", "") in passage


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "nowhere.json"], "nowhere.json"),
        (["--data", ROOT / "pyproject.toml"], "expected JSON in the form of SQuAD"),
        (["--maxlen", "66"], "expected more than 66"),
        (["--config", "bert_config.json"], "belong together"),
    ],
)
def test_mistakes(options, message, tmp_path, monkeypatch, capsys):
    check_mistake(NAME, [*options, f"--output={tmp_path}"], message, monkeypatch, capsys)


# ---- data ------------------------------------------------------------------------------------


def test_what_is_to_be_written(example, module):
    args = SimpleNamespace(maxlen=12, batch_size=3)
    questions = [of(module, "abcd", 1, 3, asked="q"), of(module, "xy", 0, 1)]
    ((ids, segments),) = example.to_write(questions, args)
    assert ids.shape == segments.shape == (3, 12)
    for row, question in enumerate(questions):
        read, written = module.prompt(question), example.answer_of(question)
        rest = [0] * (12 - len(read + written))
        assert ids[row].tolist() == read + written + rest
        assert segments[row].tolist() == [0] * len(read) + [1] * len(written) + rest
    assert not ids[2].any() and not segments[2].any()


def test_lessons_begin_with_copying(example, module, monkeypatch):
    monkeypatch.setattr(example, "to_write", lambda questions, args: questions)
    args = SimpleNamespace(maxlen=example.MAX_ANSWER + module.MAX_QUESTION + 2 + 9, seed=0)
    whole = of(module, "abcdefghijklmnopqrst", 4, 7, asked="xyz")
    lessons = example.Lessons(8, MASK, args)
    steps = [lessons([whole] * 400) for _ in range(8)]
    parts = [part for step in steps for part in step]
    assert {len(part.passage) for part in parts} == set(range(3, 10))
    assert all(0 <= part.start < part.end <= len(part.passage) for part in parts)
    # Nothing behind the mask but [SEP], and the answer is all of the part.
    copied = [np.mean([p.ids[-2] == MASK and p.start == 0 for p in step]) for step in steps]
    assert copied[0] == 1 and copied[0] > copied[1] > copied[2] > copied[4]
    made_up = [np.mean([MASK in part.ids for part in step]) for step in steps]
    assert made_up[0] == 1 and all(0.5 < share < 0.7 for share in made_up[4:])
    for part in parts:
        assert MASK in part.ids or module.span_text(part, part.start, part.end) == "efg"


# ---- loss ------------------------------------------------------------------------------------


def test_loss_by_hand(example):
    random = np.random.default_rng(1)
    length = 3 + example.MAX_ANSWER + 3
    tokens, segments = np.zeros((3, length), "int32"), np.zeros((3, length), "int32")
    for row, (begin, end) in enumerate([(2, 5), (4, 4 + example.MAX_ANSWER + 1)]):
        tokens[row, :end] = random.integers(1, 7, end)
        segments[row, begin:end] = 1
    hidden = random.normal(size=(3, length, 7)).astype("float32")
    shifted = hidden - np.log(np.exp(hidden).sum(axis=-1, keepdims=True))
    expected = [
        -shifted[row, place - 1, tokens[row, place]] for row, place in np.argwhere(segments)
    ]
    layer = example.AnswerLoss(keras.layers.Activation("linear"), output_axis=2)
    layer([keras.ops.array(value) for value in (tokens, segments, hidden)])
    assert float(layer.losses[0]) == pytest.approx(np.mean(expected), rel=1e-5)


def test_loss_by_frequencies(example, module):
    train = [of(module, "aab", 0, 2)]  # a, a, [SEP]
    loss = example.frequency_loss(train, [of(module, "ab", 0, 2)])  # a, b, [SEP]
    assert loss == pytest.approx(-(math.log(3 / 6) + math.log(1 / 6) + math.log(2 / 6)) / 3)


# ---- answers ---------------------------------------------------------------------------------


def test_allowed_tokens_are_those_of_spans(example, module):
    passages = ["abcab", "aaa", "x"]
    allowed = example.spans_of([of(module, passage, 0, 1) for passage in passages])
    for row, passage in enumerate(passages):
        spans = {passage[i:j] for i in range(len(passage)) for j in range(i + 1, len(passage) + 1)}
        written, ended = {""}, set()
        for _ in range(len(passage) + 1):
            longer = set()
            for text in written:
                follow = allowed(row, np.array([ord(char) for char in text], "int32"))
                ended |= {text} if SEP in follow else set()
                longer |= {text + chr(token) for token in follow - {SEP}}
            written = longer
        assert ended == spans and not written


def test_text_of_tokens(example, module):
    question = module.Question([], [5, 6, 7], [[1], [2, 3], []], 0, 1, "", " ab c", [])
    assert example.text_of(question, [5, 6]) == "ab "
    assert example.text_of(question, [6]) == "b "
    assert example.text_of(question, [6, 5]) is None
    assert example.text_of(question, []) is None

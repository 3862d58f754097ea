"""The example of reading comprehension runs, answers with spans, and measures rightly."""

import importlib.util
import json
import math
import re
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from test_examples import ROOT, run_script

SCRIPT = ROOT / "examples" / "reading_comprehension_by_seq2seq.py"
SEP, MASK = 3, 4


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location(SCRIPT.stem, SCRIPT)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPT.parent)
        spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sample(example):
    """Its questions, encoded, and the tokenizer."""
    triples = example.read_data(example.DATA)
    _, tokenizer = example.small_model([q + text for q, text, _ in triples])
    return example.encode(triples, tokenizer), tokenizer


def of(example, passage, start, end):
    """A question on a passage of one-character tokens."""
    places = [[n] for n in range(len(passage))]
    ids = [ord(char) for char in passage]
    return example.Question([2, 9, SEP], ids, places, start, end, passage, [passage[start:end]])


# ---- runs ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_quick():
    done = run_script(SCRIPT, "--quick")
    assert done.returncode == 0, done.stderr
    assert "320 of 320 questions to train on have a short answer" in done.stdout
    rows = dict(re.findall(r"^(the clause|beam search(?: among)?).* (\S+)%$", done.stdout, re.M))
    assert len(rows) == 3 and rows["beam search among"] == "100.0"
    losses = [float(loss) for loss in re.findall(r"val_loss: (\S+)", done.stdout)]
    alone = re.search(r"by frequencies alone: (\S+)", done.stdout)
    assert losses[-1] < float(alone[1])
    assert len(re.findall(r"\(right: .+\)$", done.stdout, re.M)) == 6
    passage, _, answer = done.stdout.strip().split("\n")[-3:]
    assert answer.replace(" ", "") in passage


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nowhere.json"], "nowhere.json"),
        (["--test", ROOT / "pyproject.toml"], "expected JSON in the form of SQuAD"),
        (["--maxlen", "62"], "expected more than 62"),
        (["--config", "bert_config.json"], "belong together"),
    ],
)
def test_mistakes(arguments, message):
    done = run_script(SCRIPT, *arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert message in done.stderr.splitlines()[-1]


# ---- data ------------------------------------------------------------------------------------


def test_the_sample_is_what_it_says(example):
    triples = example.read_data(example.DATA)
    assert len(triples) == 384 and len({text for _, text, _ in triples}) == 96
    content = json.loads(example.DATA.read_text("utf-8"))
    for article in content["data"]:
        for part in article["paragraphs"]:
            for answer in (answer for entry in part["qas"] for answer in entry["answers"]):
                assert part["context"].find(answer["text"]) == answer["answer_start"]


def test_tokens_stand_for_the_answer(example, sample):
    questions, tokenizer = sample
    assert len(questions) == 384
    for question in questions:
        ids = question.passage[question.start : question.end]
        assert tokenizer.decode(ids) == question.answers[0]
        assert example.text_of(question, question.passage) == question.text


def test_an_answer_that_is_in_the_passage_goes_first(example, sample):
    text = "李明住在北京，今年九十岁。"
    triples = [
        ("谁？", text, ["周强", "北京"]),
        ("谁？", text, ["周强"]),
        ("谁？", text * 9, [text * 3]),
    ]
    (question,) = example.encode(triples, sample[1])
    assert question.answers == ["北京", "周强"] and (question.start, question.end) == (4, 6)
    with pytest.raises(example.UsageError, match="no answer of at most 20 tokens"):
        example.encode(triples[1:], sample[1])


@pytest.mark.parametrize("size", [4, 6, 11, 12, 50])
def test_a_part_of_the_passage_holds_the_answer(example, size):
    rng = np.random.default_rng(0)
    for start in range(8):
        whole = of(example, "abcdefghijkl", start, start + 4)
        parts = [example.cut(whole, size, rng) for _ in range(60)]
        for part in parts:
            assert len(part.passage) == len(part.places) == min(size, 12)
            assert example.text_of(part, part.passage[part.start : part.end]) == whole.answers[0]
        possible = set(range(max(start + 4 - size, 0), min(start, max(12 - size, 0)) + 1))
        assert {part.places[0][0] for part in parts} == possible


def test_exercises_hide_a_span_of_the_passage(example, sample):
    rng = np.random.default_rng(0)
    for question in sample[0] * 3:
        made = example.cloze(question, MASK, rng)
        assert 0 <= made.start < made.end <= len(made.passage) == len(question.passage)
        assert made.end - made.start <= example.MAX_ANSWER
        assert len(made.question) <= example.MAX_QUESTION and made.question.count(MASK) == 1
        hint = made.question.index(MASK)
        before, after = made.question[1:hint], made.question[hint + 1 : -1]
        rest = iter(question.passage[: made.start])
        assert all(token in rest for token in before)  # in this order, with gaps
        rest = iter(question.passage[made.end :])
        assert all(token in rest for token in after)


def test_batches(example, sample):
    args = SimpleNamespace(maxlen=98, batch_size=100, seed=0)
    batches = example.Batches(sample[0], args)
    assert len(batches) == 4
    for index in range(4):
        ((ids, segments),) = batches[index]
        assert ids.shape == segments.shape == (100, 98)
        part = sample[0][index * 100 : (index + 1) * 100]
        for row, question in enumerate(part):
            expected = [*example.prompt(question), *example.answer_of(question)]
            assert ids[row][ids[row] != 0].tolist() == expected
            assert ids[row][segments[row] == 1].tolist() == example.answer_of(question)
        assert not ids[len(part) :].any()


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


def test_loss_by_frequencies(example):
    train = [of(example, "aab", 0, 2)]  # a, a, [SEP]
    loss = example.frequency_loss(train, [of(example, "ab", 0, 2)])  # a, b, [SEP]
    assert loss == pytest.approx(-(math.log(3 / 6) + math.log(1 / 6) + math.log(2 / 6)) / 3)


# ---- answers ---------------------------------------------------------------------------------


def test_allowed_tokens_are_those_of_spans(example):
    passages = ["abcab", "aaa", "x"]
    allowed = example.spans_of([of(example, passage, 0, 1) for passage in passages])
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


def test_text_of_tokens(example):
    question = example.Question([], [5, 6, 7], [[1], [2, 3], []], 0, 1, " ab c", [])
    assert example.text_of(question, [5, 6]) == "ab "
    assert example.text_of(question, [6]) == "b "
    assert example.text_of(question, [6, 5]) is None
    assert example.text_of(question, []) is None


def test_closest_clauses(example, sample):
    questions, tokenizer = sample
    clauses = example.closest_clauses(questions, tokenizer)
    for clause, question in zip(clauses, questions, strict=True):
        assert clause in re.split("[，。]", question.text)
    place = questions[0]._replace(
        text="今年九十五岁，住在哪里呢。他", places=[[n] for n in range(14)]
    )
    place = place._replace(passage=list(range(14)))
    assert example.closest_clauses([place], tokenizer) == ["住在哪里呢"]


@pytest.mark.parametrize(
    ("text", "answers", "expected"),
    [
        ("北京大学", ["北京大学"], (1, 1.0)),
        ("“北京大学”。", ["清华", "北京 大学"], (1, 1.0)),
        ("北京", ["北京大学"], (0, 2 / 3)),
        ("在北京的大学", ["北京大学"], (0, 4 / 10)),  # one run, not all that is common
        ("1998年", ["1999年", "98年"], (0, 1 / 2)),  # a number is one word
        ("IBM", ["ibm公司"], (0, 1 / 2)),
        ("", ["北京"], (0, 0.0)),
    ],
)
def test_scores_by_hand(example, text, answers, expected):
    assert example.score(text, answers) == pytest.approx(expected)

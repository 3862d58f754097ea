"""Questions in the examples: parts of passages hold what they are to hold, scores are CMRC's."""

import json
import re
from itertools import chain, pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from example_scripts import EXAMPLES, load

SAMPLE = EXAMPLES / "data" / "reading.json"
SEP, MASK = 3, 4


@pytest.fixture(scope="module")
def module():
    return load("questions")


@pytest.fixture(scope="module")
def sample(module):
    """Its questions, encoded, and the tokenizer."""
    triples = module.read_questions(SAMPLE)
    _, tokenizer = load("runs").small_model([q + text for q, text, _ in triples])
    return module.encode(triples, tokenizer), tokenizer


def of(module, passage, start, end, asked=""):
    """A question on a passage of one-character tokens."""
    places = [[n] for n in range(len(passage))]
    ids = [2, *map(ord, asked), SEP]
    answers = [passage[start:end]]
    return module.Question(
        ids, list(map(ord, passage)), places, start, end, asked, passage, answers
    )


# ---- data ------------------------------------------------------------------------------------


def test_the_sample_is_what_it_says(module):
    triples = module.read_questions(SAMPLE)
    assert len(triples) == 384 and len({text for _, text, _ in triples}) == 96
    content = json.loads(SAMPLE.read_text("utf-8"))
    for article in content["data"]:
        for part in article["paragraphs"]:
            for answer in (answer for entry in part["qas"] for answer in entry["answers"]):
                assert part["context"].find(answer["text"]) == answer["answer_start"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "expected JSON in the form of SQuAD"),
        ("{", "expected JSON in the form of SQuAD"),
        ('{"data": [{"paragraphs": [{"qas": [{"question": "谁", "answers": []}]}]}]}', "context"),
        (
            '{"data": [{"paragraphs": [{"context": 5, "qas": [{"question": 0, "answers": []}]}]}]}',
            "int",
        ),
    ],
)
def test_mistakes_in_files(module, tmp_path, content, message):
    (tmp_path / "data.json").write_text(content, "utf-8")
    with pytest.raises(module.UsageError, match=message):
        module.read_questions(tmp_path / "data.json")


def test_questions_without_answer_are_left_out(module, tmp_path):
    entries = [
        {"question": "谁", "answers": answers}
        for answers in ([{"text": "周"}], [], [{"text": " "}], [{"text": ""}, {"text": "强"}])
    ]
    content = {"data": [{"paragraphs": [{"context": "周强。", "qas": entries}]}]}
    (tmp_path / "data.json").write_text(json.dumps(content), "utf-8")
    found = module.read_questions(tmp_path / "data.json")
    assert [answers for *_, answers in found] == [["周"], ["", "强"]]


def test_every_sixth_passage_is_for_the_test(module):
    args = SimpleNamespace(data=SAMPLE, test=None)
    train, test = module.train_and_test(args)
    passages = [{text for _, text, _ in part} for part in (train, test)]
    assert len(train) + len(test) == 384 and [len(part) for part in passages] == [80, 16]
    assert not passages[0] & passages[1]
    both = module.train_and_test(SimpleNamespace(data=SAMPLE, test=SAMPLE))
    assert [len(part) for part in both] == [384, 384]


def test_tokens_stand_for_the_answer(module, sample):
    questions, tokenizer = sample
    assert module.with_short_answers(questions, 20) == questions and len(questions) == 384
    for question in questions:
        ids = question.passage[question.start : question.end]
        assert tokenizer.decode(ids) == question.answers[0]
        assert module.span_text(question, question.start, question.end) == question.answers[0]
        assert module.span_text(question, 0, len(question.passage)) == question.text
        assert tokenizer.decode(question.ids) == question.asked


def test_an_answer_that_is_in_the_passage_goes_first(module, sample):
    text = "李明住在北京，今年九十岁。"
    triples = [
        ("谁？", text, ["", "周强", "北京"]),
        ("谁？", text, ["周强"]),
        ("谁？", text * 9, [text * 3]),
    ]
    questions = module.encode(triples, sample[1])
    assert questions[0].answers == ["北京", "周强"]
    assert [question[3:5] for question in questions] == [(4, 6), (0, 0), (0, 39)]
    assert module.with_short_answers(questions, 20) == questions[:1]
    with pytest.raises(module.UsageError, match="no answer of at most 20 tokens"):
        module.with_short_answers(questions[1:], 20)


def test_batches_are_of_one_size_and_hold_each_question(module):
    batches = module.Batches(range(10), 4, list, seed=0)
    orders = []
    for _ in range(2):
        batches.on_epoch_begin()
        parts = [batches[n] for n in range(len(batches))]
        assert [len(part) for part in parts] == [4, 4, 4]
        orders.append(list(chain(*parts)))
        assert sorted(orders[-1][:10]) == list(range(10))
        assert orders[-1][10:] == orders[-1][:2]
    assert orders[0] != orders[1]
    plain = module.Batches(range(10), 4, list)
    plain.on_epoch_begin()
    assert [plain[n] for n in range(len(plain))] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [len(module.Batches(range(2), 5, list, seed=0)[0])] == [5]


# ---- parts of passages -----------------------------------------------------------------------


@pytest.mark.parametrize("size", [4, 6, 11, 12, 50])
def test_a_part_of_the_passage_holds_the_answer(module, size):
    rng = np.random.default_rng(0)
    for start in range(8):
        whole = of(module, "abcdefghijkl", start, start + 4)
        parts = [module.cut(whole, size, rng) for _ in range(60)]
        for part in parts:
            assert len(part.passage) == len(part.places) == min(size, 12)
            assert module.span_text(part, part.start, part.end) == whole.answers[0]
        possible = set(range(max(start + 4 - size, 0), min(start, max(12 - size, 0)) + 1))
        assert {part.places[0][0] for part in parts} == possible


@pytest.mark.parametrize("length", [1, 5, 6, 7, 9, 12, 13])
@pytest.mark.parametrize(("size", "stride"), [(6, 3), (6, 6), (5, 1)])
def test_windows_are_all_of_the_passage(module, length, size, stride):
    whole = of(module, "abcdefghijklm"[:length], 0, 1)
    parts = module.windows(whole, size, stride)
    begins = [part.places[0][0] for part in parts]
    assert begins[0] == 0 and all(0 < b - a <= stride for a, b in pairwise(begins))
    for begin, part in zip(begins, parts, strict=True):
        assert part.passage == whole.passage[begin : begin + size]
        assert len(part.passage) == min(size, length)
        assert (part.start, part.end) == (-begin, 1 - begin)
    assert begins[-1] + len(parts[-1].passage) == length


def test_exercises_hide_a_span_of_the_passage(module, sample):
    rng = np.random.default_rng(0)
    for question in sample[0] * 3:
        made = module.cloze(question, MASK, rng)
        assert 0 <= made.start < made.end <= len(made.passage) == len(question.passage)
        assert made.end - made.start <= module.MAX_EXERCISE
        assert len(made.ids) <= module.MAX_QUESTION and made.ids.count(MASK) == 1
        hint = made.ids.index(MASK)
        before, after = made.ids[1:hint], made.ids[hint + 1 : -1]
        rest = iter(question.passage[: made.start])
        assert all(token in rest for token in before)  # in this order, with gaps
        rest = iter(question.passage[made.end :])
        assert all(token in rest for token in after)


def test_easy_exercises_ask_for_what_follows(module, sample):
    rng = np.random.default_rng(0)
    for question in sample[0]:
        made = module.continuation(question, MASK, rng)
        assert made.end - made.start == min(module.MAX_EXERCISE, len(question.passage))
        assert 0 <= made.start < made.end <= len(made.passage) == len(question.passage)
        before = made.ids[1:-2]
        assert made.ids[-2:] == [MASK, question.ids[-1]] and len(before) <= min(8, made.start)
        assert before == question.passage[made.start - len(before) : made.start]


def test_text_of_tokens(module):
    question = module.Question([], [5, 6, 7], [[1], [2, 3], []], 0, 1, "", " ab c", [])
    assert module.span_text(question, 0, 2) == "ab "
    assert module.span_text(question, 1, 3) == "b "
    assert module.span_text(question, 2, 3) == ""


# ---- scores ----------------------------------------------------------------------------------


def test_closest_clauses(module, sample):
    clauses = module.closest_clauses(sample[0])
    for clause, question in zip(clauses, sample[0], strict=True):
        assert clause in re.split("[，。]", question.text)
    text = "今年九十五岁，住在哪里呢。他"
    question = of(module, text, 0, 1, asked="罗娜住在哪里？")
    assert module.closest_clauses([question]) == ["住在哪里呢"]
    # Of a part it is a clause of this part.
    assert module.closest_clauses([module.part_of(question, 9, 50)]) == ["哪里呢"]


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
def test_scores_by_hand(module, text, answers, expected):
    assert module.score(text, answers) == pytest.approx(expected)


def test_mean_scores(module):
    questions = [of(module, "北京大学", 0, 4), of(module, "北京大学", 0, 2)]
    assert module.mean_scores(["北京", "北京"], questions) == pytest.approx(
        (1 / 2, (2 / 3 + 1) / 2)
    )

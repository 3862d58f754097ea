"""Questions on passages: files in the form of SQuAD, parts of passages, exercises, scores."""

import json
import re
from difflib import SequenceMatcher
from typing import NamedTuple

import keras
import numpy as np
from files import read_text
from shared import UsageError

MAX_QUESTION = 24  # tokens, [CLS] and [SEP] included
MAX_EXERCISE = 20  # tokens of an answer that is made up


class Question(NamedTuple):
    """A question on a passage, or on a part of it.

    The answer to train with is passage[start:end]; end is 0 if none was found, and start is
    below 0 or end too high where the answer is not, or not all, in this part.
    """

    ids: list  # tokens of the question, with [CLS] and [SEP]
    passage: list  # token ids
    places: list  # the characters of the text that each token of the passage stands for
    start: int
    end: int
    asked: str  # the question
    text: str  # the whole passage
    answers: list  # texts


# ---- data ------------------------------------------------------------------------------------


def read_questions(path):
    """Returns triples (question, passage, answers) of a file; those without answer are left out."""
    content = read_text(path)
    try:
        found = [
            (entry["question"], part["context"], [answer["text"] for answer in entry["answers"]])
            for article in json.loads(content)["data"]
            for part in article["paragraphs"]
            for entry in part["qas"]
        ]
        return [row for row in found if row[1].strip() and any(map(str.strip, row[2]))]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: expected JSON in the form of SQuAD: {error!r}") from error


def train_and_test(args):
    """Returns the triples of --data and of --test, which is by default every sixth passage."""
    data = read_questions(args.data)
    if args.test:
        train, test = data, read_questions(args.test)
    else:
        held_out = set(sorted({text for _, text, _ in data})[::6])
        train, test = ([row for row in data if (row[1] in held_out) == side] for side in (0, 1))
    if not train or not test:
        raise UsageError(f"{len(train)} questions to train on, {len(test)} to test with")
    return train, test


def encode(triples, tokenizer):
    """Returns a `Question` for each triple."""
    questions, known = [], {}
    for asked, text, answers in triples:
        if text not in known:
            tokens = tokenizer.tokenize(text)
            known[text] = (
                tokenizer.tokens_to_ids(tokens)[1:-1],
                tokenizer.rematch(text, tokens)[1:-1],
            )
        passage, places = known[text]
        # The places of answers in the data are not always right, so they are looked for.
        answers = [answer for answer in answers if answer.strip()]
        answers.sort(key=lambda answer: answer not in text)
        first = text.find(answers[0])
        characters = range(first, first + len(answers[0])) if first >= 0 else ()
        inside = [n for n, place in enumerate(places) if place and place[0] in characters]
        span = (inside[0], inside[-1] + 1) if inside else (0, 0)
        ids, _ = tokenizer.encode(asked, maxlen=MAX_QUESTION)
        questions.append(Question(ids, passage, places, *span, asked, text, answers))
    return questions


def with_short_answers(questions, most):
    """Returns those whose answer stands in the passage and has at most so many tokens."""
    found = [question for question in questions if 0 < question.end - question.start <= most]
    if not found:
        raise UsageError(f"no answer of at most {most} tokens stands in its passage")
    return found


class Batches(keras.utils.PyDataset):
    """Batches of questions, all of the same size.

    Args:
        questions: list of `Question`.
        size: how many are in a batch.
        make: function of the questions of a batch that returns it.
        seed: of the orders, another one in each epoch; the last batch is filled up with
            questions that come again. None keeps the order, and the last batch may be smaller.
    """

    def __init__(self, questions, size, make, seed=None):
        super().__init__()
        self.questions, self.size, self.make = list(questions), size, make
        self.rng = None if seed is None else np.random.default_rng(seed)

    def __len__(self):
        return -(-len(self.questions) // self.size)

    def on_epoch_begin(self):
        """Puts the questions in a new order."""
        if self.rng is not None:
            self.rng.shuffle(self.questions)

    def __getitem__(self, index):
        chosen = self.questions[index * self.size : (index + 1) * self.size]
        while self.rng is not None and len(chosen) < self.size:
            chosen += self.questions[: self.size - len(chosen)]
        return self.make(chosen)


# ---- parts of passages -----------------------------------------------------------------------


def part_of(question, begin, size):
    """Returns the question on so many tokens of its passage, from the number `begin` on."""
    return question._replace(
        passage=question.passage[begin : begin + size],
        places=question.places[begin : begin + size],
        start=question.start - begin,
        end=question.end - begin,
    )


def cut(question, size, rng):
    """Returns the question on a part of its passage, drawn among those that hold the answer."""
    last = max(len(question.passage) - size, 0)
    low = min(max(question.end - size, 0), last)
    return part_of(question, int(rng.integers(low, min(question.start, last) + 1)), size)


def windows(question, size, stride):
    """Returns the question on parts of its passage that overlap, and together are all of it."""
    last = max(len(question.passage) - size, 0)
    begins = [*range(0, last, stride), last]
    return [part_of(question, begin, size) for begin in begins]


def cloze(question, mask, rng):
    """Returns an exercise on the same passage: what stands between these tokens?

    It teaches, without anybody's labels, to look for the words of a question.
    """
    passage = question.passage
    size = int(rng.integers(min(4, len(passage)), min(MAX_EXERCISE, len(passage)) + 1))
    start = int(rng.integers(0, len(passage) - size + 1))
    around = int(rng.integers(3, (MAX_QUESTION - 3) // 2 + 1))
    sides = passage[max(start - around, 0) : start], passage[start + size :][:around]
    before, after = ([token for token in side if rng.random() < 0.7] for side in sides)
    ids = [question.ids[0], *before, mask, *after, question.ids[-1]]
    return question._replace(ids=ids, start=start, end=start + size)


def continuation(question, mask, rng):
    """Returns the easiest exercise on the same passage: what follows these tokens?

    It teaches to copy, on which all answers in the words of a passage rest.
    """
    passage = question.passage
    size = min(MAX_EXERCISE, len(passage))
    start = int(rng.integers(0, len(passage) - size + 1))
    before = passage[max(start - int(rng.integers(2, 9)), 0) : start]
    ids = [question.ids[0], *before, mask, question.ids[-1]]
    return question._replace(ids=ids, start=start, end=start + size)


def prompt(question):
    """Returns the ids that a model reads: [CLS] question [SEP] passage [SEP]."""
    return [*question.ids, *question.passage, question.ids[-1]]


def span_text(question, start, end):
    """Returns the text that tokens of the passage stand for, without the last, `end`."""
    places = [place for place in question.places[start:end] if place]
    return question.text[places[0][0] : places[-1][-1] + 1] if places else ""


# ---- evaluation ------------------------------------------------------------------------------


def words(text):
    """Returns Chinese characters one by one, other words whole, without punctuation."""
    return re.findall(r"[\u4e00-\u9fff]|[^\W_\u4e00-\u9fff]+", text.lower())


def closest_clauses(questions):
    """Returns, as a guess, the clause of each passage that shares most words with the question."""
    found = []
    for question in questions:
        asked = set(words(question.asked))
        text = span_text(question, 0, len(question.passage))
        clauses = re.split("[，。；：！？、,;!?]", text)
        found.append(max(clauses, key=lambda clause: len(asked & set(words(clause)))))
    return found


def score(text, answers):
    """Returns whether a text is one of the answers, and F1 by the longest run of common words.

    So CMRC 2018 counts (Cui et al. 2019, arXiv:1810.07366).
    """
    exact, f1, found = 0, 0.0, words(text)
    for right in map(words, answers):
        match = SequenceMatcher(None, found, right, autojunk=False).find_longest_match()
        exact |= found == right
        f1 = max(f1, 2 * match.size / max(len(found) + len(right), 1))
    return exact, f1


def mean_scores(texts, questions):
    """Returns the shares of exact answers and F1 of these answers."""
    pairs = [score(text, q.answers) for text, q in zip(texts, questions, strict=True)]
    return tuple(np.mean(pairs, axis=0))


def print_answers(questions, texts, most=6):
    """Prints some questions, and what was answered."""
    print()
    for question, text in list(zip(questions, texts, strict=True))[:: len(texts) // most + 1]:
        print(f"{question.asked} {text} (right: {question.answers[0]})")

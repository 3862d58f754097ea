"""Reads a passage and writes the answer to a question, which must be a span of the passage.

    python examples/reading_comprehension_by_seq2seq.py
    python examples/reading_comprehension_by_seq2seq.py --data cmrc2018_train.json \
        --test cmrc2018_dev.json
    python examples/reading_comprehension_by_seq2seq.py --config bert_config.json \
        --checkpoint bert_model.ckpt --vocab vocab.txt --data … --test …

`application="unilm"` makes a sequence-to-sequence model of any encoder (Dong et al. 2019,
arXiv:1905.03197): it reads `[CLS] question [SEP] passage [SEP]` and writes `answer [SEP]`.
`allowed_tokens` keeps a beam search to the spans of the passage. Data are in the form of SQuAD,
as CMRC 2018; of long passages a part is read that holds the answer. Without arguments it is a
small RoFormer with random weights, on made-up passages.
"""

import json
import math
import os
import re
import sys
import time
from collections import Counter
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from keras import ops
from shared import UsageError, main, small_model

from kerasbert import build_transformer_model
from kerasbert.generation import generate, stream
from kerasbert.layers import Loss
from kerasbert.tokenizers import Tokenizer

DATA = Path(__file__).parent / "data" / "reading.json"
SIZES = {
    "model_type": "roformer",
    "hidden_size": 96,
    "num_attention_heads": 3,
    "intermediate_size": 384,
    "initializer_range": 0.1,  # about 1 / sqrt(hidden_size): 0.02 is for greater models
    "max_position_embeddings": 512,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
MAX_QUESTION, MAX_ANSWER = 20, 20  # tokens
EXERCISES = 0.6  # share of made-up questions in the training

# ---- data ------------------------------------------------------------------------------------


class Question(NamedTuple):
    """A question on a passage; answers[0] is passage[start:end], as text."""

    question: list  # token ids, with [CLS] and [SEP]
    passage: list  # token ids
    places: list  # the characters of the text that each token of the passage stands for
    start: int
    end: int
    text: str
    answers: list


def read_data(path):
    """Returns triples (question, passage, answers) of a file in the form of SQuAD."""
    try:
        return [
            (entry["question"], part["context"], [answer["text"] for answer in entry["answers"]])
            for article in json.loads(path.read_text("utf-8-sig"))["data"]
            for part in article["paragraphs"]
            for entry in part["qas"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: expected JSON in the form of SQuAD: {error!r}") from error


def encode(triples, tokenizer):
    """Returns a `Question` for each triple with a short answer that stands in its passage."""
    questions, known = [], {}
    for question, text, answers in triples:
        if text not in known:
            tokens = tokenizer.tokenize(text)
            known[text] = (
                tokenizer.tokens_to_ids(tokens)[1:-1],
                tokenizer.rematch(text, tokens)[1:-1],
            )
        passage, places = known[text]
        # The places of answers in the data are not always right, so they are looked for.
        answers = sorted(answers, key=lambda answer: answer not in text)
        first = text.find(answers[0])
        characters = range(first, first + len(answers[0])) if first >= 0 else ()
        inside = [n for n, place in enumerate(places) if place and place[0] in characters]
        if 0 < len(inside) <= MAX_ANSWER:
            ids, _ = tokenizer.encode(question, maxlen=MAX_QUESTION)
            span = inside[0], inside[-1] + 1
            questions.append(Question(ids, passage, places, *span, text, answers))
    if not questions:
        raise UsageError(f"no answer of at most {MAX_ANSWER} tokens stands in its passage")
    return questions


def cut(question, size, rng):
    """Returns the question with a part of its passage, drawn among those that hold the answer."""
    last = max(len(question.passage) - size, 0)
    low = min(max(question.end - size, 0), last)
    begin = int(rng.integers(low, min(question.start, last) + 1))
    return question._replace(
        passage=question.passage[begin : begin + size],
        places=question.places[begin : begin + size],
        start=question.start - begin,
        end=question.end - begin,
    )


def cloze(question, mask, rng):
    """Returns an exercise on the same passage: what stands between these tokens?

    It teaches, without anybody's labels, to look for the words of a question and to copy.
    """
    passage = question.passage
    size = int(rng.integers(min(4, len(passage)), min(MAX_ANSWER, len(passage)) + 1))
    start = int(rng.integers(0, len(passage) - size + 1))
    around = int(rng.integers(3, (MAX_QUESTION - 3) // 2 + 1))
    sides = passage[max(start - around, 0) : start], passage[start + size :][:around]
    before, after = ([token for token in side if rng.random() < 0.7] for side in sides)
    ids = [question.question[0], *before, mask, *after, question.question[-1]]
    return question._replace(question=ids, start=start, end=start + size)


def prompt(question):
    """Returns the ids that the model reads: [CLS] question [SEP] passage [SEP]."""
    return [*question.question, *question.passage, question.question[-1]]


def answer_of(question):
    """Returns the ids that the model is to write: answer [SEP]."""
    return [*question.passage[question.start : question.end], question.question[-1]]


class Batches(keras.utils.PyDataset):
    """Batches of token ids and segment ids (B, L): 0 for what is read, 1 for the answer.

    With the id of a mask they are for training: in a new order in each epoch, of each passage
    another part, and with exercises.
    """

    def __init__(self, questions, args, mask=None):
        super().__init__()
        self.questions, self.args, self.mask = list(questions), args, mask
        self.rng = np.random.default_rng(args.seed)

    def __len__(self):
        return math.ceil(len(self.questions) / self.args.batch_size)

    def on_epoch_begin(self):
        """Puts the questions in a new order."""
        if self.mask is not None:
            self.rng.shuffle(self.questions)

    def __getitem__(self, index):
        size = self.args.batch_size
        # One shape for all batches: the training step is compiled once.
        ids = np.zeros((size, self.args.maxlen), "int32")
        segments = np.zeros_like(ids)
        for row, question in enumerate(self.questions[index * size : (index + 1) * size]):
            if self.mask is not None:
                # Short ones too: with less to choose from, copying is learned sooner.
                least = question.end - question.start
                question = cut(question, self.rng.integers(least, window(self.args) + 1), self.rng)
                if self.rng.random() < EXERCISES:
                    question = cloze(question, self.mask, self.rng)
            read, written = prompt(question), answer_of(question)
            ids[row, : len(read) + len(written)] = read + written
            segments[row, len(read) : len(read) + len(written)] = 1
        return ((ids, segments),)


def window(args):
    """Returns how many tokens of a passage there is room for."""
    return args.maxlen - MAX_QUESTION - MAX_ANSWER - 2


# ---- model -----------------------------------------------------------------------------------


class AnswerLoss(Loss):
    """Cross-entropy of the tokens of the answer, each predicted from those before it.

    Args:
        head: model from hidden states to logits. It is called where the answer stands only,
            as most tokens are of question and passage.
    """

    def __init__(self, head, **kwargs):
        super().__init__(**kwargs)
        self.head = head

    def compute_loss(self, inputs, mask=None):
        """Returns the mean over the tokens of segment 1."""
        tokens, segments, hidden = inputs
        begin = ops.argmax(segments, axis=1)[:, None]  # (B, 1)
        places = begin + ops.arange(MAX_ANSWER + 1, dtype=begin.dtype)  # (B, A)
        targets = ops.take_along_axis(tokens, places, axis=1)
        weights = ops.cast(ops.take_along_axis(segments, places, axis=1), "float32")
        logits = self.head(ops.take_along_axis(hidden, places[..., None] - 1, axis=1))
        losses = keras.losses.sparse_categorical_crossentropy(targets, logits, from_logits=True)
        return ops.sum(losses * weights) / ops.sum(weights)


def train(model, batches, test, args):
    """Trains the model; prints the loss of the test after each epoch."""
    hidden = model.get_layer("MLM-Dense").input
    loss = AnswerLoss(keras.Model(hidden, model.output), output_axis=2)
    training = keras.Model(model.inputs, loss([*model.inputs, hidden]))
    steps = args.epochs * len(batches)
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, steps, warmup_target=args.learning_rate, warmup_steps=max(steps // 10, 1)
    )
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=0.01, clipnorm=1.0)
    # Compiling takes its time, which pays in a long training.
    training.compile(optimizer, jit_compile=not args.quick)
    verbose = 1 if sys.stdout.isatty() else 2
    training.fit(batches, validation_data=test, epochs=args.epochs, verbose=verbose)


# ---- answers ---------------------------------------------------------------------------------


def spans_of(questions):
    """Returns a function for `allowed_tokens`: each row writes a span of its passage, then ends."""

    def allowed(row, answer):
        passage, size = questions[row].passage, len(answer)
        starts = range(len(passage) - size)
        follow = {passage[n + size] for n in starts if passage[n : n + size] == answer.tolist()}
        return follow | {questions[row].question[-1]} if size else follow

    return allowed


def text_of(question, ids):
    """Returns the text that these ids stand for in the passage, None if they are no span."""
    for start in range(len(question.passage) - len(ids) + 1 if ids else 0):
        if question.passage[start : start + len(ids)] == ids:
            places = [place for place in question.places[start : start + len(ids)] if place]
            return question.text[places[0][0] : places[-1][-1] + 1]
    return None


def write_answers(model, tokenizer, questions, spans_only):
    """Returns the answers by beam search, and the share of them that are spans."""
    texts, spans, end = [], 0, questions[0].question[-1]
    for begin in range(0, len(questions), 64):
        part = questions[begin : begin + 64]
        answers = generate(
            model,
            [prompt(question) for question in part],
            MAX_ANSWER,
            "beam",
            end_id=end,
            allowed_tokens=spans_of(part) if spans_only else None,
        )
        for question, answer in zip(part, answers, strict=True):
            ids = [token for token in answer.tolist() if token != end]
            text = text_of(question, ids)
            spans += text is not None
            texts.append(tokenizer.decode(ids) if text is None else text)
    return texts, spans / len(questions)


def closest_clauses(questions, tokenizer):
    """Returns the clause of each passage that shares most words with the question."""
    texts = []
    for question in questions:
        asked = set(words(tokenizer.decode(question.question)))
        clauses = re.split("[，。；：！？、,;!?]", text_of(question, question.passage))
        texts.append(max(clauses, key=lambda clause: len(asked & set(words(clause)))))
    return texts


# ---- evaluation ------------------------------------------------------------------------------


def words(text):
    """Returns Chinese characters one by one, other words whole, without punctuation."""
    return re.findall(r"[\u4e00-\u9fff]|[^\W_\u4e00-\u9fff]+", text.lower())


def score(text, answers):
    """Returns whether a text is one of the answers, and F1 by the longest run of common words."""
    exact, f1, found = 0, 0.0, words(text)
    for right in map(words, answers):
        match = SequenceMatcher(None, found, right, autojunk=False).find_longest_match()
        exact |= found == right
        f1 = max(f1, 2 * match.size / max(len(found) + len(right), 1))
    return exact, f1


def frequency_loss(questions, asked):
    """Returns the loss per token if nothing is known but how frequent tokens are in answers."""
    counts = Counter(token for question in questions for token in answer_of(question))
    total = counts.total() + len(counts) + 1  # every token is counted once more, as is any other
    tokens = [token for question in asked for token in answer_of(question)]
    return -sum(math.log((counts[token] + 1) / total) for token in tokens) / len(tokens)


def compare(model, tokenizer, asked):
    """Prints how good the answers are, and a guess beside them."""
    rows = {
        "the clause most like the question": (closest_clauses(asked, tokenizer), 1),
        "beam search": write_answers(model, tokenizer, asked, spans_only=False),
        "beam search among the spans": write_answers(model, tokenizer, asked, spans_only=True),
    }
    print(f"\n{'':<34}{'exact':>8}{'F1':>8}{'spans':>8}")
    for name, (texts, spans) in rows.items():
        pairs = [score(text, q.answers) for text, q in zip(texts, asked, strict=True)]
        exact, f1 = np.mean(pairs, axis=0)
        print(f"{name:<34}{exact:>8.1%}{f1:>8.1%}{spans:>8.1%}")
    print()
    for question, text in list(zip(asked, texts, strict=True))[:: len(asked) // 6 + 1]:
        print(f"{tokenizer.decode(question.question)} {text} (right: {question.answers[0]})")


def show(model, tokenizer, question):
    """Prints an answer piece by piece, as it is written."""
    print(f"\n{text_of(question, question.passage)}\n{tokenizer.decode(question.question)}")
    allowed, end = spans_of([question]), question.question[-1]
    settings = {"end_id": end, "allowed_tokens": allowed, "tokenizer": tokenizer}
    for piece in stream(model, prompt(question), MAX_ANSWER, **settings):
        print(piece, end=" ", flush=True)
    print()


def run(args):
    """Trains a model and answers the questions of the test."""
    if window(args) <= MAX_ANSWER:
        raise UsageError(f"--maxlen {args.maxlen}: expected more than {2 * MAX_ANSWER + 22}")
    data = read_data(args.data)
    passages = sorted({text for _, text, _ in data})
    test = read_data(args.test) if args.test else [t for t in data if t[1] in passages[::6]]
    data = data if args.test else [t for t in data if t[1] not in passages[::6]]
    if args.config:
        config, tokenizer = args.config, Tokenizer(args.vocab, do_lower_case=True)
    else:
        # Rare characters are learned by no small model; answers show them all the same.
        config, tokenizer = small_model([q + text for q, text, _ in data], 20, **SIZES)
        config["num_hidden_layers"] = 1 if args.quick else 3
    keras.utils.set_random_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    questions = encode(data, tokenizer)
    asked = [cut(question, window(args), rng) for question in encode(test, tokenizer)]
    print(f"{len(questions):,} of {len(data):,} questions to train on have a short answer,")
    print(f"{len(asked):,} of {len(test):,} of the test", flush=True)
    model = build_transformer_model(config, args.checkpoint, application="unilm", with_mlm="linear")

    begin = time.perf_counter()
    batches = Batches(questions, args, mask=tokenizer.token_to_id("[MASK]"))
    train(model, batches, Batches(asked, args), args)
    print(f"trained {model.count_params():,} weights in {time.perf_counter() - begin:.0f} s")
    print(f"loss of the test by frequencies alone: {frequency_loss(questions, asked):.3f}")
    compare(model, tokenizer, asked)
    show(model, tokenizer, asked[0])


if __name__ == "__main__":
    main(
        "reading_comprehension_by_seq2seq",
        run,
        description=__doc__.split("\n")[0],
        data=DATA,
        maxlen=98,
        epochs=12,
        quick_epochs=2,
        rates=(5e-5, 3e-3),
        test="questions to answer; default every sixth passage of --data",
    )

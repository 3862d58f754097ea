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

import math
import os
from collections import Counter

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from keras import ops
from questions import (
    MAX_QUESTION,
    Batches,
    closest_clauses,
    cloze,
    continuation,
    cut,
    encode,
    mean_scores,
    print_answers,
    prompt,
    span_text,
    train_and_test,
    with_short_answers,
)
from runs import Run, load_encoder, optimizer, starting_point
from shared import UsageError, main, sample

from kerasbert.data import sequence_padding
from kerasbert.generation import generate, stream
from kerasbert.layers import Loss

NAME = "reading_comprehension_by_seq2seq"
MAX_ANSWER = 20  # tokens
EXERCISES = 0.6  # share of made-up questions in the training
COPYING = 0.5  # share of the training in which such ones that only teach to copy get fewer

# ---- data ------------------------------------------------------------------------------------


def answer_of(question):
    """Returns the ids that the model is to write: answer [SEP]."""
    return [*question.passage[question.start : question.end], question.ids[-1]]


class Lessons:
    """What to learn from questions: parts of their passages, and exercises, easy ones first.

    Args:
        steps: of the whole training.
        mask: id of the token that stands for what is to be written.
        args: of the command line.
    """

    def __init__(self, steps, mask, args):
        self.steps, self.mask, self.args, self.given = steps, mask, args, 0
        self.rng = np.random.default_rng(args.seed)

    def __call__(self, questions):
        """Returns the next batch, see `to_write`."""
        copying = 1 - self.given / (COPYING * self.steps)
        self.given += 1
        return to_write([self._draw(question, copying) for question in questions], self.args)

    def _draw(self, question, copying):
        # Short parts too: with less to choose from, copying is learned sooner.
        size = self.rng.integers(question.end - question.start, room(self.args) + 1)
        part = cut(question, size, self.rng)
        if self.rng.random() < copying:
            return continuation(part, self.mask, self.rng)
        return cloze(part, self.mask, self.rng) if self.rng.random() < EXERCISES else part


def to_write(questions, args):
    """Returns a batch, token ids and segment ids (B, L): 0 for what is read, 1 for the answer."""
    pairs = [(prompt(question), answer_of(question)) for question in questions]
    # One shape for all batches: the training step is compiled once. Rows of zeros do not count.
    pairs += [([0], [])] * (args.batch_size - len(pairs))
    ids = [read + written for read, written in pairs]
    segments = [[0] * len(read) + [1] * len(written) for read, written in pairs]
    return (tuple(sequence_padding(rows, args.maxlen).astype("int32") for rows in (ids, segments)),)


def room(args):
    """Returns how many tokens of a passage the model reads."""
    return args.maxlen - MAX_QUESTION - MAX_ANSWER - 2


def check_room(args):
    """Refuses lengths that leave no room for a passage with an answer in it."""
    if room(args) <= MAX_ANSWER:
        least = args.maxlen - room(args) + MAX_ANSWER
        raise UsageError(f"--maxlen {args.maxlen}: expected more than {least}")


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


def add_loss(model):
    """Returns the model in the form that is trained."""
    hidden = model.get_layer("MLM-Dense").input
    loss = AnswerLoss(keras.Model(hidden, model.output), output_axis=2)
    return keras.Model(model.inputs, loss([*model.inputs, hidden]))


def to_train(model, questions, tokenizer, args):
    """Returns the model in the form that is trained, compiled, and the batches for it."""
    steps = args.epochs * -(-len(questions) // args.batch_size)
    lessons = Lessons(steps, tokenizer.token_to_id("[MASK]"), args)
    batches = Batches(questions, args.batch_size, lessons, args.seed)
    training = add_loss(model)
    # Compiling takes its time, which pays in a long training.
    training.compile(optimizer(args, steps), jit_compile=not args.quick)
    return training, batches


# ---- answers ---------------------------------------------------------------------------------


def spans_of(questions):
    """Returns a function for `allowed_tokens`: each row writes a span of its passage, then ends."""

    def allowed(row, answer):
        passage, size = questions[row].passage, len(answer)
        starts = range(len(passage) - size)
        follow = {passage[n + size] for n in starts if passage[n : n + size] == answer.tolist()}
        return follow | {questions[row].ids[-1]} if size else follow

    return allowed


def text_of(question, ids):
    """Returns the text that these ids stand for in the passage, None if they are no span."""
    for start in range(len(question.passage) - len(ids) + 1 if ids else 0):
        if question.passage[start : start + len(ids)] == ids:
            return span_text(question, start, start + len(ids))
    return None


def write_answers(model, tokenizer, questions, spans_only):
    """Returns the answers by beam search, and the share of them that are spans."""
    texts, spans, end = [], 0, questions[0].ids[-1]
    for begin in range(0, len(questions), 64):
        part = questions[begin : begin + 64]
        prompts = [prompt(question) for question in part]
        allowed = spans_of(part) if spans_only else None
        # By the mean of log p: by their sum, short answers are found too often.
        options = {"end_id": end, "allowed_tokens": allowed, "length_penalty": 1}
        found = generate(model, prompts, MAX_ANSWER, "beam", **options)
        for question, answer in zip(part, found, strict=True):
            ids = [token for token in answer.tolist() if token != end]
            text = text_of(question, ids)
            spans += text is not None
            texts.append(tokenizer.decode(ids) if text is None else text)
    return texts, spans / len(questions)


def show(model, tokenizer, question):
    """Prints an answer piece by piece, as it is written."""
    print(f"\n{span_text(question, 0, len(question.passage))}\n{question.asked}")
    settings = {"end_id": question.ids[-1], "allowed_tokens": spans_of([question])}
    for piece in stream(model, prompt(question), MAX_ANSWER, tokenizer=tokenizer, **settings):
        print(piece, end=" ", flush=True)
    print()


# ---- evaluation ------------------------------------------------------------------------------


def frequency_loss(questions, asked):
    """Returns the loss per token if nothing is known but how frequent tokens are in answers."""
    counts = Counter(token for question in questions for token in answer_of(question))
    total = counts.total() + len(counts) + 1  # every token is counted once more, as is any other
    tokens = [token for question in asked for token in answer_of(question)]
    return -sum(math.log((counts[token] + 1) / total) for token in tokens) / len(tokens)


def compare(model, tokenizer, asked):
    """Prints how good the answers are; returns the scores, and F1 of a guess."""
    some = asked[:100]
    rows = {
        "the clause most like the question": (asked, closest_clauses(asked), 1),
        "beam search, some questions": (some, *write_answers(model, tokenizer, some, False)),
        "beam search among the spans": (asked, *write_answers(model, tokenizer, asked, True)),
    }
    print(f"\n{'':<34}{'exact':>8}{'F1':>8}{'spans':>8}")
    scores = []
    for name, (questions, texts, spans) in rows.items():
        scores.append(mean_scores(texts, questions))
        print(f"{name:<34}{scores[-1][0]:>8.1%}{scores[-1][1]:>8.1%}{spans:>8.1%}")
    print_answers(asked, texts)
    (_, guess), _, (exact, f1) = scores
    return {"F1": f1, "exact": exact}, guess


def run(args):
    """Trains a model, and answers the questions of the test."""
    check_room(args)
    data, test = train_and_test(args)
    session = Run(NAME, args)
    # Rare characters are learned by no small model; answers show them all the same.
    at_least = 20 if len(data) > 1000 else 1
    texts = [asked + text for asked, text, _ in data]
    config, tokenizer = starting_point(args, texts, at_least, **sizes(args))
    questions = with_short_answers(encode(data, tokenizer), MAX_ANSWER)
    rng = np.random.default_rng(0)  # the same parts of the test for every seed
    asked = with_short_answers(encode(test, tokenizer), MAX_ANSWER)
    asked = [cut(question, room(args), rng) for question in asked]
    print(f"{len(questions):,} of {len(data):,} questions to train on have a short answer,")
    print(f"{len(asked):,} of {len(test):,} of the test", flush=True)
    model = load_encoder(args, config, tokenizer, application="unilm", with_mlm="linear")
    training, batches = to_train(model, questions, tokenizer, args)
    session.fit(training, batches)
    tested = Batches(asked, args.batch_size, lambda chosen: to_write(chosen, args))
    loss = training.evaluate(tested, verbose=0)
    frequent = frequency_loss(questions, asked)
    print(f"loss of the test: {loss:.3f}, by frequencies alone: {frequent:.3f}")
    scores, guess = compare(model, tokenizer, asked)
    show(model, tokenizer, asked[0])
    facts = {"questions": len(questions), "test_loss": loss, "loss_by_frequencies": frequent}
    session.finish(model, scores, guess, **facts)


def sizes(args):
    """Returns the sizes of the model with random weights."""
    return {
        "model_type": "roformer",
        "hidden_size": 64,
        "num_hidden_layers": 1 if args.quick else 2,
        "num_attention_heads": 2,
        "intermediate_size": 128,
        "initializer_range": 0.1,  # about 1 / sqrt(hidden_size): 0.02 is for greater models
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }


if __name__ == "__main__":
    main(
        NAME,
        run,
        description=__doc__.split("\n")[0],
        files={
            "data": (sample("reading.json"), "questions to train on"),
            "test": (None, "questions to answer; default every sixth passage of --data"),
        },
        maxlen=98,
        epochs=(16, 12),
        quick_epochs=2,
        rates=(5e-5, 1e-3),
    )

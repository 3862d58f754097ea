"""Finds the answer to a question in a passage: where it starts, and where it ends.

    python examples/reading_comprehension_extractive.py
    python examples/reading_comprehension_extractive.py --data cmrc2018_train.json \
        --test cmrc2018_dev.json
    python examples/reading_comprehension_extractive.py --config bert_config.json \
        --checkpoint bert_model.ckpt --vocab vocab.txt --data … --test …

The encoder reads `[CLS] question [SEP] part of the passage [SEP]`, and scores each token of the
part as first and as last of the answer (Devlin et al. 2019, arXiv:1810.04805). Passages are read
in parts that overlap; the last [SEP] stands for an answer that is elsewhere. Data are in the form
of SQuAD, as CMRC 2018. Without arguments it is a small RoFormer with random weights, on made-up
passages. As it has no idea of words yet, it is told by segment ids which tokens of the passage
stand in the question too, and how many of them in a row ("exact match" of Chen et al. 2017,
arXiv:1704.00051); a checkpoint reads the plain two segments.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from keras import ops
from questions import (
    MAX_QUESTION,
    Batches,
    closest_clauses,
    cloze,
    cut,
    encode,
    mean_scores,
    part_of,
    print_answers,
    prompt,
    span_text,
    train_and_test,
    windows,
    with_short_answers,
)
from runs import Run, load_encoder, optimizer, starting_point
from shared import UsageError, main, sample

from kerasbert.data import sequence_padding

NAME = "reading_comprehension_extractive"
MAX_ANSWER = 30  # tokens
LONGEST_RUN = 4  # longer runs of tokens of the question have the segment of such ones
ELSEWHERE = 0.2  # share of the parts that need not hold the answer
EXERCISES = 0.3  # share of made-up questions in the training
LOWEST = -1e4  # score of a token that is no part of the passage


# ---- data ------------------------------------------------------------------------------------


def runs_in_common(question, longest):
    """Returns for each token of the passage how many in a row, it among them, are asked for.

    Args:
        question: a `Question`.
        longest: more are not told apart.
    """
    asked, passage = question.ids[1:-1], question.passage
    found = [0] * len(passage)
    for size in range(1, longest + 1):
        runs = {tuple(asked[n : n + size]) for n in range(len(asked) - size + 1)}
        for n in range(len(passage) - size + 1):
            if tuple(passage[n : n + size]) in runs:
                found[n : n + size] = [size] * size
    return found


def read(questions, maxlen, longest):
    """Returns token ids and segment ids (B, L): above 0 the passage and the last [SEP]."""
    segments = [
        [0] * len(question.ids) + [1 + run for run in runs_in_common(question, longest)] + [1]
        for question in questions
    ]
    ids = [prompt(question) for question in questions]
    return tuple(sequence_padding(rows, maxlen).astype("int32") for rows in (ids, segments))


def ends_of(question):
    """Returns first and last token of the answer in the prompt; of the last [SEP] if elsewhere."""
    if 0 <= question.start < question.end <= len(question.passage):
        return len(question.ids) + question.start, len(question.ids) + question.end - 1
    return (len(prompt(question)) - 1,) * 2


def draw(question, size, mask, rng):
    """Returns what to learn from a question today: a part of the passage, perhaps an exercise."""
    if rng.random() < ELSEWHERE:
        last = max(len(question.passage) - size, 0)
        return part_of(question, int(rng.integers(0, last + 1)), size)
    part = cut(question, size, rng)
    return cloze(part, mask, rng) if rng.random() < EXERCISES else part


# ---- model -----------------------------------------------------------------------------------


def add_scores(encoder):
    """Returns a model that scores tokens as first and as last of the answer, (B, 2, L)."""
    if len(encoder.inputs) != 2:
        raise UsageError(f"expected a model of tokens and segments, got {encoder.input_names}")
    hidden = keras.layers.Dropout(0.1)(encoder.output)
    scores = keras.layers.Dense(2, dtype="float32")(hidden)  # (B, L, 2)
    in_passage = ops.expand_dims(encoder.inputs[1], 1) > 0
    scores = ops.where(in_passage, ops.transpose(scores, (0, 2, 1)), LOWEST)
    return keras.Model(encoder.inputs, scores)


def best_span(first, last):
    """Returns the span of the highest score, as (score, start, end), end not included.

    Args:
        first: scores (L,) of each token as the first one.
        last: the same as the last one.
    """
    length = np.arange(len(first))[None, :] - np.arange(len(first))[:, None] + 1
    sums = np.where((length > 0) & (length <= MAX_ANSWER), first[:, None] + last, -np.inf)
    start, end = np.unravel_index(sums.argmax(), sums.shape)
    return float(sums[start, end]), int(start), int(end) + 1


def find_answers(model, questions, args, longest):
    """Returns the text of the best span of each passage, over all parts of it."""
    size = room(args)
    parts = [(n, part) for n, q in enumerate(questions) for part in windows(q, size, size // 2)]
    parts = [(n, part) for n, part in parts if part.passage]
    inputs = read([part for _, part in parts], args.maxlen, longest)
    scores = model.predict(list(inputs), batch_size=64, verbose=0)
    # The last [SEP] takes part, so that parts without the answer have low probabilities.
    scores = ops.convert_to_numpy(ops.log_softmax(scores))
    best = [(-np.inf, "")] * len(questions)
    for (n, part), row in zip(parts, scores, strict=True):
        begin = len(part.ids)
        total, start, end = best_span(*row[:, begin : begin + len(part.passage)])
        best[n] = max(best[n], (total, span_text(part, start, end)))
    return [text for _, text in best]


def room(args):
    """Returns how many tokens of a passage the model reads at a time."""
    return args.maxlen - MAX_QUESTION - 1


# ---- run -------------------------------------------------------------------------------------


def run(args):
    """Trains a model, and answers the questions of the test."""
    if room(args) <= MAX_ANSWER:
        least = args.maxlen - room(args) + MAX_ANSWER
        raise UsageError(f"--maxlen {args.maxlen}: expected more than {least}")
    train, test = train_and_test(args)
    session = Run(NAME, args)
    # Rare characters are learned by no small model; answers show them all the same.
    at_least = 20 if len(train) > 1000 else 1
    texts = [asked + text for asked, text, _ in train]
    config, tokenizer = starting_point(args, texts, at_least, **sizes(args))
    longest = 0 if args.config else LONGEST_RUN
    questions = with_short_answers(encode(train, tokenizer), MAX_ANSWER)
    asked = encode(test, tokenizer)
    print(f"{len(questions):,} of {len(train):,} questions to train on have a short answer")
    model = add_scores(load_encoder(args, config, tokenizer))
    rng = np.random.default_rng(args.seed)
    mask = tokenizer.token_to_id("[MASK]")

    def make(chosen):
        drawn = [draw(question, room(args), mask, rng) for question in chosen]
        return read(drawn, args.maxlen, longest), np.array([ends_of(part) for part in drawn])

    batches = Batches(questions, args.batch_size, make, args.seed)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    steps = args.epochs * len(batches)
    # Compiling takes its time, which pays in a long training.
    model.compile(optimizer(args, steps), loss, jit_compile=not args.quick)
    session.fit(model, batches)

    texts = find_answers(model, asked, args, longest)
    print_answers(asked, texts)
    exact, f1 = mean_scores(texts, asked)
    guess = mean_scores(closest_clauses(asked), asked)[1]
    model.save(args.output / f"{NAME}.keras")
    session.finish(model, {"F1": f1, "exact": exact}, guess, questions=len(questions))


def sizes(args):
    """Returns the sizes of the model with random weights."""
    hidden_size = 32 if args.quick else 64
    return {
        "model_type": "roformer",
        "hidden_size": hidden_size,
        "num_hidden_layers": 1 if args.quick else 2,
        "num_attention_heads": 4,
        "intermediate_size": 2 * hidden_size,
        "initializer_range": 0.1,  # about 1 / sqrt(hidden_size): 0.02 is for greater models
        "type_vocab_size": 2 + LONGEST_RUN,
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
        maxlen=153,
        epochs=(6, 30),
        quick_epochs=2,
        rates=(3e-5, 2e-3),
    )

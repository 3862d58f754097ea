"""Reads a passage and writes the answer to a question, which must be a span of the passage.

    python examples/reading_comprehension_by_seq2seq.py
    python examples/reading_comprehension_by_seq2seq.py --train cmrc2018_train.json \
        --test cmrc2018_dev.json
    python examples/reading_comprehension_by_seq2seq.py --config bert_config.json \
        --checkpoint bert_model.ckpt --vocab vocab.txt --train … --test …

`application="unilm"` makes a sequence-to-sequence model of any encoder (Dong et al. 2019,
arXiv:1905.03197): it reads `[CLS] question [SEP] passage [SEP]` as segment 0 and writes
`answer [SEP]` as segment 1. `allowed_tokens` of `generate` keeps a beam search to the spans of
the passage, without a class of its own for that. Data are in the form of SQuAD, as CMRC 2018;
without arguments they are made-up passages. Without a checkpoint the model is a small RoFormer
with random weights.
"""

import argparse
import json
import math
import os
import re
import string
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
from shared import UsageError

from kerasbert import build_transformer_model
from kerasbert.errors import KerasbertError
from kerasbert.generation import generate, stream
from kerasbert.layers import Loss
from kerasbert.tokenizers import Tokenizer

SAMPLE = Path(__file__).parent / "data" / "reading.json"
MAX_QUESTION, MAX_ANSWER = 20, 20  # tokens
BEAM_SIZE = 4
SIZES = {
    "hidden_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 384,
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


# ---- data ------------------------------------------------------------------------------------


class Question(NamedTuple):
    """A question on a passage, as tokens.

    Args:
        question: ids, [CLS] and [SEP] included.
        passage: ids of the passage, or of a part of it.
        places: for each of these the characters of `text` that it stands for.
        start: where the answer begins in `passage`.
        end: where it ends, exclusive.
        text: the passage, whole.
        answers: all texts that count as right.
    """

    question: list
    passage: list
    places: list
    start: int
    end: int
    text: str
    answers: list


def read_data(path):
    """Returns triples (question, passage, answers) of a file in the form of SQuAD."""
    try:
        content = json.loads(path.read_text("utf-8-sig"))
        found = [
            (entry["question"], part["context"], [answer["text"] for answer in entry["answers"]])
            for article in content["data"]
            for part in article["paragraphs"]
            for entry in part["qas"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: expected JSON in the form of SQuAD: {error!r}") from error
    if not found:
        raise UsageError(f"{path}: there is no question in it")
    return found


def encode(data, tokenizer):
    """Returns a `Question` for each triple whose answer stands in its passage and is short."""
    questions, known = [], {}
    for question, text, answers in data:
        if text not in known:
            tokens = tokenizer.tokenize(text)
            places = tokenizer.rematch(text, tokens)[1:-1]
            known[text] = tokenizer.tokens_to_ids(tokens)[1:-1], places
        passage, places = known[text]
        # The position that the data give for an answer is not always right.
        first = next((text.find(answer) for answer in answers if answer in text), -1)
        size = next((len(answer) for answer in answers if answer in text), 0)
        inside = [n for n, place in enumerate(places) if place and first <= place[0] < first + size]
        if 0 < len(inside) <= MAX_ANSWER:
            ids, _ = tokenizer.encode(question, maxlen=MAX_QUESTION)
            span = inside[0], inside[-1] + 1
            questions.append(Question(ids, passage, places, *span, text, answers))
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
    """Returns an exercise on the same passage: which words stand between these?

    A span is the answer; what is around it, less some tokens, is the question.
    """
    passage = question.passage
    size = int(rng.integers(1, min(MAX_ANSWER // 2, len(passage)) + 1))
    start = int(rng.integers(0, len(passage) - size + 1))
    around = int(rng.integers(3, MAX_QUESTION // 2 - 1))
    before, after = passage[max(start - around, 0) : start], passage[start + size :][:around]
    before, after = ([t for t in side if rng.random() < 0.7] for side in (before, after))
    ids = [question.question[0], *before, mask, *after, question.question[-1]]
    ids = ids[: MAX_QUESTION - 1] + ids[-1:] if len(ids) > MAX_QUESTION else ids
    return question._replace(question=ids, start=start, end=start + size)


def prompt(question):
    """Returns the ids that the model reads: [CLS] question [SEP] passage [SEP]."""
    return [*question.question, *question.passage, question.question[-1]]


class Batches(keras.utils.PyDataset):
    """Batches of token ids and segment ids: what is read is of segment 0, the answer of 1."""

    def __init__(self, questions, args, mask=None):
        super().__init__()
        self.questions, self.mask = questions, mask
        self.window, self.size = args.window, args.batch_size
        self.exercises = args.exercises
        self.rng = np.random.default_rng(args.seed)
        self.order = np.arange(len(questions))
        self.on_epoch_end()

    def __len__(self):
        return math.ceil(len(self.order) / self.size)

    def on_epoch_end(self):
        """Puts the questions in a new order."""
        if self.mask is not None:
            self.rng.shuffle(self.order)

    def __getitem__(self, index):
        # One length for all batches: the training step is compiled once.
        ids = np.zeros((self.size, longest(self.window)), "int32")
        segments = np.zeros_like(ids)
        for row, number in enumerate(self.order[index * self.size : (index + 1) * self.size]):
            question = self.questions[number]
            if self.mask is not None:
                question = cut(question, self.window, self.rng)
                if self.rng.random() < self.exercises:
                    question = cloze(question, self.mask, self.rng)
            read = prompt(question)
            tokens = read + [*question.passage[question.start : question.end], read[-1]]
            ids[row, : len(tokens)] = tokens
            segments[row, len(read) : len(tokens)] = 1
        return ((ids, segments),)


# ---- model -----------------------------------------------------------------------------------


class AnswerLoss(Loss):
    """Cross-entropy of the tokens of the answer, each predicted from those before it.

    Args:
        head: model from hidden states to logits. It is called where the answer stands only:
            most tokens are of question and passage.
    """

    def __init__(self, head, **kwargs):
        super().__init__(**kwargs)
        self.head = head

    def compute_loss(self, inputs, mask=None):
        """Returns the mean over the tokens of segment 1."""
        tokens, segments, hidden = inputs
        begin = ops.argmax(segments, axis=1)  # (B,)
        places = begin[:, None] + ops.arange(MAX_ANSWER + 1, dtype=begin.dtype)  # (B, A)
        weights = ops.cast(ops.take_along_axis(segments, places, axis=1), "float32")
        targets = ops.take_along_axis(tokens, places, axis=1)
        logits = self.head(ops.take_along_axis(hidden, places[..., None] - 1, axis=1))
        losses = keras.losses.sparse_categorical_crossentropy(targets, logits, from_logits=True)
        return ops.sum(losses * weights) / ops.sum(weights)


def prepare(args, texts):
    """Returns a model and its tokenizer: the user's, or small ones with random weights."""
    if args.config:
        config, tokenizer = args.config, Tokenizer(args.vocab, do_lower_case=True)
    else:
        tokens = vocabulary(texts)
        tokenizer = Tokenizer({token: n for n, token in enumerate(tokens)}, do_lower_case=True)
        config = {**SIZES, "vocab_size": len(tokens)}
    builder = build_transformer_model(
        config,
        args.checkpoint,
        "auto" if args.config else "roformer",
        application="unilm",
        with_mlm="linear",
        return_keras_model=False,
    )
    limit = builder.config.position_limit
    if limit is not None and longest(args.window) > limit:
        raise UsageError(f"--window {args.window}: expected at most {limit - longest(0)}")
    return builder.model, tokenizer


def vocabulary(texts):
    """Returns the tokens of a small vocabulary: characters that occur more than twice."""
    counts = Counter(char for text in texts for char in text.lower() if not char.isspace())
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens += [char for char, count in counts.most_common() if count > 2]
    # A number or a Latin word has as many pieces as characters.
    return tokens + [f"##{char}" for char in string.ascii_lowercase + string.digits]


def longest(window):
    """Returns how many tokens question, window, answer and what separates them have at most."""
    return MAX_QUESTION + window + 1 + MAX_ANSWER + 1


def train(model, batches, test, args):
    """Trains the model."""
    steps = args.epochs * len(batches)
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, steps, warmup_target=args.learning_rate, warmup_steps=max(steps // 10, 1)
    )
    hidden = model.get_layer("MLM-Dense").input
    loss = AnswerLoss(keras.Model(hidden, model.output), output_axis=2)
    training = keras.Model(model.inputs, loss([*model.inputs, hidden]))
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=0.01, clipnorm=1.0)
    training.compile(optimizer, jit_compile=True)
    verbose = 1 if sys.stdout.isatty() else 2
    training.fit(batches, validation_data=test, epochs=args.epochs, verbose=verbose)


# ---- answers ---------------------------------------------------------------------------------


class SpansOf:
    """For `allowed_tokens`: the answer of a row is a span of its passage.

    Args:
        passages: list with the token ids of each row's passage.
        end_id: the token that ends an answer.
    """

    def __init__(self, passages, end_id):
        self.passages, self.end_id = passages, end_id

    def __call__(self, row, answer):
        """Returns the tokens that follow the answer so far, wherever it stands."""
        passage, size, answer = self.passages[row], len(answer), answer.tolist()
        starts = range(len(passage) - size)
        follow = {passage[n + size] for n in starts if passage[n : n + size] == answer}
        return follow | {self.end_id} if answer else follow


def find(question, answer):
    """Returns the text of an answer where it stands in the passage, None if it does not."""
    for start in range(len(question.passage) - len(answer) + 1):
        if question.passage[start : start + len(answer)] == answer and answer:
            places = [place for place in question.places[start : start + len(answer)] if place]
            return question.text[places[0][0] : places[-1][-1] + 1]
    return None


def answer_all(model, tokenizer, questions, spans_only):
    """Returns the answers by beam search, and how many of them are spans of their passage."""
    texts, found, end = [], 0, questions[0].question[-1]
    for begin in range(0, len(questions), 64):  # not all at once: every row has its memory
        part = questions[begin : begin + 64]
        allowed = SpansOf([q.passage for q in part], end) if spans_only else None
        answers = generate(
            model,
            [prompt(question) for question in part],
            MAX_ANSWER,
            "beam",
            beam_size=BEAM_SIZE,
            end_id=end,
            allowed_tokens=allowed,
        )
        for question, answer in zip(part, answers, strict=True):
            ids = [token for token in answer.tolist() if token != end]
            text = find(question, ids)
            found += text is not None
            texts.append(tokenizer.decode(ids) if text is None else text)
    return texts, found / len(questions)


def random_spans(questions, size, rng):
    """Returns a random span of each passage, of this many tokens."""
    texts = []
    for question in questions:
        start = int(rng.integers(0, max(len(question.passage) - size, 0) + 1))
        texts.append(find(question, question.passage[start : start + size]))
    return texts


def closest_clauses(questions, tokenizer):
    """Returns the clause of each passage that shares most tokens with the question."""
    texts = []
    for question in questions:
        places = [place for place in question.places if place]
        text = question.text[places[0][0] : places[-1][-1] + 1]
        clauses = [clause for clause in re.split("[，。；！？、,;!?]", text) if words(clause)]
        wanted = set(words(tokenizer.decode(question.question)))
        texts.append(max(clauses, key=lambda c: len(wanted & set(words(c)))))
    return texts


# ---- evaluation ------------------------------------------------------------------------------


def words(text):
    """Returns Chinese characters one by one, other words whole, without punctuation."""
    return re.findall(r"[\u4e00-\u9fff]|[^\W_\u4e00-\u9fff]+", text.lower())


def score(text, answers):
    """Returns whether a text is an answer, and F1 by the longest run of words they share."""
    exact, best = False, 0.0
    for answer in answers:
        found, right = words(text), words(answer)
        match = SequenceMatcher(None, found, right, autojunk=False).find_longest_match()
        exact |= found == right
        best = max(best, 2 * match.size / max(len(found) + len(right), 1))
    return float(exact), best


def print_scores(name, texts, questions, spans=1.0):
    """Prints a row of the table."""
    pairs = [score(text, q.answers) for text, q in zip(texts, questions, strict=True)]
    exact, f1 = np.mean(pairs, axis=0)
    print(f"{name:<30}{exact:>8.1%}{f1:>8.1%}{spans:>8.1%}", flush=True)


def unigram_loss(train, test):
    """Returns the loss per token of a model that knows only how frequent tokens are in answers."""
    answers = [[*q.passage[q.start : q.end], q.question[-1]] for q in train]
    counts = Counter(token for answer in answers for token in answer)
    total, vocabulary = sum(counts.values()), len(counts) + 1
    losses = [
        -math.log((counts[token] + 1) / (total + vocabulary))
        for q in test
        for token in [*q.passage[q.start : q.end], q.question[-1]]
    ]
    return sum(losses) / len(losses)


# ---- command line ----------------------------------------------------------------------------


def compare(model, tokenizer, questions, size, rng):
    """Prints how good the answers are, beside those of two guesses that learn nothing."""
    print(f"\n{'':<30}{'exact':>8}{'F1':>8}{'spans':>8}")
    print_scores("a random span", random_spans(questions, size, rng), questions)
    print_scores("the clause most alike", closest_clauses(questions, tokenizer), questions)
    for name, spans_only in (("all tokens allowed", False), ("spans of the passage only", True)):
        texts, spans = answer_all(model, tokenizer, questions, spans_only)
        print_scores(f"beam search, {name}", texts, questions, spans)
    print()
    for question, text in list(zip(questions, texts, strict=True))[:: len(questions) // 6 + 1]:
        right = question.answers[0]
        print(f"{tokenizer.decode(question.question)} {text} (right: {right})")


def show_stream(model, tokenizer, question):
    """Prints an answer piece by piece, as it is written."""
    end = question.question[-1]
    print(f"\n{tokenizer.decode(question.passage)}\n{tokenizer.decode(question.question)}")
    pieces = stream(
        model,
        prompt(question),
        MAX_ANSWER,
        end_id=end,
        allowed_tokens=SpansOf([question.passage], end),
        tokenizer=tokenizer,
    )
    for piece in pieces:
        print(piece, end="|", flush=True)
    print()


def run(args):
    """Trains a model and answers the questions of the test."""
    keras.utils.set_random_seed(args.seed)
    data = read_data(args.train)
    if args.test:
        test = read_data(args.test)
    else:
        held_out = set(sorted({text for _, text, _ in data})[::6])
        test = [triple for triple in data if triple[1] in held_out]
        data = [triple for triple in data if triple[1] not in held_out]
    model, tokenizer = prepare(args, [text for triple in data for text in triple[:2]])
    questions, rng = encode(data, tokenizer), np.random.default_rng(args.seed)
    asked = [cut(question, args.window, rng) for question in encode(test, tokenizer)]
    if not questions or not asked:
        raise UsageError(f"expected answers of at most {MAX_ANSWER} tokens that are in the passage")
    for name, all_of_them, kept in (("train", data, questions), ("test", test, asked)):
        print(f"{name}: {len(kept):,} of {len(all_of_them):,} questions have a short answer")
    print(f"{model.count_params():,} parameters, {tokenizer.vocab_size:,} tokens", flush=True)

    begin = time.perf_counter()
    batches = Batches(questions, args, tokenizer.token_to_id("[MASK]"))
    train(model, batches, Batches(asked, args), args)
    print(
        f"{time.perf_counter() - begin:.0f} s; loss of the test by the frequency of tokens", end=""
    )
    print(f" alone {unigram_loss(questions, asked):.3f}")
    size = round(np.mean([question.end - question.start for question in questions]))
    compare(model, tokenizer, asked, size, rng)
    show_stream(model, tokenizer, asked[0])


def parse_arguments():
    """Returns the arguments of the command line, checked."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--config", type=Path, help="config file of a checkpoint")
    add("--checkpoint", type=Path, help="prefix of a checkpoint, or its folder")
    add("--vocab", type=Path, help="its vocab.txt")
    add("--train", type=Path, help="questions to train on, JSON as SQuAD or CMRC 2018")
    add("--test", type=Path, help="questions to answer, the same")
    add("--window", type=int, default=56, help="tokens of a passage, default %(default)s")
    add("--exercises", type=float, default=0.5, help="share of made-up ones, default %(default)s")
    add("--epochs", type=int, help="default 8, or 20 for the sample")
    add("--batch-size", type=int, default=16, help="default %(default)s")
    add("--learning-rate", type=float, help="default 5e-5, or 2e-3 for random weights")
    add("--seed", type=int, default=0, help="of weights and batches, default %(default)s")
    add("--quick", action="store_true", help="2 epochs, and a tiny model unless one is given")
    args = parser.parse_args()
    if len({value is None for value in (args.config, args.checkpoint, args.vocab)}) > 1:
        raise UsageError("--config, --checkpoint and --vocab belong together: give all or none")
    if (args.train is None) != (args.test is None):
        raise UsageError("--train and --test belong together: give both or none")
    if args.quick or args.epochs is None:
        args.epochs = 2 if args.quick else 8 if args.train else 20
    if args.learning_rate is None:
        args.learning_rate = 5e-5 if args.config else 2e-3
    args.train = args.train or SAMPLE
    if min(args.epochs, args.batch_size, args.window, args.learning_rate) <= 0:
        raise UsageError("expected positive numbers")
    if not 0 <= args.exercises <= 1:
        raise UsageError(f"--exercises {args.exercises}: expected a share from 0 to 1")
    return args


def main():
    """Runs the example; a mistake of the user gives one line and exit status 2."""
    try:
        run(parse_arguments())
    except (UsageError, KerasbertError, OSError) as error:
        name = "reading_comprehension_by_seq2seq.py"
        print(f"{name}: error:", *str(error).split("\n"), file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

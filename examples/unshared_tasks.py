"""The tasks of the study of un-sharing: what is trained, on what, and how it is scored.

Data, models and scores are those of the other examples; what differs is the encoder: an ALBERT
whose block is shared by all layers, or un-shared in one of three ways.
"""

from collections.abc import Callable
from dataclasses import dataclass

import keras
import numpy as np
import reading_comprehension_by_seq2seq as seq2seq
from classifiers import (
    Labelled,
    add_head,
    compile_classifier,
    guessing,
    label_names,
    left_to_score,
    some_of,
)
from extraction import Batches, compile_extractor, place, score
from files import read_labelled
from questions import closest_clauses, cut, encode, mean_scores, train_and_test, with_short_answers
from relation_extraction_casrel import CasRel
from relations import SAMPLE, known_triples, measure, read_data
from runs import load_encoder
from shared import sample

from kerasbert.data import TextInputs
from kerasbert.layers import GlobalAveragePooling1D

# How each variant is built of the same checkpoint.
VARIANTS = {
    "albert": {"model": "albert"},
    "albert_unshared": {"model": "albert_unshared"},
    "attention": {"model": "albert", "unshare": "attention"},
    "feed_forward": {"model": "albert", "unshare": "feed_forward"},
}


@dataclass(frozen=True)
class Prepared:
    """A model that is ready to be trained.

    Attributes:
        model: compiled.
        batches: to train it on.
        score: function without arguments that returns how good it is now.
        guess: what guessing would give of that score.
        texts: how many texts it is trained on.
        scored: how many it is scored on.
    """

    model: keras.Model
    batches: keras.utils.PyDataset
    score: Callable
    guess: float
    texts: int
    scored: int


@dataclass(frozen=True)
class Task:
    """A kind of task, and the sizes of its training that are taken if none are given.

    Attributes:
        title: what the plot calls it.
        prepare: function of the arguments of a run and a tokenizer that returns a `Prepared`.
        metric: name of its score.
        data: which task of results.py has the same data.
        samples: `{option: path}` of the made-up data.
        texts: how many texts are trained on.
        scored: how many are scored.
        epochs: how many.
        maxlen: tokens of a text.
        batch_size: texts in a batch.
        learning_rate: the highest.
    """

    title: str
    prepare: Callable
    metric: str
    data: str
    samples: dict
    texts: int
    scored: int
    epochs: int
    maxlen: int
    batch_size: int = 32
    learning_rate: float = 3e-4  # for small models: greater ones need a lower one


def load_variant(args, tokenizer, **options):
    """Returns the encoder of a run; longer texts than it takes are to be cut from then on."""
    encoder = load_encoder(args, args.config, tokenizer, **VARIANTS[args.variant], **options)
    args.maxlen = min(args.maxlen, TextInputs.of(encoder).max_length)
    # The variants draw different numbers of weights before the checkpoint is loaded; from here
    # on they get the same new layers and the same batches.
    keras.utils.set_random_seed(args.seed)
    return encoder


def classification(args, tokenizer, encoder=None):
    """Prepares a classifier of texts, of the encoder of the variant or of another one."""
    train, scored = read_labelled(args.train), read_labelled(args.test or args.valid)
    labels, scored = label_names(train, scored), left_to_score(train, scored)
    train = Labelled(some_of(train, args.texts), labels)
    scored = Labelled(some_of(scored, args.scored), labels)
    encoder = encoder or load_variant(args, tokenizer)
    features = GlobalAveragePooling1D()(encoder.output)
    model = add_head(encoder, features, len(labels), dropout=0.1)
    compile_classifier(model, args, len(train.texts))
    batches = train.batches(model, tokenizer, args, seed=args.seed)
    guess = guessing(train.numbers, scored.numbers)
    return Prepared(
        model,
        batches,
        lambda: scored.accuracy(model, tokenizer, args),
        guess,
        len(train.texts),
        len(scored.texts),
    )


def triples(args, tokenizer):
    """Prepares the extraction of triples by CasRel."""
    train, scored, predicates = read_data(args)
    train, scored = some_of(train, args.texts), some_of(scored, args.scored)
    encoder = load_variant(args, tokenizer)
    sentences, watched, _ = place(train, scored, tokenizer, predicates, args.maxlen)
    most_links = max(len(one.links) for one in sentences)
    extractor = CasRel(encoder, len(predicates), most_links, args)
    batches = Batches(encoder, tokenizer, sentences, args, extractor)
    compile_extractor(extractor, batches, args)
    watched = Batches(encoder, tokenizer, watched, args)
    guesses = known_triples(train, [text for text, _ in scored])
    return Prepared(
        extractor.model,
        batches,
        lambda: score(extractor, watched, predicates)[1]["F1"],
        measure(guesses, [right for _, right in scored])["F1"],
        len(sentences),
        len(scored),
    )


def answers(args, tokenizer):
    """Prepares a model that reads a passage and writes the answer to a question."""
    model = load_variant(args, tokenizer, application="unilm", with_mlm="linear")
    seq2seq.check_room(args)
    questions, asked = (
        with_short_answers(encode(some_of(rows, 2 * limit), tokenizer), seq2seq.MAX_ANSWER)[:limit]
        for rows, limit in zip(train_and_test(args), (args.texts, args.scored), strict=True)
    )
    rng = np.random.default_rng(0)  # the same parts of the passages for every seed
    asked = [cut(question, seq2seq.room(args), rng) for question in asked]

    def f1(texts):
        return mean_scores(texts, asked)[1]

    training, batches = seq2seq.to_train(model, questions, tokenizer, args)
    return Prepared(
        training,
        batches,
        lambda: f1(seq2seq.write_answers(model, tokenizer, asked, spans_only=True)[0]),
        f1(closest_clauses(asked)),
        len(questions),
        len(asked),
    )


def _labelled_sample(name):
    return {"train": sample(f"{name}_train.tsv"), "valid": sample(f"{name}_valid.tsv")}


# With these sizes a run takes about two minutes of one core for a model of 4 layers of width 192.
TASKS = {
    "sentiment": Task(
        title="sentiment",
        prepare=classification,
        metric="accuracy",
        data="sentiment",
        samples=_labelled_sample("reviews"),
        texts=600,
        scored=500,
        epochs=3,
        maxlen=96,
    ),
    "iflytek": Task(
        title="long texts (iflytek)",
        prepare=classification,
        metric="accuracy",
        data="iflytek",
        samples=_labelled_sample("long_reviews"),
        texts=560,
        scored=300,
        epochs=2,
        maxlen=128,
    ),
    "triples": Task(
        title="triples (DuIE)",
        prepare=triples,
        metric="F1",
        data="casrel",
        samples={"train": SAMPLE, "valid": SAMPLE},
        texts=320,
        scored=150,
        epochs=4,
        maxlen=96,
        batch_size=16,
    ),
    "answers": Task(
        title="written answers (cmrc2018)",
        prepare=answers,
        metric="F1",
        data="cmrc2018 written",
        samples={"data": sample("reading.json")},
        texts=320,
        scored=64,
        epochs=2,
        maxlen=98,
        batch_size=16,
    ),
}

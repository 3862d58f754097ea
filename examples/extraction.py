"""How the models of the two examples of triples are trained and used.

Shapes: B batch, L length, P predicates.
"""

from abc import ABC, abstractmethod

import keras
import numpy as np
from relations import SAMPLE, known_triples, locate, measure, read_data
from runs import Run, ScoreByEpoch, batching, load_encoder, optimizer, starting_point
from shared import UsageError

from kerasbert.data import BucketedDataset

# What both examples ask `parse_arguments` for.
ARGUMENTS = {
    "files": {
        "train": (SAMPLE, 'JSON objects with "text" and "spo_list" to train on'),
        "valid": (SAMPLE, "the same, to score; of a file that is both every sixth text"),
    },
    "maxlen": 128,
    "batch_size": 16,
}

# The curve of a training shows the score of so many texts.
WATCHED = 400


class Batches(BucketedDataset):
    """Batches of sentences: to train on with what an `Extractor` adds, else with their numbers.

    Args:
        encoder: the model that takes the texts.
        tokenizer: its tokenizer.
        sentences: list of `Sentence`.
        args: of the command line.
        extractor: the `Extractor` to train; None leaves the order as it is.
    """

    def __init__(self, encoder, tokenizer, sentences, args, extractor=None):
        super().__init__(
            encoder,
            tokenizer,
            [sentence.text for sentence in sentences],
            labels=np.arange(len(sentences)),
            **batching(args, len(sentences)),
            shuffle=extractor is not None,
            seed=args.seed,
        )
        self.sentences, self.extractor = sentences, extractor

    def __getitem__(self, index):
        inputs, numbers = super().__getitem__(index)
        inputs = keras.tree.flatten(inputs)
        if self.extractor is None:
            return inputs, numbers
        rng = np.random.default_rng([self.seed, self.epoch, index])
        chosen = [self.sentences[n] for n in numbers]
        more, labels = self.extractor.examples(chosen, inputs[0].shape[1], rng)
        return (*inputs, *more), labels


# ---- training --------------------------------------------------------------------------------


class Extractor(ABC):
    """A model that finds links.

    Attributes:
        model: the Keras model to train.
        losses: a loss for each of its outputs.
        weights: of these losses.
    """

    @abstractmethod
    def examples(self, sentences, length, rng):
        """Returns what the model needs besides texts, and the labels, as tuples of arrays.

        Args:
            sentences: B of them.
            length: L.
            rng: random numbers for what is drawn.
        """

    @abstractmethod
    def links(self, inputs, real):
        """Returns the links of a batch, a set for each text.

        Args:
            inputs: arrays (B, L) that the encoder takes.
            real: bool array (B, L), True at the tokens that stand for characters.
        """


def find_triples(extractor, batches, predicates):
    """Returns the triples that a model finds, a set for each text, in the order of the texts."""
    sentences = batches.sentences
    found = [set() for _ in sentences]
    for inputs, numbers in (batches[index] for index in range(len(batches))):
        real = np.zeros(inputs[0].shape, bool)
        for row, number in zip(real, numbers, strict=True):
            row[: len(sentences[number].characters)] = list(map(bool, sentences[number].characters))
        for number, links in zip(numbers, extractor.links(inputs, real), strict=True):
            found[number] = {sentences[number].triple(link, predicates) for link in links}
    return found


def prepare(args, texts):
    """Returns an encoder and its tokenizer: the user's, or small ones with random weights."""
    large = args.train != SAMPLE
    size = 32 if args.quick else 96 if large else 64
    sizes = {
        "model_type": "roformer",
        "hidden_size": size,
        "intermediate_size": 2 * size,
        "num_hidden_layers": 1 if args.quick else 2,
        "initializer_range": size**-0.5,
    }
    config, tokenizer = starting_point(args, texts, at_least=2 if large else 1, **sizes)
    return load_encoder(args, config, tokenizer), tokenizer


def place(train, valid, tokenizer, predicates, maxlen):
    """Returns sentences to train on and to score, and how many triples of both have no place."""
    sentences, scored = (locate(pairs, tokenizer, predicates, maxlen) for pairs in (train, valid))
    missed = [sum(len(s.triples) - len(s.links) for s in group) for group in (sentences, scored)]
    sentences = [one for one in sentences if one.links]
    if not sentences:
        raise UsageError(f"no triple of --train stands within {maxlen} tokens of its text")
    return sentences, scored, missed


def train_and_score(name, make, args):
    """Trains a model that finds triples, scores it and shows what it finds.

    Args:
        name: of the example.
        make: returns an `Extractor`, given the encoder, the number of predicates, that of links
            which a text has at most, and `args`.
        args: of the command line.
    """
    train, valid, predicates = read_data(args)
    run = Run(name, args)
    encoder, tokenizer = prepare(args, [text for text, _ in train])
    sentences, scored, missed = place(train, valid, tokenizer, predicates, args.maxlen)
    print(f"{len(sentences):,} texts to train on, {len(valid):,} to score")
    print(f"triples that are cut off or no whole tokens: {missed[0]:,} and {missed[1]:,}")

    extractor = make(encoder, len(predicates), max(len(one.links) for one in sentences), args)
    watched = Batches(encoder, tokenizer, scored[:WATCHED], args)
    watch = ScoreByEpoch("F1", lambda _: score(extractor, watched, predicates)[1]["F1"])
    fit(run, extractor, Batches(encoder, tokenizer, sentences, args, extractor), [watch])

    found, scores = score(extractor, Batches(encoder, tokenizer, scored, args), predicates)
    show(scored, found)
    guesses = known_triples(train, [text for text, _ in valid])
    run.finish(
        extractor.model,
        scores,
        guess=measure(guesses, [triples for _, triples in valid])["F1"],
        training_texts=len(sentences),
        scored_texts=len(valid),
        missed_in_training=missed[0],
        missed_in_scored=missed[1],
    )


def fit(run, extractor, batches, callbacks):
    """Compiles and trains the model of an extractor."""
    compile_extractor(extractor, batches, run.args)
    run.fit(extractor.model, batches, callbacks=callbacks)


def compile_extractor(extractor, batches, args):
    """Compiles the model of an extractor for a training on these batches."""
    steps = args.epochs * len(batches)
    extractor.model.compile(
        optimizer(args, steps),
        extractor.losses,
        loss_weights=extractor.weights,
        # A compilation takes as long as some hundred steps of a small model.
        jit_compile=steps > 500,
    )


def score(extractor, batches, predicates):
    """Returns what a model finds, and how good that is."""
    found = find_triples(extractor, batches, predicates)
    return found, measure(found, [one.triples for one in batches.sentences])


def show(sentences, found, count=4):
    """Prints what was found in some texts."""
    for sentence, triples in list(zip(sentences, found, strict=True))[:count]:
        print(f"\n{sentence.text}")
        for triple in sorted(triples | sentence.triples):
            kind = "wrong" if triple not in sentence.triples else "right"
            print(f"  {kind if triple in triples else 'not found'}: {' | '.join(triple)}")

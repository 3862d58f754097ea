"""Vectors of sentences, near to each other where the sentences mean the same.

    python examples/sentence_similarity.py
    python examples/sentence_similarity.py --train train.txt --valid dev.txt
    python examples/sentence_similarity.py --config bert_config.json \
        --checkpoint bert_model.ckpt --vocab vocab.txt --train train.txt --valid dev.txt

The vector of a sentence is the mean of the vectors that go into the encoder and of those that
come out of it, padding left out (first and last, Li et al. 2020, arXiv:2011.05864). The encoder
is trained on pairs by CoSENT (Su 2022, https://kexue.fm/archives/8847): of any two pairs of a
batch, that with the higher label is to have the higher cosine. It is scored by the rank
correlation (Spearman) of cosines and labels; beside it stand that of the characters which two
sentences have in common, and that of the encoder before the training. Each line of the data is a
sentence, a tab, another, a tab, and a number, such as 1 if they mean the same, else 0. Without
arguments it is a small BERT with random weights, on made-up questions.
"""

import math
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import classifiers
import keras
import numpy as np
from files import read_columns
from keras import ops
from runs import Run, ScoreByEpoch, load_encoder, optimizer, starting_point, use_xla
from scipy.stats import spearmanr
from shared import UsageError, main, sample

from kerasbert import hidden_state
from kerasbert.data import DataGenerator, TextInputs
from kerasbert.data.text_inputs import Rows
from kerasbert.layers import GlobalAveragePooling1D
from kerasbert.prediction import predict_texts

SIZES = {**classifiers.SIZES, "num_hidden_layers": 1}
TINY = {**classifiers.TINY, "num_hidden_layers": 1}
SCALE = 20.0  # of the cosines, as in the paper
STEP = 8  # of the lengths of batches: each length is compiled


def read_pairs(path):
    """Returns triples (sentence, other sentence, number)."""
    rows = read_columns(path, ("sentence", "sentence", "number"))
    try:
        pairs = [(first, second, float(number)) for first, second, number in rows]
    except ValueError as error:
        raise UsageError(f"{path}: expected a number in the third column: {error}") from error
    if not all(math.isfinite(number) for *_, number in pairs):
        raise UsageError(f"{path}: expected finite numbers in the third column")
    if len({number for *_, number in pairs}) < 2:
        raise UsageError(f"{path}: all pairs have the label {pairs[0][2]:g}: nothing to rank")
    return pairs


def sentences_of(pairs):
    """Returns the sentences of all pairs, those of a pair one after the other."""
    return [sentence for pair in pairs for sentence in pair[:2]]


class PairBatches(DataGenerator):
    """Batches of pairs of like length: inputs with 2B rows, as `sentences_of`, and labels (2B,)."""

    def __init__(self, model, tokenizer, pairs, args):
        super().__init__(range(len(pairs)), args.batch_size)
        self.inputs = TextInputs.of(model)
        self.rows = Rows.encode(tokenizer, sentences_of(pairs), args.maxlen)
        self.inputs.check(self.rows)
        self.labels = np.array([label for *_, label in pairs], "float32")
        longest = self.rows.lengths.reshape(-1, 2).max(axis=1)
        self.lengths = np.minimum(-(-longest // STEP) * STEP, args.maxlen)

    def __iter__(self, random=False):
        """Yields the batches of an epoch."""
        order = np.arange(len(self.data))
        if random:
            np.random.shuffle(order)
        order = order[np.argsort(self.lengths[order], kind="stable")]
        starts = np.arange(0, len(order), self.batch_size)
        if random:
            np.random.shuffle(starts)
        for start in starts:
            chosen = order[start : start + self.batch_size]
            rows = (2 * chosen[:, None] + [0, 1]).ravel()
            length = int(self.lengths[chosen].max())
            yield tuple(self.inputs.arrays(self.rows, rows, length)), self.labels[rows // 2]


def cosent_loss(labels, vectors):
    """Returns log(1 + sum exp(SCALE * (cosine of pair i - cosine of pair j))), a scalar.

    The sum is over all i and j of which i has the lower label.

    Args:
        labels: float tensor (2B,), the label of each pair twice.
        vectors: float tensor (2B, H), those of a pair one after the other.
    """
    vectors = ops.normalize(ops.cast(vectors, "float32"), axis=-1)
    cosines = SCALE * ops.sum(vectors[::2] * vectors[1::2], axis=-1)  # (B,)
    labels = ops.reshape(labels, (-1,))[::2]
    lower = ops.less(labels[:, None], labels[None, :])
    differences = ops.where(lower, cosines[:, None] - cosines[None, :], -1e9)
    return ops.softplus(ops.logsumexp(differences))


def common_characters(first, second):
    """Returns the share of the characters of two texts that stand in both."""
    return len({*first} & {*second}) / len({*first} | {*second})


def correlation(values, pairs):
    """Returns the rank correlation of numbers with the labels of pairs; 0 if all are equal."""
    found = spearmanr(values, [label for *_, label in pairs]).statistic
    return 0.0 if math.isnan(found) else found


def unit_vectors(model, tokenizer, texts, args):
    """Returns the vectors (N, H) of texts, of length 1: their products are cosines."""
    vectors = predict_texts(
        model, tokenizer, texts, maxlen=args.maxlen, verbose=0, jit_compile=bool(args.config)
    )
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-9)


def score(model, tokenizer, pairs, args):
    """Returns the rank correlation of a model's cosines."""
    vectors = unit_vectors(model, tokenizer, sentences_of(pairs), args)
    return correlation((vectors[::2] * vectors[1::2]).sum(axis=1), pairs)


def show_nearest(model, tokenizer, pairs, args, queries=5, most=3):
    """Prints the sentences that are nearest to some others."""
    texts = list(dict.fromkeys(sentences_of(pairs)))
    vectors = unit_vectors(model, tokenizer, texts, args)
    for number in range(0, len(texts), max(len(texts) // queries, 1))[:queries]:
        cosines = vectors @ vectors[number]
        cosines[number] = -2  # not itself
        print(f"\n{texts[number]}")
        for other in np.argsort(-cosines)[:most]:
            print(f"  {cosines[other]:.2f}  {texts[other]}")


def run(args):
    """Trains an encoder on pairs, scores it, and shows which sentences it takes for alike."""
    session = Run("sentence_similarity", args)
    train, valid = read_pairs(args.train), read_pairs(args.valid)
    print(f"{len(train):,} pairs to train on, {len(valid):,} to score")
    sizes = TINY if args.quick else SIZES
    at_least = 2 if len(train) > 1000 else 1
    config, tokenizer = starting_point(args, sentences_of(train), at_least, **sizes)
    encoder = load_encoder(args, config, tokenizer)
    states = [hidden_state(encoder, 0), encoder.output]
    vectors = GlobalAveragePooling1D()(keras.layers.Average()(states))
    model = keras.Model(encoder.inputs, vectors)
    batches = PairBatches(model, tokenizer, train, args)
    steps = args.epochs * len(batches)
    model.compile(optimizer(args, steps), cosent_loss, jit_compile=use_xla(args, steps))
    untrained = score(model, tokenizer, valid, args)
    by_epoch = ScoreByEpoch("correlation", lambda model: score(model, tokenizer, valid, args))
    history = session.fit(model, batches, callbacks=[by_epoch])

    show_nearest(model, tokenizer, valid, args)
    overlap = correlation([common_characters(*pair[:2]) for pair in valid], valid)
    scores = {"correlation": history["val_correlation"][-1], "before the training": untrained}
    session.finish(model, scores, overlap, pairs=len(valid))


if __name__ == "__main__":
    main(
        "sentence_similarity",
        run,
        description=__doc__.split("\n")[0],
        files={
            "train": (sample("pairs_train.tsv"), "pairs to train on"),
            "valid": (sample("pairs_valid.tsv"), "pairs to score"),
        },
        maxlen=32,
        epochs=(3, 20),
        quick_epochs=5,
        rates=(2e-5, 1e-3),
    )

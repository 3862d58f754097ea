"""Triples (subject, predicate, object) by scores of pairs of tokens: GPLinker.

    python examples/relation_extraction_gplinker.py
    python examples/relation_extraction_gplinker.py --train duie_train.json --valid duie_dev.json
    python examples/relation_extraction_gplinker.py --config bert_config.json \
        --checkpoint bert_model.ckpt --vocab vocab.txt --train train.json --valid dev.json \
        --places 128

One pointer scores pairs (first token, last token) as a subject or an object. Two more score,
for each predicate, pairs of a subject's and an object's first tokens, and of their last tokens;
a triple is what all three agree on. Pairs of all tokens are many for all the predicates: only
--places tokens take part of each text, those of its triples and some others that are drawn anew
each time. Without files a tiny model is trained on made-up sentences.

Source: Su 2022, https://kexue.fm/archives/8888; the pointer and the loss Su et al. 2022
(arXiv:2208.03054, arXiv:2208.02955).
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from extraction import ARGUMENTS, Extractor, train_and_score
from keras import ops
from shared import UsageError, main

from kerasbert.layers import EfficientGlobalPointer
from kerasbert.losses import sparse_multilabel_categorical_crossentropy

NAME = "relation_extraction_gplinker"
SETTINGS = {
    "description": __doc__.split("\n")[0],
    "epochs": (12, 80),
    "quick_epochs": 3,
    "rates": (3e-5, 1e-3),
    "options": [("--places", {"type": int, "default": 24, "help": "tokens that are linked"})],
    **ARGUMENTS,
}
HEAD_SIZE = 64
SUBJECT, OBJECT = range(2)

# Of the spans of a text that may be names, so many at most are linked with each other.
MOST_NAMES = 32


class GPLinker(Extractor):
    """Finds subjects and objects, and links them.

    Args:
        encoder: the model of the texts.
        num_predicates: P.
        most_links: how many a text has at most.
        args: of the command line.
    """

    def __init__(self, encoder, num_predicates, most_links, args):
        self.num_predicates, self.most_links = num_predicates, most_links
        self.places = args.places
        hidden = encoder.output  # (B, L, H)
        names = EfficientGlobalPointer(2, HEAD_SIZE, name="names")(hidden)  # (B, 2, L, L)
        sides = [keras.Input((None,), dtype="int32", name=name) for name in ("firsts", "lasts")]
        links = [_linked(hidden, side, num_predicates) for side in sides]  # (B, P, M, M)
        self.model = keras.Model([*encoder.inputs, *sides], [names, *links])
        self.losses = [pairs_crossentropy for _ in range(3)]
        self.weights = [1, 1, 1]
        self.find_names = keras.Model(encoder.inputs, [names, hidden])
        self.find_links = keras.Model([hidden, *sides], links)

    def examples(self, sentences, length, rng):
        """Returns the tokens (B, M) of both sides, and the right pairs as numbers."""
        rows = [
            (
                pair_numbers(self._names(one.links), 2, length, self.most_links),
                *self._side(one, 0, rng),
                *self._side(one, 1, rng),
            )
            for one in sentences
        ]
        names, firsts, of_firsts, lasts, of_lasts = map(np.stack, zip(*rows, strict=True))
        return (firsts, lasts), (names, of_firsts, of_lasts)

    def _names(self, links):
        return {(kind, *link[2 * kind]) for link in links for kind in (SUBJECT, OBJECT)}

    def _side(self, sentence, side, rng):
        """Returns the tokens that take part, and which pairs of them are linked."""
        pairs = {(p, s[side], o[side]) for s, p, o in sentence.links}
        tokens = draw_tokens(pairs, len(sentence.characters), self.places, rng)
        place = {token: n for n, token in enumerate(tokens)}
        kept = {(p, place[s], place[o]) for p, s, o in pairs if s in place and o in place}
        numbers = pair_numbers(kept, self.num_predicates, self.places, self.most_links)
        return np.array(tokens, "int32"), numbers

    def links(self, inputs, real):
        """Returns the links of a batch, a set for each text."""
        scores, hidden = self.find_names.predict_on_batch(inputs)
        scores = np.where(real[:, None, :, None] & real[:, None, None, :], scores, -np.inf)
        names = [best_names(row) for row in scores]
        # Both sides have a token for each name.
        sides = np.full((2, len(names), max(1, *map(len, names))), -1, "int32")
        for row, found in enumerate(names):
            sides[:, row, : len(found)] = np.array(found, "int32").reshape(-1, 3)[:, 1:].T
        scores = np.minimum(*self.find_links.predict_on_batch([hidden, *sides]))
        found = [set() for _ in names]
        for row, predicate, i, j in np.argwhere(scores > 0).tolist():
            (kind, *subject), (other, *object_) = names[row][i], names[row][j]
            if (kind, other) == (SUBJECT, OBJECT):
                found[row].add((tuple(subject), predicate, tuple(object_)))
        return found


def _linked(hidden, tokens, num_predicates):
    """Returns the scores (B, P, M, M) of pairs of tokens (B, M); -1 stands for none."""
    places = ops.expand_dims(ops.maximum(tokens, 0), axis=-1)
    states = ops.take_along_axis(hidden, places, axis=1)  # (B, M, H)
    pointer = EfficientGlobalPointer(num_predicates, HEAD_SIZE, RoPE=False, tril_mask=False)
    return pointer(states, mask=ops.greater_equal(tokens, 0))


def pairs_crossentropy(y_true, y_pred):
    """Returns the loss (B,) of scores (B, N, M, M) for right pairs (B, N, K) by number."""
    batch, kinds, size, _ = ops.shape(y_pred)
    scores = ops.reshape(y_pred, (batch, kinds, size * size))
    loss = sparse_multilabel_categorical_crossentropy(y_true, scores, mask_zero=True)
    return ops.sum(loss, axis=-1)


def pair_numbers(pairs, kinds, size, most):
    """Returns the numbers i * size + j (kinds, most) of pairs (kind, i, j), filled up with 0.

    0 is the pair of the first token, [CLS], with itself, which is never right.
    """
    numbers = np.zeros((kinds, most), "int32")
    counts = [0] * kinds
    for kind, i, j in pairs:
        numbers[kind, counts[kind]] = i * size + j
        counts[kind] += 1
    return numbers


def draw_tokens(pairs, length, size, rng):
    """Returns `size` tokens of `length`: the first, those of the pairs, others; -1 if too few."""
    right = sorted({token for _, *pair in pairs for token in pair})
    others = rng.permutation(np.setdiff1d(np.arange(1, length), right)).tolist()
    tokens = [0, *right, *others][:size]
    return tokens + [-1] * (size - len(tokens))


def best_names(scores):
    """Returns (kind, start, end) of the scores (2, L, L) above 0, the highest first."""
    places = np.argwhere(scores > 0)
    order = np.argsort(-scores[tuple(places.T)], kind="stable")
    return places[order[:MOST_NAMES]].tolist()


def run(args):
    """Trains and scores a model."""
    if args.places < 2:
        raise UsageError(f"--places {args.places}: expected at least 2")
    train_and_score(NAME, GPLinker, args)


if __name__ == "__main__":
    main(f"{NAME}.py", run, **SETTINGS)

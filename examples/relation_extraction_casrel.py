"""Triples (subject, predicate, object): first all subjects, then the objects of each.

    python examples/relation_extraction_casrel.py
    python examples/relation_extraction_casrel.py --train duie_train.json --valid duie_dev.json
    python examples/relation_extraction_casrel.py --config bert_config.json \
        --checkpoint bert_model.ckpt --vocab vocab.txt --train train.json --valid dev.json

A score for each token says whether a subject begins or ends there. What the encoder says of
the two ends of a subject steers a conditional layer normalisation of its output, on which two
scores for each token and predicate mark the objects. Without files a tiny model is trained on
made-up sentences.

Source: CasRel, Wei et al. 2020 (arXiv:1909.03227), with the conditional norm of Su 2020
(https://kexue.fm/archives/7161).
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from extraction import ARGUMENTS, Extractor, train_and_score
from keras import ops
from shared import main

from kerasbert.layers import LayerNormalization

NAME = "relation_extraction_casrel"
SETTINGS = {
    "description": __doc__.split("\n")[0],
    "epochs": (12, 80),
    "quick_epochs": 3,
    "rates": (3e-5, 1e-3),
    **ARGUMENTS,
}


class CasRel(Extractor):
    """Finds subjects, and for each the objects.

    Args:
        encoder: the model of the texts.
        num_predicates: P.
        most_links: how many a text has at most; not needed here.
        args: of the command line.
    """

    def __init__(self, encoder, num_predicates, most_links, args):
        self.num_predicates, self.batch_size = num_predicates, args.batch_size
        hidden = encoder.output  # (B, L, H)
        subject = keras.Input((2,), dtype="int32", name="subject")
        ends = ops.take_along_axis(hidden, ops.expand_dims(subject, axis=-1), axis=1)  # (B, 2, H)
        ends = keras.layers.Reshape((2 * hidden.shape[-1],))(ends)
        steered = LayerNormalization(conditional=True, name="steered")(hidden, condition=ends)
        subjects = _pointers("subjects", 1)(hidden)  # (B, L, 2)
        objects = _pointers("objects", num_predicates)(steered)  # (B, L, 2 P)
        self.model = keras.Model([*encoder.inputs, subject], [subjects, objects])
        self.losses = [keras.losses.BinaryCrossentropy(from_logits=True) for _ in range(2)]
        # The mean over all predicates is small, as most of them are in no text.
        self.weights = [1, num_predicates]
        self.find_subjects = keras.Model(encoder.inputs, [subjects, hidden])
        self.find_objects = keras.Model([hidden, subject], objects)

    def examples(self, sentences, length, rng):
        """Returns a subject of each text, and as labels all subjects and its objects."""
        chosen = np.zeros((len(sentences), 2), "int32")
        subjects = np.zeros((len(sentences), length, 2), "float32")
        objects = np.zeros((len(sentences), length, self.num_predicates, 2), "float32")
        for row, sentence in enumerate(sentences):
            for (start, end), _, _ in sentence.links:
                subjects[row, start, 0] = subjects[row, end, 1] = 1
            subject = draw_subject(sentence.links, rng)
            chosen[row] = subject
            for other, predicate, (start, end) in sentence.links:
                if other == subject:
                    objects[row, start, predicate, 0] = objects[row, end, predicate, 1] = 1
        return (chosen,), (subjects, objects.reshape(len(sentences), length, -1))

    def links(self, inputs, real):
        """Returns the links of a batch, a set for each text."""
        found = [set() for _ in real]
        scores, hidden = self.find_subjects.predict_on_batch(inputs)
        marked = (scores > 0) & real[:, :, None]
        pairs = [(row, span) for row, marks in enumerate(marked) for span in spans(marks)]
        for first in range(0, len(pairs), self.batch_size):
            rows, subjects = zip(*pairs[first : first + self.batch_size], strict=True)
            scores = self.find_objects.predict_on_batch(
                [hidden[list(rows)], np.array(subjects, "int32")]
            )
            marked = scores.reshape(*scores.shape[:2], -1, 2) > 0  # (B, L, P, 2)
            marked &= real[list(rows), :, None, None]
            for n, predicate in np.argwhere(marked.any(axis=1).all(axis=-1)).tolist():
                for span in spans(marked[n, :, predicate]):
                    found[rows[n]].add((subjects[n], predicate, span))
        return found


def _pointers(name, kinds):
    """Returns a layer of logits for the start and the end of something, of several kinds."""
    # Almost no token is one: it starts with such an answer.
    start = keras.initializers.Constant(-4.0)
    return keras.layers.Dense(2 * kinds, bias_initializer=start, name=name)


def draw_subject(links, rng):
    """Returns a span from the start of a subject to the end of one.

    These may be two: so the model learns that a wrong subject has no objects.
    """
    subjects = sorted({subject for subject, _, _ in links})
    start = int(rng.choice([start for start, _ in subjects]))
    return start, int(rng.choice([end for _, end in subjects if end >= start]))


def spans(marks):
    """Returns spans from each start to the next end of bool marks (L, 2)."""
    ends = np.flatnonzero(marks[:, 1])
    places = ((start, np.searchsorted(ends, start)) for start in np.flatnonzero(marks[:, 0]))
    return [(int(start), int(ends[place])) for start, place in places if place < len(ends)]


def run(args):
    """Trains and scores a model."""
    train_and_score(NAME, CasRel, args)


if __name__ == "__main__":
    main(f"{NAME}.py", run, **SETTINGS)

"""The two models of relation extraction find what their labels say, which are right."""

import itertools
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from relation_sentences import CASREL, GPLINKER, PREDICATES, SENTENCES, load, make_tokenizer


@pytest.fixture(scope="module")
def extraction():
    return load("extraction")


@pytest.fixture(scope="module")
def casrel():
    return load(CASREL)


@pytest.fixture(scope="module")
def gplinker():
    return load(GPLINKER)


@pytest.fixture(scope="module")
def sentences():
    return load("relations").locate(SENTENCES, make_tokenizer(), PREDICATES, 64)


def oracle(answer):
    return SimpleNamespace(predict_on_batch=answer)


def found_by(extraction, extractor, sentences):
    """What is found in a batch of these sentences, by models that know the answers."""
    length = max(len(one.characters) for one in sentences) + 2
    inputs = [np.zeros((len(sentences), length), "int32")]
    batches = [(inputs, np.arange(len(sentences)))]
    return extraction.find_triples(extractor, _Batches(batches, sentences), PREDICATES)


class _Batches(list):
    def __init__(self, batches, sentences):
        super().__init__(batches)
        self.sentences = sentences


@pytest.mark.parametrize("batch_size", [1, 2, 16])
def test_casrel_finds_what_the_labels_say(casrel, extraction, sentences, batch_size):
    extractor = object.__new__(casrel.CasRel)
    extractor.num_predicates, extractor.batch_size = len(PREDICATES), batch_size
    rng, length = np.random.default_rng(0), max(len(one.characters) for one in sentences) + 2
    _, (subjects, _) = extractor.examples(sentences, length, rng)
    # Whatever the model says of padding is no matter.
    padding = np.array([[n >= len(one.characters) for n in range(length)] for one in sentences])
    hidden = np.arange(len(sentences), dtype="float32")[:, None, None] * np.ones((1, length, 1))

    def objects(arrays):
        scores = np.full((len(arrays[0]), length, 4), -1.0)
        for row, (states, subject) in enumerate(zip(*arrays, strict=True)):
            number = int(states[0, 0])
            scores[row, padding[number]] = 1
            for other, predicate, (start, end) in sentences[number].links:
                if other == tuple(subject):
                    scores[row, start, 2 * predicate] = scores[row, end, 2 * predicate + 1] = 1
        return scores

    extractor.find_subjects = oracle(lambda _: (subjects - 0.5 + padding[..., None], hidden))
    extractor.find_objects = oracle(objects)
    found = found_by(extraction, extractor, sentences)
    assert found == [triples for _, triples in SENTENCES]


def test_casrel_labels(casrel, sentences):
    extractor = object.__new__(casrel.CasRel)
    extractor.num_predicates = len(PREDICATES)
    rng, seen = np.random.default_rng(0), set()
    for _ in range(20):
        (chosen,), (subjects, objects) = extractor.examples(sentences[1:2], 20, rng)
        assert np.argwhere(subjects[0]).tolist() == [[1, 0], [2, 1], [11, 0], [12, 1]]
        expected = np.zeros((20, 2, 2))
        for subject, predicate, (start, end) in sentences[1].links:
            if subject == tuple(chosen[0]):
                expected[start, predicate, 0] = expected[end, predicate, 1] = 1
        assert np.array_equal(objects[0].reshape(20, 2, 2), expected)
        seen.add(tuple(chosen[0].tolist()))
    # Both subjects, and what is from the start of the first to the end of the second.
    (a, b), (c, d) = sorted({subject for subject, _, _ in sentences[1].links})
    assert seen == {(a, b), (c, d), (a, d)}


def test_casrel_spans(casrel):
    for marks in itertools.product([False, True], repeat=8):
        marks = np.array(marks).reshape(4, 2)
        expected = [
            (i, next(j for j in range(i, 4) if marks[j, 1]))
            for i in range(4)
            if marks[i, 0] and marks[i:, 1].any()
        ]
        assert casrel.spans(marks) == expected


def test_gplinker_finds_what_the_labels_say(gplinker, extraction, sentences):
    extractor = object.__new__(gplinker.GPLinker)
    length = max(len(one.characters) for one in sentences) + 2
    names = np.full((len(sentences), 2, length, length), -1.0)
    for row, one in enumerate(sentences):
        for subject, _, object_ in one.links:
            names[(row, 0, *subject)] = names[(row, 1, *object_)] = 1
        size = len(one.characters) - 1  # [SEP] and padding
        names[row, :, size:] = names[row, :, :, size:] = names[row, :, 0] = 1

    def links(arrays):
        _, *sides = arrays
        scores = []
        for side, tokens in enumerate(sides):
            right = {
                (row, s[side], p, o[side])
                for row, one in enumerate(sentences)
                for s, p, o in one.links
            }
            shape = (len(tokens), 2, tokens.shape[1], tokens.shape[1])
            of_side = np.full(shape, -1.0)
            for row, p, i, j in np.ndindex(shape):
                if (row, tokens[row, i], p, tokens[row, j]) in right:
                    of_side[row, p, i, j] = 1
            scores.append(of_side)
        return scores

    extractor.find_names = oracle(lambda _: (names, None))
    extractor.find_links = oracle(links)
    found = found_by(extraction, extractor, sentences)
    assert found == [triples for _, triples in SENTENCES]


@pytest.mark.parametrize("places", [6, 40])
def test_gplinker_labels(gplinker, sentences, places):
    extractor = object.__new__(gplinker.GPLinker)
    extractor.num_predicates, extractor.most_links, extractor.places = 2, 3, places
    length, rng = 22, np.random.default_rng(0)
    sides, (names, *links) = extractor.examples(sentences, length, rng)
    assert names.shape == (3, 2, 3) and links[0].shape == links[1].shape == (3, 2, 3)
    for row, one in enumerate(sentences):
        for kind in (0, 1):
            expected = {link[2 * kind][0] * length + link[2 * kind][1] for link in one.links}
            assert set(names[row, kind].tolist()) - {0} == expected
        for side in (0, 1):
            tokens = sides[side][row]
            assert tokens.shape == (places,) and tokens[0] == 0
            real = tokens[tokens >= 0].tolist()
            assert len(set(real)) == len(real) == min(places, len(one.characters))
            found = {
                (int(tokens[number // places]), p, int(tokens[number % places]))
                for p in range(2)
                for number in links[side][row, p]
                if number
            }
            assert found == {(s[side], p, o[side]) for s, p, o in one.links}


def test_gplinker_loss_against_numpy(gplinker):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(2, 3, 4, 4)).astype("float32")
    pairs = [{(0, 1, 2), (0, 3, 3), (2, 2, 0)}, {(1, 0, 3)}]
    numbers = np.stack([gplinker.pair_numbers(some, 3, 4, 2) for some in pairs])
    expected = []
    for row, some in enumerate(pairs):
        loss = 0.0
        for kind in range(3):
            flat = {(i, j): scores[row, kind, i, j] for i in range(4) for j in range(4) if i or j}
            right = {(i, j) for k, i, j in some if k == kind}
            loss += np.log1p(sum(np.exp(-flat[pair]) for pair in right))
            loss += np.log1p(sum(np.exp(flat[pair]) for pair in flat if pair not in right))
        expected.append(loss)
    found = keras.ops.convert_to_numpy(gplinker.pairs_crossentropy(numbers, scores))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_gplinker_takes_the_best_names(gplinker):
    scores = np.full((2, 9, 9), -1.0)
    scores[1, 2, 3], scores[0, 4, 4], scores[0, 1, 2] = 0.5, 3, 2
    assert gplinker.best_names(scores) == [[0, 4, 4], [0, 1, 2], [1, 2, 3]]
    scores = np.random.default_rng(0).normal(size=(2, 9, 9))
    found = gplinker.best_names(scores)
    assert len(found) == gplinker.MOST_NAMES < (scores > 0).sum()
    chosen = [scores[tuple(name)] for name in found]
    assert chosen == sorted(scores[scores > 0], reverse=True)[: len(chosen)]

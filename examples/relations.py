"""Triples (subject, predicate, object) of texts: reading, places, score.

A link is a triple by its place: (subject, number of the predicate, object), where subject and
object are spans, pairs of the first and the last token.
"""

from dataclasses import dataclass
from itertools import product

from files import read_objects
from shared import UsageError, sample

SAMPLE = sample("relations.jsonl")


# ---- data ------------------------------------------------------------------------------------


def read_relations(path):
    """Returns pairs (text, set of triples) of a file in the form of DuIE."""
    return read_objects(path, _pair)


def _pair(entry):
    text = entry["text"]
    triples = {
        (link["subject"], link["predicate"], link["object"]["@value"]) for link in entry["spo_list"]
    }
    for part in (text, *(part for triple in triples for part in triple)):
        if not isinstance(part, str) or not part:
            raise ValueError(f"expected a text that is not empty, got {part!r}")
    return text, triples


def read_data(args):
    """Returns pairs to train on, pairs to score, and the predicates in order."""
    train = read_relations(args.train)
    if args.valid == args.train:
        train, valid = [pair for n, pair in enumerate(train) if n % 6], train[::6]
    else:
        valid = read_relations(args.valid)
    train = _without(train, {text for text, _ in valid})
    predicates, asked = (
        sorted({predicate for _, triples in pairs for _, predicate, _ in triples})
        for pairs in (train, valid)
    )
    for name, found in (("train", predicates), ("valid", asked)):
        if not found:
            raise UsageError(f"--{name} {getattr(args, name)} gives no triple")
    if strange := sorted(set(asked) - set(predicates)):
        raise UsageError(f"predicates of --valid that --train has not: {', '.join(strange)}")
    return train, valid, predicates


def _without(pairs, texts):
    """Returns the pairs whose text is not one of these."""
    kept = [pair for pair in pairs if pair[0] not in texts]
    if len(kept) < len(pairs):
        print(f"{len(pairs) - len(kept)} texts of --train stand in --valid too: left out")
    return kept


# ---- places ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sentence:
    """A text, and where its triples stand.

    Attributes:
        text: the text.
        triples: all of its triples.
        characters: for each token the indexes of its characters, [] for special tokens.
        links: the triples by place, without those that no tokens stand for.
    """

    text: str
    triples: set
    characters: list
    links: set

    def triple(self, link, predicates):
        """Returns the triple that a link stands for."""
        subject, predicate, object_ = link
        return self._name(subject), predicates[predicate], self._name(object_)

    def _name(self, span):
        start, end = span
        return self.text[self.characters[start][0] : self.characters[end][-1] + 1]


def locate(pairs, tokenizer, predicates, maxlen):
    """Returns a `Sentence` for each pair (text, triples)."""
    numbers = {predicate: n for n, predicate in enumerate(predicates)}
    sentences = []
    for text, triples in pairs:
        characters = tokenizer.rematch(text, tokenizer.tokenize(text, maxlen=maxlen))
        starts = {place[0]: n for n, place in enumerate(characters) if place}
        ends = {place[-1]: n for n, place in enumerate(characters) if place}
        links = set()
        for subject, predicate, object_ in triples:
            spans = (_spans(name, text, starts, ends) for name in (subject, object_))
            # A name may stand there several times: that pair is meant which is close together.
            near = min(product(*spans), key=_distance, default=None)
            if near is not None:
                links.add((near[0], numbers[predicate], near[1]))
        sentences.append(Sentence(text, triples, characters, links))
    return sentences


def _spans(name, text, starts, ends):
    """Returns all places of a name that are whole tokens."""
    found, place = [], text.find(name)
    while place >= 0:
        if place in starts and place + len(name) - 1 in ends:
            found.append((starts[place], ends[place + len(name) - 1]))
        place = text.find(name, place + 1)
    return found


def _distance(pair):
    return abs(pair[0][0] - pair[1][0]), pair


# ---- score ------------------------------------------------------------------------------------


def measure(found, expected):
    """Returns F1, precision and recall of triples: one is right if all its three parts are."""
    hits = sum(len(some & right) for some, right in zip(found, expected, strict=True))
    guesses, answers = (sum(map(len, triples)) for triples in (found, expected))
    return {
        "F1": 2 * hits / max(guesses + answers, 1),
        "precision": hits / max(guesses, 1),
        "recall": hits / max(answers, 1),
    }


def known_triples(train, texts):
    """Returns for each text the triples of the training whose two names stand in it."""
    known = {triple for _, triples in train for triple in triples}
    return [{(s, p, o) for s, p, o in known if s in text and o in text} for text in texts]

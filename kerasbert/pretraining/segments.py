"""From the sentences of documents to rows: which tokens stand together, and as which segment.

Shapes: N rows, L length, T tokens of a text.
"""

from bisect import bisect_left, bisect_right
from random import Random

import numpy as np

OBJECTIVES = ("sop", "nsp", "none", "lm", "unilm")
PAIRS = ("sop", "nsp", "unilm")

# Rows put together at once: their places in the text are 8 bytes a token.
_CHUNK = 4096


def make_rows(text, table, settings, rng):
    """Makes the rows of one pass over a text, without any masks.

    Args:
        text: the `TokenizedText`.
        table: the `TokenTable` of its tokenizer.
        settings: what has the `objective`, `max_length`, `short_seq_prob` and
            `skip_single_sentences` of a `RecordSettings`.
        rng: numpy's random generator.

    Returns:
        Dict of arrays by Google's names: `input_ids` int32, `input_mask`, `segment_ids` and
        `token_boundary` int8, all (N, L); `next_sentence_labels` int32 (N, 1), 1 for what is no
        right pair. A row is [CLS] a [SEP], or [CLS] a [SEP] b [SEP], and padding.
    """
    is_pair = settings.objective in PAIRS
    room = settings.max_length - (3 if is_pair else 2)
    cutter = _Cutter(text, settings, room, Random(int(rng.integers(2**63))))
    spans = np.array(list(cutter.rows()), int).reshape(-1, 5)
    spans[:, :4] = _truncated(spans[:, :4], room, rng)
    parts = [
        _assembled(spans[start : start + _CHUNK], text, table, settings.max_length, is_pair)
        for start in range(0, max(len(spans), 1), _CHUNK)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


class _Cutter:
    """Cuts documents into the spans of rows.

    Yields (start of a, end of a, start of b, end of b, label), places in the tokens of the text.

    Source: google-research/albert, create_pretraining_data.py, for "sop" and "nsp"; RoBERTa
    (arXiv:1907.11692), section 4.2, for the rows of whole sentences.
    """

    def __init__(self, text, settings, room, random):
        self.places = text.sentences
        self.documents = text.documents
        self.settings = settings
        self.room = room
        self.random = random

    def rows(self):
        """Yields the spans of all rows."""
        objective = self.settings.objective
        made = self._pairs if objective in ("sop", "nsp") else self._whole_sentences
        for document in range(len(self.documents) - 1):
            target = self.room
            if self.random.random() < self.settings.short_seq_prob:
                target = self.random.randint(2, self.room)
            for row in made(document, target):
                row = self._halved(*row) if objective == "unilm" else row
                if row is not None:
                    yield row

    def _pairs(self, document, target):
        places, random = self.places, self.random
        is_nsp = self.settings.objective == "nsp"
        first, last = self.documents[document], self.documents[document + 1]
        while first < last:
            # Sentences until the row is full; what is too much is cut off later.
            end = bisect_left(places, places[first] + target, first + 1, last)
            is_single = end - first == 1
            middle = first + 1 if is_single else first + random.randint(1, end - first - 1)
            a, b, label = (places[first], places[middle]), (places[middle], places[end]), 0
            first = end
            if is_single and self.settings.skip_single_sentences:
                continue
            if is_single or (is_nsp and random.random() < 0.5):
                b, label = self._elsewhere(document, target - (a[1] - a[0])), 1
                first = middle  # what b would have been comes in the next row
            elif not is_nsp and random.random() < 0.5:
                a, b, label = b, a, 1
            yield *a, *b, label

    def _elsewhere(self, document, length):
        """Returns the span of sentences of another document, if there is one."""
        random, documents = self.random, self.documents
        for _ in range(10):
            other = random.randrange(len(documents) - 1)
            if other != document:
                break
        first = random.randrange(documents[other], documents[other + 1])
        target = self.places[first] + length
        end = bisect_left(self.places, target, first + 1, documents[other + 1])
        return self.places[first], self.places[end]

    def _whole_sentences(self, document, target):
        places = self.places
        first, last = self.documents[document], self.documents[document + 1]
        while first < last:
            end = bisect_right(places, places[first] + target, first + 1, last + 1) - 1
            if end == first:  # a sentence that is longer than a row
                end += 1
                for start in range(places[first], places[end], target):
                    yield start, min(start + target, places[end]), 0, 0, 0
            else:
                yield places[first], places[end], 0, 0, 0
            first = end

    def _halved(self, start, stop, *_):
        """Returns the spans of two parts of a row; None for a single token."""
        if stop - start < 2:
            return None
        first = bisect_right(self.places, start)
        last = bisect_left(self.places, stop)
        if first < last:
            middle = self.places[self.random.randrange(first, last)]
        else:
            middle = self.random.randrange(start + 1, stop)
        return start, middle, middle, stop, 0


def _truncated(spans, room, rng):
    """Cuts pairs that are too long, token by token off the longer part, at either end.

    Args:
        spans: int array (N, 4) of starts and ends of both parts.
        room: how many tokens both may have.
        rng: numpy's random generator.

    Source: google-research/bert, create_pretraining_data.py: the end is drawn for each token.
    """
    a, b = spans[:, 1] - spans[:, 0], spans[:, 3] - spans[:, 2]
    over = np.maximum(a + b - room, 0)
    alone = np.minimum(over, np.abs(a - b))  # until both are equally long
    each = over - alone
    from_a = np.where(a > b, alone, 0) + each // 2
    from_b = np.where(a > b, 0, alone) + (each + 1) // 2
    front_a, front_b = rng.binomial(from_a, 0.5), rng.binomial(from_b, 0.5)
    change = [front_a, front_a - from_a, front_b, front_b - from_b]
    return spans + np.stack(change, axis=1)


def _assembled(spans, text, table, length, is_pair):
    """Returns the arrays of some rows."""
    start_a, end_a, start_b, end_b, label = (spans[:, i, None] for i in range(5))
    place = np.arange(length)
    second = end_a - start_a + 2  # [CLS] a [SEP]
    total = second + (end_b - start_b + 1 if is_pair else 0)
    source = np.where(place < second, start_a - 1, start_b - second) + place
    special = (place == 0) | (place == second - 1) | (place == total - 1)
    real = place < total
    taken = real & ~special
    ids = np.full(source.shape, table.pad, "int32")
    ids[special] = table.end
    ids[:, 0] = table.start
    ids[taken] = text.ids[source[taken]]
    boundary = special.astype("int8")
    boundary[taken] = text.starts[source[taken]]
    return {
        "input_ids": ids,
        "input_mask": real.astype("int8"),
        "segment_ids": (real & (place >= second)).astype("int8"),
        "token_boundary": boundary,
        "next_sentence_labels": label.astype("int32"),
    }

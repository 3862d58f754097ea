"""Plain lists and loops, one token at a time: what the arrays of the package have to agree with."""

import itertools


def chosen_words(sizes, order, drawn, budget):
    """Which words of a row are chosen.

    Args:
        sizes: the number of tokens of each word.
        order: the words in the order in which they are tried.
        drawn: the length of the n-gram that is drawn for each of these.
        budget: how many tokens may be chosen.
    """
    chosen, count = set(), 0
    for word, n in zip(order, drawn, strict=True):
        if count >= budget:
            break
        for length in range(n, 0, -1):
            span = range(word, min(word + length, len(sizes)))
            size = sum(sizes[i] for i in span)
            if count + size <= budget:
                if not chosen & set(span):
                    chosen |= set(span)
                    count += size
                break
    return chosen


def pairs(documents, objective, room, short_seq_prob, random, skip_single=False):
    """The two segments, not yet truncated, and the label of each row.

    Args:
        documents: list of lists of sentences, which are lists of tokens.
        objective: "sop" or "nsp".
        room: how many tokens a row has for both segments.
        short_seq_prob: how often it has less.
        random: a `random.Random`.
        skip_single: whether single sentences are left out.
    """
    found = []
    for number, document in enumerate(documents):
        target = room if random.random() >= short_seq_prob else random.randint(2, room)
        chunk, i = [], 0
        while i < len(document):
            chunk.append(document[i])
            if i == len(document) - 1 or sum(map(len, chunk)) >= target:
                split = random.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
                a, b, label = joined(chunk[:split]), joined(chunk[split:]), 0
                if len(chunk) == 1 and skip_single:
                    pass
                elif len(chunk) == 1 or (objective == "nsp" and random.random() < 0.5):
                    b, label = elsewhere(documents, number, target - len(a), random), 1
                    i -= len(chunk) - split
                elif objective == "sop" and random.random() < 0.5:
                    a, b, label = b, a, 1
                if b:
                    found.append((a, b, label))
                chunk = []
            i += 1
    return found


def elsewhere(documents, own, length, random):
    """Sentences of another document, until they have the length."""
    for _ in range(10):
        other = random.randrange(len(documents))
        if other != own:
            break
    start = random.randrange(len(documents[other]))
    tokens = []
    for sentence in documents[other][start:]:
        tokens += sentence
        if len(tokens) >= length:
            break
    return tokens


def truncated_lengths(a, b, room):
    """The lengths of two segments after truncation."""
    while a + b > room:
        if a > b:
            a -= 1
        else:
            b -= 1
    return a, b


def joined(sentences):
    """The tokens of sentences."""
    return list(itertools.chain.from_iterable(sentences))


def crc32c(content):
    """CRC-32C, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF

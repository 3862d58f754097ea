"""Texts with named entities: files of them, and the way from characters to tokens and back.

An entity is (type, first character, last character); of tokens, their numbers in the text,
[CLS] included.
"""

import re
from collections import Counter, defaultdict

from files import read_objects, read_text
from seqeval.metrics.sequence_labeling import get_entities
from shared import UsageError


def read_entities(path):
    """Returns pairs (text, set of entities) of a file.

    The file holds JSON objects such as {"text": "在北京", "label": {"place": {"北京": [[1, 2]]}}},
    one after the other; or on each line a character, a blank and its tag, in BIO, BMES or BIOES
    form, and an empty line behind each text.
    """
    is_json = read_text(path).lstrip().startswith("{")
    pairs = read_objects(path, _labelled) if is_json else _read_tags(path)
    if not any(entities for _, entities in pairs):
        raise UsageError(f"{path}: {len(pairs)} texts without any entity")
    return pairs


def _labelled(entry):
    text, found = entry["text"], set()
    for kind, names in entry.get("label", {}).items():
        for spans in names.values():
            for first, last in spans:
                if not 0 <= first <= last < len(text):
                    raise ValueError(f"no characters {first} to {last} in {text!r}")
                found.add((kind, first, last))
    return text, found


def _read_tags(path):
    pairs, text, tags = [], "", []
    for number, line in enumerate([*read_text(path).split("\n"), ""], start=1):
        match = re.fullmatch(r"(.)[ \t]+(O|[BIMES]-\S+)\s*", line)
        if match:
            text += match[1]
            # seqeval knows no M.
            tags.append(re.sub("^M", "I", match[2]))
        elif line.strip():
            expected = "expected a character and its tag, such as B-PER"
            raise UsageError(f"{path}, line {number}: {expected}, got {line[:40]!r}")
        elif text:
            pairs.append((text, set(get_entities(tags))))
            text, tags = "", []
    return pairs


def types_of(train, valid):
    """Returns the types of the entities to train on, sorted; there are to be no others."""
    types, others = ({kind for _, found in part for kind, *_ in found} for part in (train, valid))
    if others - types:
        listed = ", ".join(sorted(others - types))
        raise UsageError(f"no entity of these types stands in --train, but in --valid: {listed}")
    return sorted(types)


def tags_of(entities, length):
    """Returns a tag in BIO form for each of so many characters, or tokens.

    Of entities that stand one in the other, the longest has the tags.
    """
    tags = ["O"] * length
    for kind, first, last in sorted(entities, key=lambda entity: entity[2] - entity[1]):
        tags[first : last + 1] = [f"B-{kind}", *[f"I-{kind}"] * (last - first)]
    return tags


def characters_of(texts, tokenizer, maxlen):
    """Returns for each text a list of the characters that each of its tokens stands for."""
    tokens = [tokenizer.tokenize(text, maxlen=maxlen) for text in texts]
    return [tokenizer.rematch(text, row) for text, row in zip(texts, tokens, strict=True)]


def in_tokens(entities, characters):
    """Returns the entities by the numbers of their tokens.

    Those that are cut off, or begin or end in the middle of a token, are left out.
    """
    starts = {where[0]: n for n, where in enumerate(characters) if where}
    ends = {where[-1]: n for n, where in enumerate(characters) if where}
    return {
        (kind, starts[first], ends[last])
        for kind, first, last in entities
        if first in starts and last in ends
    }


def in_characters(entities, characters):
    """Returns entities that are given by tokens, by their characters; none has [CLS] or [SEP]."""
    return {
        (kind, characters[first][0], characters[last][-1])
        for kind, first, last in entities
        if characters[first] and characters[last]
    }


def known_names(train, texts):
    """Returns, as a guess, what is called like an entity to train on: the longest, from the left.

    Args:
        train: pairs (text, entities).
        texts: strings.
    """
    kinds = defaultdict(Counter)
    for text, entities in train:
        for kind, first, last in entities:
            kinds[text[first : last + 1]][kind] += 1
    # A single character is a name too seldom.
    names = {name: count.most_common(1)[0][0] for name, count in kinds.items() if len(name) > 1}
    listed = sorted(map(re.escape, names), key=len, reverse=True)
    pattern = re.compile("|".join(listed) or "(?!)")
    return [
        {(names[match[0]], match.start(), match.end() - 1) for match in pattern.finditer(text)}
        for text in texts
    ]


def print_found(text, found, expected, limit=8):
    """Prints a text, and some of the entities that were found in it."""
    print(f"\n{text}")
    for entity in sorted(found, key=lambda entity: entity[1:])[:limit]:
        kind, first, last = entity
        right = "right" if entity in expected else "wrong"
        print(f"  {right}  {kind}: {text[first : last + 1]} [{first}, {last}]")

"""What turns a classification into filling masks: the pattern around a text, and label words.

Shapes: M masks of the pattern, W words of a label, C labels.
"""

from string import Formatter

import numpy as np

from kerasbert.errors import ConfigError, did_you_mean, listing
from kerasbert.tokenizers.sequences import check_text, lengths_to_keep

_FIELDS = ("mask", "text", "text_a", "text_b")


class Pattern:
    """A text with places for masks and for the text, or the two texts, to classify.

    Args:
        pattern: a string with {mask}, once or more, and {text}, or {text_a} and {text_b}.
        reader: a `MaskedLM`.

    Attributes:
        n_masks: M.
        is_pair: whether it is made for pairs of texts.

    Raises:
        ConfigError: if a field is unknown, missing or there twice.
    """

    def __init__(self, pattern, reader):
        self._reader = reader
        self._parts = _parts_of(pattern)
        fields = [field for _, field in self._parts if field]
        self.n_masks = fields.count("mask")
        self.is_pair = "text_a" in fields
        _check_fields(pattern, fields)
        self._literals = reader.tokenizer._body_ids([literal for literal, _ in self._parts])
        head, tail = reader.tokenizer._special_ids()
        self._fixed = len(head) + len(tail) + self.n_masks + sum(map(len, self._literals))

    def rows(self, texts, limit):
        """Puts texts into the pattern, and cuts them (longer one first) so that it stays whole.

        Args:
            texts: list of strings, or of pairs of them.
            limit: the longest row, or None.

        Returns:
            (rows, places, spans): for each text (token_ids, segment_ids), the list of the M
            places of the masks, and an array of the places of the text's tokens.

        Raises:
            ConfigError: if the pattern alone is too long.
        """
        if limit is not None and self._fixed >= limit:
            raise ConfigError(
                f"The pattern has {self._fixed} tokens, special ones included, but the longest "
                f"row {limit}.\n"
                "Expected room for at least one token of the text.\n"
                "Shorten the pattern or raise maxlen."
            )
        flat = [one for text in texts for one in (text if self.is_pair else [text])]
        bodies = self._reader.tokenizer._body_ids(flat)
        step = 2 if self.is_pair else 1
        made = [self._row(bodies[i : i + step], limit) for i in range(0, len(bodies), step)]
        return [list(kind) for kind in zip(*made, strict=True)] if made else ([], [], [])

    def _row(self, bodies, limit):
        keep = [len(body) for body in bodies]
        if limit is not None:
            keep = lengths_to_keep(keep, limit - self._fixed)
        names = ("text_a", "text_b") if self.is_pair else ("text",)
        filling = {
            name: body[:count] for name, body, count in zip(names, bodies, keep, strict=True)
        }
        head, tail = self._reader.tokenizer._special_ids()
        ids, places, span = list(head), [], []
        for literal, (_, field) in zip(self._literals, self._parts, strict=True):
            ids += literal
            start = len(ids)
            if field == "mask":
                places.append(start)
                ids.append(self._reader.mask_id)
            elif field:
                ids += filling[field]
                span += range(start, len(ids))
        ids += tail
        return (ids, [0] * len(ids)), places, np.array(span, int)

    def check_texts(self, texts):
        """Returns the texts as a list, after checking that each is a string, or a pair.

        Raises:
            ConfigError: names the place of what is none.
            TokenizerError: the same, for a text that is no string.
        """
        if isinstance(texts, str) or not hasattr(texts, "__iter__"):
            raise ConfigError(
                f"texts is a {type(texts).__name__}.\n"
                f"Expected a list of {'pairs (text_a, text_b)' if self.is_pair else 'strings'}.\n"
                "Pass [text] for a single one."
            )
        texts = list(texts)
        for number, text in enumerate(texts):
            if self.is_pair and (not isinstance(text, list | tuple) or len(text) != 2):
                raise ConfigError(
                    f"texts[{number}]={text!r}.\n"
                    "Expected a pair of strings, as the pattern has {text_a} and {text_b}."
                )
            for one in text if self.is_pair else [text]:
                check_text(one, f"texts[{number}]")
        return texts


class Verbalizer:
    """The words that stand for each label.

    Args:
        words: dict from labels to a word or a list of words.
        n_masks: M, the number of tokens that each word has to have.
        reader: a `MaskedLM`.

    Attributes:
        labels: the labels, in the order of the dict.
        ids: for each label an int array (W, M).

    Raises:
        ConfigError: if there are not at least two labels, a word has another number of tokens
            or an unknown one, or stands there twice.
    """

    def __init__(self, words, n_masks, reader):
        if not isinstance(words, dict) or len(words) < 2:
            raise ConfigError(
                f"verbalizer={words!r}.\n"
                "Expected a dict from at least two labels to a word each, or to lists of words."
            )
        if None in words:
            raise ConfigError(
                "The verbalizer has the label None.\n"
                "Expected another name: in training data None marks a text without label."
            )
        self.labels = list(words)
        seen = {}
        self.ids = [_word_ids(label, words[label], n_masks, reader, seen) for label in words]

    def number(self, label, place):
        """Returns the number of a label.

        Raises:
            ConfigError: if it is none of the verbalizer's.
        """
        if label not in self.labels:
            raise ConfigError(
                f"{place}={label!r}.{did_you_mean(label, self.labels)}\n"
                f"Expected None or one of: {listing(map(repr, self.labels))}."
            )
        return self.labels.index(label)


def _word_ids(label, words, n_masks, reader, seen):
    """Returns the ids (W, M) of the words of a label."""
    words = [words] if isinstance(words, str) else words
    if not isinstance(words, list | tuple) or not words:
        raise ConfigError(
            f"verbalizer[{label!r}]={words!r}.\nExpected a word, or a list of at least one."
        )
    for word in words:
        check_text(word, f"verbalizer[{label!r}]")
    tokenizer, rows = reader.tokenizer, []
    for word, ids in zip(words, reader.tokenizer._body_ids(list(words)), strict=True):
        if not all(reader.vocabulary.ordinary[ids]) or len(ids) != n_masks:
            raise ConfigError(
                f"verbalizer[{label!r}]: {word!r} becomes the tokens "
                f"{listing(tokenizer.ids_to_tokens(ids)) or '(none)'}.\n"
                f"Expected as many as the pattern has masks, {n_masks}, and no unknown one.\n"
                "Choose another word, or another number of {mask} in the pattern."
            )
        if tuple(ids) in seen:
            raise ConfigError(
                f"verbalizer[{label!r}]: {word!r} already stands for {seen[tuple(ids)]!r}.\n"
                "Expected every word once, for one label."
            )
        seen[tuple(ids)] = label
        rows.append(ids)
    return np.array(rows)


def _parts_of(pattern):
    """Returns the list of (literal text, name of the field after it or None)."""
    check_text(pattern, "pattern")
    try:
        parts = list(Formatter().parse(pattern))
    except ValueError as error:
        raise ConfigError(
            f"pattern={pattern!r}: {error}.\n"
            "Expected fields such as {mask} and {text}.\n"
            "Write a brace that is one as '{{' or '}}'."
        ) from None
    for _, field, spec, conversion in parts:
        if field is not None and (field not in _FIELDS or spec or conversion):
            written = field + (f"!{conversion}" if conversion else "") + (f":{spec}" * bool(spec))
            raise ConfigError(
                f"pattern={pattern!r} has the field {{{written}}}."
                f"{did_you_mean(field, _FIELDS)}\n"
                f"Expected only {', '.join('{' + name + '}' for name in _FIELDS)}."
            )
    return [(literal, field) for literal, field, _, _ in parts]


def _check_fields(pattern, fields):
    texts = sorted(field for field in fields if field != "mask")
    if "mask" not in fields or texts not in (["text"], ["text_a", "text_b"]):
        raise ConfigError(
            f"pattern={pattern!r} has the fields {listing(fields) or '(none)'}.\n"
            "Expected {mask} at least once and {text} once, or {text_a} and {text_b} for pairs.\n"
            "For example '很{mask}满意。{text}'."
        )

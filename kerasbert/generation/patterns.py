"""Classification by filling masks: pattern-exploiting training (PET).

Shapes: B texts, L length, M masks of the pattern, W words of a label, C labels, V vocabulary.
"""

import numpy as np

from kerasbert.errors import ConfigError, check_integer, check_number
from kerasbert.generation.distributions import log_softmax
from kerasbert.generation.masked_lm import MaskedLM, check_batch_size
from kerasbert.generation.pattern import Pattern, Verbalizer

# What BERT does with the tokens it hides: that share becomes a mask, and then a random one.
_MASKED, _REPLACED = 0.8, 0.1


class PatternClassifier:
    """Classifies texts by the words that a masked language model puts into a pattern.

    Without any training, or after fine-tuning the model on the arrays of `training_data`. The
    score of a label is the mean over its words of the sum of log p(token) over the masks.

    Args:
        model: a model with a masked-LM head (`with_mlm=True`); one that is trained later serves
            at once with its new weights.
        tokenizer: its `Tokenizer` or `SpTokenizer`.
        pattern: a string with {mask}, once or more, and {text}, or {text_a} and {text_b} for
            pairs of texts.
        verbalizer: dict from labels to a word, or to a list of words, of as many tokens as the
            pattern has masks.
        maxlen: the longest row, special tokens included; texts are cut, never the pattern. The
            default is what the model can read.
        batch_size: how many texts are computed at once, those of like length together.

    Attributes:
        labels: the labels, in the order of the verbalizer.

    Raises:
        ConfigError: if the model cannot do it, or pattern and verbalizer do not fit.

    Example:
        >>> classifier = kerasbert.generation.PatternClassifier(
        ...     masked_lm, tokenizer, "很{mask},{text}", {"good": "好", "bad": "不"}
        ... )
        >>> classifier.predict_proba(["房间很干净", "电池用不久"]).shape
        (2, 2)

    Source: Schick & Schütze 2020 (arXiv:2001.07676); https://kexue.fm/archives/7764.
    """

    def __init__(self, model, tokenizer, pattern, verbalizer, *, maxlen=None, batch_size=32):
        check_batch_size(batch_size)
        self._reader = MaskedLM(model, tokenizer)
        self._pattern = Pattern(pattern, self._reader)
        self._verbalizer = Verbalizer(verbalizer, self._pattern.n_masks, self._reader)
        self._batch_size = batch_size
        limit = self._reader.limit
        if maxlen is not None:
            check_integer("maxlen", maxlen, minimum=1)
            limit = maxlen if limit is None else min(maxlen, limit)
        self._limit = limit

    @property
    def labels(self):
        """The labels, in the order of the columns of `scores`."""
        return list(self._verbalizer.labels)

    def scores(self, texts):
        """Returns how well each label fits each text.

        Args:
            texts: list of B strings, or pairs of strings.

        Returns:
            Float32 array (B, C): means over the words of a label of log p, summed over masks.

        Raises:
            ConfigError: if something is no text, or no pair.
        """
        rows, places, _ = self._pattern.rows(self._pattern.check_texts(texts), self._limit)
        masks = np.arange(self._pattern.n_masks)
        scores = np.zeros((len(rows), len(self._verbalizer.labels)), "float32")
        for number, logits in self._reader.logits(rows, places, self._batch_size):
            chances = log_softmax(logits)  # (M, V)
            for label, words in enumerate(self._verbalizer.ids):
                scores[number, label] = chances[masks, words].sum(axis=-1).mean()
        return scores

    def predict_proba(self, texts):
        """Returns the softmax (B, C) of `scores`, the probability of each label."""
        return np.exp(log_softmax(self.scores(texts)))

    def predict(self, texts):
        """Returns the list of the best label of each text."""
        best = self.scores(texts).argmax(axis=-1)
        return [self._verbalizer.labels[label] for label in best]

    def training_data(self, texts, labels, *, masking_rate=0.15, seed=None):
        """Returns the arrays with which `model.fit` trains on these texts.

        Loss and weights belong together: sparse cross-entropy with
        `reduction="mean_with_sample_weight"` is the mean over the places that count. A text
        with several label words is there once for each word.

        Args:
            texts: list of strings, or pairs of strings.
            labels: for each text its label; None for a text without label, on which ordinary
                masked language modelling is trained beside it.
            masking_rate: share of the tokens of such a text that are hidden, in BERT's way.
            seed: makes the choice of these tokens repeatable.

        Returns:
            (inputs, targets, sample_weight): the array (N, L) or list of arrays that the model
            takes, int32 ids (N, L), and float32 (N, L), 1 where a target counts and 0 elsewhere.

        Raises:
            ConfigError: if a label is unknown, or there are not as many labels as texts.

        Example:
            >>> loss = keras.losses.SparseCategoricalCrossentropy(  # doctest: +SKIP
            ...     reduction="mean_with_sample_weight")
            >>> model.compile("adam", loss)  # doctest: +SKIP
            >>> x, y, weight = classifier.training_data(texts, labels)  # doctest: +SKIP
            >>> model.fit(x, y, sample_weight=weight)  # doctest: +SKIP
        """
        texts, labels = self._pattern.check_texts(texts), list(labels)
        _check_training(texts, labels, masking_rate)
        numbers = [
            None if label is None else self._verbalizer.number(label, f"labels[{i}]")
            for i, label in enumerate(labels)
        ]
        random = np.random.default_rng(seed)
        sources, targets, weights = [], [], []
        made = zip(*self._pattern.rows(texts, self._limit), numbers, strict=True)
        for (ids, _), places, span, label in made:
            if label is None:
                examples = [self._masked_at_random(np.array(ids), span, masking_rate, random)]
            else:
                words = self._verbalizer.ids[label]
                examples = [self._labelled(np.array(ids), places, word) for word in words]
            for source, target, weight in examples:
                sources.append((source, np.zeros_like(source)))
                targets.append(target)
                weights.append(weight)
        inputs = self._reader.inputs(sources)
        length = inputs[0].shape[1]
        inputs = inputs[0] if len(inputs) == 1 else inputs
        return inputs, _padded(targets, length, "int32"), _padded(weights, length, "float32")

    def _labelled(self, ids, places, word):
        """Returns (source, target, weight), each (L,), that ask for a word at the masks."""
        target, weight = ids.copy(), np.zeros(len(ids))
        target[places], weight[places] = word, 1
        return ids, target, weight

    def _masked_at_random(self, ids, span, rate, random):
        """Returns (source, target, weight), each (L,), that ask for some tokens of the text."""
        source, weight = ids.copy(), np.zeros(len(ids))
        count = min(len(span), max(1, round(rate * len(span))))
        ordinary = np.flatnonzero(self._reader.vocabulary.ordinary)
        for place in random.choice(span, count, replace=False) if count else ():
            weight[place] = 1
            fate = random.random()
            if fate < _MASKED:
                source[place] = self._reader.mask_id
            elif fate < _MASKED + _REPLACED:
                source[place] = random.choice(ordinary)
        return source, ids, weight


def _check_training(texts, labels, rate):
    if not texts or len(labels) != len(texts):
        raise ConfigError(
            f"There are {len(texts)} texts and {len(labels)} labels.\n"
            "Expected one label for each text, and at least one text.\n"
            "Give None for a text without label."
        )
    check_number("masking_rate", rate, above=0, most=1)


def _padded(rows, length, dtype):
    """Returns rows filled up with zeros to an array (N, L)."""
    array = np.zeros((len(rows), length), dtype)
    for own, row in zip(array, rows, strict=True):
        own[: len(row)] = row
    return array

"""From the logits of a model to the scores by which tokens are chosen.

Shapes: r rows, J slots of a row, V vocabulary, t new tokens so far.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from kerasbert.errors import ConfigError, listing
from kerasbert.generation.distributions import log_softmax, narrow


class Processors:
    """Applies the rules of some `SearchSettings` to logits.

    Greedy search and samples choose by logits, beam search by log-probabilities, to which
    the rules are applied without bringing their sum back to one.

    Args:
        settings: `SearchSettings`.
        prompts: a list with an int array for each row of the batch: the tokens of its prompt
            that count as text for penalties. They may be empty.
        vocabulary_size: V.
        banned: ids that never follow.

    Raises:
        ConfigError: if an end token or a token of a prompt is not in the vocabulary.

    Source: the rules, and their order, as in Hugging Face transformers; the repetition
    penalty is that of Keskar et al. 2019 (CTRL, arXiv:1909.05858).
    """

    def __init__(self, settings, prompts, vocabulary_size, banned=()):
        settings.check_vocabulary(vocabulary_size)
        self.settings = settings
        self.prompts = [np.asarray(prompt, "int64").reshape(-1) for prompt in prompts]
        self.vocabulary_size = vocabulary_size
        self.banned = list(banned)
        for row, prompt in enumerate(self.prompts):
            _check_ids(prompt, vocabulary_size, f"The prompt of row {row}")

    def __call__(self, logits, rows, texts, live):
        """Returns the scores to choose by.

        Args:
            logits: float32 array (r, J, V), which is left as it is.
            rows: int array (r,): which rows of the batch these are.
            texts: int array (r, J, t): the new tokens of each slot.
            live: bool array (r, J): the slots to look at. The scores of others mean nothing.

        Returns:
            Float32 array (r, J, V), -inf for what may not follow.

        Raises:
            ConfigError: if logits are no numbers, if no token of a live slot is left (in
                beam search: `no_token_left` is for the search to say), or if
                `allowed_tokens` returns what are no ids.
        """
        settings = self.settings
        logits = np.asarray(logits, "float32")
        self._check_logits(logits, rows, texts, live)
        scores = log_softmax(logits) if settings.method == "beam" else logits
        if self.banned or self._rules():
            scores = scores if scores is not logits else logits.copy()
            scores[..., self.banned] = -np.inf
        if self._rules():
            for place in zip(*np.nonzero(live), strict=True):
                self._apply(scores[place], int(rows[place[0]]), texts[place])
        if settings.method == "sample":
            scores = narrow(scores, settings.temperature, settings.top_k, settings.top_p)
        if settings.method != "beam":
            for i, j in zip(*np.nonzero(live & np.isneginf(scores.max(axis=-1))), strict=True):
                no_token_left(rows[i], texts[i, j])
        return scores

    def _rules(self):
        """Whether there is anything to do for the single slots."""
        settings = self.settings
        return (
            settings.repetition_penalty != 1
            or settings.no_repeat_ngram_size
            or settings.min_length
            or settings.allowed_tokens is not None
        )

    def _apply(self, scores, row, text):
        """Changes the scores (V,) of one slot in place."""
        settings = self.settings
        whole = np.concatenate([self.prompts[row], text])
        if settings.repetition_penalty != 1:
            values, penalty = scores[whole], np.float32(settings.repetition_penalty)
            # Either way they get smaller, for a penalty above 1.
            scores[whole] = np.where(values < 0, values * penalty, values / penalty)
        if settings.no_repeat_ngram_size:
            scores[_ends_of_ngrams(whole, settings.no_repeat_ngram_size)] = -np.inf
        if len(text) < settings.min_length:
            scores[list(settings.end_ids)] = -np.inf
        if settings.allowed_tokens is not None:
            allowed = self._allowed(row, text)
            if allowed is not None:
                kept = scores[allowed]
                scores[:] = -np.inf
                scores[allowed] = kept

    def _allowed(self, row, text):
        """What `allowed_tokens` returns, as an int array; None for all."""
        found = self.settings.allowed_tokens(row, text.astype("int32"))
        if found is None:
            return None
        place = f"allowed_tokens for row {row} after the text {_shown(text)}"
        try:
            ids = found if isinstance(found, np.ndarray) else np.array(list(found))
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{place} returned {found!r}.\n"
                "Expected a collection of token ids, or None where all are allowed."
            ) from error
        if ids.size == 0:
            return np.zeros(0, "int64")
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise ConfigError(
                f"{place} returned {found!r}.\nExpected integers, in one dimension: token ids."
            )
        _check_ids(ids, self.vocabulary_size, place)
        return ids

    def _check_logits(self, logits, rows, texts, live):
        """Refuses NaN and positive infinity, which the largest value shows."""
        highest = logits.max(axis=-1)
        wrong = live & (np.isnan(highest) | np.isposinf(highest))
        for i, j in zip(*np.nonzero(wrong), strict=True):
            raise ConfigError(
                f"Row {rows[i]}: the logits after the text {_shown(texts[i, j])} hold NaN or "
                "infinity.\nExpected numbers.\n"
                "Check that the model's weights were loaded; build it with dtype='float32' if "
                "it computes in float16."
            )


def no_token_left(row, text):
    """Says that a text cannot go on.

    Args:
        row: which row of the batch.
        text: its new tokens so far.

    Raises:
        ConfigError: always.
    """
    raise ConfigError(
        f"Row {row}: no token may follow the text {_shown(text)}.\n"
        "Expected at least one that allowed_tokens, min_length and no_repeat_ngram_size leave.\n"
        "Let allowed_tokens return the end token where a text is complete."
    )


def _ends_of_ngrams(text, size):
    """The tokens that would repeat what stands in a text: its last size - 1 tokens and one."""
    if len(text) < size:
        return text[:0]
    windows = sliding_window_view(text, size)
    start = text[len(text) - size + 1 :]
    return windows[(windows[:, :-1] == start).all(axis=1), -1]


def _check_ids(ids, size, place):
    """Refuses ids outside the vocabulary."""
    wrong = ids[(ids < 0) | (ids >= size)]
    if len(wrong):
        raise ConfigError(
            f"{place} holds the ids {listing(wrong)}.\n"
            f"Expected ids from 0 to {size - 1}, those that the model predicts."
        )


def _shown(text):
    """The end of a text, for messages."""
    return f"[{'… ' if len(text) > 12 else ''}{', '.join(map(str, text[-12:]))}]"

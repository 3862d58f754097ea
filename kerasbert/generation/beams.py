"""Beam search over one row: which texts go on, which are finished, and when to stop.

Shapes: J beams, V vocabulary, t new tokens.
"""

import numpy as np

from kerasbert.generation.distributions import largest
from kerasbert.generation.processors import no_token_left


class Beams:
    """The beams of one row, and the texts that ended.

    A step looks at the best 2 J continuations of all beams ((1 + number of end tokens) J, if
    that is more), so that J go on however many of them end. A text that ends counts as
    finished only if it stands among the best J of these; the best J finished texts are kept.
    A row stops once it has J finished texts and its best beam, were it to end here, would not
    be better than the worst of them. With a positive length penalty that is a guess, since a
    longer text could still get better.

    Args:
        row: which row of the batch, for messages.
        settings: `SearchSettings`.

    Source: Hugging Face transformers 5, `generate(num_beams=J, early_stopping=False)`.
    """

    def __init__(self, row, settings):
        self.row = row
        self.settings = settings
        self.finished = []
        self.stopped = False
        # Sums of log p of the beams, best first; -inf for a beam that is not in use.
        self.scores = np.zeros(1)

    def advance(self, log_probabilities, texts):
        """Goes one token on.

        Args:
            log_probabilities: float array (number of beams, V), of the beams in `scores`.
            texts: int array (number of beams, t): their new tokens so far.

        Returns:
            Pair of int arrays (J,): the beam that each new beam continues, and its token.
            Beams without use repeat the last one in use; zeros if there is none.

        Raises:
            ConfigError: if nothing can follow and nothing is finished.
        """
        settings = self.settings
        width, length = settings.slots, texts.shape[1] + 1
        parents, tokens, scores = self._candidates(log_probabilities)
        ended = np.isin(tokens, settings.end_ids) | (length == settings.max_new_tokens)
        for place in np.flatnonzero(ended[:width]):
            text = np.append(texts[parents[place]], tokens[place])
            self.finished.append((text, float(scores[place]) / length**settings.length_penalty))
        # Among equals the one that ended first stays first.
        self.finished = sorted(self.finished, key=lambda pair: -pair[1])[:width]

        going = np.flatnonzero(~ended)[:width]
        self.scores = np.full(width, -np.inf)
        self.scores[: len(going)] = scores[going]
        self.stopped = self._cannot_improve(length)
        if not len(going):
            if not self.finished:
                no_token_left(self.row, texts[0])
            return np.zeros((2, width), "int64")
        going = np.pad(going, (0, width - len(going)), mode="edge")
        return parents[going], tokens[going]

    def _candidates(self, log_probabilities):
        """Beam, token and score of the best continuations, best first."""
        count = max(2, 1 + len(self.settings.end_ids)) * self.settings.slots
        parents, tokens, scores = [], [], []
        for beam in np.flatnonzero(self.scores > -np.inf):
            best = largest(log_probabilities[beam], count)
            parents.append(np.full(len(best), beam))
            tokens.append(best)
            scores.append(self.scores[beam] + log_probabilities[beam, best].astype("float64"))
        parents, tokens, scores = map(np.concatenate, (parents, tokens, scores))
        order = np.argsort(-scores, kind="stable")[:count]
        return parents[order], tokens[order], scores[order]

    def _cannot_improve(self, length):
        """Whether the row is done after so many new tokens."""
        if len(self.finished) < self.settings.slots:
            return bool(np.isneginf(self.scores[0]))
        return self.scores[0] / length**self.settings.length_penalty <= self.finished[-1][1]

"""`AutoRegressiveDecoder`: writing with a function of one's own, as scripts for bert4keras do.

Shapes: n texts, t tokens written so far, V vocabulary.
"""

import functools
import inspect

import numpy as np

from kerasbert.errors import ConfigError, check_integer, check_number, did_you_mean
from kerasbert.generation.distributions import draw, largest, log_softmax, narrow
from kerasbert.generation.last_position import last_position
from kerasbert.generation.processors import no_token_left
from kerasbert.generation.settings import RANGES

RTYPES = ("probas", "logits")


class AutoRegressiveDecoder:
    """Writes texts with a subclass's own `predict`, for one input at a time.

    For scripts written for bert4keras, and for texts that `generate` cannot write because the
    inputs of the model depend on the text so far in a way of their own. `generate` is faster:
    it takes batches and does not compute the same things again for every token.

    Args:
        start_id: the token that every text starts with, or None for none. It is part of what
            is returned and counts for `minlen`.
        end_id: the token that ends a text, or None for none.
        maxlen: number of steps after which a text ends in any case.
        minlen: before a text has so many tokens, an end token does not end it.
        seed: makes the samples of all later calls repeatable; fresh randomness if None.

    Attributes:
        first_output_ids: int array (1, 1) with the start token, or (1, 0).

    Raises:
        ConfigError: names the value that cannot be.

    Source: the class of this name in bert4keras. Tokens of probability 0 never get into a
    beam here; there they could, at a price.

    Example:
        >>> class Counting(kerasbert.generation.AutoRegressiveDecoder):
        ...     @kerasbert.generation.AutoRegressiveDecoder.wraps(default_rtype="probas")
        ...     def predict(self, inputs, output_ids, states):
        ...         return np.eye(10)[output_ids[:, -1] + 1]  # after 3 always comes 4
        >>> Counting(start_id=3, end_id=7, maxlen=20).beam_search([], topk=2).tolist()
        [3, 4, 5, 6, 7]
    """

    def __init__(self, start_id, end_id, maxlen, minlen=1, seed=None):
        for name, value, minimum in [("start_id", start_id, 0), ("end_id", end_id, 0)]:
            if value is not None:
                check_integer(name, value, minimum)
        check_integer("maxlen", maxlen, 1)
        check_integer("minlen", minlen, 0)
        if seed is not None:
            check_integer("seed", seed, 0)
        self.start_id = start_id
        self.end_id = end_id
        self.maxlen = maxlen
        self.minlen = minlen
        self.models = {}
        self.first_output_ids = np.array([[] if start_id is None else [start_id]], "int64")
        self._random = np.random.default_rng(seed)

    @staticmethod
    def wraps(default_rtype="probas", use_states=False):
        """Decorates `predict`, so that it can be asked for either of two kinds of numbers.

        Args:
            default_rtype: what the decorated function returns: "probas" or "logits".
            use_states: whether it returns a pair of these and the states for its next call.

        Returns:
            Decorator. The function it makes takes (inputs, output_ids, states,
            temperature=1, rtype=default_rtype) and returns a pair: probabilities or, for
            rtype="logits", their logarithms (n, V); and the states, None without
            `use_states`.

        Raises:
            ConfigError: if `default_rtype`, `rtype` or `temperature` cannot be, or if the
                function returns something else.
        """
        _check_rtype("default_rtype", default_rtype)

        def decorator(predict):
            @functools.wraps(predict)
            def wrapped(self, inputs, output_ids, states, temperature=1, rtype=default_rtype):
                _check_rtype("rtype", rtype)
                check_number("temperature", temperature, **RANGES["temperature"])
                result = predict(self, inputs, output_ids, states)
                scores, states = _pair(result) if use_states else (result, None)
                scores = _checked(scores, output_ids)
                if rtype == default_rtype == "probas" and temperature == 1:
                    return scores, states
                if default_rtype == "logits":
                    scores = log_softmax(scores / temperature)
                else:
                    scores = _log(scores)
                    if temperature != 1:
                        scores = log_softmax(scores / temperature)
                return (np.exp(scores) if rtype == "probas" else scores), states

            return wrapped

        return decorator

    def last_token(self, model):
        """Makes a model of the outputs at the last position, once for each model.

        Args:
            model: a functional Keras model with outputs of the shape (batch, length, ...).

        Returns:
            Keras model with outputs (batch, ...), whose `predict` shows no progress bar.
        """
        if model not in self.models:
            self.models[model] = last_position(model)
        return self.models[model]

    def predict(self, inputs, output_ids, states=None):
        """Says what comes next; for subclasses to define, decorated with `wraps`.

        Args:
            inputs: list of arrays: the inputs of the search, n times each.
            output_ids: int array (n, t): the texts so far, with the start token.
            states: what the last call returned as states; at first those of the search. They
                are handed on as they are, whichever texts go on.

        Returns:
            Array (n, V), or a pair of it and the states.
        """
        raise NotImplementedError("Define predict, decorated with AutoRegressiveDecoder.wraps.")

    def beam_search(self, inputs, topk, states=None, temperature=1, min_ends=1):
        """Looks for the most probable text.

        The best `topk` texts are followed. It stops when the best of them ends; others that
        end are dropped, and fewer followed. Texts are ranked by their sum of log p.

        Args:
            inputs: list of the inputs of one example, without a batch dimension.
            topk: number of texts to follow.
            states: handed to the first `predict`.
            temperature: divides the logits.
            min_ends: a text ends with its so manieth end token.

        Returns:
            Int array of tokens: the start token, if there is one, and what came after it.

        Raises:
            ConfigError: if no token is left that could follow.
        """
        check_integer("topk", topk, 1)
        check_integer("min_ends", min_ends, 1)
        texts, totals, width = self.first_output_ids, np.zeros(1), topk
        for _ in range(self.maxlen):
            copies = self._copies(inputs, len(texts))
            scores, states = self._ask(copies, texts, states, temperature, "logits")
            totals = totals[:, None] + _checked(scores, texts)
            best = largest(totals.reshape(-1), width)
            if not len(best):
                no_token_left(0, texts[0])
            parents, tokens = np.divmod(best, totals.shape[1])
            totals = totals[parents, tokens]
            texts = np.concatenate([texts[parents], tokens[:, None]], axis=1)
            ended = self._ended(texts, min_ends)
            if ended[0]:
                break
            texts, totals, width = texts[~ended], totals[~ended], width - ended.sum()
        return texts[0]

    def random_sample(
        self, inputs, n, topk=None, topp=None, states=None, temperature=1, min_ends=1
    ):
        """Draws texts.

        Args:
            inputs: list of the inputs of one example, without a batch dimension.
            n: how many texts.
            topk: draw each token among so many of the most probable only.
            topp: draw among the fewest tokens that together have this probability; after
                `topk`.
            states: handed to the first `predict`.
            temperature: divides the logits.
            min_ends: a text ends with its so manieth end token.

        Returns:
            List of n int arrays, as of `beam_search`, those first that ended first.

        Raises:
            ConfigError: if no token is left that could follow.
        """
        self._check_sampling(n, topk, topp, min_ends)
        texts, results = self.first_output_ids, []
        for step in range(self.maxlen):
            copies = self._copies(inputs, len(texts))
            probas, states = self._ask(copies, texts, states, temperature, "probas")
            scores = self._narrow(_log(_checked(probas, texts)), texts, topk, topp)
            if step == 0:
                scores, texts = np.repeat(scores, n, axis=0), np.repeat(texts, n, axis=0)
            tokens = draw(scores, self._random.random(len(texts)))
            texts = np.concatenate([texts, tokens[:, None]], axis=1)
            ended = self._ended(texts, min_ends)
            results.extend(texts[ended])
            texts = texts[~ended]
            if not len(texts):
                break
        return [*results, *texts]

    def _ask(self, *arguments):
        """Calls `predict`, which has to take what `wraps` adds to it."""
        try:
            inspect.signature(self.predict, follow_wrapped=False).bind(*arguments)
        except TypeError as error:
            raise ConfigError(
                f"{type(self).__name__}.predict does not take (inputs, output_ids, states, "
                "temperature, rtype).\nExpected a method of one's own, (inputs, output_ids, "
                "states), decorated with AutoRegressiveDecoder.wraps(default_rtype=…)."
            ) from error
        return self.predict(*arguments)

    def _check_sampling(self, n, topk, topp, min_ends):
        """Refuses arguments that cannot be."""
        check_integer("n", n, 1)
        check_integer("min_ends", min_ends, 1)
        if topk is not None:
            check_integer("topk", topk, 1)
        if topp is not None:
            check_number("topp", topp, **RANGES["top_p"])

    def _narrow(self, scores, texts, topk, topp):
        """Scores (n, V) of which only what may be drawn is possible."""
        for text in texts[np.isneginf(scores.max(axis=1))]:
            no_token_left(0, text)
        return narrow(scores, top_k=topk, top_p=topp)

    def _ended(self, texts, min_ends):
        """Which of the texts (n, t) are complete."""
        if self.end_id is None or texts.shape[1] < self.minlen:
            return np.zeros(len(texts), bool)
        ends = texts == self.end_id
        return ends[:, -1] & (ends.sum(axis=1) >= min_ends)

    def _copies(self, inputs, count):
        """Each input so many times, along a new first axis."""
        return [np.repeat(np.asarray(one)[None], count, axis=0) for one in inputs]


def _log(probas):
    """Logarithms, -inf for 0."""
    with np.errstate(divide="ignore"):
        return np.log(probas)


def _check_rtype(name, rtype):
    if rtype not in RTYPES:
        raise ConfigError(
            f"{name}={rtype!r}.{did_you_mean(rtype, RTYPES)}\nExpected one of: {', '.join(RTYPES)}."
        )


def _pair(result):
    """What a `predict` with states has to return."""
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise ConfigError(
            f"predict returned a {type(result).__name__}, and use_states=True was given.\n"
            "Expected a pair: (scores of the next token, states)."
        )
    return result


def _checked(scores, texts):
    """Scores as a floating array (n, V), without NaN."""
    scores = np.asarray(scores)
    if scores.ndim != 2 or len(scores) != len(texts):
        raise ConfigError(
            f"predict returned numbers of the shape {scores.shape} for {len(texts)} texts.\n"
            f"Expected ({len(texts)}, vocabulary): what comes after the last token of each.\n"
            "Use self.last_token(model) in place of the model."
        )
    if np.isnan(scores).any():
        raise ConfigError(
            "predict returned NaN.\nExpected probabilities or logits.\n"
            "Check that the model's weights were loaded."
        )
    return scores

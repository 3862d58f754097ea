"""Texts drawn from a masked language model by Gibbs sampling.

Shapes: R texts, L length, F places that may change, V vocabulary.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from kerasbert.errors import ConfigError, check_integer, did_you_mean, listing
from kerasbert.generation.distributions import draw, narrow
from kerasbert.generation.masked_lm import MaskedLM, check_batch_size
from kerasbert.generation.settings import SearchSettings
from kerasbert.tokenizers.sequences import check_text

ORDERS = ("random", "left-to-right")


@dataclass(frozen=True)
class GibbsSample:
    """A text that was drawn.

    Attributes:
        text: the text as the tokenizer decodes it.
        tokens: the tokens, special ones left out; masks where a place was never visited.
        ids: their ids.
    """

    text: str
    tokens: tuple
    ids: tuple


def gibbs_sample(
    model,
    tokenizer,
    text=None,
    steps=500,
    *,
    length=None,
    fixed=None,
    num_samples=1,
    order="random",
    temperature=1.0,
    top_k=None,
    top_p=None,
    argmax_after=None,
    seed=None,
    batch_size=32,
):
    """Draws texts from a masked language model by Gibbs sampling.

    A step masks one place and draws its token anew from what the model says of it; the special
    tokens are never drawn. After many steps the texts come from the distribution that the
    chain has in the limit, wherever it began.

    Args:
        model: a model with a masked-LM head (`with_mlm=True`), whatever its other outputs.
        tokenizer: its `Tokenizer` or `SpTokenizer`.
        text: where the chain begins; [MASK] may stand in it.
        steps: number of steps. To visit every place at random takes several times their
            number; "left-to-right" needs as many as there are places.
        length: the number of tokens of texts that begin as nothing but masks, in the place of
            `text`.
        fixed: what of `text` never changes: "text" for all but its masks, which makes it a
            prompt, or the numbers of its tokens, from 0, special tokens not counted. None
            lets every token change.
        num_samples: number R of chains, independent of each other.
        order: "random", each chain at a place of its own, or "left-to-right", round and round.
        temperature: divides the logits; below 1 the probable gets more so.
        top_k: draw among so many of the most probable tokens only.
        top_p: draw among the fewest tokens that together have this probability.
        argmax_after: after so many steps the most probable token is taken instead of a draw.
        seed: makes the draws repeatable.
        batch_size: how many chains are computed at once.

    Returns:
        List of R `GibbsSample`s.

    Raises:
        ConfigError: if the model cannot do it (no masked-LM head, `application` "lm" or
            "unilm"), nothing may change, the text is too long, or an argument is out of range.
        TokenizerError: if `text` is no string, or the vocabulary has no mask token.

    Example:
        >>> prompt = "房间[MASK][MASK]净"
        >>> [sample] = gibbs_sample(masked_lm, tokenizer, prompt, steps=10, fixed="text", seed=0)
        >>> len(sample.tokens), sample.tokens[:2]
        (5, ('房', '间'))

    Source: Wang & Cho 2019 (arXiv:1902.04094); `argmax_after` as the sampling of nyu-dl/bert-gen
    ends.
    """
    reader = MaskedLM(model, tokenizer)
    check_integer("steps", steps, minimum=1)
    check_integer("num_samples", num_samples, minimum=1)
    check_batch_size(batch_size)
    if argmax_after is not None:
        check_integer("argmax_after", argmax_after, minimum=0)
    _check_order(order)
    rule = SearchSettings(1, "sample", temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    ids, segments = _start(reader, text, length)
    free = _free_places(reader, ids, fixed, by_text=text is not None)  # (F,)
    chain = _Chains(reader, ids, segments, num_samples, batch_size)
    random = np.random.default_rng(seed)
    for step in range(steps):
        if order == "random":
            places = free[random.integers(len(free), size=num_samples)]
        else:
            places = np.full(num_samples, free[step % len(free)])
        logits = chain.logits(places)
        drawn = argmax_after is None or step < argmax_after
        uniform = random.random(num_samples)
        if drawn:
            scores = narrow(logits, rule.temperature, rule.top_k, rule.top_p)
            tokens = draw(scores, uniform)
        else:
            tokens = logits.argmax(axis=-1)
        chain.ids[np.arange(num_samples), places] = tokens
    return [_sample(tokenizer, row, len(segments)) for row in chain.ids]


class _Chains:
    """The texts as they are.

    Args:
        reader: a `MaskedLM`.
        ids, segments: the row with which all begin.
        count: R.
        batch_size: how many are computed at once.
    """

    def __init__(self, reader, ids, segments, count, batch_size):
        self.reader, self.segments, self.batch_size = reader, segments, batch_size
        self.ids = np.tile(np.array(ids), (count, 1))  # (R, L)

    def logits(self, places):
        """Returns what the model says of one place of each text, (R, V)."""
        masked = self.ids.copy()
        masked[np.arange(len(masked)), places] = self.reader.mask_id
        rows = [(row, self.segments) for row in masked]
        vocabulary = self.reader.vocabulary.ordinary
        logits = np.full((len(masked), len(vocabulary)), -np.inf, "float32")
        # All texts have this one length for good, so there is no need to round it up.
        found = self.reader.logits(rows, places[:, None], self.batch_size, step=1)
        for number, own in found:
            logits[number] = np.where(vocabulary, own[0, : len(vocabulary)], -np.inf)
        return logits


def _start(reader, text, length):
    """Returns the row (token_ids, segment_ids) with which the chains begin."""
    if (text is None) == (length is None):
        raise ConfigError(
            f"text={text!r} and length={length!r}.\n"
            "Expected one of them: a text to begin with, or the number of tokens.\n"
            "A prompt with something after it is a text with masks and fixed='text'."
        )
    if text is None:
        check_integer("length", length, minimum=1)
        row = reader.row([""] * (length + 1))
    else:
        check_text(text, "text")
        row = reader.row(reader.split(text))
    reader.check_length(len(row[0]), f"length={length}" if text is None else "text")
    return row


def _free_places(reader, ids, fixed, by_text):
    """Returns the indexes of the tokens that may change, ascending."""
    head, tail = map(len, reader.tokenizer._special_ids())
    places = np.arange(head, len(ids) - tail)
    if isinstance(fixed, str):
        if fixed != "text" or not by_text:
            raise ConfigError(
                f"fixed={fixed!r}.{did_you_mean(fixed, ['text'])}\n"
                "Expected 'text' together with a text, the numbers of its tokens, or None."
            )
        places = np.array([place for place in places if ids[place] == reader.mask_id])
    elif fixed is not None:
        places = np.delete(places, _checked_numbers(fixed, len(places)))
    if not len(places):
        hint = f"Write {reader.tokenizer._token_mask} where a token shall be drawn."
        raise ConfigError(
            f"With fixed={fixed!r} no token of the text may change.\n"
            f"Expected at least one that may.\n{hint}"
        )
    return places


def _checked_numbers(fixed, count):
    if not isinstance(fixed, Iterable):
        raise ConfigError(
            f"fixed={fixed!r}.\nExpected 'text', the numbers of tokens, or None.\n"
            f"For a single token pass [{fixed!r}]."
        )
    numbers = list(fixed)
    for number in numbers:
        check_integer("fixed", number, minimum=0)
    wrong = [number for number in numbers if number >= count]
    if wrong:
        raise ConfigError(
            f"fixed names the tokens {listing(wrong)}, but there are {count}.\n"
            f"Expected numbers from 0 to {count - 1}; special tokens do not count."
        )
    return numbers


def _check_order(order):
    if order not in ORDERS:
        raise ConfigError(
            f"order={order!r}.{did_you_mean(order, ORDERS)}\nExpected one of: {', '.join(ORDERS)}."
        )


def _sample(tokenizer, row, length):
    head, tail = map(len, tokenizer._special_ids())
    ids = tuple(map(int, row[head : length - tail]))
    return GibbsSample(tokenizer.decode(ids), tuple(tokenizer.ids_to_tokens(ids)), ids)

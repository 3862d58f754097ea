"""What a masked language model would write in the place of [MASK].

Shapes: M masks of a text, V vocabulary.
"""

from dataclasses import dataclass
from itertools import chain

import numpy as np

from kerasbert.errors import ConfigError, check_integer
from kerasbert.generation.distributions import largest, log_softmax
from kerasbert.generation.masked_lm import MaskedLM, check_batch_size
from kerasbert.tokenizers.sequences import check_text, check_texts


@dataclass(frozen=True)
class MaskCandidate:
    """One token for one mask.

    Attributes:
        token: the token, as the vocabulary writes it.
        id: its id.
        probability: the model's, among all tokens of its vocabulary.
        text: the text with the token in the place of the mask; other masks are left.
    """

    token: str
    id: int
    probability: float
    text: str

    def __repr__(self):
        return f"MaskCandidate({self.token!r}, {self.probability:.4f}, {self.text!r})"


def fill_mask(model, tokenizer, text, top_k=5, second_text=None, *, batch_size=32):
    """Returns the likeliest tokens for every [MASK] of a text, or of many texts.

    Several masks of a text are filled independently: each candidate is judged with the other
    masks still in their places.

    Args:
        model: a model with a masked-LM head (`with_mlm=True`), whatever its other outputs.
        tokenizer: its `Tokenizer` or `SpTokenizer`.
        text: a string in which the tokenizer's mask token stands at least once, or a list of
            them.
        top_k: how many candidates for each mask.
        second_text: a second text, or a list with one for each text; masks may stand in
            either.
        batch_size: how many texts are computed at once.

    Returns:
        For each mask, in the order of the texts, the list of `MaskCandidate`s, best first. For a
        list of texts a list of such results.

    Raises:
        ConfigError: if the model cannot do it (no masked-LM head, `application` "lm" or
            "unilm"), a text has no mask or is too long, or an argument is out of range.
        TokenizerError: if a text is no string, or the vocabulary has no mask token.

    Example:
        >>> best, *others = fill_mask(masked_lm, tokenizer, "房间很[MASK]净", top_k=3)[0]
        >>> best.text == f"房间很{best.token}净"
        True

    Source: Devlin et al. 2018 (arXiv:1810.04805), the masked language model.
    """
    reader = MaskedLM(model, tokenizer)
    known = reader.vocabulary.known
    check_integer("top_k", top_k, minimum=1)
    if top_k > known.sum():
        raise ConfigError(
            f"top_k={top_k}.\nExpected at most {known.sum()}, the number of tokens there are."
        )
    check_batch_size(batch_size)
    single, texts = _as_pairs(text, second_text)
    rows, places, parts = [], [], []
    for number, pair in enumerate(texts):
        parts.append([reader.split(one) for one in pair])
        rows.append(reader.row(*parts[-1]))
        places.append(np.flatnonzero(np.equal(rows[-1][0], reader.mask_id)))
        place = "text" if single else f"text[{number}]"
        reader.check_length(len(rows[-1][0]), place)
        if not len(places[-1]):
            raise ConfigError(
                f"{place}={_shown(pair[0])} has no mask.\n"
                f"Expected {tokenizer._token_mask} at least once, spelled like this."
            )
    results = [None] * len(texts)
    for number, logits in reader.logits(rows, places, batch_size):
        fill = _Filling(tokenizer, parts[number], rows[number][0], places[number])
        # Ids above those of the tokenizer have no token, though the model knows them.
        scores = np.where(known, log_softmax(logits)[:, : len(known)], -np.inf)
        results[number] = [
            [fill.candidate(mask, int(i), float(np.exp(own[i]))) for i in largest(own, top_k)]
            for mask, own in enumerate(scores)
        ]
    return results[0] if single else results


class _Filling:
    """Puts tokens in the places of the masks of one row.

    Args:
        tokenizer: the tokenizer.
        parts: for each of its texts the list of the parts between masks.
        ids: the row.
        places: the indexes of the masks in the row.
    """

    def __init__(self, tokenizer, parts, ids, places):
        self.tokenizer, self.ids, self.places = tokenizer, ids, places
        # For every mask the parts of its text, and its number there.
        self.homes = list(
            chain.from_iterable([(own, k) for k in range(len(own) - 1)] for own in parts)
        )

    def candidate(self, mask, index, probability):
        """Returns the `MaskCandidate` for a mask of that token."""
        token = self.tokenizer.id_to_token(index)
        own, k = self.homes[mask]
        sign = self.tokenizer._token_mask
        before, after = sign.join(own[: k + 1]), sign.join(own[k + 1 :])
        # Special tokens decode to nothing.
        written = self.tokenizer.decode([index]) or token
        if own[k] and self._sticks(mask, index, written):
            before = before.rstrip()
        return MaskCandidate(token, index, probability, before + written + after)

    def _sticks(self, mask, index, written):
        """Tells whether a token, such as "##ing", takes no space before it."""
        previous = self.ids[self.places[mask] - 1 : self.places[mask]]
        left = self.tokenizer.decode(previous)
        return left != "" and self.tokenizer.decode([*previous, index]) == left + written


def _as_pairs(text, second_text):
    """Returns whether `text` is a single one, and lists of one or two texts each."""
    if isinstance(text, str):
        if second_text is not None:
            check_text(second_text, "second_text")
        return True, [[text] if second_text is None else [text, second_text]]
    texts = check_texts(text, "text")
    if second_text is None:
        return False, [[one] for one in texts]
    seconds = check_texts(second_text, "second_text")
    if len(seconds) != len(texts):
        raise ConfigError(
            f"second_text has {len(seconds)} texts, text has {len(texts)}.\n"
            "Expected one second text for each text."
        )
    return False, [list(pair) for pair in zip(texts, seconds, strict=True)]


def _shown(text):
    return repr(text if len(text) <= 40 else text[:40] + "…")

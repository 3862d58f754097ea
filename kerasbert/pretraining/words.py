"""Token ids of sentences, and at which of them a word starts.

Shapes: V vocabulary size, T tokens.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

import numpy as np

from kerasbert.errors import CorpusError, TokenizerError
from kerasbert.tokenizers import SpTokenizer
from kerasbert.tokenizers.alignment import word_starts
from kerasbert.tokenizers.base import TokenizerBase

_SPACE = "▁"
# The marks of google-research/albert, in which ' < = > are not; for pieces made of letters and
# marks only.
_MARKS = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
_PLAIN = _MARKS | frozenset("abcdefghijklmnopqrstuvwxyz")


def starts_word(piece, is_sentencepiece):
    """Whether a token starts a word, by its spelling alone.

    Args:
        piece: the token.
        is_sentencepiece: WordPiece otherwise, whose tokens inside of words begin with "##".
            SentencePiece marks starts by "▁"; whatever is not made of ASCII letters and marks
            alone counts as a word of its own there, and so does a single mark.

    Source: google-research/albert, create_pretraining_data.py.
    """
    if not is_sentencepiece:
        return not piece.startswith("##")
    inside = not piece.startswith((_SPACE, "<")) and piece not in _MARKS
    return not (inside and all(char.lower() in _PLAIN for char in piece))


@dataclass(frozen=True, eq=False)
class TokenTable:
    """What masking needs to know of a vocabulary.

    Attributes:
        size: V.
        start: id of the token before a text, such as [CLS].
        end: id of the token behind one, such as [SEP].
        mask: id of the mask token.
        pad: id of padding.
        word_starts: bool array (V,), which tokens start a word.

    Example:
        >>> table = TokenTable.of(tokenizer)
        >>> table.size, table.mask
        (17, 4)
    """

    size: int
    start: int
    end: int
    mask: int
    pad: int
    word_starts: np.ndarray

    @classmethod
    def of(cls, tokenizer):
        """Returns that of a tokenizer.

        Args:
            tokenizer: a `Tokenizer` or `SpTokenizer`; or a `TokenTable`, which is returned.

        Raises:
            CorpusError: if it is none.
            TokenizerError: if its vocabulary lacks one of the four special tokens.
        """
        if isinstance(tokenizer, cls):
            return tokenizer
        if not isinstance(tokenizer, TokenizerBase):
            raise CorpusError(
                f"tokenizer is a {type(tokenizer).__name__}.\n"
                "Expected a Tokenizer or SpTokenizer of kerasbert.tokenizers."
            )
        size = tokenizer.vocab_size
        is_sentencepiece = isinstance(tokenizer, SpTokenizer)
        starts = [starts_word(_token(tokenizer, i), is_sentencepiece) for i in range(size)]
        return cls(
            size=size,
            start=tokenizer._token_start_id,
            end=tokenizer._token_end_id,
            mask=tokenizer._token_mask_id,
            pad=tokenizer._token_pad_id,
            word_starts=np.array(starts),
        )


def _token(tokenizer, i):
    """Returns a token; "" for the id of a row that occurs twice in its file."""
    try:
        return tokenizer.id_to_token(i)
    except TokenizerError:
        return ""


@dataclass(frozen=True, eq=False)
class TokenizedText:
    """The documents of a shard as token ids.

    Attributes:
        ids: int32 array (T,), the tokens of all sentences, special ones left out.
        starts: bool array (T,), which of them start a word.
        sentences: list of the place of `ids` at which each sentence starts, and the end.
        documents: list of the number of the sentence with which each document starts, and their
            count.
    """

    ids: np.ndarray
    starts: np.ndarray
    sentences: list
    documents: list


def tokenize(documents, tokenizer, segmenter=None):
    """Tokenises documents, and finds their words.

    Args:
        documents: iterable of lists of sentences.
        tokenizer: a `Tokenizer` or `SpTokenizer`.
        segmenter: function from a text to its words, for languages without spaces: what is
            inside of such a word does not start one. Or "jieba", for `jieba.lcut`.

    Returns:
        A `TokenizedText`; sentences without tokens, and documents without sentences, left out.

    Raises:
        CorpusError: for another segmenter, or if jieba is not installed.
    """
    table = TokenTable.of(tokenizer)
    documents = list(documents)
    texts = list(chain.from_iterable(documents))
    if segmenter is None:
        rows = tokenizer._body_ids(texts)
        ids = np.fromiter(chain.from_iterable(rows), "int32")
        starts = table.word_starts[ids]
    else:
        segment = find_segmenter(segmenter)
        pairs = [_segmented(text, tokenizer, segment, table.word_starts) for text in texts]
        rows = [ids for ids, _ in pairs]
        ids = np.fromiter(chain.from_iterable(rows), "int32")
        starts = np.fromiter(chain.from_iterable(starts for _, starts in pairs), bool)
    lengths = np.fromiter(map(len, rows), int, len(rows))
    kept = np.concatenate([[0], np.cumsum(lengths > 0)])  # sentences with tokens, before each
    ends = kept[np.cumsum([0, *map(len, documents)])]
    return TokenizedText(
        ids,
        starts,
        [0, *np.cumsum(lengths[lengths > 0]).tolist()],
        np.unique(ends).tolist(),
    )


def find_segmenter(segmenter):
    """Returns a word segmenter.

    Args:
        segmenter: a function, which is returned, or "jieba".

    Raises:
        CorpusError: if it is neither, or if jieba is not installed.
    """
    if isinstance(segmenter, Callable):
        return segmenter
    if segmenter != "jieba":
        raise CorpusError(
            f"segmenter={segmenter!r}.\n"
            "Expected 'jieba', or a function from a text to a list of its words."
        )
    try:
        from jieba import lcut
    except ImportError as error:
        raise CorpusError(
            "segmenter='jieba', but jieba is not installed.\n"
            "Expected the package jieba, or a function from a text to a list of its words.\n"
            "Install it by: pip install jieba"
        ) from error
    return lcut


def _segmented(text, tokenizer, segment, table):
    """Returns the ids of a text, and whether each starts a word; two lists."""
    places = [start for start in word_starts(text, list(segment(text))) if start is not None]
    pieces = tokenizer._pieces(text)
    ids = tokenizer.tokens_to_ids([piece.token for piece in pieces])
    starts, current = [], None
    for index, piece in zip(ids, pieces, strict=True):
        origins = piece.indexes()
        begins = not origins or bisect_right(places, origins[0]) != current
        starts.append(bool(begins and table[index]))
        current = bisect_right(places, origins[-1]) if origins else None
    return ids, starts

"""Finding the characters of a text that given tokens stand for."""

from itertools import chain
from typing import NamedTuple

from kerasbert.errors import TokenizerError


class Piece(NamedTuple):
    """A token of a text, together with what it was made from.

    Attributes:
        token: The token as `tokenize` returns it.
        alias: Another token that may stand in its place: what it was before translation,
            or the unknown word behind an '[UNK]'.
        characters: What it stands for in the cleaned text; '' for a part of a character.
        origins: Where those characters came from, as indexes into the text; None for one
            that a word segmenter put in.
    """

    token: str
    alias: str
    characters: str
    origins: list

    def indexes(self):
        """Returns the indexes of the piece's characters, ascending, each once."""
        return _indexes(self.origins)


def align(tokens, pieces, is_marker, stem):
    """Pairs tokens with the characters they stand for.

    Args:
        tokens: Tokens of a text, without the special ones around them.
        pieces: The pieces of the whole text.
        is_marker: Function that tells whether a token stands for no characters ('[MASK]').
        stem: Function from a token to the characters it stands for.

    Returns:
        A list of indexes for each token.

    Raises:
        TokenizerError: If a token does not occur where it should.
    """
    chosen = _match(tokens, pieces, is_marker)
    if chosen is not None:
        return [
            [] if is_marker(token) else piece.indexes()
            for token, piece in zip(tokens, chosen, strict=True)
        ]
    return _search(["" if is_marker(token) else stem(token) for token in tokens], pieces)


def _match(tokens, pieces, is_marker):
    """Returns a piece for each token, or None if they are no cut of these pieces.

    The tokens may be all pieces, or lack some at one place: at the end (as `maxlen`
    cuts), at the start or in the middle. A marker may stand for any piece.
    """

    def common(tokens, pieces):
        for position, (token, piece) in enumerate(zip(tokens, pieces, strict=False)):
            if token not in (piece.token, piece.alias) and not is_marker(token):
                return position
        return min(len(tokens), len(pieces))

    count = len(tokens)
    front, back = common(tokens, pieces), common(tokens[::-1], pieces[::-1])
    if count > len(pieces) or front + back < count:
        return None
    # A complete match at the end (the text was cut on the left) beats a partial one at the
    # start, which is then an accident of repeated words.
    front = 0 if back == count > front else front
    return [*pieces[:front], *pieces[len(pieces) - (count - front) :]]


def _search(stems, pieces):
    """Looks for each stem in the cleaned text, behind the one before it."""
    characters = "".join(piece.characters for piece in pieces)
    origins = list(chain(*(piece.origins for piece in pieces if piece.characters)))
    found, cursor = [], 0
    for position, stem in enumerate(stems):
        start = characters.find(stem, cursor)
        if start < 0:
            raise TokenizerError(
                f"Token {position}, {stem!r}, is not found in the text behind the tokens before "
                "it. rematch needs the tokens that this tokenizer made from this text."
            )
        cursor = start + len(stem)
        found.append(_indexes(origins[start:cursor]))
    return found


def word_starts(text, words):
    """Tells where each word starts in the text it was cut from.

    Args:
        text: A string.
        words: Strings in the order of the text. They may differ from it in single
            characters (a visible sign for the space, say) if nothing is left out.

    Returns:
        An index for each word, or None for one that does not occur.
    """
    starts, cursor = [], 0
    complete = sum(map(len, words)) == len(text)
    for word in words:
        start = cursor if complete else text.find(word, cursor)
        starts.append(start if start >= 0 else None)
        cursor = start + len(word) if start >= 0 else cursor
    return starts


def _indexes(origins):
    """Returns origins in ascending order, each once."""
    return sorted({origin for origin in origins if origin is not None})

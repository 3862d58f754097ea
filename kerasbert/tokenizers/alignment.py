"""Finding the characters of a text that given tokens stand for."""

from typing import NamedTuple

from ..errors import TokenizerError


class Piece(NamedTuple):
    """A token of a text, together with what it was made from.

    Attributes:
        token: The token as `tokenize` returns it.
        raw: The same before an unknown word became '[UNK]' and before translation.
        indexes: Indexes of its characters in the text, ascending.
    """

    token: str
    raw: str
    indexes: list


def match_pieces(tokens, pieces, is_marker):
    """Pairs tokens with the pieces of their text when they are all of them, or a cut of them.

    Args:
        tokens: Tokens, without the special ones around them.
        pieces: The pieces of the whole text.
        is_marker: Function that tells whether a token stands in for any other ('[MASK]').

    Returns:
        A list of indexes for each token, or None if the tokens were made in another way.
    """

    def equal(token, piece):
        return token in (piece.token, piece.raw) or is_marker(token)

    count = len(tokens)
    if count > len(pieces):
        return None
    front = _common(tokens, pieces, equal)
    back = _common(tokens[::-1], pieces[::-1], equal)
    if front + back < count:
        return None
    # A complete match at the end (the text was cut on the left) beats a partial one at the
    # start, which is then an accident of repeated words.
    front = 0 if back == count > front else front
    chosen = [*pieces[:front], *pieces[len(pieces) - (count - front) :]]
    return [
        [] if is_marker(token) else piece.indexes
        for token, piece in zip(tokens, chosen, strict=True)
    ]


def _common(tokens, pieces, equal):
    """Returns how many tokens in a row, from the first on, equal their pieces."""
    for position, (token, piece) in enumerate(zip(tokens, pieces, strict=False)):
        if not equal(token, piece):
            return position
    return min(len(tokens), len(pieces))


def search_stems(stems, characters, origins):
    """Finds each stem in the cleaned text behind the one before it.

    Args:
        stems: A string for each token; '' for those that stand for no characters.
        characters: The cleaned text without spaces, n characters.
        origins: n indexes into the original text.

    Returns:
        A list of indexes for each stem.

    Raises:
        TokenizerError: If a stem does not occur where it should.
    """
    found, cursor = [], 0
    for position, stem in enumerate(stems):
        start = characters.find(stem, cursor)
        if start < 0:
            raise TokenizerError(
                f"Token {position}, {stem!r}, is not found in the text behind the tokens before "
                "it. rematch needs the tokens that this tokenizer made from this text."
            )
        cursor = start + len(stem)
        found.append(sorted(set(origins[start:cursor])))
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

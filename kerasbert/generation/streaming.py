"""Text in pieces, as the tokens come."""


def text_pieces(tokens, tokenizer):
    """Decodes tokens one after the other.

    A piece is held back while the next token may still change it, as the parts of one word do.

    Args:
        tokens: iterable of token ids.
        tokenizer: a tokenizer of `kerasbert.tokenizers`.

    Returns:
        Iterator over non-empty strings, which joined are `tokenizer.decode` of all tokens.
    """
    ids, given = [], ""
    for token in tokens:
        before = tokenizer.decode(ids) if ids else ""
        ids.append(int(token))
        text = tokenizer.decode(ids)
        # What two decodings in a row agree on is settled, but for the mark of half a character.
        settled = _common(before, text).rstrip("\ufffd")
        if len(settled) > len(given) and settled.startswith(given):
            yield settled[len(given) :]
            given = settled
    rest = tokenizer.decode(ids)[len(given) :] if ids else ""
    if rest:
        yield rest


def _common(first, second):
    """Returns the longest beginning that two texts share."""
    size = min(len(first), len(second))
    end = next((i for i in range(size) if first[i] != second[i]), size)
    return first[:end]

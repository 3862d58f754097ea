"""Reading and writing of WordPiece vocabularies: text files, one token a line.

A token's id is its line number, which is the row of the embedding table, so nothing may
shift a line: only a line feed ends one. (The released Chinese vocabulary has the line separator
U+2028 as a token; `str.splitlines` breaks there and moves 20,000 ids.)
"""

import os
import re
import warnings
from collections.abc import Mapping
from pathlib import Path

from kerasbert.errors import TokenizerError, did_you_mean, listing
from kerasbert.tokenizers.characters import is_redundant

_SENTENCEPIECE_LINE = re.compile(r"\S+\t-?\d+(\.\d+)?(e[+-]?\d+)?\s*")
_RULES = ("bert", "albert")


def load_vocab(dict_path, encoding="utf-8", simplified=False, startswith=None, *, rule="bert"):
    """Reads a vocabulary file.

    Carriage returns, a byte order mark and a missing last newline do no harm. White space
    around a token is dropped, as in google-research/bert, so that a row of nothing but
    white space becomes the token '' and still takes its id.

    Args:
        dict_path: Path of a `vocab.txt`.
        encoding: Encoding of the file.
        simplified: Whether to leave out the tokens that can never come out of a text
            (longer ones with an ideograph or punctuation in them, such as '##中'), to
            make the embedding table smaller. '[CLS]' and the like are among them: name
            those to keep in `startswith`.
        startswith: Tokens to put first, in this order, for instance
            `['[PAD]', '[UNK]', '[CLS]', '[SEP]']`.
        rule: What a row means. 'bert' (google-research/bert and electra): the whole row;
            the id is the row number, and of equal rows the last counts. 'albert'
            (google-research/albert): the first word of the row, ' ' if it is blank; equal
            rows after the first are skipped and later ids move up. Both warn about equal
            rows, since at most one of the two fits a given checkpoint.

    Returns:
        A dict from token to id; with `simplified` or `startswith` a pair (dict, list): the
        list holds the old ids in their new order, for the `keep_tokens` of the model.

    Raises:
        TokenizerError: If the file is missing, is empty, is no vocabulary or has another
            encoding, or if a token of `startswith` is not in it.

    Example:
        >>> token_dict, keep_tokens = load_vocab(
        ...     'vocab.txt', simplified=True, startswith=['[PAD]', '[UNK]', '[CLS]', '[SEP]'])
        >>> tokenizer = Tokenizer(token_dict, do_lower_case=True)
    """
    if rule not in _RULES:
        raise TokenizerError(
            f"rule={rule!r} is not a way to read a vocabulary. Expected one of "
            f"{listing(_RULES)}.{did_you_mean(rule, _RULES)}"
        )
    rows = _read_rows(as_path(dict_path, "that of a vocab.txt"), encoding)
    tokens = [_row_token(row, rule) for row in rows]
    _warn_of_duplicates(dict_path, tokens, rule)
    if rule == "bert":
        token_dict = {token: index for index, token in enumerate(tokens)}
    else:
        token_dict = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    if not simplified and startswith is None:
        return token_dict
    return _reorder(token_dict, simplified, startswith or [], dict_path)


def save_vocab(dict_path, token_dict, encoding="utf-8"):
    """Writes a vocabulary in the order of the ids, so that `load_vocab` gives it back.

    The file appears whole or not at all: it is written under another name and then moved.

    Args:
        dict_path: Path to write.
        token_dict: Dict from token to id; the ids are 0 to n-1 without gaps.
        encoding: Encoding of the file.

    Raises:
        TokenizerError: If ids are missing or taken twice, if a token would not survive
            (a line feed in it, or white space around it), or if the folder does not exist.

    Example:
        >>> save_vocab('small/vocab.txt', token_dict)
    """
    path = as_path(dict_path, "where to write the vocabulary")
    content = vocab_bytes(token_dict, encoding)
    if not path.parent.is_dir():
        raise TokenizerError(f"Cannot write {path}: the folder {path.parent} does not exist.")
    write_atomically(path, content)


def vocab_bytes(token_dict, encoding="utf-8"):
    """Returns the content of the file that `save_vocab` writes, with the same checks."""
    _check_no_gaps(token_dict)
    tokens = sorted(token_dict, key=token_dict.get)
    lost = [token for token in tokens if "\n" in token or token != token.strip()]
    lost += [token for token in tokens[:1] if token.startswith("\ufeff")]
    if lost:
        raise TokenizerError(
            f"A vocabulary file cannot hold {listing(map(repr, lost))}: one token a line, and "
            "white space around a token, or a byte order mark before the first, is dropped on "
            "reading. Rename or remove these tokens."
        )
    try:
        return "".join(token + "\n" for token in tokens).encode(encoding)
    except UnicodeEncodeError as error:
        raise TokenizerError(
            f"The encoding {encoding!r} has no form for {error.object[error.start]!r}. "
            "Write the vocabulary as utf-8."
        ) from None


def check_ids(token_dict):
    """Checks that a dict maps strings to distinct non-negative whole numbers.

    Args:
        token_dict: Dict from token to id.

    Raises:
        TokenizerError: If it does not; the message names the token.
    """
    if not isinstance(token_dict, Mapping) or not token_dict:
        raise TokenizerError(
            f"The vocabulary is {'an empty' if not token_dict else 'a'} "
            f"{type(token_dict).__name__}. Expected a dict from token to id, or the path of a "
            "vocab.txt."
        )
    seen = {}
    for token, index in token_dict.items():
        if not isinstance(token, str):
            raise TokenizerError(
                f"The vocabulary has the key {token!r} ({type(token).__name__}). Expected a "
                "dict from token to id; is it the other way round?"
            )
        if isinstance(index, bool) or not hasattr(index, "__index__") or index < 0:
            raise TokenizerError(f"Token {token!r} has the id {index!r}. Expected 0, 1, 2, …")
        if index in seen:
            raise TokenizerError(
                f"Tokens {seen[index]!r} and {token!r} have the same id {index}. Every token "
                "needs an id of its own; `load_vocab` reads a vocab.txt that way."
            )
        seen[index] = token


def as_path(path, expected):
    """Returns a path with `~` expanded, after checking that it is one."""
    if not isinstance(path, (str, os.PathLike)):
        raise TokenizerError(f"{path!r} ({type(path).__name__}) is no path. Expected {expected}.")
    return Path(path).expanduser()


def missing_file_hint(path):
    """Names what could have been meant by a path that is no file: what lies next to it."""
    folder = path if path.is_dir() else path.parent
    if not folder.is_dir():
        return f" The folder {folder} does not exist."
    found = sorted(f.name for f in folder.iterdir() if f.suffix in (".txt", ".vocab", ".model"))
    return f" {folder} has: {listing(found)}." if found else f" {folder} has no such file."


def _read_rows(path, encoding):
    """Returns the lines of a vocabulary file, after checking that it is one."""
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise TokenizerError(
            f"The vocabulary {path} {what}. Expected a text file with one token a line, "
            f"usually vocab.txt.{missing_file_hint(path)}"
        )
    content = path.read_bytes()
    if looks_like_sentencepiece(content):
        raise TokenizerError(
            f"{path} is a sentencepiece model, not a vocabulary with one token a line. "
            "Use SpTokenizer for it; Tokenizer and load_vocab take a vocab.txt."
        )
    try:
        text = content.decode(encoding).removeprefix("\ufeff")
    except (UnicodeDecodeError, LookupError) as error:
        raise TokenizerError(
            f"{path} cannot be read as {encoding!r} ({error}). Expected a text file with one "
            "token a line; pass the encoding it was written in, for instance encoding='gbk'."
        ) from None
    if not text.strip():
        raise TokenizerError(f"{path} is empty. Expected one token a line.")
    rows = text.split("\n")
    # A newline at the end closes the last row and does not open another one.
    rows = rows[:-1] if rows[-1] == "" else rows
    head = rows[:100]
    if sum(map(bool, map(_SENTENCEPIECE_LINE.fullmatch, head))) > 0.9 * len(head):
        raise TokenizerError(
            f"{path} lists sentencepiece pieces with their scores, not WordPiece tokens. "
            "Use SpTokenizer with the .model file that belongs to it."
        )
    return rows


def looks_like_sentencepiece(content):
    """Tells whether bytes are a sentencepiece model: a protobuf that starts with a piece.

    The first byte opens field 1 (a piece, a message), the third its field 1 (the text),
    and a score, tag 0x15, follows within a few bytes.
    """
    return content[:1] == b"\n" and content[2:3] == b"\n" and b"\x15" in content[4:64]


def _row_token(row, rule):
    """Returns the token on a line of the file."""
    token = row.strip()
    if rule == "albert":
        token = token.split()[0] if token else " "
    return token


def _warn_of_duplicates(path, tokens, rule):
    """Warns of tokens on several lines: the two Google loaders then disagree on ids."""
    lines = {}
    for number, token in enumerate(tokens, start=1):
        lines.setdefault(token, []).append(number)
    twice = [
        f"{token!r} (lines {', '.join(map(str, numbers))})"
        for token, numbers in lines.items()
        if len(numbers) > 1
    ]
    if twice:
        effect = (
            "the last line counts and ids stay line numbers; rule='albert' skips the later ones"
            if rule == "bert"
            else "the first line counts and later ids move up; rule='bert' keeps line numbers"
        )
        warnings.warn(f"{path}: equal rows: {listing(twice)}. Here {effect}.", stacklevel=3)


def _reorder(token_dict, simplified, startswith, path):
    """Returns (new dict, old ids): `startswith` first, then what is left in the old order."""
    if isinstance(startswith, str):
        raise TokenizerError(f"startswith={startswith!r} is a string. Expected a list of tokens.")
    missing = [token for token in startswith if token not in token_dict]
    if missing:
        raise TokenizerError(
            f"startswith names tokens that {path} does not have: {listing(missing)}."
            f"{did_you_mean(missing[0], token_dict)} Leave them out, or add them "
            "to the vocabulary and the embedding table."
        )
    if len(set(startswith)) < len(startswith):
        raise TokenizerError(f"startswith={startswith!r} names a token twice.")
    first = set(startswith)
    rest = [
        token
        for token in sorted(token_dict, key=token_dict.get)
        if token not in first and not (simplified and is_redundant(token))
    ]
    order = [*startswith, *rest]
    return {token: i for i, token in enumerate(order)}, [token_dict[token] for token in order]


def _check_no_gaps(token_dict):
    """Refuses ids that are not 0 to n-1: a file would silently close the gaps."""
    check_ids(token_dict)
    gaps = sorted(set(range(len(token_dict))) - set(token_dict.values()))
    if gaps:
        raise TokenizerError(
            f"The ids of {len(token_dict)} tokens should be 0 to {len(token_dict) - 1}, but "
            f"{listing(gaps)} are missing (the largest is {max(token_dict.values())}). Lines of "
            "a file cannot leave a gap: give the tokens new ids, or add fillers like '[unused1]'."
        )


def write_atomically(path, content):
    """Writes bytes under a temporary name in the same folder, then moves the file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)

"""Sentencepiece: the tokenizer of the English ALBERT models."""

import json
import re
import unicodedata
from itertools import chain

import sentencepiece

from kerasbert.errors import TokenizerError, did_you_mean, listing
from kerasbert.tokenizers.alignment import Piece, word_starts
from kerasbert.tokenizers.base import TokenizerBase
from kerasbert.tokenizers.characters import spread
from kerasbert.tokenizers.sequences import check_id, check_text
from kerasbert.tokenizers.vocab import as_path, missing_file_hint

_SPACE = "▁"
_COMMA_RULES = ("google", "intended", "off")
_SURROGATE = re.compile("[\ud800-\udfff]")


class SpTokenizer(TokenizerBase):
    """Splits texts into sentencepiece pieces as google-research/albert's tokenization.py.

    Before sentencepiece sees a text, ALBERT's `preprocess_text` joins it at white space,
    decomposes it (NFKD), drops the combining marks (in cased models too) and lower-cases
    it. The released models are uncased, and fed with raw text they lose every capital to
    the unknown token; hence all this is on by default.

    Different from bert4keras, whose SpTokenizer does none of it: for other models of that
    kind (T5, CPM, …) pass `preprocess=False`, which gives plain sentencepiece.

    Args:
        sp_model_path: Path of a sentencepiece model, such as `30k-clean.model`.
        do_lower_case: Whether to lower-case; None for "with the ALBERT preprocessing".
        token_start: Token put before every text, or None.
        token_end: Token put after every text, or None.
        pre_tokenize: Function from a text to a list of words, joined with spaces.
        token_translate: Dict from pieces to the pieces to use in their place.
        keep_accents: Whether to leave out the decomposition and keep combining marks.
        preprocess: Whether to apply the ALBERT preprocessing.
        comma_rule: What becomes of pieces like '9,'. 'google' splits off the comma and
            encodes the rest again, so that '4,' inside a number becomes '▁', '4', ',':
            the original means to remove that '▁' but compares it with bytes, which never
            are equal. This is what the released models met. 'intended' removes it (as
            the slow tokenizer of `transformers` did), 'off' leaves such pieces alone.
            None for 'google' with the ALBERT preprocessing and 'off' without.

    Raises:
        TokenizerError: If the file is no sentencepiece model or lacks special tokens.

    Example:
        >>> tokenizer = SpTokenizer('30k-clean.model')
        >>> tokenizer.decode(tokenizer.encode('Hello café')[0])
        'hello cafe'
    """

    def __init__(
        self,
        sp_model_path,
        do_lower_case=None,
        token_start="[CLS]",
        token_end="[SEP]",
        pre_tokenize=None,
        token_translate=None,
        *,
        keep_accents=False,
        preprocess=True,
        comma_rule=None,
    ):
        super().__init__(token_start, token_end, pre_tokenize, token_translate)
        if comma_rule not in (None, *_COMMA_RULES):
            raise TokenizerError(
                f"comma_rule={comma_rule!r} is not known. Expected None or one of "
                f"{listing(_COMMA_RULES)}.{did_you_mean(comma_rule, _COMMA_RULES)}"
            )
        self._do_lower_case = preprocess if do_lower_case is None else do_lower_case
        self._keep_accents = keep_accents
        self._preprocess = preprocess
        self._comma_rule = comma_rule or ("google" if preprocess else "off")
        self._sp_model = _load_model(as_path(sp_model_path, "that of a .model file"))
        pad = self._sp_model.pad_id()
        self._token_pad = self._sp_model.id_to_piece(pad) if pad >= 0 else None
        self._token_unk = self._sp_model.id_to_piece(self._sp_model.unk_id())
        self._check_special_tokens(sp_model_path)
        pieces = map(self._sp_model.id_to_piece, range(self.vocab_size))
        # Pieces the comma rule may split; an unknown one may be anything.
        self._comma_ids = {i for i, piece in enumerate(pieces) if _ends_in_digit_comma(piece)}
        self._comma_ids.add(self._sp_model.unk_id())

    # --- Vocabulary ---------------------------------------------------------------------

    def hugging_face_files(self):
        """Returns the files with which transformers makes a tokenizer of the same pieces.

        The pieces are the same; its AlbertTokenizer (5.24) cuts numbers such as "12,3" and
        words behind brackets in another way than SentencePiece itself.

        Returns:
            Dict from file name to content, in bytes.

        Source: `AlbertTokenizer` of Hugging Face transformers.
        """
        settings = {
            "tokenizer_class": "AlbertTokenizer",
            "do_lower_case": self._do_lower_case,
            "keep_accents": self._keep_accents,
        }
        return {
            "spiece.model": self._sp_model.serialized_model_proto(),
            "tokenizer_config.json": json.dumps(settings, indent=2).encode(),
        }

    @property
    def vocab_size(self):
        """Number of pieces, which is the number of rows of the embedding table."""
        return self._sp_model.get_piece_size()

    def token_to_id(self, token):
        """Returns the id of a piece; that of the unknown piece if the model lacks it."""
        check_text(token, "token")
        return self._sp_model.piece_to_id(_SURROGATE.sub("\ufffd", token))

    def id_to_token(self, i):
        """Returns the piece with the id `i`.

        Raises:
            TokenizerError: If there is none; the message tells the range.
        """
        return self._sp_model.id_to_piece(check_id(i, self.vocab_size))

    def _has(self, token):
        return token == self._token_unk or self.token_to_id(token) != self._sp_model.unk_id()

    def _check_special_tokens(self, path):
        """Checks that the start and end token are pieces of the model."""
        missing = [t for t in (self._token_start, self._token_end) if t and not self._has(t)]
        if missing:
            control = [
                t for t in map(self.id_to_token, range(self.vocab_size)) if self._is_marker(t)
            ]
            raise TokenizerError(
                f"{path} lacks {listing(missing)}. Its special pieces are {listing(control)}: "
                "name two of them, or None, as token_start= and token_end=."
            )

    # --- Text to tokens -----------------------------------------------------------------

    def _body_tokens(self, text):
        pieces = self._split(self._prepare(text))
        return [self._token_translate.get(piece, piece) for piece in pieces]

    def _body_ids(self, texts):
        if self._token_translate:
            return [self.tokens_to_ids(self._body_tokens(text)) for text in texts]
        prepared = [self._prepare(text) for text in texts]
        rows = self._sp_model.encode(prepared, out_type=int)
        if self._comma_rule == "off":
            return rows
        return [
            row if self._comma_ids.isdisjoint(row) else self.tokens_to_ids(self._split(text))
            for row, text in zip(rows, prepared, strict=True)
        ]

    def _prepare(self, text):
        """Returns the text that sentencepiece gets to see."""
        if self._pre_tokenize is not None:
            text = " ".join(self._segment(text))
        if self._preprocess:
            text = albert_clean(text, self._keep_accents)
        if self._do_lower_case:
            text = text.lower()
        # UTF-8 has no lone surrogates; sentencepiece itself takes broken input for U+FFFD.
        return _SURROGATE.sub("\ufffd", text)

    def _prepare_with_origins(self, text):
        """Returns `_prepare(text)` and, for each character, the index it came from.

        The origin is None for a space put between two words.
        """
        origins = list(range(len(text)))
        if self._pre_tokenize is not None:
            words = self._segment(text)
            places = [
                [None] * len(word) if start is None else origins[start : start + len(word)]
                for word, start in zip(words, word_starts(text, words), strict=True)
            ]
            text, origins = " ".join(words), _joined(places)
        if self._preprocess:
            words = list(re.finditer(r"\S+", text))
            places = [origins[word.start() : word.end()] for word in words]
            text, origins = " ".join(word.group() for word in words), _joined(places)
            if not self._keep_accents:
                origins = spread(text, origins, lambda c: unicodedata.normalize("NFKD", c))
                text = unicodedata.normalize("NFKD", text)
                kept = [i for i, char in enumerate(text) if not unicodedata.combining(char)]
                text, origins = "".join(text[i] for i in kept), [origins[i] for i in kept]
        if self._do_lower_case:
            text, origins = text.lower(), spread(text, origins, str.lower)
        return _SURROGATE.sub("\ufffd", text), origins

    def _split(self, prepared):
        """Returns the pieces of a prepared text."""
        pieces = self._sp_model.encode(prepared, out_type=str)
        if self._comma_rule == "off":
            return pieces
        return list(chain.from_iterable(map(self._split_comma, pieces)))

    def _split_comma(self, piece):
        """Applies the comma rule to a piece."""
        if not _ends_in_digit_comma(piece):
            return [piece]
        parts = self._sp_model.encode(piece[:-1].replace(_SPACE, ""), out_type=str)
        if self._comma_rule == "intended" and not piece.startswith(_SPACE):
            parts[0] = parts[0].removeprefix(_SPACE)
        return [part for part in [*parts, ","] if part]

    def _pieces(self, text):
        prepared, origins = self._prepare_with_origins(text)
        normalized, offsets = self._sp_model.normalize(prepared, with_offsets=True)
        # One entry per byte, as a byte piece ('<0xE4>') is less than a character. Spaces
        # are left out: they belong to no token, wherever the pieces carry them.
        places = [
            origins[offset]
            for char, offset in zip(normalized, offsets, strict=False)
            if char != _SPACE
            for _ in char.encode()
        ]
        pieces, cursor = [], 0
        for raw in self._split(prepared):
            index = self.token_to_id(raw)
            is_byte = self._sp_model.is_byte(index)
            own = []
            for char in "\0" if is_byte else self._stem(raw):
                own += places[cursor : cursor + 1]
                cursor += len(char.encode())
            token = self._token_translate.get(raw, raw)
            unknown = index == self._sp_model.unk_id() and token == raw
            alias = self._token_unk if unknown else raw
            pieces.append(Piece(token, alias, "" if is_byte else self._stem(raw), own))
        return pieces

    def _is_marker(self, token):
        index = self.token_to_id(token)
        return self._sp_model.is_control(index) or token in (self._token_start, self._token_end)

    def _stem(self, token):
        return "" if token == self._token_unk else token.replace(_SPACE, "")

    # --- Tokens to text -----------------------------------------------------------------

    def decode(self, ids, tokens=None):
        """Turns ids back into a text, leaving out control pieces and the unknown piece.

        Args:
            ids: Integers, as a list or an array of shape (L,).
            tokens: Pieces to use instead of those of `ids`, or None.

        Returns:
            A string.

        Raises:
            TokenizerError: If an id is not in the vocabulary.

        Example:
            >>> tokenizer.decode(tokenizer.encode('Hello, world')[0])
            'hello, world'
        """
        tokens = self.ids_to_tokens(ids) if tokens is None else tokens
        tokens = [self._token_translate_inv.get(token, token) for token in tokens]
        pieces = [t for t in tokens if t != self._token_unk and not self._is_marker(t)]
        return self._sp_model.decode_pieces(pieces)

    def _is_special(self, i):
        """Tells whether the id `i` is a control, unknown or unused piece."""
        model = self._sp_model
        return model.is_control(i) or model.is_unknown(i) or model.is_unused(i)

    def _is_decodable(self, i):
        """Tells whether the id `i` stands for text."""
        return 0 <= i < self.vocab_size and not self._is_special(i)


def albert_clean(text, keep_accents=False):
    """Joins a text at white space, decomposes it (NFKD) and drops the combining marks.

    Args:
        text: A string.
        keep_accents: Whether to join it only.
    """
    text = " ".join(text.split())
    if keep_accents:
        return text
    text = unicodedata.normalize("NFKD", text)
    return "".join(char for char in text if not unicodedata.combining(char))


def _ends_in_digit_comma(piece):
    """Tells whether the comma rule applies to a piece."""
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def _joined(places):
    """Joins lists of origins with None, the origin of the space between words."""
    spaced = chain.from_iterable([None, *place] for place in places)
    return list(spaced)[1:]


def _load_model(path):
    """Reads a sentencepiece model, or says what the file is instead."""
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise TokenizerError(
            f"The sentencepiece model {path} {what}. Expected a .model file."
            f"{missing_file_hint(path)}"
        )
    content = path.read_bytes()
    model = sentencepiece.SentencePieceProcessor()
    try:
        model.load_from_serialized_proto(content)
    except RuntimeError:
        hint = _what_else(content)
        raise TokenizerError(f"{path} is not a sentencepiece model. {hint}") from None
    return model


def _what_else(content):
    """Says what a file that is no sentencepiece model seems to be."""
    if b"\0" in content:
        return "Is it damaged, or the file of another program?"
    if re.search(rb"\t-?\d", content[:400]):
        return "It lists pieces with scores (.vocab): pass the .model file that belongs to it."
    return "It looks like a vocabulary with one token a line (vocab.txt): use Tokenizer for it."

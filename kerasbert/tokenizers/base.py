"""What the WordPiece and the sentencepiece tokenizer have in common.

Argument and attribute names are those of bert4keras. B = batch, L = length.
"""

from abc import ABC, abstractmethod

from kerasbert.errors import TokenizerError
from kerasbert.tokenizers.alignment import align
from kerasbert.tokenizers.sequences import (
    Sequence,
    as_list,
    assemble,
    body_bounds,
    check_choices,
    check_length,
    check_text,
    check_texts,
    check_tokens,
    join_row,
    pad_rows,
    padded_length,
)


class TokenizerBase(ABC):
    """Encodes texts to ids and back; subclasses know a vocabulary and how to split a text.

    Args:
        token_start: Token put before every text, or None.
        token_end: Token put after every text, or None.
        pre_tokenize: Function from a text to a list of words, a word segmenter for
            instance, or None.
        token_translate: Dict from tokens to the tokens to use in their place, or None.
    """

    _token_pad = "[PAD]"
    _token_unk = "[UNK]"
    _token_mask = "[MASK]"

    def __init__(
        self, token_start="[CLS]", token_end="[SEP]", pre_tokenize=None, token_translate=None
    ):
        if pre_tokenize is not None and not callable(pre_tokenize):
            raise TokenizerError(
                f"pre_tokenize={pre_tokenize!r} cannot be called. Expected a function from a "
                "text to a list of words, for instance jieba.lcut."
            )
        self._token_start = token_start or None
        self._token_end = token_end or None
        self._pre_tokenize = pre_tokenize
        self._token_translate = dict(token_translate or {})
        self._token_translate_inv = {new: old for old, new in self._token_translate.items()}

    # --- Vocabulary ---------------------------------------------------------------------

    @property
    @abstractmethod
    def vocab_size(self):
        """Number of rows an embedding table for this vocabulary has (largest id + 1)."""

    _vocab_size = property(lambda self: self.vocab_size)

    @abstractmethod
    def token_to_id(self, token):
        """Returns the id of a token; that of the unknown token if it is not in the vocabulary.

        Example:
            >>> tokenizer.token_to_id('[CLS]')
            101
        """

    @abstractmethod
    def id_to_token(self, i):
        """Returns the token with the id `i`.

        Raises:
            TokenizerError: If there is none; the message tells the range.

        Example:
            >>> tokenizer.id_to_token(101)
            '[CLS]'
        """

    def tokens_to_ids(self, tokens):
        """Returns the ids of a list of tokens, see `token_to_id`.

        Example:
            >>> tokenizer.tokens_to_ids(['[CLS]', '[SEP]'])
            [101, 102]
        """
        return [self.token_to_id(token) for token in as_list(tokens, "tokens")]

    def ids_to_tokens(self, ids):
        """Returns the tokens of a list of ids, see `id_to_token`.

        Example:
            >>> tokenizer.ids_to_tokens([101, 102])
            ['[CLS]', '[SEP]']
        """
        return [self.id_to_token(i) for i in as_list(ids, "ids")]

    @abstractmethod
    def _has(self, token):
        """Tells whether `token` is in the vocabulary."""

    def _id_of(self, name):
        """Returns the id of the special token of that role ('pad', 'start', …)."""
        token = getattr(self, f"_token_{name}")
        if token is None or not self._has(token):
            raise TokenizerError(
                f"The vocabulary has no {name} token (looked for {token!r}), which is needed "
                "here. Use the complete vocabulary that belongs to the model."
            )
        return self.token_to_id(token)

    # Properties, so that a vocabulary without, say, [MASK] serves everything but masking.
    _token_pad_id = property(lambda self: self._id_of("pad"))
    _token_unk_id = property(lambda self: self._id_of("unk"))
    _token_mask_id = property(lambda self: self._id_of("mask"))
    _token_start_id = property(lambda self: self._id_of("start"))
    _token_end_id = property(lambda self: self._id_of("end"))

    # --- Text to tokens -----------------------------------------------------------------

    def _segment(self, text):
        """Returns the words that the user's segmenter finds in a text."""
        words = list(self._pre_tokenize(text))
        check_tokens(words, "pre_tokenize(text)")
        return words

    @abstractmethod
    def _body_tokens(self, text):
        """Returns the tokens of a text without start and end token."""

    @abstractmethod
    def _body_ids(self, texts):
        """Returns, for each text, the ids of `_body_tokens`; made for many texts at once."""

    def tokenize(self, text, maxlen=None, *, max_length=None):
        """Splits a text into tokens, start and end token included.

        Args:
            text: A string.
            maxlen: Longest result allowed; what is over is cut at the end of the text.
            max_length: Another spelling of `maxlen`.

        Returns:
            A list of strings.

        Raises:
            TokenizerError: If `text` is no string or `maxlen` is too small.

        Example:
            >>> tokenizer.tokenize('语言模型')
            ['[CLS]', '语', '言', '模', '型', '[SEP]']
        """
        check_text(text, "text")
        head = [self._token_start] if self._token_start else []
        tail = [self._token_end] if self._token_end else []
        limit = check_length(maxlen, max_length, len(head) + len(tail))
        room = None if limit is None else limit - len(head) - len(tail)
        return [*head, *self._body_tokens(text)[:room], *tail]

    def encode(
        self,
        first_text,
        second_text=None,
        maxlen=None,
        pattern="S*E*E",
        truncate_from="right",
        *,
        max_length=None,
    ):
        """Turns a text, or a pair of texts, into token ids and segment ids.

        A pair that is too long loses tokens of the longer text first, of the second one
        when they are equally long, as in google-research/bert run_classifier.py
        (bert4keras takes the first one then). Special tokens are never cut. A second
        text without any token counts as none (bert4keras adds its end token).

        Args:
            first_text: A string, or a list of tokens, used as it is (start and end
                token included, as `tokenize` returns it).
            second_text: The same, or None.
            maxlen: Longest row allowed, special tokens included, or None.
            pattern: 'S*E*E' for [CLS] a [SEP] b [SEP]; 'S*ES*E' keeps the start token
                of the second text.
            truncate_from: 'right' or 'left' end of the text, or the index, counted in
                the whole sequence, at which tokens are taken out.
            max_length: Another spelling of `maxlen`.

        Returns:
            (token_ids, segment_ids): two lists of L integers.

        Raises:
            TokenizerError: If a text is neither a string nor a list of strings, or if
                `maxlen` has no room for the special tokens.

        Example:
            >>> token_ids, segment_ids = tokenizer.encode('语言', '模型', maxlen=64)
        """
        first = self._sequence(first_text, "first_text")
        second = None if second_text is None else self._sequence(second_text, "second_text")
        limit = self._check_limits(second is not None, maxlen, max_length, pattern, truncate_from)
        return join_row(assemble(first, second, limit, pattern, truncate_from))

    def encode_batch(
        self,
        texts,
        pairs=None,
        maxlen=None,
        padding=True,
        truncate_from="right",
        pattern="S*E*E",
        *,
        max_length=None,
    ):
        """Turns many texts into padded arrays; each row is what `encode` gives.

        Args:
            texts: B strings.
            pairs: B second texts, or None.
            maxlen: As in `encode`.
            padding: True or 'longest' pads to the longest row, 'max_length' to `maxlen`,
                an integer to that length. False returns two lists of B lists instead.
            truncate_from: As in `encode`.
            pattern: As in `encode`.
            max_length: Another spelling of `maxlen`.

        Returns:
            (token_ids, segment_ids): int32 arrays of shape (B, L), filled up with the id
            of the pad token and with segment 0.

        Raises:
            TokenizerError: If a text is no string (the message tells which), if `pairs`
                has another length, or if the rows cannot be padded as asked.

        Example:
            >>> token_ids, segment_ids = tokenizer.encode_batch(['语言', '语言模型'])
            >>> token_ids.shape
            (2, 6)
        """
        texts = check_texts(texts, "texts")
        pairs = None if pairs is None else check_texts(pairs, "pairs")
        if pairs is not None and len(pairs) != len(texts):
            raise TokenizerError(
                f"There are {len(texts)} texts but {len(pairs)} pairs. Expected one second "
                "text for each text."
            )
        limit = self._check_limits(pairs is not None, maxlen, max_length, pattern, truncate_from)
        head, tail = self._special_ids()
        bodies = [Sequence(head, body, tail) for body in self._body_ids(texts + (pairs or []))]
        seconds = [None] * len(texts) if pairs is None else bodies[len(texts) :]
        rows = [
            assemble(first, second, limit, pattern, truncate_from)
            for first, second in zip(bodies[: len(texts)], seconds, strict=True)
        ]
        if padding is False:
            joined = [join_row(row) for row in rows]
            return [ids for ids, _ in joined], [segments for _, segments in joined]
        length = padded_length(padding, limit, [sum(map(len, row)) for row in rows])
        return pad_rows(rows, length, self._token_pad_id)

    def _check_limits(self, is_pair, maxlen, max_length, pattern, truncate_from):
        """Checks the arguments that `encode` and `encode_batch` share; returns the limit."""
        check_choices(pattern, truncate_from)
        starts = 2 if is_pair and pattern == "S*ES*E" else 1
        specials = starts * bool(self._token_start) + (1 + is_pair) * bool(self._token_end)
        return check_length(maxlen, max_length, specials)

    def _special_ids(self):
        """Returns the ids that go before and after a text, as two lists."""
        head = [self._token_start_id] if self._token_start else []
        return head, [self._token_end_id] if self._token_end else []

    def _sequence(self, text, place):
        """Returns the ids of a string, or of a list of tokens."""
        if isinstance(text, (list, tuple)):
            check_tokens(text, place)
            start, stop = body_bounds(text, self._token_start, self._token_end)
            ids = self.tokens_to_ids(text)
            return Sequence(ids[:start], ids[start:stop], ids[stop:])
        check_text(text, place)
        head, tail = self._special_ids()
        return Sequence(head, self._body_ids([text])[0], tail)

    # --- Tokens to text -----------------------------------------------------------------

    @abstractmethod
    def decode(self, ids, tokens=None):
        """Turns ids back into a text, leaving out the special tokens.

        Args:
            ids: Integers, as a list or an array of shape (L,).
            tokens: Tokens to use instead of those of `ids`, or None.

        Returns:
            A string. Case, accents and some spaces are lost in encoding and stay lost.

        Raises:
            TokenizerError: If an id is not in the vocabulary.

        Example:
            >>> tokenizer.decode(tokenizer.encode('语言 模型')[0])
            '语言模型'
        """

    @abstractmethod
    def _pieces(self, text):
        """Returns the `Piece` of every token of `_body_tokens`."""

    @abstractmethod
    def _is_marker(self, token):
        """Tells whether `token` is a special one that stands for no characters."""

    @abstractmethod
    def _stem(self, token):
        """Returns the characters that `token` stands for."""

    def rematch(self, text, tokens):
        """Finds the characters of `text` that each token stands for.

        Works for the tokens of `tokenize(text)`, whole or truncated, through lower-casing,
        accents and characters that become several. Other tokens (older lists, edited
        ones) are searched for one after the other.

        Args:
            text: The string that was tokenized.
            tokens: Its tokens.

        Returns:
            For each token the list of indexes of its characters in `text`, ascending; []
            for special tokens. An unknown token has all characters of its word.

        Raises:
            TokenizerError: If a token cannot come from `text`.

        Example:
            >>> tokenizer.rematch('É 语', tokenizer.tokenize('É 语'))
            [[], [0], [2], []]
        """
        check_text(text, "text")
        check_tokens(tokens, "tokens")
        used = len(tokens)
        while used and tokens[used - 1] == self._token_pad:
            used -= 1
        start, stop = body_bounds(tokens[:used], self._token_start, self._token_end)
        spans = align(tokens[start:stop], self._pieces(text), self._is_marker, self._stem)
        return [[] for _ in tokens[:start]] + spans + [[] for _ in tokens[stop:]]

"""WordPiece: the tokenizer of BERT, Chinese ALBERT and ELECTRA."""

import json
import re
from os import PathLike

from tokenizers import Tokenizer as Engine
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import WhitespaceSplit

from kerasbert.errors import TokenizerError, did_you_mean, listing
from kerasbert.tokenizers import characters
from kerasbert.tokenizers.alignment import Piece, word_starts
from kerasbert.tokenizers.base import TokenizerBase
from kerasbert.tokenizers.characters import TextRules
from kerasbert.tokenizers.joining import join_tokens
from kerasbert.tokenizers.sequences import check_id, check_text
from kerasbert.tokenizers.vocab import check_ids, load_vocab, vocab_bytes

# Texts handed to `tokenizers` at once: enough to keep its threads busy, few enough that
# the encodings of a large corpus, far bigger than its ids, are not all in memory.
_CHUNK = 4096
_CATEGORY = re.compile("[CLMNPSZ][a-z]?")


class Tokenizer(TokenizerBase):
    """Splits texts into WordPiece tokens exactly as google-research/bert's FullTokenizer.

    Texts are cleaned by our own rules (`characters.TextRules`), since those built into
    `tokenizers` differ for some characters, and cut into pieces by `tokenizers`. Nothing
    is protected: '[MASK]' written in a text becomes '[', 'mask', ']', as in the original.

    Different from bert4keras: a word that cannot be spelled gives the token '[UNK]', as
    in the original; there `tokenize` returns the word itself, which `keep_unknown_words`
    brings back. The ids are the same, and `rematch` finds the word behind an '[UNK]'.

    Args:
        token_dict: Dict from token to id, or the path of a vocab.txt.
        do_lower_case: Whether to lower-case; True for 'uncased' and all Chinese models.
        word_maxlen: Longest word, in characters, that is looked up at all.
        token_start: Token put before every text, or None.
        token_end: Token put after every text, or None.
        pre_tokenize: Function from a text (already lower-cased) to a list of words: those
            in the vocabulary are kept whole, the others split as usual.
        token_translate: Dict from tokens to the tokens to use in their place.
        strip_accents: Whether to drop accents; None for "if lower-casing", as in BERT.
        control_categories: Unicode categories that are removed; ('C',) for ELECTRA.
        keep_unknown_words: Whether `tokenize` shows unknown words instead of '[UNK]'.

    Raises:
        TokenizerError: If the vocabulary cannot be read or lacks special tokens.

    Example:
        >>> tokenizer = Tokenizer('vocab.txt', do_lower_case=True)
        >>> token_ids, segment_ids = tokenizer.encode('语言模型')
    """

    def __init__(
        self,
        token_dict,
        do_lower_case=False,
        word_maxlen=200,
        token_start="[CLS]",
        token_end="[SEP]",
        pre_tokenize=None,
        token_translate=None,
        *,
        strip_accents=None,
        control_categories=("Cc", "Cf"),
        keep_unknown_words=False,
    ):
        super().__init__(token_start, token_end, pre_tokenize, token_translate)
        if isinstance(token_dict, (str, PathLike)):
            token_dict = load_vocab(token_dict)
        check_ids(token_dict)
        self._token_dict = dict(token_dict)
        self._token_dict_inv = {index: token for token, index in self._token_dict.items()}
        self._check_special_tokens()
        self._rules = TextRules(
            do_lower_case,
            do_lower_case if strip_accents is None else strip_accents,
            _checked_categories(control_categories),
        )
        self._keep_unknown_words = keep_unknown_words
        # Nothing but cleaning and splitting to do: `tokenizers` can take texts as they are.
        self._is_plain = self._pre_tokenize is None and not self._token_translate
        model = _word_piece(self._token_dict, self._token_unk, word_maxlen)
        # The same model twice: words given one by one may contain spaces, those of a
        # cleaned text are cut at spaces, which is the fastest way to hand them over.
        self._word_engine = Engine(model)
        self._text_engine = Engine(model)
        self._text_engine.pre_tokenizer = WhitespaceSplit()

    # --- Vocabulary ---------------------------------------------------------------------

    def hugging_face_files(self):
        """Returns the files with which transformers makes the same tokenizer.

        Returns:
            Dict from file name to content, in bytes.

        Raises:
            TokenizerError: If the vocabulary cannot be written as a file.

        Source: `BertTokenizer` of Hugging Face transformers.
        """
        settings = {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": self._rules.lower,
            "strip_accents": self._rules.strip_accents,
            "tokenize_chinese_chars": True,
        }
        return {
            "vocab.txt": vocab_bytes(self._token_dict),
            "tokenizer_config.json": json.dumps(settings, indent=2).encode(),
        }

    @property
    def vocab_size(self):
        """Number of rows an embedding table for this vocabulary has (largest id + 1)."""
        return max(self._token_dict_inv) + 1

    def token_to_id(self, token):
        """Returns the id of a token; that of '[UNK]' if it is not in the vocabulary."""
        check_text(token, "token")
        return self._token_dict.get(token, self._token_dict[self._token_unk])

    def id_to_token(self, i):
        """Returns the token with the id `i`.

        Raises:
            TokenizerError: If there is none; the message tells the range.
        """
        i = check_id(i, self.vocab_size)
        if i not in self._token_dict_inv:
            raise TokenizerError(
                f"Id {i} has no token: the vocabulary has {len(self._token_dict)} tokens for "
                f"{self.vocab_size} ids. It was read from a file in which a row occurs twice."
            )
        return self._token_dict_inv[i]

    def _has(self, token):
        return token in self._token_dict

    def _check_special_tokens(self):
        """Checks for the tokens that encoding and padding cannot do without."""
        needed = (self._token_pad, self._token_unk, self._token_start, self._token_end)
        missing = [token for token in needed if token and token not in self._token_dict]
        if missing:
            hint = did_you_mean(missing[0], self._token_dict)
            raise TokenizerError(
                f"The vocabulary lacks {listing(missing)}.{hint} Expected the special tokens "
                "of BERT in it: token_start= and token_end= take other names or None, and "
                "load_vocab(simplified=True) keeps only those named in startswith=."
            )

    # --- Text to tokens -----------------------------------------------------------------

    def _body_tokens(self, text):
        if self._is_plain and not self._keep_unknown_words:
            return [self._token_dict_inv[i] for i in self._body_ids([text])[0]]
        return [self._shown(raw, known) for raw, known, *_ in self._split(self._words(text))]

    def _body_ids(self, texts):
        if not self._is_plain:
            return [self.tokens_to_ids(self._body_tokens(text)) for text in texts]
        ids = []
        for start in range(0, len(texts), _CHUNK):
            cleaned = [self._rules.clean(text) for text in texts[start : start + _CHUNK]]
            encodings = self._text_engine.encode_batch_fast(cleaned, add_special_tokens=False)
            ids += [encoding.ids for encoding in encodings]
        return ids

    def _words(self, text):
        """Returns the words of `text`, each of which is then split on its own."""
        if self._pre_tokenize is None:
            return self._rules.split(text)
        words = []
        for word in self._segment(self._rules.fold(text)):
            is_token = word != "" and word in self._token_dict
            words += [word] if is_token else self._rules.split(word)
        return words

    def _words_with_origins(self, text):
        """Returns `_words` with the origins of their characters."""
        if self._pre_tokenize is None:
            return self._rules.words_with_origins(text)
        folded, origins = self._rules.fold_with_origins(text, list(range(len(text))))
        segments = self._segment(folded)
        words = []
        for word, start in zip(segments, word_starts(folded, segments), strict=True):
            # A word the segmenter made up has no place in the text.
            known = start is not None
            places = origins[start : start + len(word)] if known else [None] * len(word)
            if word in self._token_dict and word:
                words.append((word, places))
            else:
                parts = self._rules.words_with_origins(word)
                words += [(part, [places[i] for i in at]) for part, at in parts]
        return words

    def _split(self, words):
        """Cuts words into pieces.

        Returns:
            For each piece (raw token, whether it is known, number of its word, start and
            stop in the word). The raw token of a word that cannot be spelled is the word.
        """
        encoding = self._word_engine.encode(
            [characters.without_surrogates(word) for word in words],
            is_pretokenized=True,
            add_special_tokens=False,
        )
        pieces = []
        for index, word, (start, stop) in zip(
            encoding.ids, encoding.word_ids, encoding.offsets, strict=True
        ):
            token = self._token_dict_inv[index]
            known = token != self._token_unk
            pieces.append((token if known else words[word], known, word, start, stop))
        return pieces

    def _shown(self, raw, known):
        """Returns a raw token as `tokenize` shows it: translated, unknown words as '[UNK]'."""
        token = self._token_translate.get(raw, raw)
        if known or token != raw or self._keep_unknown_words:
            return token
        return self._token_unk

    def _pieces(self, text):
        words = self._words_with_origins(text)
        pieces = []
        for raw, known, word, start, stop in self._split([word for word, _ in words]):
            token = self._shown(raw, known)
            alias = self._token_unk if token == raw and not known else raw
            chars, origins = words[word]
            pieces.append(Piece(token, alias, chars[start:stop], origins[start:stop]))
        return pieces

    def _is_marker(self, token):
        return self._is_special(token) and token != self._token_unk

    def _stem(self, token):
        return "" if token == self._token_unk else characters.stem(token)

    # --- Tokens to text -----------------------------------------------------------------

    def decode(self, ids, tokens=None):
        """Turns ids back into a text, leaving out the special tokens and '[UNK]'.

        Pieces are joined to words; ideographs, kana and full-width signs get no spaces
        around them, punctuation is put back where it belongs ('v2.0', "don't", '(a)').

        Args:
            ids: Integers, as a list or an array of shape (L,).
            tokens: Tokens to use instead of those of `ids`, or None.

        Returns:
            A string. Case, accents and some spaces are lost in encoding and stay lost.

        Raises:
            TokenizerError: If an id is not in the vocabulary.

        Example:
            >>> tokenizer.decode(tokenizer.encode('BERT模型v2.0')[0])
            'bert模型v2.0'
        """
        tokens = self.ids_to_tokens(ids) if tokens is None else tokens
        tokens = [self._token_translate_inv.get(token, token) for token in tokens]
        return join_tokens([token for token in tokens if token and not self._is_special(token)])

    # --- The helpers bert4keras users know ------------------------------------------------

    stem = staticmethod(characters.stem)
    _is_space = staticmethod(characters.is_space)
    _is_control = staticmethod(characters.is_control)
    _is_punctuation = staticmethod(characters.is_punctuation)
    _is_cjk_character = staticmethod(characters.is_cjk_character)
    _is_redundant = staticmethod(characters.is_redundant)

    @staticmethod
    def _is_special(token):
        """Tells whether a token is special by its shape, such as '[CLS]' or '[unused1]'."""
        return len(token) > 1 and token[0] == "[" and token[-1] == "]"


def _word_piece(token_dict, unknown, word_maxlen):
    """Builds the WordPiece model of `tokenizers`."""
    if isinstance(word_maxlen, bool) or not isinstance(word_maxlen, int) or word_maxlen < 1:
        raise TokenizerError(f"word_maxlen={word_maxlen!r} is no length. Expected 1 or more.")
    return WordPiece(
        {characters.without_surrogates(token): index for token, index in token_dict.items()},
        unk_token=unknown,
        max_input_chars_per_word=word_maxlen,
    )


def _checked_categories(categories):
    """Returns Unicode categories as the tuple that `str.startswith` wants."""
    categories = (categories,) if isinstance(categories, str) else tuple(categories)
    wrong = [category for category in categories if not _CATEGORY.fullmatch(str(category))]
    if wrong:
        raise TokenizerError(
            f"control_categories has {listing(map(repr, wrong))}. Expected Unicode categories "
            "such as 'Cc', or first letters of them such as 'C'."
        )
    return categories

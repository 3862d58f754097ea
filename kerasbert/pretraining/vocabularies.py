"""Vocabularies from text: characters, WordPiece, SentencePiece."""

import io
import os
from collections import Counter
from pathlib import Path

import sentencepiece
from tokenizers import Tokenizer as Engine
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.trainers import WordPieceTrainer

from kerasbert.errors import ConfigError, CorpusError, check_integer, check_number, did_you_mean
from kerasbert.pretraining.corpus import Corpus
from kerasbert.tokenizers import save_vocab
from kerasbert.tokenizers.characters import TextRules, without_surrogates
from kerasbert.tokenizers.sentencepiece import albert_clean
from kerasbert.tokenizers.vocab import write_atomically

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

# A word of these shall never become unknown for one rare letter.
_ALWAYS = "0123456789abcdefghijklmnopqrstuvwxyz"

# What the English ALBERT models keep as pieces of their own.
_ALBERT_SYMBOLS = tuple('()"-.–£€')
_MODEL_TYPES = ("unigram", "bpe", "char", "word")


def build_character_vocabulary(corpus, path, *, size=None, min_count=1, do_lower_case=True):
    """Writes a vocabulary of single characters, for Chinese.

    Tokens are the ideographs and marks, and the characters of other words: as they are at the
    start of a word, with "##" before them inside of it. The small letters and digits of ASCII are
    there in both forms in any case. Behind the special tokens they stand in the order of their
    counts.

    Args:
        corpus: a `Corpus`; or a path or list of paths, for files with a sentence a line.
        path: where to write the vocabulary, for instance vocab.txt.
        size: the most tokens, special ones included; None for all.
        min_count: how many times a token has to occur.
        do_lower_case: as that of the `Tokenizer` that is to read it.

    Returns:
        Dict from token to how many times it occurs in the text, in the order of the ids; 0 for
        special tokens.

    Raises:
        CorpusError: if the text cannot be read, or if `size` has no room for the tokens that are
            there in any case.
        ConfigError: for numbers out of range.

    Example:
        >>> _ = Path("text.txt").write_text("很好，很好 GPU。", encoding="utf-8")
        >>> counts = build_character_vocabulary("text.txt", "vocab.txt")
        >>> list(counts)[5:11], counts["好"]
        (['好', '很', '##p', '##u', 'g', '。'], 2)
        >>> from kerasbert.tokenizers import Tokenizer
        >>> Tokenizer("vocab.txt", do_lower_case=True).tokenize("好GPU")
        ['[CLS]', '好', 'g', '##p', '##u', '[SEP]']
    """
    check_integer("min_count", min_count, minimum=1)
    counts = _characters(corpus, do_lower_case)
    always = {prefix + char for char in _ALWAYS for prefix in ("", "##")}
    room = None if size is None else _room(size, len(SPECIAL) + len(always))
    ranked = sorted(counts, key=lambda token: (-counts[token], token))
    rare = [token for token in ranked if token not in always and counts[token] >= min_count]
    kept = always.union(rare[:room])
    tokens = sorted(kept, key=lambda token: (-counts[token], token))
    vocabulary = [*SPECIAL, *(token for token in tokens if token not in SPECIAL)]
    save_vocab(path, {token: index for index, token in enumerate(vocabulary)})
    return {token: counts[token] for token in vocabulary}


def build_wordpiece_vocabulary(corpus, path, size, *, min_count=2, do_lower_case=True):
    """Writes a WordPiece vocabulary, trained by the package tokenizers.

    The text is cleaned and cut into words as our `Tokenizer` does it.

    Args:
        corpus: a `Corpus`; or a path or list of paths, for files with a sentence a line.
        path: where to write the vocabulary, for instance vocab.txt.
        size: the most tokens, special ones included; less if the text does not give so many.
            Single characters come first, the most frequent ones if there is no room for all.
        min_count: how many times what becomes a token has to occur.
        do_lower_case: as that of the `Tokenizer` that is to read it.

    Returns:
        Dict from token to id.

    Raises:
        CorpusError: if the text cannot be read or is empty.
        ConfigError: for numbers out of range.

    Example:
        >>> _ = Path("words.txt").write_text("low lower lowest low lower low")
        >>> vocabulary = build_wordpiece_vocabulary("words.txt", "words_vocab.txt", 40)
        >>> from kerasbert.tokenizers import Tokenizer
        >>> Tokenizer("words_vocab.txt", do_lower_case=True).tokenize("Lower")
        ['[CLS]', 'lower', '[SEP]']

    Source: Schuster & Nakajima 2012; the merges are those of byte pair encoding, as in
    `tokenizers`.
    """
    check_integer("min_count", min_count, minimum=1)
    letters = _alphabet(_characters(corpus, do_lower_case), _room(size, len(SPECIAL) + 2))
    if not letters:
        raise CorpusError("The corpus has no word.\nExpected a text to learn a vocabulary from.")
    engine = Engine(WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    engine.pre_tokenizer = WhitespaceSplit()
    trainer = WordPieceTrainer(
        vocab_size=size,
        min_frequency=min_count,
        show_progress=False,
        special_tokens=list(SPECIAL),
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        continuing_subword_prefix="##",
    )
    engine.train_from_iterator(_cleaned(corpus, do_lower_case), trainer)
    vocabulary = dict(sorted(engine.get_vocab().items(), key=lambda item: item[1]))
    save_vocab(path, vocabulary)
    return vocabulary


def build_sentencepiece_model(
    corpus,
    path,
    size,
    *,
    model_type="unigram",
    coverage=0.99995,
    symbols=_ALBERT_SYMBOLS,
    do_lower_case=True,
    sentences=5_000_000,
    seed=12345,
):
    r"""Writes a SentencePiece model with the special tokens of ALBERT, ids 0 to 4.

    The text is prepared as our `SpTokenizer` does it: white space, NFKD, case.

    Args:
        corpus: a `Corpus`; or a path or list of paths, for files with a sentence a line.
        path: where to write the model, for instance spiece.model.
        size: how many pieces, special ones included.
        model_type: "unigram", "bpe", "char" or "word".
        coverage: part of the characters of the text that get pieces; 0.9995 for Chinese.
        symbols: what stays apart, as pieces of their own.
        do_lower_case: as that of the `SpTokenizer` that is to read it.
        sentences: learn from so many of them, drawn by chance; they are in memory.
        seed: of that draw.

    Returns:
        The path of the model.

    Raises:
        CorpusError: if the text cannot be read, or if sentencepiece refuses; its reason is given.
        ConfigError: for numbers out of range.

    Example:
        >>> _ = Path("talk.txt").write_text("how now brown cow\n" * 9)
        >>> path = build_sentencepiece_model("talk.txt", "talk.model", 22)
        >>> from kerasbert.tokenizers import SpTokenizer
        >>> SpTokenizer(path).encode("Now")[0][:1]
        [2]

    Source: google-research/albert, README.md, for the special tokens and defaults.
    """
    check_integer("size", size, minimum=len(SPECIAL) + len(symbols) + 1)
    check_integer("sentences", sentences, minimum=1)
    check_number("coverage", coverage, above=0, most=1)
    if model_type not in _MODEL_TYPES:
        raise ConfigError(
            f"model_type={model_type!r}.{did_you_mean(model_type, _MODEL_TYPES)}\n"
            f"Expected one of: {', '.join(_MODEL_TYPES)}."
        )
    made = io.BytesIO()
    sentencepiece.set_random_generator_seed(seed)
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_prepared(corpus, do_lower_case),
            model_writer=made,
            vocab_size=size,
            model_type=model_type,
            character_coverage=coverage,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            control_symbols=list(SPECIAL[2:]),
            user_defined_symbols=list(symbols),
            input_sentence_size=sentences,
            shuffle_input_sentence=True,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        raise CorpusError(
            f"sentencepiece could not make {size} pieces: {error}.\n"
            "Expected a text that has so many.\nPass a smaller size."
        ) from error
    path = Path(os.path.expanduser(path))
    write_atomically(path, made.getvalue())
    return path


def _characters(corpus, lower):
    """Counts the characters of words, those inside of them with "##" before."""
    words = Counter()
    for text in _cleaned(corpus, lower):
        words.update(text.split())
    counts = Counter()
    for word, count in words.items():
        for place, char in enumerate(word):
            counts["##" + char if place else char] += count
    return counts


def _alphabet(counts, room):
    """Returns the most frequent characters, as many as have room in both forms."""
    total = Counter()
    for token, count in counts.items():
        total[token[-1]] += count
    kept = []
    for char in sorted(total, key=lambda char: (-total[char], char)):
        room -= 1 + ("##" + char in counts)
        if room < 0:
            break
        kept.append(char)
    return kept


def _texts(corpus):
    return (corpus if isinstance(corpus, Corpus) else Corpus(corpus)).texts()


def _cleaned(corpus, lower):
    """Yields the sentences as words with spaces between them."""
    rules = TextRules(lower, lower)
    return (without_surrogates(rules.clean(text)) for text in _texts(corpus))


def _prepared(corpus, lower):
    """Yields the sentences as a `SpTokenizer` prepares them."""
    for text in map(albert_clean, _texts(corpus)):
        yield text.lower() if lower else text


def _room(size, least):
    """Returns how many tokens there may be beside those that there are in any case."""
    check_integer("size", size, minimum=least)
    return size - least

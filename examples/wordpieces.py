"""A WordPiece vocabulary for texts in Latin script, learned from them."""

from itertools import islice

from tokenizers import Tokenizer as Engine
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.trainers import WordPieceTrainer


def is_latin(texts):
    """Returns whether nearly all letters of the first thousand texts are Latin ones."""
    letters = [char for text in islice(texts, 1000) for char in text if char.isalpha()]
    return sum(char < "\u0250" for char in letters) > 0.9 * len(letters)


def word_pieces(texts, special, size, at_least=2):
    """Returns a vocabulary, the same each time for the same texts.

    Args:
        texts: strings to learn from; they are lower-cased.
        special: the first tokens, such as `[PAD]`.
        size: how many tokens there may be.
        at_least: how often a pair of pieces has to occur to become one.

    Returns:
        List of tokens.

    Source: Schuster and Nakajima 2012, as `tokenizers` has it.
    """
    engine = Engine(WordPiece(unk_token=special[1]))
    engine.normalizer = BertNormalizer(lowercase=True)
    engine.pre_tokenizer = BertPreTokenizer()
    words = {
        word
        for text in texts
        for word, _ in engine.pre_tokenizer.pre_tokenize_str(engine.normalizer.normalize_str(text))
    }
    # The trainer numbers single characters inside of words in an order that changes from run to
    # run, on which ties depend later; what it is given as special keeps its place.
    inside = sorted({f"##{char}" for word in words for char in word[1:]})
    trainer = WordPieceTrainer(
        vocab_size=size,
        min_frequency=at_least,
        special_tokens=[*special, *inside],
        show_progress=False,
    )
    engine.train_from_iterator(texts, trainer)
    vocabulary = engine.get_vocab()
    return sorted(vocabulary, key=vocabulary.get)

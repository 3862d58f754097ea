"""Tokenizers: WordPiece (BERT, Chinese ALBERT, ELECTRA) and sentencepiece (English ALBERT)."""

from kerasbert.tokenizers.base import TokenizerBase
from kerasbert.tokenizers.sentencepiece import SpTokenizer
from kerasbert.tokenizers.vocab import load_vocab, save_vocab
from kerasbert.tokenizers.wordpiece import Tokenizer

__all__ = ["SpTokenizer", "Tokenizer", "TokenizerBase", "load_vocab", "save_vocab"]

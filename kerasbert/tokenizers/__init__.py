"""Tokenizers: WordPiece (BERT, Chinese ALBERT, ELECTRA) and sentencepiece (English ALBERT)."""

from .base import TokenizerBase
from .sentencepiece import SpTokenizer
from .vocab import load_vocab, save_vocab
from .wordpiece import Tokenizer

__all__ = ["SpTokenizer", "Tokenizer", "TokenizerBase", "load_vocab", "save_vocab"]

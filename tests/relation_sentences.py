"""Sentences with triples, for the tests of the examples of relation extraction."""

import importlib

import pytest

from kerasbert.tokenizers import Tokenizer
from test_examples import ROOT

EXAMPLES = ROOT / "examples"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CASREL, GPLINKER = "relation_extraction_casrel", "relation_extraction_gplinker"

# Of one predicate there are two objects, one subject has several predicates, one name is both.
SENTENCES = [
    ("甲乙是丙丁的父，戊是丙丁的母", {("丙丁", "父", "甲乙"), ("丙丁", "母", "戊")}),
    ("丙丁和戊的父是甲乙，甲乙的父是己", {("丙丁", "父", "甲乙"), ("甲乙", "父", "己")}),
    ("丙丁的母是戊和己", {("丙丁", "母", "戊"), ("丙丁", "母", "己")}),
]
PREDICATES = ["母", "父"]


def load(name):
    """Return a module of examples/; those that it imports are the same for all of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        return importlib.import_module(name)


def make_tokenizer():
    """Return a tokenizer of the sentences, with one token of two characters and a piece."""
    tokens = [*SPECIAL, *"甲乙丙丁戊己的是和，父母", "ab", "##c"]
    return Tokenizer({token: n for n, token in enumerate(tokens)}, do_lower_case=True)

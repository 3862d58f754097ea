"""The examples in the docstrings do what they say, and every public name has a docstring."""

import doctest
import importlib
import inspect
import shutil

import pytest
from samples import DATA, sp_tokenizer

from kerasbert import tokenizers
from kerasbert.tokenizers import Tokenizer, load_vocab, save_vocab

MODULES = ["alignment", "base", "characters", "joining", "sentencepiece", "sequences", "vocab"]
MODULES += ["wordpiece"]

# As in the published Chinese vocabulary, [UNK] has the id 100.
VOCABULARY = [
    "[PAD]",
    *(f"[unused{i}]" for i in range(1, 100)),
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
]
VOCABULARY += [*"语言模型e.0", "bert", "v2"]


@pytest.mark.parametrize("module", MODULES)
def test_examples(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small").mkdir()
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY), "utf-8")
    shutil.copyfile(DATA / "spm400.model", tmp_path / "30k-clean.model")
    token_dict = load_vocab("vocab.txt")
    names = {"token_dict": token_dict, "load_vocab": load_vocab, "save_vocab": save_vocab}
    names |= {"Tokenizer": Tokenizer, "tokenizer": Tokenizer(token_dict, do_lower_case=True)}
    if module == "sentencepiece":
        names["tokenizer"] = sp_tokenizer()
    found = importlib.import_module(f"kerasbert.tokenizers.{module}")
    runner = doctest.DocTestRunner(verbose=False)
    for test in doctest.DocTestFinder().find(found, extraglobs=names):
        runner.run(test)
    assert runner.failures == 0
    assert runner.tries > 0 or module in ("alignment", "characters", "sequences")


def test_every_public_name_is_documented():
    bare = []
    for name in tokenizers.__all__:
        member = getattr(tokenizers, name)
        members = {name: member}
        if inspect.isclass(member):
            members |= {f"{name}.{n}": m for n, m in vars(member).items() if n[0] != "_"}
        bare += [path for path, m in members.items() if not inspect.getdoc(m)]
    assert bare == []

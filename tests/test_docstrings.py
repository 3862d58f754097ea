"""The examples in the docstrings run, and say what they give.

They are tried in a folder with a small ALBERT release, as a reader would have one, and with
the few names that every example takes for granted.
"""

import doctest
import importlib
import pkgutil
from pathlib import Path

import keras
import numpy as np
import pytest

import kerasbert
import kerasbert.adapters
import kerasbert.distribution
import kerasbert.pretraining
import kerasbert.training
from fixtures import make_arrays, tiny_config, write_checkpoint, write_config
from kerasbert.tokenizers import Tokenizer
from reference.zoo_weights import zoo_config

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

# Their examples need files of a tokenizer; they are tried where such files are.
LEFT_TO_OTHERS = ("kerasbert.tokenizers",)


def modules():
    names = [info.name for info in pkgutil.walk_packages(kerasbert.__path__, "kerasbert.")]
    return [importlib.import_module(n) for n in names if not n.startswith(LEFT_TO_OTHERS)]


EXAMPLES = {
    test.name: test
    for module in modules()
    for test in doctest.DocTestFinder(exclude_empty=True).find(module)
    if test.examples
}


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """A folder with a release, and the names that examples take for granted."""
    folder = tmp_path_factory.mktemp("release")
    config = tiny_config("google_albert")
    arrays = make_arrays("google_albert", config, 1)
    write_config(folder / "albert_config.json", config)
    write_checkpoint(folder / "albert_model.ckpt", arrays)
    names = {name: getattr(kerasbert, name) for name in kerasbert.__all__}
    model = kerasbert.build_transformer_model(config, arrays, model="albert", verbose=0)
    modules = {"keras": keras, "np": np, "kerasbert": kerasbert}
    gpt2 = kerasbert.build_transformer_model(zoo_config("gpt2"), model="gpt2", verbose=0)
    masked_lm = kerasbert.build_transformer_model(config, model="albert", with_mlm=True, verbose=0)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"房间很干净电池用不久好,"]
    models = {"model": model, "gpt2": gpt2, "masked_lm": masked_lm}
    names |= {name: getattr(kerasbert.pretraining, name) for name in kerasbert.pretraining.__all__}
    names["Path"] = Path
    names["tokenizer"] = Tokenizer({token: index for index, token in enumerate(tokens)})
    names |= {name: getattr(kerasbert.optimizers, name) for name in kerasbert.optimizers.__all__}
    names |= {name: getattr(kerasbert.generation, name) for name in ("fill_mask", "gibbs_sample")}
    return folder, {**modules, **models, **names}


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.usefixtures("do_not_compile", "step_by_step")
def test_example(name, release, monkeypatch, capsys):
    folder, names = release
    monkeypatch.chdir(folder)
    test = EXAMPLES[name]
    # Keras and JAX print the shape of a tensor in other words.
    if keras.backend.backend() != "tensorflow":
        pytest.skip("the examples show TensorFlow's output: another backend is active")
    test.globs = {**names, **test.globs}
    assert len(test.examples) <= 8
    said = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append)
    assert not said, "".join(said)


def public_names():
    for module in (
        kerasbert,
        kerasbert.adapters,
        kerasbert.generation,
        kerasbert.layers,
        kerasbert.weights,
        kerasbert.models,
        kerasbert.optimizers,
        kerasbert.pretraining,
        kerasbert.training,
    ):
        for name in module.__all__:
            value = getattr(module, name)
            if callable(value):
                yield f"{module.__name__}.{name}", value


PUBLIC = dict(public_names())


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_explained(name):
    text = PUBLIC[name].__doc__
    first = text.splitlines()[0]
    assert first.endswith((".", "?")), "the first line is a sentence"
    assert len(first) <= 100
    if not isinstance(PUBLIC[name], type):
        assert "Example:" in text
        assert "Raises:" in text
        assert "Returns" in text


@pytest.mark.parametrize("name", kerasbert.layers.__all__)
def test_layers_have_an_example_and_shapes(name):
    text = getattr(kerasbert.layers, name).__doc__
    assert "Example:" in text
    assert name == "TransformerBlock" or ("Call arguments:" in text and "Returns:" in text)

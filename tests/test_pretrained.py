"""`save_pretrained`: the files, their vocabulary, and what transformers reads from them."""

import json
from itertools import product

import numpy as np
import pytest

from fixtures import DATA, make_arrays, tiny_config
from harness import default_and_slow, refused, to_numpy
from kerasbert import (
    build_transformer_model,
    hidden_state,
    model_report,
    save_pretrained,
    save_weights_as_checkpoint,
)
from kerasbert.errors import CheckpointError, KerasbertError, WeightMismatchError
from kerasbert.tokenizers import SpTokenizer, Tokenizer
from kerasbert.weights.checkpoints import open_checkpoint

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "语", "言", "é", "e"]
TEXTS = ["the cats", "The CAT é", "语言 cat", "unknown", "", "[MASK] the", "cat\u3000the, cat"]


def model(kind="google_bert", **options):
    config = tiny_config(kind, num_hidden_layers=1)
    return build_transformer_model(config, make_arrays(kind, config, 1), verbose=0, **options)


def words(**options):
    return Tokenizer({word: index for index, word in enumerate(WORDS)}, **options)


def test_what_is_written(tmp_path, capsys):
    made = model(with_mlm=True)
    assert save_pretrained(made, tmp_path / "out") == str(tmp_path / "out")
    assert str(tmp_path / "out") in capsys.readouterr().out
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        "config.json",
        "model.safetensors",
    }
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["architectures"] == ["BertForMaskedLM"]
    assert config["hidden_act"] == "gelu_new", "the tanh form, by their name"


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("accents", [None, True, False])
def test_the_vocabulary_is_written(lower, accents, tmp_path):
    tokenizer = words(do_lower_case=lower, strip_accents=accents)
    save_pretrained(model(), tmp_path, tokenizer, verbose=0)
    assert (tmp_path / "vocab.txt").read_text("utf-8").splitlines() == WORDS
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert settings["do_lower_case"] is lower
    assert settings["strip_accents"] is (lower if accents is None else accents)
    again = Tokenizer(
        str(tmp_path / "vocab.txt"),
        do_lower_case=settings["do_lower_case"],
        strip_accents=settings["strip_accents"],
    )
    for text in TEXTS:
        assert again.encode(text) == tokenizer.encode(text)


@pytest.mark.parametrize(
    "kind",
    default_and_slow(
        ["google_bert", "google_albert", "albert_zh", "electra"], ["google_albert", "electra"]
    ),
)
def test_a_model_without_segments_gets_a_table_of_zeros(kind, tmp_path):
    config = tiny_config(kind, num_hidden_layers=1)
    made = build_transformer_model(
        config, make_arrays(kind, config, 1), segment_vocab_size=0, verbose=0
    )
    ids = np.array([[2, 7, 9, 3, 0]], "int32")
    paths = save_weights_as_checkpoint(made, tmp_path / "m.ckpt", verbose=0)
    again = build_transformer_model(paths["config"], paths["checkpoint"], verbose=0)
    for segments in (np.zeros_like(ids), np.ones_like(ids)):
        np.testing.assert_array_equal(to_numpy(again([ids, segments])), to_numpy(made(ids)))


def test_an_old_vocabulary_is_spoken_of(tmp_path):
    save_pretrained(model(), tmp_path, words(), verbose=0)
    with pytest.warns(UserWarning, match=r"vocab\.txt is left as it was"):
        save_pretrained(model(), tmp_path, verbose=0)


def test_a_vocabulary_of_another_model(tmp_path):
    longer = {**{word: i for i, word in enumerate(WORDS)}, **{f"w{i}": 12 + i for i in range(99)}}
    with refused(WeightMismatchError, "111 tokens", "vocab_size=100"):
        save_pretrained(model(), tmp_path / "out", Tokenizer(longer))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("tokenizer", ["vocab.txt", 3, {"a": 1}])
def test_what_is_no_tokenizer(tokenizer, tmp_path):
    with refused(KerasbertError, "tokenizer", repr(tokenizer), "Tokenizer"):
        save_pretrained(model(), tmp_path / "out", tokenizer)
    assert list(tmp_path.iterdir()) == []


# ---- read by transformers --------------------------------------------------------------------


@pytest.mark.parity
@pytest.mark.parametrize(
    ("kind", "lower", "accents"),
    [
        *product(["google_bert"], (True, False), (None, True, False)),
        ("google_albert", False, None),
        ("electra", False, None),
    ],
)
def test_transformers_makes_the_same_tokenizer(kind, lower, accents, tmp_path):
    transformers = pytest.importorskip("transformers", reason="needs the extra [parity]")
    tokenizer = words(do_lower_case=lower, strip_accents=accents)
    save_pretrained(model(kind), tmp_path, tokenizer, verbose=0)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        if "[" not in text:  # theirs protects special tokens in a text
            assert theirs(text)["input_ids"] == tokenizer.encode(text)[0]


@pytest.mark.parity
def test_transformers_makes_the_same_sentencepiece_tokenizer(shared_dir, tmp_path):
    transformers = pytest.importorskip("transformers", reason="needs the extra [parity]")
    tokenizer = SpTokenizer(shared_dir / "weights/vocabs/albert-en/30k-clean.model")
    config = tiny_config("google_albert", vocab_size=30000, num_hidden_layers=1)
    made = build_transformer_model(config, verbose=0)
    save_pretrained(made, tmp_path, tokenizer, verbose=0)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    pieces = tokenizer.ids_to_tokens(range(30000))
    assert theirs.convert_tokens_to_ids(pieces) == list(range(30000))
    # Theirs cuts "(big)" and "3.5" in another way than SentencePiece, and so than ours.
    for text in ("Hello World", "Überraschung, naïve café", "don't", "a dog"):
        assert theirs(text)["input_ids"] == tokenizer.encode(text)[0]


# ---- a real model in three forms -------------------------------------------------------------


@pytest.mark.parametrize("form", ["pytorch_model.bin", "model.safetensors", "tf1", "folder"])
def test_rxnmapper(form, shared_dir, tmp_path):
    folder = shared_dir / "weights/rxnmapper-albert"
    config, checkpoint = folder / "config.json", folder / form
    if form == "folder":
        config, checkpoint = folder, None
    if form == "model.safetensors":
        from safetensors.numpy import save_file

        pickled = open_checkpoint(folder / "pytorch_model.bin")
        arrays = {name: np.ascontiguousarray(pickled.read(name)) for name in pickled.shapes}
        save_file(arrays, tmp_path / form)
        checkpoint = tmp_path / form
    network = build_transformer_model(
        config, checkpoint, with_mlm="linear", hidden_states=True, verbose=0
    )
    assert not model_report(network).missing
    with np.load(folder / "reference_hf.npz") as reference:
        ids = reference["ids"].astype("int32")
        logits, states = network([ids, np.zeros_like(ids)])
        np.testing.assert_allclose(to_numpy(logits), reference["mlm_logits"], rtol=0, atol=1e-4)
        last = to_numpy(states[-1])
        np.testing.assert_allclose(last, reference["last_hidden"], rtol=0, atol=1e-4)


def test_the_names_of_rxnmapper_are_those_of_the_recorded_ones(shared_dir):
    assert (DATA / "rxnmapper").is_dir()
    checkpoint = open_checkpoint(shared_dir / "weights/rxnmapper-albert/pytorch_model.bin")
    assert checkpoint.shapes["albert.embeddings.word_embeddings.weight"] == (591, 128)


@pytest.mark.parametrize("path", [None, 3, "", b"out"])
def test_paths_that_are_none(path):
    made = model()
    for save in (save_pretrained, save_weights_as_checkpoint):
        with refused(CheckpointError, repr(path), "path to write"):
            save(made, path)
    for k in ("1", None, 1.0, True):
        with refused(KerasbertError, f"k={k!r}", "integer"):
            hidden_state(made, k)

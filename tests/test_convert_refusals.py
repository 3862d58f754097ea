"""Conversions that are refused, or fail half way: nothing is left behind."""

import os

import keras
import pytest

from fixtures import make_arrays, tiny_config, write_checkpoint, write_config
from harness import refused, silent
from kerasbert import build_transformer_model, convert, save_pretrained
from kerasbert.errors import (
    CheckpointError,
    ConfigError,
    KerasbertError,
    TokenizerError,
    WeightMismatchError,
)
from kerasbert.tokenizers import save_vocab


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A folder with a BERT, its config and its vocabulary."""
    folder = tmp_path_factory.mktemp("source")
    config = tiny_config("google_bert")
    write_checkpoint(folder / "model.ckpt", make_arrays("google_bert", config, 3))
    write_config(folder / "config.json", config)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words += [f"w{i}" for i in range(config["vocab_size"] - 5)]
    save_vocab(folder / "vocab.txt", {word: i for i, word in enumerate(words)})
    return folder


def place(folder, form):
    return folder / (f"{form}.keras" if form == "keras" else form)


@pytest.mark.parametrize(
    ("change", "kind", "facts"),
    [
        ({"keep_tokens": "strange.txt"}, ConfigError, ("strange", "does not have")),
        ({"keep_tokens": "late.txt"}, ConfigError, ("[PAD]", "0")),
        ({"vocabulary": "nowhere.txt"}, ConfigError, ("No such vocabulary", "nowhere.txt")),
        ({"unshare": "all"}, ConfigError, ("unshare", "bert")),
        ({"to": "goggle"}, ConfigError, ("goggle", "Did you mean 'google'")),
        ({"to": "keras"}, ConfigError, (".keras",)),
        ({"config": "nowhere.json"}, ConfigError, ("nowhere.json",)),
        ({"model": "albert"}, WeightMismatchError, ("Google BERT", "albert")),
        ({"model": "brt"}, ConfigError, ("Did you mean 'bert'",)),
    ],
)
def test_mistakes(change, kind, facts, source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = {"strange.txt": "[PAD]\nstrange\n", "late.txt": "w1\n[PAD]\n"}
    for name, text in words.items():
        (tmp_path / name).write_text(text)
    arguments = {"to": "google", "verbose": 0, **change}
    with refused(kind, *facts):
        silent(convert, source, "out", **arguments)
    assert sorted(os.listdir()) == ["late.txt", "strange.txt"]


def test_tokens_of_no_file(source, tmp_path):
    with pytest.raises(TokenizerError, match=r"nowhere\.txt does not exist"):
        silent(convert, source, tmp_path / "out", "google", keep_tokens="nowhere.txt")
    assert list(tmp_path.iterdir()) == []


def test_sources_that_are_not_there(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.keras").write_bytes(b"PK no zip")
    for name in ("nowhere", "nowhere.keras", "empty", "bad.keras"):
        with refused(CheckpointError, name):
            convert(tmp_path / name, tmp_path / "out", "google", verbose=0)
    plain = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    plain.save(tmp_path / "plain.keras")
    with refused(KerasbertError, "no encoder"):
        convert(tmp_path / "plain.keras", tmp_path / "out", "google", verbose=0)


def test_a_keras_model_cannot_be_cut(source, tmp_path):
    silent(convert, source, tmp_path / "m.keras", "keras", verbose=0)
    with refused(ConfigError, "keep_tokens", "google"):
        convert(
            tmp_path / "m.keras",
            tmp_path / "out",
            "google",
            keep_tokens="simplified",
            vocabulary=source / "vocab.txt",
        )


@pytest.mark.parametrize("form", ["google", "huggingface", "keras"])
def test_a_vocabulary_of_another_model(form, source, tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{i}" for i in range(200))]
    (tmp_path / "long.txt").write_text("\n".join(words) + "\n")
    with refused(ConfigError, "204 tokens", "vocab_size=100"):
        silent(
            convert,
            source,
            place(tmp_path, form),
            form,
            vocabulary=tmp_path / "long.txt",
            verbose=0,
        )
    assert os.listdir(tmp_path) == ["long.txt"]


def test_a_head_is_never_lost(tmp_path):
    config = {**tiny_config("google_bert"), "model_type": "bert"}
    tagger = build_transformer_model(config, with_classifier="token", num_labels=3, verbose=0)
    save_pretrained(tagger, tmp_path / "in", verbose=0)
    with refused(WeightMismatchError, "Google BERT", "Token-Classifier", "huggingface"):
        silent(convert, tmp_path / "in", tmp_path / "out", "google", verbose=0)
    assert os.listdir(tmp_path) == ["in"]
    silent(convert, tmp_path / "in", tmp_path / "out", "huggingface", verbose=0)


def test_several_vocabularies(source, tmp_path):
    (tmp_path / "in").mkdir()
    for file in source.iterdir():
        (tmp_path / "in" / file.name).write_bytes(file.read_bytes())
    (tmp_path / "in/old_vocab.txt").write_text("[PAD]\n")
    with refused(ConfigError, "2 vocabularies", "old_vocab.txt"):
        convert(tmp_path / "in", tmp_path / "out", "google")
    silent(
        convert,
        tmp_path / "in",
        tmp_path / "out",
        "google",
        vocabulary=tmp_path / "in/vocab.txt",
        verbose=0,
    )
    assert (tmp_path / "out/vocab.txt").exists()


# ---- complete or absent ----------------------------------------------------------------------


@pytest.mark.parametrize("form", ["google", "huggingface", "keras"])
@pytest.mark.parametrize("target", ["os.replace", "os.rename"])
def test_a_failure_leaves_nothing(form, target, source, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, target.partition(".")[2], fail)
    out = place(tmp_path, form)
    if form == "keras" and target == "os.rename":
        silent(convert, source, out, form, verbose=0)  # it is put in place by os.replace
        return
    with refused(CheckpointError, "No space left"):
        silent(convert, source, out, form, verbose=0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ["google", "huggingface", "keras"])
def test_nothing_is_overwritten(form, source, tmp_path):
    out = place(tmp_path, form)
    out.write_text("mine") if form == "keras" else out.mkdir()
    with refused(CheckpointError, out, "exists"):
        silent(convert, source, out, form, verbose=0)
    assert not out.is_file() or out.read_text() == "mine"


@pytest.mark.parametrize("name", ["my_head", "My-Classifier"])
def test_what_is_left_out_is_said(name, source, tmp_path, capsys):
    body = silent(build_transformer_model, source, verbose=0)
    top = keras.layers.Dense(2, name=name)(body.output[:, 0])
    keras.Model(body.inputs, top).save(tmp_path / "mine.keras")
    convert(tmp_path / "mine.keras", tmp_path / "out", "huggingface")
    assert "left out" in (said := capsys.readouterr().out) and name in said
    assert str(tmp_path / "out") in said

"""The language model that a label steers writes, and tells the label of a text."""

from types import SimpleNamespace

import numpy as np
import pytest

import fixtures
from example_scripts import EXAMPLES, check_mistake, load, run_quick

NAME = "conditional_language_model"


@pytest.fixture(scope="module")
def example():
    return load(NAME)


@pytest.mark.slow
def test_quick(tmp_path):
    text, figures = run_quick(NAME, tmp_path)
    assert figures["losses"]["own"] + 0.2 < figures["losses"]["others"]
    assert figures["scores"]["likeliest under their label"] > figures["guess"] + 0.2
    assert figures["scored"] == 20
    for label in "正负":
        written = text.split(f"=== {label}\n")[1].split("\n\n")[0]
        assert len(written.splitlines()) == 3


def small(example, labels=("a", "b", "c")):
    """A model with random weights, its tokenizer and three texts."""
    rows = list(zip(["很好", "不好不好", "不"], labels, strict=True))
    texts = [text for text, _ in rows]
    args = SimpleNamespace(config=None, checkpoint=None, maxlen=16)
    config, tokenizer = example.starting_point(args, texts, **example.TINY)
    config["hidden_dropout_prob"] = 0.0
    model = example.language_model(args, config, tokenizer, len(labels))
    return model, tokenizer, example.Labelled(rows, list(labels)), args


@pytest.mark.slow
def test_losses_by_label_are_those_of_each_token(example):
    model, tokenizer, data, args = small(example)
    # The label counts only once it was trained: its vectors start without any effect.
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(0, 0.3, weight.shape) for weight in model.get_weights()])
    losses, tokens = example.losses_by_label(model, data, tokenizer, args, 3)
    assert tokens.tolist() == [3, 5, 2]  # [SEP] included
    for row, text in enumerate(data.texts):
        ids, _ = tokenizer.encode(text)
        for label in range(3):
            logits = model.predict_on_batch([np.array([ids]), np.array([[label]])])[0]
            chances = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
            expected = -sum(np.log(chances[n, ids[n + 1]]) for n in range(len(ids) - 1))
            assert losses[row, label] == pytest.approx(expected, rel=1e-4)
    assert abs(losses[:, 0] - losses[:, 1]).min() > 1e-3


@pytest.mark.slow
def test_a_written_text_ends(example):
    model, tokenizer, _, _ = small(example)
    text = example.write(model, tokenizer, 1, np.random.default_rng(0), maxlen=6)
    assert len(text) <= 5 and "[" not in text


def test_the_sample_has_no_leak(example):
    train, valid = (
        example.read_labelled(EXAMPLES / "data" / f"short_reviews_{part}.tsv")
        for part in ("train", "valid")
    )
    assert len(train) == 100 and len(valid) == 20
    assert not set(train) & set(valid)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--train=nowhere.tsv", "--valid=nowhere.tsv"], "nowhere.tsv"),
        (["--config=bert_config.json"], "--config and --checkpoint and --vocab belong together"),
        (["--epochs=0"], "expected positive numbers"),
        (["--score=0"], "--score 0: expected at least one text"),
    ],
)
def test_mistakes_in_arguments(tmp_path, monkeypatch, capsys, options, message):
    check_mistake(NAME, [*options, f"--output={tmp_path}"], message, monkeypatch, capsys)


def test_one_label_steers_nothing(tmp_path, monkeypatch, capsys):
    (tmp_path / "one.tsv").write_text("好书\t正\n坏书\t正\n", "utf-8")
    options = [f"--{part}={tmp_path / 'one.tsv'}" for part in ("train", "valid")]
    message = "all texts of --train have the label '正'"
    check_mistake(NAME, [*options, f"--output={tmp_path}"], message, monkeypatch, capsys)


@pytest.mark.slow
def test_vocabulary_of_another_model(tmp_path, monkeypatch, capsys):
    config = fixtures.tiny_config("google_bert")
    arrays = fixtures.make_arrays("google_bert", config, seed=0)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *map(str, range(200))]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens), "utf-8")
    fixtures.write_config(tmp_path / "c.json", config)
    fixtures.write_checkpoint(tmp_path / "m.ckpt", arrays)
    files = {"config": "c.json", "checkpoint": "m.ckpt", "vocab": "vocab.txt", "output": "out"}
    options = [f"--{name}={tmp_path / path}" for name, path in files.items()]
    message = "--vocab has 204 tokens, the model only 100"
    check_mistake(NAME, options, message, monkeypatch, capsys)

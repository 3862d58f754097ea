"""The example of classification leaves seen texts out of its score, and names mistakes."""

import numpy as np
import pytest

import fixtures
from example_scripts import EXAMPLES, check_mistake, load, run_quick

NAME = "sentence_classification"


@pytest.fixture(scope="module")
def example():
    return load(NAME)


@pytest.mark.slow
def test_quick(tmp_path):
    import keras

    text, figures = run_quick(NAME, tmp_path / "new" / "folder")
    assert "112 texts to train on, 48 for validation, labels: ['好评', '差评']" in text
    assert figures["scores"]["accuracy"] > 0.75 > figures["guess"] + 0.2
    assert figures["labels"] == ["好评", "差评"] and figures["left_out"] == 0
    model = keras.models.load_model(tmp_path / "new" / "folder" / f"{NAME}.keras")
    assert model.output_shape == (None, 2)
    lines = (tmp_path / "new" / "folder" / "vocab.txt").read_text("utf-8").splitlines()
    assert len(lines) == model.get_layer("Embedding-Token").input_dim


@pytest.mark.slow
def test_the_users_checkpoint_and_english_texts(tmp_path):
    config = fixtures.tiny_config("google_bert")
    arrays = fixtures.make_arrays("google_bert", config, seed=0)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film"]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens), "utf-8")
    rows = [f"{'film ' * (n % 9)}{('good', 'bad')[n % 2]}\t{n % 2}" for n in range(40)]
    (tmp_path / "train.tsv").write_text("\n".join(["sentence\tlabel", *rows[:36]]), "utf-8")
    (tmp_path / "valid.tsv").write_text("\n".join(["bad bad\t1", *rows[:3]]), "utf-8")
    files = {
        "--config": fixtures.write_config(tmp_path / "bert_config.json", config),
        "--checkpoint": fixtures.write_checkpoint(tmp_path / "bert_model.ckpt", arrays),
        "--vocab": tmp_path / "vocab.txt",
        "--train": tmp_path / "train.tsv",
        "--valid": tmp_path / "valid.tsv",
        "--test": tmp_path / "valid.tsv",
        "--maxlen": 12,
    }
    options = [part for pair in files.items() for part in pair]
    text, figures = run_quick(NAME, tmp_path / "output", *options)
    assert "4 texts to score, 3 of them stand in the training data too" in text
    assert "rate 0.0001: Turc et al. 2019" in text
    assert figures["scored"] == 1 and figures["left_out"] == 3
    assert "accuracy, seen texts included" in figures["scores"]
    assert not (tmp_path / "output" / "vocab.txt").exists()


def test_scores_leave_seen_texts_out(example):
    random = np.random.default_rng(3)
    found, right = random.integers(0, 3, (2, 50))
    seen = random.random(50) < 0.4
    scores = example.scores_of(found, right, seen)
    pairs = [(f, r) for f, r, known in zip(found, right, seen, strict=True) if not known]
    ones = []
    for label in range(3):
        hits = sum(f == r == label for f, r in pairs)
        ones.append(2 * hits / sum(int(f == label) + int(r == label) for f, r in pairs))
    assert scores["accuracy"] == pytest.approx(sum(f == r for f, r in pairs) / len(pairs))
    assert scores["macro F1"] == pytest.approx(sum(ones) / 3)
    assert scores["accuracy, seen texts included"] == pytest.approx(np.mean(found == right))
    assert list(example.scores_of(found, right, seen & False)) == ["accuracy", "macro F1"]


def test_the_sample_has_no_leak(example):
    train, valid = (
        example.read_labelled(EXAMPLES / "data" / f"reviews_{part}.tsv")
        for part in ("train", "valid")
    )
    assert len(train) == len({text for text, _ in train}) == 112
    assert not example.stand_in(train, valid).any()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("好书\t1\n坏书 0\n", r"valid.tsv, line 2: expected text<TAB>label, got '坏书 0'"),
        ("", "valid.tsv is empty"),
        ("好书\t2\n", "no text of --train has the label '2' of '好书'"),
        ("好书\t1\n坏书\t0\n", "all of them stand in --train too"),
    ],
)
def test_mistakes_in_data(tmp_path, monkeypatch, capsys, content, message):
    (tmp_path / "train.tsv").write_text("好书\t1\n坏书\t0\n", "utf-8")
    (tmp_path / "valid.tsv").write_text(content, "utf-8")
    files = [f"--{part}={tmp_path / part}.tsv" for part in ("train", "valid")]
    check_mistake(NAME, [*files, f"--output={tmp_path}"], message, monkeypatch, capsys)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--train=nowhere.tsv", "--valid=nowhere.tsv"], "nowhere.tsv"),
        (["--train=nowhere.tsv"], "--train and --valid belong together"),
        (["--test=test.tsv"], "--test goes with data of yours"),
        (["--config=c"], "--config and --checkpoint and --vocab belong together"),
        (["--learning-rate=nan"], "expected positive numbers"),
        (["--maxlen=2"], "--maxlen of at least 3"),
    ],
)
def test_mistakes_in_arguments(tmp_path, monkeypatch, capsys, options, message):
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

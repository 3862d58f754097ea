"""The example of sentence pairs compares the two texts, and measures what it says."""

import numpy as np
import pytest

from example_scripts import EXAMPLES, check_mistake, load, run_quick

NAME = "sentence_pairs"


@pytest.fixture(scope="module")
def example():
    return load(NAME)


@pytest.mark.slow
def test_quick(tmp_path):
    text, figures = run_quick(NAME, tmp_path)
    assert "180 pairs to train on, 52 for validation" in text
    assert figures["scores"]["average precision"] > figures["guess"] + 0.1
    assert set(figures["references"]) == {
        "F1, always 1",
        "accuracy, commonest label",
        "average precision, overlap",
    }


def test_the_sample_is_what_it_says(example):
    train, valid = (
        example.read_pairs(EXAMPLES / "data" / f"pairs_{part}.tsv") for part in ("train", "valid")
    )
    assert len(train) == 180 and len(valid) == 52
    assert example.left_to_score(example.both_ways(train), valid) == valid


def test_both_ways(example):
    assert example.both_ways([("一", "二", "1")]) == [("一", "二", "1"), ("二", "一", "1")]


def test_features_compare_the_means_of_both_texts(example):
    import keras

    from kerasbert import build_transformer_model, hidden_state

    config = {**example.TINY, "vocab_size": 20, "num_hidden_layers": 1}
    config |= {"num_attention_heads": 4, "hidden_act": "gelu"}
    encoder = build_transformer_model(config, verbose=0)
    tokens = np.array([[2, 7, 8, 3, 9, 3, 0, 0], [2, 7, 3, 8, 9, 7, 6, 3]])
    segments = np.array([[0, 0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1, 1, 1]])
    states = [hidden_state(encoder, k) for k in (0, 1)]
    model = keras.Model(encoder.inputs, [*states, example.comparison(encoder)])
    *states, found = model.predict_on_batch([tokens, segments])
    expected = []
    for hidden in states:
        u = np.array([hidden[0, :4].mean(0), hidden[1, :3].mean(0)])
        v = np.array([hidden[0, 4:6].mean(0), hidden[1, 3:].mean(0)])
        expected += [u, v, abs(u - v), u * v]
    expected = np.concatenate(expected, axis=-1)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        (("好书", "好书"), 1.0),
        (("好书", "坏的"), 0.0),
        (("一二三", "二三四"), 1 / 3),
        (("好", "好"), 1.0),
    ],
)
def test_overlap(example, pair, expected):
    assert example.overlap(pair) == pytest.approx(expected)


def test_scores_by_hand(example):
    chances = np.array([0.9, 0.8, 0.7, 0.4, 0.1])
    right = np.array([1, 0, 1, 1, 0])
    scores = example.scores_of(chances, right)
    # The ones are the first, third and fourth.
    assert scores["average precision"] == pytest.approx((1 / 1 + 2 / 3 + 3 / 4) / 3)
    assert scores["F1"] == pytest.approx(2 * 2 / (3 + 3))
    assert scores["accuracy"] == pytest.approx(3 / 5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("一\t二\t1\n一\t0\n", r"line 2: expected text<TAB>text<TAB>label, got"),
        ("一\t二\tyes\n", "has the label 'yes': expected 0 or 1"),
        ("一\t二\t1\n", "all texts of --train have the label '1'"),
    ],
)
def test_mistakes_in_data(tmp_path, monkeypatch, capsys, content, message):
    (tmp_path / "pairs.tsv").write_text(content, "utf-8")
    files = [f"--{part}={tmp_path / 'pairs.tsv'}" for part in ("train", "valid")]
    check_mistake(NAME, [*files, f"--output={tmp_path}"], message, monkeypatch, capsys)


def test_mistakes_in_arguments(tmp_path, monkeypatch, capsys):
    options = ["--train=nowhere.tsv", "--valid=nowhere.tsv", f"--output={tmp_path}"]
    check_mistake(NAME, options, "nowhere.tsv", monkeypatch, capsys)

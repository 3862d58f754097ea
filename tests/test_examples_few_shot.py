"""The few-shot example hides the right tokens, takes the right word, and learns from few texts."""

from types import SimpleNamespace

import numpy as np
import pytest

from example_scripts import EXAMPLES, check_mistake, load, run_quick
from kerasbert.data import TextInputs
from kerasbert.tokenizers import Tokenizer

NAME = "few_shot_masked_lm"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture(scope="module")
def example():
    return load(NAME)


@pytest.mark.slow
def test_quick(tmp_path):
    text, figures = run_quick(NAME, tmp_path)
    assert "240 texts without labels" in text
    assert figures["labelled"] == 16 and figures["guess"] == 0.5
    assert list(figures["scores"]) == ["accuracy", "without labelled texts", "by a head"]
    assert all(0 <= score <= 1 for score in figures["scores"].values())


# ---- hidden tokens ---------------------------------------------------------------------------


@pytest.fixture
def masked(example):
    """Batches of texts in which 好 and 差 stand for labels, and their tokenizer."""
    tokenizer = Tokenizer({token: i for i, token in enumerate([*SPECIAL, *"好差一二三四五六"])})
    random = np.random.default_rng(0)
    texts = ["".join(random.choice(list("好差一二三四五六七"), 20)) for _ in range(64)]
    data = example.MaskedTexts(
        TextInputs(vocab_size=13), tokenizer, texts, ["好", "差"], batch_size=16, seed=0
    )
    return data, tokenizer, texts


def test_what_is_hidden_can_be_put_back(example, masked):
    data, tokenizer, texts = masked
    found = []
    for index in range(len(data)):
        (tokens, segments, places), targets, weights = data[index]
        assert tokens.shape == segments.shape == (16, 24) and places.dtype == "int32"
        assert places.shape == targets.shape == weights.shape == (16, round(0.15 * 24))
        assert (np.take_along_axis(tokens, places, 1)[weights > 0] == 4).all()
        assert (tokens == 4).sum() == (weights > 0).sum()
        expected = np.where(np.isin(targets, [5, 6]), example.WORD_WEIGHT, 1.0)
        assert (weights[weights > 0] == expected[weights > 0]).all()
        np.put_along_axis(tokens, places, targets, axis=1)
        found += tokens.tolist()
    expected = [[*tokenizer.encode(text)[0], 0, 0] for text in texts]
    assert sorted(found) == sorted(expected)


def test_label_words_are_hidden_more_often_and_special_tokens_never(masked):
    data, _, _ = masked
    hidden, there = np.zeros(13), np.zeros(13)
    for _ in range(40):
        for index in range(len(data)):
            (tokens, _, places), targets, weights = data[index]
            hidden += np.bincount(targets[weights > 0], minlength=13)
            np.put_along_axis(tokens, places, targets, axis=1)
            there += np.bincount(tokens.ravel(), minlength=13)
        data.on_epoch_end()
    assert not hidden[:5].any() and there[:4].all()
    # 4 of 20 tokens are hidden; of about 4.4 label words in a text, half come first.
    rates = hidden[5:] / there[5:]
    assert rates[:2].min() > 0.4 > 0.2 > rates[2:].max() > rates[2:].min() > 0.05


def test_other_tokens_in_each_epoch(masked):
    data, _, _ = masked
    assert not np.array_equal(data[0][0][2], data[0][0][2])


# ---- labels ----------------------------------------------------------------------------------


def test_words_of_labels(example):
    words = example.words_of(SimpleNamespace(words=["好评=好", "差评=差"]), ["好评", "差评"])
    assert words == {"好评": "好", "差评": "差"}


@pytest.mark.parametrize(
    "words", [["a=好"], ["a=好", "c=差"], ["a=好", "b"], ["a=好", "a=不", "b=差"]]
)
def test_words_that_do_not_fit(example, words):
    with pytest.raises(ValueError, match=r"expected a word for each label, --words a=… b=…"):
        example.words_of(SimpleNamespace(words=words), ["a", "b"])


def test_accuracy_leaves_out_what_a_word_is_worth_alone(example):
    scores = np.log([[0.6, 0.1], [0.5, 0.3], [0.4, 0.05]])
    classifier = SimpleNamespace(labels=["a", "b"], scores=lambda texts: scores)
    rows = [("1", "a"), ("2", "b"), ("3", "a")]
    assert example.accuracy(classifier, rows) == pytest.approx(2 / 3)
    assert example.accuracy(classifier, rows, prior=np.log([0.5, 0.1])) == 1.0


def test_the_sample_has_no_leak(example):
    path = EXAMPLES / "data"
    train, valid = (
        example.read_labelled(path / f"few_shot_{part}.tsv") for part in ("train", "valid")
    )
    texts = example.read_texts(path / "few_shot_unlabelled.txt")
    assert len(train) == 16 and len(valid) == 40 and len(set(texts)) == 240
    scored = {text for text, _ in valid}
    assert not scored & {text for text, _ in train} and not scored & set(texts)
    assert not any("好" in text or "差" in text for text in scored)


# ---- mistakes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("train", "options", "message"),
    [
        ("好书 1", [], r"texts, line 1: expected text<TAB>label, got '好书 1'"),
        ("好书\t1\n坏书\t1", [], "all texts of --train have the label '1'"),
        ("好书\t1\n坏书\t0", [], "--words Positive=好 Negative=差: expected .* --words 0=… 1=…"),
        ("好\tPositive\n坏\tNegative", [], "give --unlabelled or a checkpoint"),
        ("好\tPositive\n坏\tNegative", ["--unlabelled=nowhere.txt"], "nowhere.txt"),
        ("好\tPositive\n坏\tNegative", ["--pretraining=0"], "expected at least one epoch"),
    ],
)
def test_mistakes_in_data(tmp_path, monkeypatch, capsys, train, options, message):
    (tmp_path / "texts").write_text(train, "utf-8")
    options = [*options, *(f"--{part}={tmp_path / 'texts'}" for part in ("train", "valid"))]
    check_mistake(NAME, [*options, f"--output={tmp_path}"], message, monkeypatch, capsys)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--train=nowhere.tsv", "--valid=nowhere.tsv"], "nowhere.tsv"),
        (["--train=nowhere.tsv"], "--train and --valid belong together"),
        (["--unlabelled=texts.txt"], "--unlabelled goes with data of yours"),
        (["--seed=-1"], "--seed -1: expected a number from 0"),
    ],
)
def test_mistakes_in_arguments(tmp_path, monkeypatch, capsys, options, message):
    check_mistake(NAME, [*options, f"--output={tmp_path}"], message, monkeypatch, capsys)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--pattern={text}"], "has the fields text"),
        (["--words", "Positive=很好", "Negative=差"], "Expected as many as the pattern has masks"),
    ],
)
def test_patterns_that_do_not_fit(tmp_path, monkeypatch, capsys, options, message):
    options = ["--quick", *options, f"--output={tmp_path}"]
    check_mistake(NAME, options, message, monkeypatch, capsys)

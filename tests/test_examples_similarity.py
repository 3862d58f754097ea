"""Vectors of sentences: the pairs come once an epoch, and are ranked as the paper says."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from example_scripts import EXAMPLES, check_mistake, load, run_quick
from kerasbert.data import TextInputs
from kerasbert.tokenizers import Tokenizer

NAME = "sentence_similarity"


@pytest.fixture(scope="module")
def example():
    return load(NAME)


@pytest.mark.slow
def test_quick(tmp_path):
    text, figures = run_quick(NAME, tmp_path)
    assert "180 pairs to train on, 52 to score" in text
    scores = figures["scores"]
    assert scores["correlation"] > scores["before the training"] + 0.1
    # Five sentences, and three that are near to each.
    nearest = [line for line in text.split("\n") if line.startswith("  ") and "." in line[:7]]
    assert len(nearest) == 15


# ---- loss ------------------------------------------------------------------------------------


def by_hand(labels, vectors, scale=20.0):
    """CoSENT for pairs of vectors, term by term."""
    cosines = [u @ v / np.linalg.norm(u) / np.linalg.norm(v) for u, v in vectors]
    pairs = list(zip(labels, cosines, strict=True))
    terms = [math.exp(scale * (a - b)) for low, a in pairs for high, b in pairs if low < high]
    return math.log(1 + sum(terms))


@pytest.mark.parametrize("labels", [[0, 1, 1, 0, 0], [0.5, 3, 2, 2, 5], [1, 1, 1, 1, 1]])
def test_loss_is_that_of_the_paper(example, labels):
    vectors = np.random.default_rng(0).normal(size=(5, 2, 8)).astype("float32")
    found = example.cosent_loss(np.repeat(labels, 2).astype("float32"), vectors.reshape(10, 8))
    assert found.shape == ()
    assert float(found) == pytest.approx(by_hand(labels, vectors.astype("float64")), rel=1e-4)


def test_loss_of_pairs_in_their_order(example):
    with_itself = np.array([[1, 0], [1, 0], [1, 0], [-1, 0]], "float32")
    right, wrong = (
        float(example.cosent_loss(np.array(labels, "float32"), with_itself))
        for labels in ([1, 1, 0, 0], [0, 0, 1, 1])
    )
    assert right == pytest.approx(0.0, abs=1e-6)
    assert wrong == pytest.approx(40.0)


# ---- batches ---------------------------------------------------------------------------------


@pytest.fixture
def batches(example):
    """Batches of pairs whose label is the id of the first character of both sentences."""
    characters = [chr(ord("一") + n) for n in range(50)]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters]
    tokenizer = Tokenizer({token: i for i, token in enumerate(tokens)})
    lengths = np.random.default_rng(0).integers(1, 30, (50, 2))
    pairs = [
        (character * one, character * other, float(n + 5))
        for n, (character, (one, other)) in enumerate(zip(characters, lengths, strict=True))
    ]
    args = SimpleNamespace(batch_size=8, maxlen=20)
    return example.PairBatches(TextInputs(vocab_size=60), tokenizer, pairs, args)


@pytest.mark.parametrize("random", [False, True])
def test_every_pair_comes_once_with_its_label(batches, random):
    np.random.seed(0)
    seen = []
    for (tokens, segments), labels in batches.__iter__(random):
        assert len(tokens) == len(labels) and not segments.any()
        assert tokens[:, 0].tolist() == [2] * len(tokens)
        assert tokens[:, 1].tolist() == labels.tolist()  # both sentences of the pair
        assert labels[::2].tolist() == labels[1::2].tolist()
        assert tokens.shape[1] in (8, 16, 20)  # maxlen cuts and limits
        assert tokens.shape[1] - (tokens != 0).sum(axis=1).max() < 8
        seen += labels[::2].tolist()
    assert sorted(seen) == list(range(5, 55)) and len(batches) == 7


def test_each_epoch_has_an_order_of_its_own(batches):
    np.random.seed(0)
    first, second = (
        [labels.tolist() for _, labels in batches.__iter__(random=True)] for _ in range(2)
    )
    assert first != second


# ---- scores ----------------------------------------------------------------------------------


def test_common_characters(example):
    assert example.common_characters("好书", "书好好") == 1.0
    assert example.common_characters("好书", "坏") == 0.0
    assert example.common_characters("一二三", "二三四") == 2 / 4


def test_correlation(example):
    pairs = [("", "", label) for label in (0.0, 1.0, 2.0, 3.0)]
    assert example.correlation([0.1, 0.2, 0.3, 9.0], pairs) == pytest.approx(1.0)
    assert example.correlation([4, 3, 2, 1], pairs) == pytest.approx(-1.0)
    # 1 - 6 (1 + 1) / (4 * 15): two neighbours are exchanged.
    assert example.correlation([2, 1, 3, 4], pairs) == pytest.approx(0.8)


# ---- mistakes --------------------------------------------------------------------------------


def test_the_sample_can_be_read(example):
    pairs = example.read_pairs(EXAMPLES / "data" / "pairs_valid.tsv")
    assert len(pairs) == 52 and {label for *_, label in pairs} == {0.0, 1.0}
    assert example.sentences_of(pairs)[:2] == list(pairs[0][:2])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("一\t二\t1\n一\t0\n", r"line 2: expected sentence<TAB>sentence<TAB>number, got"),
        ("一\t二\tyes\n", "expected a number in the third column: .*'yes'"),
        ("一\t二\tnan\n", "expected finite numbers in the third column"),
        ("一\t二\t1\n二\t三\t1", "all pairs have the label 1: nothing to rank"),
        ("", "is empty"),
    ],
)
def test_mistakes_in_data(tmp_path, monkeypatch, capsys, content, message):
    (tmp_path / "pairs.tsv").write_text(content, "utf-8")
    files = [f"--{part}={tmp_path / 'pairs.tsv'}" for part in ("train", "valid")]
    check_mistake(NAME, [*files, f"--output={tmp_path}"], message, monkeypatch, capsys)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--train=nowhere.tsv", "--valid=nowhere.tsv"], "nowhere.tsv"),
        (["--valid=nowhere.tsv"], "--train and --valid belong together"),
        (["--batch-size=0"], "expected positive numbers"),
    ],
)
def test_mistakes_in_arguments(tmp_path, monkeypatch, capsys, options, message):
    check_mistake(NAME, [*options, f"--output={tmp_path}"], message, monkeypatch, capsys)

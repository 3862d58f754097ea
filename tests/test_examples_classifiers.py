"""What the examples of classification share: labels, leaks, and vocabularies of word pieces."""

from types import SimpleNamespace

import numpy as np
import pytest

from example_scripts import EXAMPLES, load
from kerasbert.data import TextInputs
from kerasbert.tokenizers import Tokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROWS = [("好", "正"), ("坏", "负"), ("很好", "正")]


@pytest.fixture(scope="module")
def classifiers():
    return load("classifiers")


@pytest.fixture(scope="module")
def wordpieces():
    return load("wordpieces")


# ---- labels ----------------------------------------------------------------------------------


def test_labels_are_numbered_in_their_order(classifiers):
    labels = classifiers.label_names(ROWS, [("差", "负")])
    assert labels == ["正", "负"]
    data = classifiers.Labelled(ROWS, labels)
    assert data.texts == ["好", "坏", "很好"]
    assert data.numbers.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("train", "valid", "message"),
    [
        (ROWS[:1] * 3, ROWS[:1], "all texts of --train have the label '正'"),
        (ROWS, [("差", "中")], "no text of --train has the label '中' of '差'"),
    ],
)
def test_labels_that_cannot_be_learned(classifiers, train, valid, message):
    with pytest.raises(ValueError, match=message):
        classifiers.label_names(train, valid)


def test_pairs_stay_pairs(classifiers):
    data = classifiers.Labelled([("一", "二", "1"), ("三", "四", "0")], ["0", "1"])
    assert data.texts == [("一", "二"), ("三", "四")]
    tokenizer = Tokenizer({token: i for i, token in enumerate([*SPECIAL, *"一二三四"])})
    args = SimpleNamespace(batch_size=2, maxlen=8)
    (inputs, numbers) = data.batches(TextInputs(vocab_size=9), tokenizer, args, shuffle=False)[0]
    assert inputs[0][:, :5].tolist() == [[2, 5, 3, 6, 3], [2, 7, 3, 8, 3]]
    assert inputs[1][:, :5].tolist() == [[0, 0, 0, 1, 1]] * 2
    assert numbers.tolist() == [1, 0]


def test_texts_seen_in_training(classifiers):
    rows = [("很好", "负"), ("差", "负"), ("好", "正")]
    assert classifiers.stand_in(ROWS, rows).tolist() == [True, False, True]
    assert classifiers.left_to_score(ROWS, rows) == rows[1:2]
    pairs = [("一", "二", "1"), ("二", "一", "1")]
    assert classifiers.stand_in(pairs[:1], pairs).tolist() == [True, False]
    with pytest.raises(ValueError, match="all of them stand in --train"):
        classifiers.stand_in(ROWS, rows[::2])


def test_guessing_takes_the_commonest_label_of_the_training(classifiers):
    scored = np.array([0, 1, 1, 1])
    assert classifiers.guessing(np.array([0, 0, 1]), scored) == 0.25
    assert classifiers.guessing(np.array([0, 1, 1]), scored) == 0.75


# ---- word pieces -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["a good film", "C'est très drôle"], True),
        (["这部电影很好", "我用iPad看"], False),
        (["Очень хорошо"], False),
        (["3 : 1", "..."], False),
    ],
)
def test_latin_script(wordpieces, texts, expected):
    assert wordpieces.is_latin(texts) is expected


def test_word_pieces_are_the_same_each_time(wordpieces):
    source = (EXAMPLES / "README.md").read_text("utf-8").splitlines()
    first, *others = (wordpieces.word_pieces(source, SPECIAL, size=400) for _ in range(4))
    assert all(other == first for other in others)
    assert first[:5] == SPECIAL and len(first) == len(set(first)) == 400


def test_word_pieces_spell_the_texts(wordpieces):
    texts = ["The films , the films !", "a film theme", "Café 42"]
    tokens = wordpieces.word_pieces(texts, SPECIAL, size=60)
    assert "film" in tokens and "the" in tokens  # they come twice
    tokenizer = Tokenizer({token: i for i, token in enumerate(tokens)}, do_lower_case=True)
    for text in texts:
        found = tokenizer.tokenize(text)
        assert "[UNK]" not in found
        spelled = "".join(found[1:-1]).replace("##", "")
        assert spelled == text.lower().replace(" ", "").replace("é", "e")

"""Classification by patterns: scores by hand, and training that learns a made-up task."""

import keras
import numpy as np
import pytest
from masked_models import SPECIAL, TOKENS, make_model, make_tokenizer, probabilities

from harness import WITHOUT_XLA
from kerasbert.errors import ConfigError, TokenizerError
from kerasbert.generation import PatternClassifier

PATTERN = "很{mask}满意。{text}"
quick = pytest.mark.usefixtures("step_by_step")
WORDS = {"good": ["好", "很"], "bad": "不"}


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="module")
def model():
    return make_model(with_nsp=True)


def ids_of(text):
    return [TOKENS.index(token) for token in text.split()]


def by_hand(model, row, places, words):
    """log p of each word, a list of tokens, at the places of a row of tokens."""
    ids = ids_of(row)
    found = np.log(probabilities(model, ids, np.zeros_like(ids), output=1))
    return [
        sum(found[place, TOKENS.index(token)] for place, token in zip(places, word, strict=True))
        for word in words
    ]


@pytest.mark.backends
def test_scores_by_hand(model, tokenizer):
    classifier = PatternClassifier(model, tokenizer, PATTERN, WORDS, batch_size=2)
    found = classifier.scores(["房间干净", "吵", "很好今天天气"])
    assert found.dtype == "float32" and classifier.labels == ["good", "bad"]
    for scores, text in zip(found, ["房 间 干 净", "吵", "很 好 今 天 天 气"], strict=True):
        row = f"[CLS] 很 [MASK] 满 意 。 {text} [SEP]"
        first, second, bad = by_hand(model, row, [2], ["好", "很", "不"])
        np.testing.assert_allclose(scores, [(first + second) / 2, bad], atol=1e-5)
    shares = classifier.predict_proba(["房间干净", "吵"])
    expected = np.exp(found[:2]) / np.exp(found[:2]).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(shares, expected, atol=1e-6)
    best = ["good" if share[0] > share[1] else "bad" for share in shares]
    assert classifier.predict(["房间干净", "吵"]) == best
    assert classifier.predict([]) == [] and classifier.scores([]).shape == (0, 2)


@quick
def test_pairs_and_several_masks(model, tokenizer):
    classifier = PatternClassifier(
        model, tokenizer, "{text_a}？{mask}，{mask}{text_b}{{.", {1: ["很好", "满意"], 0: ["不好"]}
    )
    [scores] = classifier.scores([("房间", "干净")])
    row = "[CLS] 房 间 ？ [MASK] ， [MASK] 干 净 [UNK] . [SEP]"
    good, fine, bad = by_hand(model, row, [4, 6], ["很好", "满意", "不好"])
    np.testing.assert_allclose(scores, [(good + fine) / 2, bad], atol=1e-5)


@quick
def test_long_texts_are_cut_and_the_pattern_stays(model, tokenizer):
    after = PatternClassifier(model, tokenizer, "{text}。很{mask}", WORDS, maxlen=9)
    kept = after.scores(["今天天气"])
    np.testing.assert_allclose(after.scores(["今天天气" + "吵" * 90]), kept, atol=1e-5)
    whole = PatternClassifier(model, tokenizer, "{text}。很{mask}", WORDS)
    np.testing.assert_allclose(
        whole.scores(["吵" * 99]), whole.scores(["吵" * (24 - 5)]), atol=1e-5
    )
    pairs = PatternClassifier(model, tokenizer, "{text_a}{mask}{text_b}", WORDS, maxlen=10)
    np.testing.assert_allclose(
        pairs.scores([("今天", "吵" * 40), ("吵" * 40, "今天天气很好")]),
        pairs.scores([("今天", "吵" * 5), ("吵" * 4, "今天天")]),
        atol=1e-5,
    )
    with pytest.raises(ConfigError, match="The pattern has 5 tokens"):
        PatternClassifier(model, tokenizer, "{text}。很{mask}", WORDS, maxlen=5).scores(["a"])


def test_masks_written_in_a_text_are_text(model, tokenizer):
    classifier = PatternClassifier(model, tokenizer, PATTERN, WORDS)
    inputs, _, weights = classifier.training_data(["[MASK]"], ["bad"])
    assert (inputs[0] == TOKENS.index("[MASK]")).sum() == weights.sum() == 1


def test_training_data(model, tokenizer):
    classifier = PatternClassifier(
        model, tokenizer, "{text}{mask}。{mask}", {0: "不好", 1: ["很好"]}
    )
    (ids, segments), targets, weights = classifier.training_data(["吵", "今天天气"], [0, 1])
    first = ids_of("[CLS] 吵 [MASK] 。 [MASK] [SEP] [PAD] [PAD] [PAD]")
    assert ids.tolist()[0] == first and ids.dtype == targets.dtype == "int32"
    assert not segments.any() and segments.shape == ids.shape == weights.shape == (2, 9)
    assert targets[0][[2, 4]].tolist() == ids_of("不 好")
    assert targets[1][[5, 7]].tolist() == ids_of("很 好")
    assert np.argwhere(weights).tolist() == [[0, 2], [0, 4], [1, 5], [1, 7]]
    several = PatternClassifier(model, tokenizer, PATTERN, WORDS)
    _, targets, weights = several.training_data(["吵", "吵"], ["good", "bad"])
    assert targets[weights == 1].tolist() == ids_of("好 很 不")


def test_texts_without_label_are_masked_at_random(model, tokenizer):
    classifier = PatternClassifier(model, tokenizer, PATTERN, WORDS)
    text = "今天气很好不满意房间干净吵"
    labels = [None] * 400
    (ids, _), targets, weights = classifier.training_data([text] * 400, labels, seed=1)
    span = np.zeros(ids.shape[1], bool)
    span[6:-1] = True
    assert not weights[:, ~span].any() and (weights.sum(axis=1) == round(0.15 * len(text))).all()
    assert (targets == targets[0]).all() and (ids[weights == 0] == targets[weights == 0]).all()
    hidden = ids[weights == 1]
    masked = hidden == TOKENS.index("[MASK]")
    assert abs(masked.mean() - 0.8) < 0.05
    kept = hidden == targets[weights == 1]
    assert 0.06 < kept.mean() < 0.18
    assert not np.isin(hidden[~masked], range(len(SPECIAL))).any()
    again = classifier.training_data([text] * 400, labels, seed=1)
    np.testing.assert_array_equal(again[0][0], ids)
    _, _, one = classifier.training_data(["吵", ""], [None, None])
    assert one.sum(axis=1).tolist() == [1, 0]
    all_of_it = classifier.training_data([text], [None], masking_rate=1)
    assert all_of_it[2].sum() == len(text)


@quick
def test_training_data_has_all_inputs_of_the_model(tokenizer):
    for options in (
        {"with_mask_input": True, "custom_position_ids": True},
        {"config": {"model_type": "roberta", "type_vocab_size": 1}, "family": "roberta"},
        {"sequence_length": 20},
    ):
        own = make_model(**options)
        classifier = PatternClassifier(own, tokenizer, PATTERN, WORDS)
        inputs, targets, weights = classifier.training_data(["吵", "房间干净"], ["bad", "bad"])
        shares = keras.ops.convert_to_numpy(own(inputs, training=False))
        assert shares.shape[:2] == targets.shape == weights.shape
        chances = np.log(np.take_along_axis(shares, targets[..., None], axis=-1)[..., 0])
        scores = classifier.scores(["吵", "房间干净"])[:, 1]
        np.testing.assert_allclose((chances * weights).sum(axis=1), scores, atol=1e-5)


@pytest.mark.backends
@pytest.mark.slow
def test_a_few_examples_are_enough_for_a_simple_task(tokenizer):
    """A text is good if 好 stands in it; among other letters in any order."""
    random = np.random.default_rng(0)

    def sample(count):
        texts, labels = [], []
        for _ in range(count):
            letters = list(random.choice(list("今天气房间干净"), random.integers(3, 9)))
            good = random.random() < 0.5
            letters[random.integers(len(letters))] = "好" if good else "坏"
            texts.append("".join(letters))
            labels.append("good" if good else "bad")
        return texts, labels

    model = make_model(deviation=0.1, config={"num_hidden_layers": 2})
    words = {"good": "很", "bad": "不"}
    classifier = PatternClassifier(model, tokenizer, "{mask}满意。{text}", words)
    texts, labels = sample(48)
    others, expected = sample(100)
    before = np.mean([a == b for a, b in zip(classifier.predict(others), expected, strict=True)])
    data = classifier.training_data(texts + others[:16], labels + [None] * 16, seed=0)
    # One long epoch is quicker than many short ones.
    x, y, weight = keras.tree.map_structure(lambda array: np.tile(array, (50, 1)), data)
    loss = keras.losses.SparseCategoricalCrossentropy(reduction="mean_with_sample_weight")
    model.compile(keras.optimizers.Adam(0.01), loss, **WITHOUT_XLA)
    model.fit(x, y, sample_weight=weight, batch_size=64, shuffle=False, verbose=0)
    after = np.mean([a == b for a, b in zip(classifier.predict(others), expected, strict=True)])
    assert before < 0.8 and after >= 0.97


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("很满意。{text}", r"fields text\.\nExpected \{mask\}"),
        ("很{mask}满意", r"fields mask\.\nExpected"),
        ("没有", r"\(none\)"),
        ("{mask}{text}{text}", "mask, text, text"),
        ("{mask}{text_a}", "mask, text_a"),
        ("{mask}{text_a}{text_b}{text}", "mask, text_a, text_b, text"),
        ("{mask}{txt}", r"field \{txt\}.* Did you mean 'text'"),
        ("{mask}{}", r"field \{\}"),
        ("{mask}{text!r}", r"field \{text!r\}"),
        ("{mask}{text:>9}", r"field \{text:>9\}"),
        ("{mask}{text", "expected '}'"),
        ("{mask}}{text}", "Single '}'"),
    ],
)
def test_patterns_that_are_none(pattern, words, model, tokenizer):
    with pytest.raises(ConfigError, match=words):
        PatternClassifier(model, tokenizer, pattern, WORDS)


@pytest.mark.parametrize(
    ("verbalizer", "words"),
    [
        ({"a": "很好", "b": "不"}, r"verbalizer\['a'\]: '很好' becomes the tokens 很, 好"),
        ({"a": "好", "b": ["不", "鱼"]}, r"verbalizer\['b'\]: '鱼' becomes the tokens \[UNK\]"),
        ({"a": "好", "b": ""}, r"\(none\)"),
        ({"a": "好", "b": ["不", "好"]}, "'好' already stands for 'a'"),
        ({"a": ["好", "好"], "b": "不"}, "'好' already stands for 'a'"),
        ({"a": ["good", "GOOD"], "b": "不"}, "'GOOD' already stands for 'a'"),
        ({"a": "好", "b": []}, "at least one"),
        ({"a": "好", "b": 3}, r"verbalizer\['b'\]=3"),
        ({"a": "好"}, "at least two labels"),
        (["好", "不"], "Expected a dict"),
        ({"a": "好", None: "不"}, "the label None"),
    ],
)
def test_verbalizers_that_do_not_fit(verbalizer, words, model, tokenizer):
    with pytest.raises(ConfigError, match=words):
        PatternClassifier(model, tokenizer, PATTERN, verbalizer)


def test_other_refusals(model, tokenizer):
    classifier = PatternClassifier(model, tokenizer, PATTERN, WORDS)
    for labels, words in (
        (["goood"], r"labels\[0\]='goood'. Did you mean 'good'"),
        (["good", "bad"], "1 texts and 2 labels"),
    ):
        with pytest.raises(ConfigError, match=words):
            classifier.training_data(["吵"], labels)
    for rate in (0, 1.5, True, "a"):
        with pytest.raises(ConfigError, match="masking_rate"):
            classifier.training_data(["吵"], [None], masking_rate=rate)
    with pytest.raises(ConfigError, match=r"Pass \[text\]"):
        classifier.predict("吵")
    with pytest.raises(TokenizerError, match=r"texts\[1\]"):
        classifier.predict(["吵", ("a", "b")])
    pairs = PatternClassifier(model, tokenizer, "{text_a}{mask}{text_b}", WORDS)
    with pytest.raises(ConfigError, match=r"texts\[0\]='吵'"):
        pairs.predict(["吵"])
    for options in ({"maxlen": 0}, {"batch_size": 0}):
        with pytest.raises(ConfigError, match="=0"):
            PatternClassifier(model, tokenizer, PATTERN, WORDS, **options)
    with pytest.raises(ConfigError, match="no masked-LM head"):
        PatternClassifier(make_model(with_mlm=False), tokenizer, PATTERN, WORDS)
    with pytest.raises(TokenizerError, match="pattern is None"):
        PatternClassifier(model, tokenizer, None, WORDS)

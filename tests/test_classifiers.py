"""Fine-tuned heads of the original TF1 scripts, against the same head in numpy."""

import numpy as np
import pytest

from fixtures import make_arrays, tiny_config, write_checkpoint
from harness import default_and_slow, refused, silent, to_numpy
from kerasbert import (
    build_transformer_model,
    inspect_checkpoint,
    model_report,
    save_pretrained,
    save_weights_as_checkpoint,
)
from kerasbert.errors import ConfigError, WeightMismatchError

IDS = np.array([[2, 7, 9, 3, 0], [2, 5, 5, 5, 3]], "int32")
BATCH = [IDS, np.zeros_like(IDS)]
RNG = np.random.default_rng(4)
KINDS = ("google_bert", "google_albert", "albert_zh", "electra")
LABELS = 3


def normal(*shape):
    return RNG.normal(size=shape).astype("float32")


def parts(kind, head):
    """The head's arrays by their names, and the config."""
    config = tiny_config(kind, num_hidden_layers=1)
    width = config["hidden_size"]
    if head == "span":
        names = ("cls/squad/output_weights", "cls/squad/output_bias")
        return config, dict(zip(names, (normal(2, width), normal(2)), strict=True))
    if kind == "electra":
        names = ("task_specific/cola/dense/kernel", "task_specific/cola/dense/bias")
        return config, dict(zip(names, (normal(width, LABELS), normal(LABELS)), strict=True))
    names = ("output_weights", "output_bias")
    return config, dict(zip(names, (normal(LABELS, width), normal(LABELS)), strict=True))


def softmax(scores, axis=-1):
    powers = np.exp(scores - scores.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def build(config, arrays, **options):
    return silent(build_transformer_model, config, arrays, verbose=0, **options)


# ---- numbers ---------------------------------------------------------------------------------


@pytest.mark.backends
@pytest.mark.parametrize("kind", default_and_slow(KINDS, ["google_albert", "electra"]))
def test_classifiers_of_texts(kind):
    config, head = parts(kind, "sequence")
    arrays = make_arrays(kind, config, 1) | head
    weights, bias = head.values()
    weights = weights if kind == "electra" else weights.T
    pool = {} if kind == "electra" else {"with_pool": True}
    features = to_numpy(build(config, arrays, **pool)(BATCH))
    # ELECTRA takes the first token as it is, the others have their pooler.
    features = features[:, 0] if kind == "electra" else features
    expected = features @ weights + bias
    logits = build(config, arrays, with_classifier=True, classifier_activation="linear")
    np.testing.assert_allclose(to_numpy(logits(BATCH)), expected, rtol=0, atol=1e-5)
    probabilities = build(config, arrays, with_classifier="sequence")
    np.testing.assert_allclose(to_numpy(probabilities(BATCH)), softmax(expected), atol=1e-5)
    assert model_report(logits).missing == []
    assert not set(head) & set(model_report(logits).unused)


@pytest.mark.parametrize("kind", KINDS)
def test_classifiers_of_tokens(kind):
    config, head = parts(kind, "token")
    arrays = make_arrays(kind, config, 1) | head
    if kind != "electra":
        with refused(WeightMismatchError, "classifier", "with_classifier"):
            build(config, arrays, with_classifier="token", num_labels=4)
        return  # BERT's scripts have none
    weights, bias = head.values()
    hidden = to_numpy(build(config, arrays)(BATCH))
    model = build(config, arrays, with_classifier="token", classifier_activation="linear")
    np.testing.assert_allclose(to_numpy(model(BATCH)), hidden @ weights + bias, atol=1e-5)


@pytest.mark.parametrize("kind", default_and_slow(KINDS[:3], ["google_bert"]))
def test_spans(kind):
    config, head = parts(kind, "span")
    arrays = make_arrays(kind, config, 1) | head
    weights, bias = head.values()
    expected = to_numpy(build(config, arrays)(BATCH)) @ weights.T + bias
    logits = build(config, arrays, with_classifier="span", classifier_activation="linear")
    for index, output in enumerate(logits(BATCH)):
        np.testing.assert_allclose(to_numpy(output), expected[..., index], rtol=0, atol=1e-5)
    start, end = build(config, arrays, with_classifier="span")(BATCH)
    for index, output in enumerate((start, end)):
        real = np.where(IDS != 0, expected[..., index], -1e9)
        np.testing.assert_allclose(to_numpy(output), softmax(real), rtol=0, atol=1e-5)


def test_regression_has_no_softmax():
    config, _ = parts("google_bert", "sequence")
    head = {"output_weights": normal(1, config["hidden_size"]), "output_bias": normal(1)}
    arrays = make_arrays("google_bert", config, 1) | head
    pooled = to_numpy(build(config, arrays, with_pool=True)(BATCH))
    score = build(config, arrays, with_classifier=True)(BATCH)
    expected = pooled @ head["output_weights"].T + head["output_bias"]
    np.testing.assert_allclose(to_numpy(score), expected, rtol=0, atol=1e-5)


# ---- where they are found, and what they are not ----------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_inspection_finds_them(kind):
    config, head = parts(kind, "sequence")
    found = inspect_checkpoint(make_arrays(kind, config, 1) | head, config)
    assert found.heads["classifier"] == sum(value.size for value in head.values())
    assert "with_classifier='sequence'" in found.line
    assert not set(head) & set(found.others)


def test_two_tasks_of_electra():
    config, head = parts("electra", "sequence")
    second = {name.replace("cola", "mnli"): value for name, value in head.items()}
    arrays = make_arrays("electra", config, 1) | head | second
    with refused(ConfigError, "number of labels", "num_labels"):
        build(config, arrays, with_classifier=True)
    with refused(WeightMismatchError, "classifier"):
        build(config, arrays, with_classifier=True, num_labels=LABELS)
    assert set(head | second) <= set(model_report(build(config, arrays)).unused)


@pytest.mark.parametrize("kind", KINDS)
def test_written_and_read_again(kind, tmp_path):
    config, head = parts(kind, "sequence")
    arrays = make_arrays(kind, config, 1) | head
    model = build(config, arrays, with_classifier=True)
    paths = save_weights_as_checkpoint(model, tmp_path / "m.ckpt", verbose=0)
    again = build(paths["config"], paths["checkpoint"], with_classifier=True)
    for old, new in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_heads_with_a_layer_more_or_less(tmp_path):
    config, head = parts("electra", "sequence")
    plain = build(config, make_arrays("electra", config, 1) | head, with_classifier=True)
    with refused(WeightMismatchError, "Hugging Face electra", "a dense layer before"):
        save_pretrained(plain, tmp_path / "out")
    deep = build_transformer_model(
        config, model="electra", with_classifier=True, num_labels=3, verbose=0
    )
    save_pretrained(deep, tmp_path / "deep", verbose=0)
    with refused(WeightMismatchError, "Google ELECTRA", "no dense layer before"):
        save_weights_as_checkpoint(deep, tmp_path / "m.ckpt")
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"with_classifier": "tokens"}, ("with_classifier='tokens'", "Did you mean 'token'")),
        ({"with_classifier": 3}, ("with_classifier=3", "sequence, token, span")),
        ({"with_classifier": True}, ("number of labels", "num_labels=")),
        ({"with_classifier": True, "num_labels": 0}, ("num_labels=0",)),
        ({"with_classifier": True, "num_labels": "3"}, ("num_labels='3'",)),
        (
            {"with_classifier": True, "num_labels": 3, "classifier_activation": "softmx"},
            ("softmx", "Did you mean 'softmax'"),
        ),
        (
            {"with_classifier": True, "num_labels": 3, "classifier_dropout": 1.5},
            ("classifier_dropout=1.5",),
        ),
        (
            {"with_classifier": True, "num_labels": 3, "classifier_dropout": "much"},
            ("classifier_dropout='much'",),
        ),
    ],
)
def test_mistakes(options, facts):
    config = tiny_config("google_bert")
    with refused(ConfigError, *facts):
        build_transformer_model(config, model="bert", verbose=0, **options)


def test_more_labels_than_the_file(tmp_path):
    config, head = parts("google_bert", "sequence")
    prefix = write_checkpoint(tmp_path / "m.ckpt", make_arrays("google_bert", config, 1) | head)
    with refused(WeightMismatchError, "output_weights", "(3, 32)", "(5, 32)"):
        build(config, prefix, with_classifier=True, num_labels=5)


def test_a_bias_by_its_other_name(tmp_path):
    config = {**tiny_config("google_bert", num_hidden_layers=1), "model_type": "bert"}
    made = build_transformer_model(config, with_mlm=True, verbose=0)
    made.get_layer("MLM-Bias").bias.assign(np.arange(100.0))
    save_pretrained(made, tmp_path, verbose=0)
    from safetensors.numpy import load_file

    arrays = load_file(tmp_path / "model.safetensors")
    arrays["cls.predictions.decoder.bias"] = arrays.pop("cls.predictions.bias")
    again = build(config, arrays, with_mlm=True)
    np.testing.assert_array_equal(to_numpy(again.get_layer("MLM-Bias").bias), np.arange(100.0))
    arrays["cls.predictions.bias"] = arrays["cls.predictions.decoder.bias"] + 1
    with refused(WeightMismatchError, "cls.predictions.bias", "decoder.bias", "differ"):
        build(config, arrays, with_mlm=True)
    tied = {**arrays, "cls.predictions.bias": arrays["cls.predictions.decoder.bias"]}
    tied["cls.predictions.decoder.weight"] = arrays["bert.embeddings.word_embeddings.weight"] + 1
    with refused(WeightMismatchError, "decoder.weight", "word_embeddings", "differ"):
        build(config, tied, with_mlm=True)
    build(config, tied)  # without the head it does not matter

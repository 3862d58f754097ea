"""Options of the graph in files: written where a reader takes them, refused where it would not."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest

from harness import refused, silent, to_numpy
from kerasbert import (
    build_transformer_model,
    convert,
    inspect_checkpoint,
    load_weights_from_checkpoint,
    save_pretrained,
    save_weights_as_checkpoint,
)
from kerasbert.errors import WeightMismatchError

CONFIG = {
    "vocab_size": 60,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "hidden_act": "gelu",
    "max_position_embeddings": 8,
}
BATCH = [np.array([[2, 7, 9, 3, 0]], "int32"), np.array([[0, 0, 1, 1, 0]], "int32")]
OPTIONS = {
    "residual_attention_scores": True,
    "shared_segment_embeddings": True,
    "hierarchical_position": 0.3,
    "attention_head_size": 5,
    "attention_key_size": 8,
}
MODELS = ("bert", "albert", "albert_unshared")


def shaken(model):
    """The model with other numbers than it starts with, so that nothing is 0 or 1."""
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(to_numpy(weight) + rng.normal(0, 0.1, weight.shape))
    return model


def build(model="bert", **options):
    return shaken(build_transformer_model({**CONFIG, "embedding_size": 24}, model=model, **options))


@pytest.mark.parametrize(
    ("model", "option"),
    [*((model, "all") for model in MODELS), *(("bert", option) for option in OPTIONS)],
)
def test_the_checkpoint_of_google_has_our_keys(model, option, tmp_path, capsys):
    options = OPTIONS if option == "all" else {option: OPTIONS[option]}
    made = build(model, **options)
    paths = save_weights_as_checkpoint(made, tmp_path / "model.ckpt")
    said = capsys.readouterr().out
    written = json.loads(Path(paths["config"]).read_text("utf-8"))
    assert {key: written[key] for key in OPTIONS.keys() & written.keys()} == options
    assert all(key in said for key in options) and "kerasbert and bert4keras" in said
    again = build_transformer_model(paths["config"], paths["checkpoint"], model=model, verbose=0)
    np.testing.assert_array_equal(to_numpy(again(BATCH)), to_numpy(made(BATCH)))
    text = str(inspect_checkpoint(paths["checkpoint"], paths["config"]))
    assert "note" not in text.replace("config      ", ""), text


def test_without_options_there_are_no_such_keys(tmp_path, capsys):
    made = build()
    paths = save_weights_as_checkpoint(made, tmp_path / "model.ckpt")
    written = json.loads(Path(paths["config"]).read_text("utf-8"))
    assert not OPTIONS.keys() & written.keys()
    assert "bert4keras" not in capsys.readouterr().out


@pytest.mark.parametrize("option", OPTIONS)
def test_transformers_has_hierarchical_positions_at_most(option, tmp_path):
    made = build(with_pool=True, **{option: OPTIONS[option]})
    if option != "hierarchical_position":
        with refused(WeightMismatchError, option, "cannot express", "model.save"):
            save_pretrained(made, tmp_path / "out")
        assert not (tmp_path / "out").exists()
        return
    # Up to n tokens it computes the same without the key, and it has no more positions.
    save_pretrained(made, tmp_path / "out", verbose=0)
    again = build_transformer_model(tmp_path / "out", with_pool=True, verbose=0)
    long = [np.full((1, 60), 7, "int32"), np.zeros((1, 60), "int32")]
    for batch in (BATCH, long):
        np.testing.assert_array_equal(to_numpy(again(batch)), to_numpy(made(batch)))


def conditional(model="bert", **options):
    label = keras.Input((1,), dtype="int32", name="Label")
    condition = keras.layers.Flatten()(keras.layers.Embedding(3, 5, name="Label-Table")(label))
    options |= {"layer_norm_cond": condition, "additional_input_layers": label}
    return build_transformer_model(CONFIG, model=model, **options)


@pytest.mark.parametrize("save", [save_pretrained, save_weights_as_checkpoint])
def test_an_untrained_condition_is_left_out(save, tmp_path, capsys):
    made = conditional()
    save(made, tmp_path / "out" / "model.ckpt")
    said = capsys.readouterr().out
    assert "left out" in said and "gamma_dense/kernel" in said
    folder = tmp_path / "out" / ("model.ckpt" if save is save_pretrained else "")
    plain = build_transformer_model(folder, model="bert", verbose=0)
    with_label = made([*BATCH, np.array([[2]], "int32")])
    np.testing.assert_allclose(to_numpy(plain(BATCH)), to_numpy(with_label), atol=1e-6)


@pytest.mark.parametrize("save", [save_pretrained, save_weights_as_checkpoint])
def test_a_trained_condition_is_refused(save, tmp_path):
    made = conditional()
    kernel = made.get_layer("Transformer-1-FeedForward").norm.gamma_dense.kernel
    kernel.assign(kernel + 0.1)
    with refused(WeightMismatchError, "condition", "Transformer-1-FeedForward", "model.save"):
        save(made, tmp_path / "out")
    assert not list(tmp_path.iterdir())
    made.save(tmp_path / "made.keras")
    again = keras.models.load_model(tmp_path / "made.keras")
    batch = [*BATCH, np.array([[2]], "int32")]
    np.testing.assert_array_equal(to_numpy(again(batch)), to_numpy(made(batch)))
    with refused(WeightMismatchError, "condition"):
        convert(tmp_path / "made.keras", tmp_path / "google", to="google", verbose=0)


def test_layers_that_make_the_condition_are_in_the_report(tmp_path, recwarn):
    plain = build()
    paths = save_weights_as_checkpoint(plain, tmp_path / "model.ckpt", verbose=0)
    made = conditional()
    report = load_weights_from_checkpoint(made, paths["checkpoint"], verbose=0)
    assert not [warning for warning in recwarn if issubclass(warning.category, UserWarning)]
    assert report.missing == []
    assert "Label-Table/embeddings" in report.conditions
    assert len(report.conditions) == 1 + 2 * 5
    with_head = keras.layers.Dense(2, name="Own")(made.output)
    model = keras.Model(made.inputs, with_head)
    with refused(WeightMismatchError, "2 variables of layers of your own", "Own/kernel"):
        load_weights_from_checkpoint(model, paths["checkpoint"])
    report = silent(
        load_weights_from_checkpoint, made, paths["checkpoint"], strict=False, verbose=0
    )
    assert report.missing == []


def test_what_a_config_says_is_said_by_inspect(tmp_path):
    """Sizes of heads of their own are no contradiction, nor are options of the graph."""
    made = build(**OPTIONS)
    paths = save_weights_as_checkpoint(made, tmp_path / "model.ckpt", verbose=0)
    shown = inspect_checkpoint(paths["checkpoint"], paths["config"])
    assert shown.findings == []
    for key, value in OPTIONS.items():
        assert shown.sizes[key] == value, key
    assert shown.sizes["hidden_size"] == 24
    # Without these keys the shapes do not fit, and the message says where.
    facts = ["attention_key_size is 6 in the configuration, 8", "attention_head_size is 6"]
    with refused(WeightMismatchError, "attention/self/query", *facts):
        build_transformer_model(CONFIG, paths["checkpoint"], model="bert", type_vocab_size=0)

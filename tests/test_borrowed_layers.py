"""Two models that share layers, by `layers=` and `prefix=`."""

import keras
import numpy as np
import pytest

from fixtures import make_arrays, tiny_config
from harness import default_and_slow, refused, to_numpy
from kerasbert import (
    build_transformer_model,
    hidden_state,
    load_weights_from_checkpoint,
    model_report,
    save_weights_as_checkpoint,
    unshare,
)
from kerasbert.errors import ConfigError, KerasbertError

KINDS = {"google_bert": "bert", "google_albert": "albert"}
each = pytest.mark.parametrize("kind", KINDS)
BATCH = [np.array([[2, 7, 9, 3, 0]], "int32"), np.array([[0, 0, 1, 1, 0]], "int32")]


def small(kind, **changes):
    return tiny_config(kind, **{"num_hidden_layers": 2, **changes})


def build(kind, arrays=None, config=None, **options):
    options = {"model": KINDS[kind], "verbose": 0, **options}
    return build_transformer_model(config or small(kind), arrays, **options)


def lend(kind, prefix="student-", **options):
    """A builder with weights, and a model that takes its layers."""
    arrays = make_arrays(kind, small(kind), 1)
    lender = build(kind, arrays, return_keras_model=False, with_mlm=True)
    return lender, build(kind, layers=lender.layers, prefix=prefix, **options)


def ids(weights):
    return {id(weight) for weight in weights}


@each
def test_outputs_are_equal_and_weights_are_the_same(kind):
    lender, second = lend(kind, with_mlm=True)
    np.testing.assert_array_equal(to_numpy(second(BATCH)), to_numpy(lender.model(BATCH)))
    assert ids(second.weights) == ids(lender.model.weights)
    own = {layer.name for layer in second.layers} - {layer.name for layer in lender.model.layers}
    # Layers without weights, such as a dropout, are the model's own.
    assert {"student-Input-Token", "student-Input-Segment", "student-Attention-Mask"} <= own
    assert not any(second.get_layer(name).weights for name in own)
    for k in range(3):
        states = [keras.Model(m.inputs, hidden_state(m, k))(BATCH) for m in (lender.model, second)]
        np.testing.assert_array_equal(*map(to_numpy, states))


@pytest.mark.backends
@pytest.mark.parametrize("kind", default_and_slow(KINDS, ["google_bert"]))
def test_a_load_into_one_is_a_load_into_both(kind):
    lender, second = lend(kind)
    before = to_numpy(second(BATCH))
    report = load_weights_from_checkpoint(second, make_arrays(kind, small(kind), 2), verbose=0)
    assert report.missing == [] and model_report(second) is report
    assert model_report(lender.model) is not report
    alone = build(kind, make_arrays(kind, small(kind), 2))
    assert np.abs(to_numpy(second(BATCH)) - before).max() > 0.01
    state = keras.Model(lender.model.inputs, hidden_state(lender.model, -1))
    for model in (second, state):
        np.testing.assert_allclose(to_numpy(model(BATCH)), to_numpy(alone(BATCH)), atol=1e-6)


@pytest.mark.parametrize("kind", default_and_slow(KINDS, ["google_albert"]))
def test_the_second_is_saved_and_written_by_itself(kind, tmp_path):
    _, second = lend(kind, with_mlm=True)
    second.save(tmp_path / "second.keras")
    again = keras.models.load_model(tmp_path / "second.keras")
    np.testing.assert_array_equal(to_numpy(again(BATCH)), to_numpy(second(BATCH)))
    for number, model in enumerate((second, again)):
        paths = save_weights_as_checkpoint(model, tmp_path / f"{number}.ckpt", verbose=0)
        read = build(kind, paths["checkpoint"], paths["config"], with_mlm=True)
        np.testing.assert_array_equal(to_numpy(read(BATCH)), to_numpy(second(BATCH)))
    load_weights_from_checkpoint(again, make_arrays(kind, small(kind), 3), verbose=0)


def test_both_in_one_model(tmp_path):
    lender, second = lend("google_albert")
    both = keras.Model(
        lender.model.inputs + second.inputs, [hidden_state(lender.model, -1), second.output]
    )
    assert len({layer.name for layer in both.layers}) == len(both.layers)
    both.save(tmp_path / "both.keras")
    again = keras.models.load_model(tmp_path / "both.keras")
    for model in (both, again):
        one, other = model([*BATCH, *BATCH])
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))
        assert model.count_params() == both.count_params()
        with refused(KerasbertError, "2 encoders", "'student-'"):
            hidden_state(model, 0)


def test_a_borrowed_albert_is_unshared():
    lender, second = lend("google_albert")
    wide = unshare(second)
    np.testing.assert_allclose(to_numpy(wide(BATCH)), to_numpy(second(BATCH)), atol=1e-6)
    assert wide.count_params() > second.count_params()
    assert not ids(wide.weights) & ids(lender.model.weights)
    np.testing.assert_array_equal(
        to_numpy(keras.Model(wide.inputs, hidden_state(wide, -1))(BATCH)), to_numpy(wide(BATCH))
    )


def test_only_some_layers():
    config = small("google_bert")
    lender = build("google_bert", make_arrays("google_bert", config, 1), return_keras_model=False)
    table = {"Embedding-Token": lender.layers["Embedding-Token"]}
    second = build("google_bert", make_arrays("google_bert", config, 2), layers=table, prefix="x-")
    shared = ids(second.weights) & ids(lender.model.weights)
    assert shared == ids([lender.layers["Embedding-Token"].embeddings])
    assert "x-Embedding-Norm" in {layer.name for layer in second.layers}
    # By the full name as well, and without a builder.
    by_name = {layer.name: layer for layer in second.layers}
    third = build("google_bert", layers=by_name, prefix="x-")
    assert ids(third.weights) == ids(second.weights)


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"hidden_size": 64}, [32, 64]),
        ({"vocab_size": 101}, ["Embedding-Token", "input_dim=100", "input_dim=101"]),
        ({"intermediate_size": 96}, ["FeedForward", "units=64", "units=96"]),
        ({"num_attention_heads": 2}, ["heads=4", "heads=2"]),
        ({"max_position_embeddings": 16}, ["Embedding-Position", 32, 16]),
        ({"layer_norm_eps": 1e-5}, ["Embedding-Norm", "epsilon=1e-12", "epsilon=1e-05"]),
        ({"hidden_act": "relu"}, ["activation='gelu_tanh'", "activation='relu'"]),
        ({"hierarchical_position": 0.3}, ["hierarchical=None", "hierarchical=0.3"]),
        ({"ln_type": "preln"}, ["placement='post'", "placement='pre'"]),
        ({"hidden_dropout_prob": 0.2}, ["rate=0.1", "rate=0.2"]),
    ],
)
def test_layers_of_another_configuration(changes, facts):
    lender = build("google_bert", return_keras_model=False)
    with refused(ConfigError, "layers=", *facts, "same configuration"):
        build("google_bert", config=small("google_bert", **changes), layers=lender.layers)


def test_a_layer_of_another_width_alone():
    lender = build("google_bert", return_keras_model=False)
    norm = {"Embedding-Norm": lender.layers["Embedding-Norm"]}
    with refused(ConfigError, "layers=", 32, 64, "Embedding-Norm"):
        build("google_bert", config=small("google_bert", hidden_size=64), layers=norm)


@pytest.mark.parametrize(
    ("layers", "facts"),
    [
        ({"Embedding-Token": keras.layers.Embedding(100, 32)}, ["Embedding", "Embedding-Token"]),
        ({"Pooler-Dense": keras.layers.Dense(32)}, ["none of the layers", "Pooler-Dense"]),
        ({"teacher-Embedding-Token": keras.layers.Embedding(100, 32)}, ["none of the layers"]),
    ],
)
def test_layers_that_do_not_fit(layers, facts):
    with refused(ConfigError, "layers=", *facts):
        build("google_bert", layers=layers)

"""What the builder can do, which `return_keras_model=False` gives: bert4keras' methods."""

import keras
import numpy as np
import pytest

from fixtures import make_arrays, read_checkpoint, tiny_config
from harness import refused, to_numpy
from kerasbert import build_transformer_model, model_report
from kerasbert.errors import CheckpointError, KerasbertError
from kerasbert.weights import variable_mapping

BATCH = [np.array([[2, 7, 9, 3, 0]], "int32"), np.array([[0, 0, 1, 1, 0]], "int32")]
KINDS = {
    "google_bert": "bert",
    "google_albert": "albert",
    "albert_zh": "albert",
    "electra": "electra",
}


def builder_of(kind, arrays=None, **options):
    options = {"model": KINDS[kind], "verbose": 0, "return_keras_model": False, **options}
    return build_transformer_model(tiny_config(kind), arrays, **options)


def test_inputs_outputs_and_layers():
    builder = builder_of("google_bert")
    assert builder.input is builder.inputs
    assert builder.output is builder.outputs[0]
    assert [t.name for t in builder.inputs] == [t.name for t in builder.model.inputs]
    assert builder.layers["Embedding-Norm"] is builder.model.get_layer("Embedding-Norm")
    assert builder_of("google_bert", segment_vocab_size=0).input.name == "Input-Token"
    several = builder_of("google_bert", with_nsp=True, with_mlm=True)
    assert several.output == several.outputs == several.model.output
    layer = keras.layers.Dense(400, kernel_initializer=builder.initializer)
    layer.build((None, 400))
    assert 0.015 < to_numpy(layer.kernel).std() < 0.02
    assert builder.initializer is not builder.initializer, "one would give equal numbers twice"


@pytest.mark.parametrize("kind", KINDS)
def test_the_mapping_names_what_is_in_the_file(kind):
    arrays = make_arrays(kind, tiny_config(kind), 1)
    heads = {"with_discriminator": True} if kind == "electra" else {"with_mlm": True}
    builder = builder_of(kind, arrays, prefix="x-", **heads)
    mapping = builder.variable_mapping()
    assert len(mapping) == len(builder.model.weights)
    assert mapping == variable_mapping(builder.model)
    assert mapping == model_report(builder.model).loaded
    for path, (name,) in mapping.items():
        layer, *rest = path.split("/")
        value = builder.layers[layer]
        for part in rest:
            value = getattr(value, "output_dense" if part == "output" else part)
        np.testing.assert_array_equal(to_numpy(value), arrays[name])


def test_the_mapping_of_unshared_and_grouped_alberts():
    shared = variable_mapping(builder_of("google_albert").model)
    path = "Transformer-FeedForward/norm/gamma"
    assert [name.split("/", 3)[3] for name in shared[path]] == [
        "group_0/inner_group_0/LayerNorm_1/gamma"
    ]
    wide = builder_of("google_albert", model="albert_unshared").variable_mapping()
    for n in range(3):
        (name,) = wide[f"Transformer-{n}-FeedForward/norm/gamma"]
        assert f"group_{n}/inner_group_0" in name
    partly = builder_of("google_albert", unshare="attention").variable_mapping()
    assert len(partly[path]) == 3


def test_a_family_without_tensorflow_code_has_hugging_faces_names():
    config = tiny_config("google_bert", type_vocab_size=...)
    model = build_transformer_model(config, model="distilbert")
    mapping = variable_mapping(model)
    assert mapping["Embedding-Token/embeddings"] == ["distilbert.embeddings.word_embeddings.weight"]


def test_weights_go_in_and_out(tmp_path, capsys):
    config = tiny_config("google_albert")
    builder = builder_of("google_albert", model="albert_unshared")
    report = builder.load_weights_from_checkpoint(make_arrays("google_albert", config, 1))
    assert model_report(builder.model) is report
    assert "Google ALBERT: 55 variables loaded" in capsys.readouterr().out
    paths = builder.save_weights_as_checkpoint(str(tmp_path / "out.ckpt"), verbose=0)
    written = read_checkpoint(paths["checkpoint"])
    assert {name for names in builder.variable_mapping().values() for name in names} == set(written)
    again = builder_of("google_albert", model="albert_unshared")
    again.load_weights_from_checkpoint(paths["checkpoint"], strict=True, verbose=0)
    np.testing.assert_array_equal(to_numpy(again.model(BATCH)), to_numpy(builder.model(BATCH)))
    with refused(CheckpointError, "nowhere.ckpt"):
        builder.load_weights_from_checkpoint(str(tmp_path / "nowhere.ckpt"))


def test_a_foreign_model_has_no_mapping():
    inputs = keras.Input((3,))
    with refused(KerasbertError, "no encoder of kerasbert"):
        variable_mapping(keras.Model(inputs, inputs + 1))

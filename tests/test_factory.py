"""`build_transformer_model`: what its arguments do, and which ones it refuses."""

import itertools
import shutil

import keras
import numpy as np
import pytest

import kerasbert
from fixtures import make_arrays, tiny_config, write_checkpoint, write_config
from harness import refused, silent, to_numpy
from kerasbert import build_transformer_model, hidden_state
from kerasbert.errors import CheckpointError, ConfigError
from kerasbert.models import Encoder

IDS = np.array([[2, 7, 9, 3, 0], [2, 4, 3, 0, 0]], "int32")
BATCH = [IDS, np.array([[0, 0, 1, 1, 0], [0, 0, 0, 0, 0]], "int32")]
B, L, H, V = 2, 5, 32, 100
BERT_CONFIG = tiny_config("google_bert", num_hidden_layers=1)
HEADS = ("with_pool", "with_nsp", "with_mlm")


def bert(**options):
    return build_transformer_model(BERT_CONFIG, **options)


def names(model):
    return [layer.name for layer in model.layers]


def shapes(outputs):
    return keras.tree.map_structure(lambda tensor: tuple(tensor.shape), outputs)


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """A folder with config and checkpoint, as archives are unpacked."""
    folder = tmp_path_factory.mktemp("release")
    write_config(folder / "bert_config.json", BERT_CONFIG)
    write_checkpoint(folder / "bert_model.ckpt", make_arrays("google_bert", BERT_CONFIG, 1))
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    (folder / "broken.json").write_text("{")
    return folder


# ---- where config and checkpoint come from ---------------------------------------------------


def test_every_way_to_name_config_and_checkpoint(release):
    config, prefix = release / "bert_config.json", release / "bert_model.ckpt"
    made = [
        build_transformer_model(config, prefix, verbose=0),
        build_transformer_model(str(config), str(prefix), "bert", verbose=0),
        build_transformer_model(BERT_CONFIG, prefix, verbose=0),
        build_transformer_model(config_path=config, checkpoint_path=prefix, verbose=0),
        build_transformer_model(config=str(config), checkpoint_path=str(prefix), verbose=0),
        build_transformer_model(release, verbose=0),
        build_transformer_model(str(release), release, verbose=0),
        build_transformer_model(config, release, verbose=0),
        build_transformer_model(verbose=0, checkpoint=prefix, **BERT_CONFIG),
        build_transformer_model(config, make_arrays("google_bert", BERT_CONFIG, 1), verbose=0),
        kerasbert.models.build_transformer_model(config, prefix, verbose=0),
    ]
    expected = to_numpy(made[0](BATCH))
    for model in made[1:]:
        np.testing.assert_array_equal(to_numpy(model(BATCH)), expected)


@pytest.mark.parametrize("name", ["config", "checkpoint"])
def test_an_argument_and_its_other_name(name, release):
    both = {name: release, f"{name}_path": release}
    with refused(ConfigError, f"{name}=", f"{name}_path="):
        build_transformer_model(**both)


def test_folders_without_one_config(tmp_path, release):
    with refused(ConfigError, tmp_path, 0, "hidden_size"):
        build_transformer_model(tmp_path)
    shutil.copytree(release, tmp_path, dirs_exist_ok=True)
    write_config(tmp_path / "other_config.json", BERT_CONFIG)
    with refused(ConfigError, tmp_path, 2, "bert_config.json", "other_config.json"):
        build_transformer_model(tmp_path)


@pytest.mark.parametrize("kept", ["index", "data-00000-of-00001", None])
def test_a_folder_without_a_whole_checkpoint_gives_no_random_model(kept, tmp_path, release):
    # A user who passes a folder expects its weights; half a download must not go unnoticed.
    shutil.copytree(release, tmp_path, dirs_exist_ok=True)
    for path in tmp_path.glob("bert_model.ckpt.*"):
        if kept is None or not path.name.endswith(kept):
            path.unlink()
    with refused(CheckpointError, tmp_path):
        build_transformer_model(tmp_path, verbose=0)


# ---- keywords --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keyword", "key"),
    [
        ("dropout_rate", "hidden_dropout_prob"),
        ("attention_dropout_rate", "attention_probs_dropout_prob"),
        ("max_position", "max_position_embeddings"),
        ("segment_vocab_size", "type_vocab_size"),
        ("hidden_act", "hidden_act"),
        ("num_hidden_layers", "num_hidden_layers"),
        ("intermediate_size", "intermediate_size"),
        ("initializer_range", "initializer_range"),
        ("layer_norm_eps", "layer_norm_eps"),
    ],
)
def test_keywords_override_the_file(keyword, key, release):
    value = {"d": 0.25, "a": 0.5, "h": "relu", "m": 7, "s": 3, "n": 2, "i": 48, "l": 1e-3}[
        keyword[0]
    ]
    value = 0.3 if keyword == "initializer_range" else value
    config = release / "bert_config.json"
    for name in {keyword, key}:
        builder = build_transformer_model(config, return_keras_model=False, **{name: value})
        assert getattr(builder.config, key) == value
    unset = build_transformer_model(config, return_keras_model=False, **{keyword: None})
    assert getattr(unset.config, key) != value


def test_keywords_reach_the_layers():
    layers = bert(
        dropout_rate=0.2,
        attention_dropout_rate=0.4,
        hidden_act="relu",
        layer_norm_eps=1e-3,
        max_position=9,
        segment_vocab_size=5,
        return_keras_model=False,
    ).layers
    attention = layers["Transformer-0-MultiHeadSelfAttention"]
    feed_forward = layers["Transformer-0-FeedForward"]
    assert (attention.rate, attention.attention_dropout, feed_forward.rate) == (0.2, 0.4, 0.2)
    assert layers["Embedding-Dropout"].rate == 0.2
    assert feed_forward.activation == "relu"
    norms = (attention.norm, feed_forward.norm, layers["Embedding-Norm"])
    assert [norm.epsilon for norm in norms] == [1e-3] * 3
    assert layers["Embedding-Position"].input_dim == 9
    assert layers["Embedding-Segment"].input_dim == 5


@pytest.mark.parametrize(
    ("typo", "meant"),
    [("with_mlmm", "with_mlm"), ("droput_rate", "dropout_rate"), ("keep_token", "keep_tokens")],
)
def test_unknown_keyword(typo, meant):
    with refused(ConfigError, repr(typo), f"Did you mean {meant!r}", "with_pool", "hidden_size"):
        bert(**{typo: True})


@pytest.mark.parametrize(
    "model", ["brt", "", None, 3, "electra_small", Encoder, BERT_CONFIG, "BERT"]
)
def test_unknown_model(model):
    with refused(ConfigError, "model=", "bert", "roberta", "albert", "albert_unshared"):
        build_transformer_model(BERT_CONFIG, model=model)


def test_a_near_miss_of_a_model():
    with refused(ConfigError, "Did you mean 'albert_unshared'"):
        build_transformer_model(BERT_CONFIG, model="albert_unshard")


@pytest.mark.parametrize("application", ["seq2seq", "", None, 1])
def test_unsupported_application(application):
    with refused(ConfigError, f"application={application!r}", "encoder"):
        bert(application=application)


@pytest.mark.parametrize("value", [0, 33, -1, 5.0, "5", True])
def test_wrong_sequence_length(value):
    with refused(ConfigError, f"sequence_length={value!r}", 32):
        bert(sequence_length=value)


@pytest.mark.parametrize("key", ["name", "prefix"])
@pytest.mark.parametrize("value", ["a/b", 3, ["a"]])
def test_wrong_names(key, value):
    with refused(ConfigError, key, repr(value)):
        bert(**{key: value})


@pytest.mark.parametrize("value", ["floaty", 3, "int32", "bool", "mixed_float64", [1]])
def test_wrong_dtype(value):
    with refused(ConfigError, "dtype", "mixed_float16"):
        bert(dtype=value)


@pytest.mark.parametrize("key", ["with_mask_input", "hidden_states"])
@pytest.mark.parametrize("value", [1, "yes", [True]])
def test_wrong_switches(key, value):
    with refused(ConfigError, f"{key}={value!r}", "bool"):
        bert(**{key: value})


# ---- heads and outputs -----------------------------------------------------------------------


@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("heads", list(itertools.product([False, True], repeat=3)))
def test_structure_of_the_outputs(heads, states):
    pool, nsp, mlm = heads
    model = bert(**dict(zip(HEADS, heads, strict=True)), hidden_states=states)
    expected = [(None, 2)] if nsp else [(None, H)] if pool else []
    expected += [(None, None, V)] if mlm else []
    expected = expected or [(None, None, H)]
    expected += [[(None, None, H)] * 2] if states else []
    assert shapes(model.output) == (expected if len(expected) > 1 else expected[0])


def test_what_the_outputs_are():
    model = bert(with_nsp=True, with_mlm=True, hidden_states=True)
    nsp, mlm, states = model(BATCH)
    assert shapes([nsp, mlm, states]) == [(B, 2), (B, L, V), [(B, L, H)] * 2]
    assert shapes(model.predict(BATCH, verbose=0)) == shapes([nsp, mlm, states])
    for k in (0, 1):
        alone = keras.Model(model.inputs, hidden_state(model, k))
        np.testing.assert_array_equal(to_numpy(states[k]), to_numpy(alone(BATCH)))


def test_activations_of_the_heads():
    probabilities = bert(with_nsp=True, with_mlm=True)(BATCH)
    for output in probabilities:
        np.testing.assert_allclose(to_numpy(output).sum(-1), 1.0, atol=1e-5)
    keras.utils.set_random_seed(5)
    logits = bert(with_nsp="linear", with_mlm="linear")
    keras.utils.set_random_seed(5)
    for softmax, linear in zip(
        bert(with_nsp=True, with_mlm=True)(BATCH), logits(BATCH), strict=True
    ):
        expected = to_numpy(keras.ops.softmax(linear))
        np.testing.assert_allclose(to_numpy(softmax), expected, atol=1e-6)
    pooled = {}
    for activation in (True, "linear", keras.ops.square, "relu"):
        keras.utils.set_random_seed(5)
        pooled[str(activation)] = to_numpy(bert(with_pool=activation)(BATCH))
    true, linear, square, relu = pooled.values()
    np.testing.assert_allclose(true, np.tanh(linear), atol=1e-6)
    np.testing.assert_allclose(square, linear**2, atol=1e-6)
    np.testing.assert_allclose(relu, np.maximum(linear, 0), atol=1e-6)


@pytest.mark.parametrize("head", [*HEADS, "with_sop"])
@pytest.mark.parametrize("value", [1, 0.5, ["linear"], "sofmax", "gelu"])
def test_wrong_activation_of_a_head(head, value):
    expected = {"sofmax": ("sofmax", "softmax"), "gelu": ("gelu_tanh", "gelu_erf")}
    facts = expected.get(str(value), (head, repr(value), "linear"))
    with refused(ConfigError, *facts):
        bert(**{head: value})


def test_sop_is_nsp():
    assert names(bert(with_sop=True)) == names(bert(with_nsp=True))
    assert bert(with_sop="linear", with_nsp="linear").output_shape == (None, 2)
    with refused(ConfigError, "with_nsp=True", "with_sop='linear'"):
        bert(with_nsp=True, with_sop="linear")


# ---- inputs ----------------------------------------------------------------------------------


def test_inputs():
    model = bert(with_mask_input=True, prefix="q-")
    assert [tensor.name for tensor in model.inputs] == [
        "q-Input-Token",
        "q-Input-Segment",
        "q-Input-Mask",
    ]
    assert {tensor.dtype for tensor in model.inputs} == {"int32"}
    assert {tensor.shape for tensor in model.inputs} == {(None, None)}
    assert {t.shape for t in bert(sequence_length=5).inputs} == {(None, 5)}


def test_no_segments():
    model = bert(segment_vocab_size=0)
    assert not [name for name in names(model) if "Segment" in name]
    assert silent(model, IDS).shape == (B, L, H)
    mask = bert(segment_vocab_size=0, with_mask_input=True)
    assert [tensor.name for tensor in mask.inputs] == ["Input-Token", "Input-Mask"]


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16", "float16"])
def test_ids_stay_exact_in_low_precision(dtype):
    # 20001 has no float16, so a float input would look up row 20000.
    model = bert(vocab_size=20002, dtype=dtype, segment_vocab_size=0)
    rows = keras.Model(model.inputs, model.get_layer("Embedding-Token").output)
    table = model.get_layer("Embedding-Token").embeddings
    for kind in ("int32", "int64", "float32", "float64"):
        row = rows(np.array([[20001, 19968]], kind))[0]
        expected = keras.ops.cast(keras.ops.take(table, [20001, 19968], axis=0), row.dtype)
        np.testing.assert_array_equal(to_numpy(row), to_numpy(expected))


@pytest.mark.parametrize("dtype", ["mixed_float16", keras.DTypePolicy("bfloat16"), "float64"])
def test_dtype(dtype):
    model = bert(dtype=dtype, with_pool=True, with_nsp=True, with_mlm=True, hidden_states=True)
    policy = keras.dtype_policies.get(dtype)
    nsp, mlm, states = model.output
    assert (nsp.dtype, mlm.dtype) == ("float32", "float32")
    assert {state.dtype for state in states} == {policy.compute_dtype}
    encoder = [w for w in model.weights if "NSP" not in w.path]
    assert {weight.dtype for weight in encoder} == {policy.variable_dtype}


@pytest.mark.parametrize("call", ["call", "predict"])
def test_more_tokens_than_positions(call):
    model = bert()
    run = model if call == "call" else lambda batch: model.predict(batch, verbose=0)
    with refused(ConfigError, 33, 32, "maxlen"):
        run([np.ones((1, 33), "int32")] * 2)

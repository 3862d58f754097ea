"""Checkpoints that are sound but do not fit: each is refused, with the cause and the cure."""

import functools
import re

import keras
import numpy as np
import pytest

from fixtures import FAST_CASES, golden_case, keras_made_albert_names, make_arrays, tiny_config
from harness import refused, silent, to_numpy
from kerasbert import (
    build_transformer_model,
    hidden_state,
    load_weights_from_checkpoint,
    model_report,
    save_weights_as_checkpoint,
)
from kerasbert.errors import KerasbertError, WeightMismatchError

BATCH = [np.array([[2, 7, 9, 3, 0]], "int32"), np.array([[0, 0, 1, 1, 0]], "int32")]
MODELS = ("bert", "albert", "albert_unshared")
FILES = {
    "google_bert": ("Google BERT", "model='bert'"),
    "google_albert": ("Google ALBERT", "model='albert'", "model='albert_unshared'"),
    "albert_zh": ("albert_zh", "model='albert'", "model='albert_unshared'"),
    "electra": ("ELECTRA",),
}
GROUP_0 = "bert/encoder/transformer/group_0/inner_group_0/"


def config_of(kind, **overrides):
    return tiny_config(kind, **{"num_hidden_layers": 2, **overrides})


def arrays_of(kind, config=None, **options):
    return make_arrays(kind, config or config_of(kind), 1, **options)


def build(kind, arrays=None, model=None, config=None, **options):
    """A model of the kind, from its own config and arrays unless others are given."""
    options["model"] = model or ("bert" if kind == "google_bert" else "albert")
    arrays = arrays_of(kind) if arrays is None else arrays
    return build_transformer_model(config or config_of(kind), arrays, verbose=0, **options)


@functools.cache
def finished(kind, model):
    """A model for loads that are refused, and so leave it as it is."""
    return build_transformer_model(config_of(kind), model=model)


def values(model):
    return {weight.path: to_numpy(weight) for weight in model.weights}


# ---- another family, another release ---------------------------------------------------------


def belongs(model, kind):
    return kind != "electra" and (model == "bert") == (kind == "google_bert")


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("model", MODELS)
def test_each_model_with_each_file(model, kind):
    own = "google_bert" if model == "bert" else "google_albert"
    if belongs(model, kind):
        silent(build, kind, model=model)
        return
    for config in (config_of(own), config_of(kind)):
        with refused(WeightMismatchError, *FILES[kind], "dict of arrays"):
            build(kind, model=model, config=config)
    made = finished(own, model)
    before = values(made)
    with refused(WeightMismatchError, *FILES[kind], "dict of arrays"):
        load_weights_from_checkpoint(made, arrays_of(kind))
    np.testing.assert_equal(values(made), before)


@pytest.mark.parametrize("model", ["albert", "albert_unshared"])
@pytest.mark.parametrize(
    ("config", "file"), [("albert_zh", "google_albert"), ("google_albert", "albert_zh")]
)
def test_config_of_one_albert_with_the_file_of_the_other(model, config, file):
    with refused(
        WeightMismatchError, "albert_zh", "Google", "ln_type" if config == "albert_zh" else "groups"
    ):
        build(file, model=model, config=config_of(config))
    with refused(WeightMismatchError, "albert_zh", "Google"):
        load_weights_from_checkpoint(finished(config, model), arrays_of(file))


@pytest.mark.parametrize("kind", ["google_bert", "google_albert"])
def test_preln_is_no_form_of_googles(kind):
    with refused(WeightMismatchError, "ln_type='preln'", "Google", "postln"):
        build(kind, ln_type="preln")


@pytest.mark.parametrize("name", FAST_CASES)
def test_grouped_kernels_are_named_for_what_they_are(name):
    case = golden_case(name)
    with refused(WeightMismatchError, "grouped", "google_fast", "ffn_1/intermediate"):
        build_transformer_model(case.config, case.checkpoint, model="albert")


def test_names_made_by_keras():
    config = config_of("google_albert", num_hidden_groups=2)
    made = keras_made_albert_names(arrays_of("google_albert", config), config)
    with refused(WeightMismatchError, "made by Keras", "dict of arrays"):
        build("google_albert", made, config=config, strict=False)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("bert.encoder.layer.0.attention.self.query.weight", "Hugging Face"),
        ("newslm/embeddings/word_embed", "part of a GPT"),
        ("gpt/embeddings/word_embeddings", "part of a GPT"),
        ("encoder/block_000/layer_000/SelfAttention/q", "T5"),
        ("electra/embeddings/word_embeddings", "ELECTRA"),
        ("generator/embeddings/word_embeddings", "ELECTRA"),
        ("resnet/conv1/kernel", "resnet/conv1/kernel"),
    ],
)
def test_files_of_others(name, said):
    with refused(WeightMismatchError, said, "Google BERT", "Google ALBERT"):
        build("google_bert", {name: np.zeros((3, 3), "float32")})


@pytest.mark.parametrize("names", [[], ["global_step", "x/adam_m"], ["bert/pooler/dense/bias"]])
def test_no_encoder_at_all(names):
    with refused(WeightMismatchError, "no encoder"):
        build("google_bert", dict.fromkeys(names, np.zeros(3)))


# ---- shapes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "key", "value", "in_file", "name"),
    [
        ("google_bert", "hidden_size", 64, 32, "bert/embeddings/word_embeddings"),
        ("google_albert", "hidden_size", 64, 32, "bert/encoder/embedding_hidden_mapping_in/kernel"),
        ("google_albert", "embedding_size", 8, 16, "bert/embeddings/word_embeddings"),
        ("albert_zh", "embedding_size", 8, 16, "bert/embeddings/word_embeddings"),
        ("google_bert", "max_position_embeddings", 64, 32, "bert/embeddings/position_embeddings"),
        ("google_albert", "type_vocab_size", 3, 2, "bert/embeddings/token_type_embeddings"),
        ("google_bert", "vocab_size", 120, 100, "bert/embeddings/word_embeddings"),
        ("google_bert", "intermediate_size", 48, 64, "layer_0/intermediate/dense/kernel"),
        ("google_albert", "intermediate_size", 48, 64, "ffn_1/intermediate/dense/kernel"),
    ],
)
def test_wrong_sizes_in_words_of_the_config(kind, key, value, in_file, name):
    said = f"{key} is {value} in the configuration, {in_file} in the file"
    with refused(WeightMismatchError, said, name) as caught:
        build(kind, config=config_of(kind, **{key: value}))
    others = re.findall(r"(\w+) is \d+ in the configuration", str(caught.value))
    assert others == [key], "only the key at fault is blamed"
    assert "keep_tokens" not in str(caught.value)


def test_a_smaller_vocabulary_hints_at_keep_tokens():
    with refused(WeightMismatchError, "vocab_size is 4", 100, "keep_tokens"):
        build("google_bert", config=config_of("google_bert", vocab_size=4))


def test_both_shapes_stand_in_the_message():
    short = {f"{GROUP_0}LayerNorm/beta": np.zeros(7, "float32")}
    with refused(WeightMismatchError, *short, "(7,)", "(32,)"):
        build("google_albert", arrays_of("google_albert") | short)
    scalar = {"bert/embeddings/word_embeddings": np.float32(3)}
    with refused(WeightMismatchError, *scalar, "()", "(100, 32)"):
        build("google_bert", arrays_of("google_bert") | scalar)
    turned = {"cls/seq_relationship/output_weights": np.zeros((32, 2), "float32")}
    with refused(WeightMismatchError, *turned, "(32, 2)", "(2, 32)"):
        build("google_bert", arrays_of("google_bert") | turned, with_nsp=True)


# ---- blocks that the config does not know, or the file does not have --------------------------


@pytest.mark.parametrize("key", ["num_hidden_groups", "inner_group_num"])
@pytest.mark.parametrize(
    ("model", "keyword"),
    [
        ("albert", {}),
        ("albert", {"num_hidden_layers": 2}),
        ("albert", {"num_hidden_layers": 1}),
        ("albert_unshared", {"num_hidden_layers": 2}),
    ],
)
def test_a_second_group_is_never_dropped(key, model, keyword):
    # bert4keras loaded group 0 and said nothing.
    file = arrays_of("google_albert", config_of("google_albert", **{key: 2}))
    place = "group_1" if key == "num_hidden_groups" else "inner_group_1"
    with refused(WeightMismatchError, place, f"{key} is 1", 2):
        build("google_albert", file, model=model, **keyword)


@pytest.mark.parametrize("keyword", [{}, {"num_hidden_layers": None}])
def test_fewer_layers_by_the_config_file(keyword):
    config = config_of("google_bert", num_hidden_layers=1)
    with refused(WeightMismatchError, "layer_1", "num_hidden_layers is 1", 2, "keyword"):
        build("google_bert", config=config, **keyword)


@pytest.mark.parametrize("kind", ["google_bert", "albert_zh_unshared"])
def test_fewer_layers_by_keyword(kind):
    model = None if kind == "google_bert" else "albert_unshared"
    full = build(kind, model=model)
    short = silent(build, kind, model=model, num_hidden_layers=1)
    first = keras.Model(full.inputs, hidden_state(full, 1))
    np.testing.assert_array_equal(to_numpy(short(BATCH)), to_numpy(first(BATCH)))
    skipped = model_report(short).skipped_layers
    assert len(skipped) == 16
    assert all(name.startswith("bert/encoder/layer_1/") for name in skipped)


def test_fewer_layers_of_an_unshared_file_are_its_first_ones(tmp_path):
    full = build("google_albert", model="albert_unshared", num_hidden_layers=4)
    for k, layer in enumerate(x for x in full.layers if x.name.endswith("-FeedForward")):
        layer.norm.beta.assign(layer.norm.beta + 0.1 * k)
    paths = save_weights_as_checkpoint(full, tmp_path / "model.ckpt", verbose=0)
    expected = keras.Model(full.inputs, hidden_state(full, 2))(BATCH)
    try:
        short = build_transformer_model(
            paths["config"],
            paths["checkpoint"],
            model="albert_unshared",
            num_hidden_layers=2,
            verbose=0,
        )
    except KerasbertError:
        return
    np.testing.assert_array_equal(to_numpy(short(BATCH)), to_numpy(expected))


@pytest.mark.parametrize("keyword", [{}, {"num_hidden_layers": 4}])
def test_more_layers_than_the_file(keyword):
    deeper = config_of("google_bert", num_hidden_layers=4)
    words = (32, "layer_2/") if keyword else ("num_hidden_layers is 4", 2, "layer_1/")
    with refused(WeightMismatchError, "num_hidden_layers", *words):
        build("google_bert", config=deeper, **keyword)


def test_a_shared_albert_may_be_of_any_depth():
    assert model_report(silent(build, "google_albert", num_hidden_layers=7)).missing == []


def test_layers_that_differ_do_not_fit_one_shared_block():
    with refused(WeightMismatchError, "layer_0/", "layer_1/", "albert_unshared"):
        build("albert_zh_unshared", model="albert")


# ---- missing variables -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("google_bert", "bert/embeddings/LayerNorm/gamma"),
        ("google_bert", "bert/embeddings/position_embeddings"),
        ("google_bert", "bert/encoder/layer_1/output/dense/bias"),
        ("google_albert", f"{GROUP_0}LayerNorm_1/gamma"),
        ("google_albert", "bert/encoder/embedding_hidden_mapping_in/kernel"),
        ("albert_zh", "bert/encoder/layer_shared/attention/self/key/kernel"),
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_a_missing_variable_of_the_encoder(kind, name, strict):
    arrays = arrays_of(kind)
    del arrays[name]
    with refused(WeightMismatchError, name, "lacks 1 variable"):
        build(kind, arrays, strict=strict)


HEADS = [
    ("with_pool", "pooler", 2),
    ("with_nsp", "seq_relationship", 4),
    ("with_mlm", "predictions", 5),
]


@pytest.mark.parametrize("kind", ["google_albert", "albert_zh"])
@pytest.mark.parametrize(("option", "scope", "count"), HEADS)
def test_a_missing_head(kind, option, scope, count):
    arrays = arrays_of(kind, heads=False)
    silent(build, kind, arrays)
    facts = (option, "strict=False", "pooler" if option == "with_nsp" else scope)
    with refused(WeightMismatchError, *facts):
        build(kind, arrays, **{option: True})
    keras.utils.set_random_seed(3)
    with pytest.warns(UserWarning, match=f"{count} variables") as caught:
        model = build(kind, arrays, strict=False, **{option: True})
    fresh = model_report(model).missing
    assert len(fresh) == count
    assert all(name in str(caught[0].message) for name in fresh)
    keras.utils.set_random_seed(3)
    untouched = values(build_transformer_model(config_of(kind), model="albert", **{option: True}))
    assert all(np.array_equal(values(model)[name], untouched[name]) for name in fresh)


def test_a_head_with_a_hole():
    arrays = arrays_of("google_bert")
    del arrays["cls/predictions/output_bias"]
    with refused(WeightMismatchError, "cls/predictions/output_bias", "with_mlm"):
        build("google_bert", arrays, with_mlm=True)
    silent(build, "google_bert", arrays)


def test_a_layer_of_the_user_on_top():
    base = build("google_albert")
    other = {name: value + 1 for name, value in arrays_of("google_albert").items()}
    model = keras.Model(base.inputs, keras.layers.Dense(3, name="spy")(base.output))
    before = values(model)
    with refused(WeightMismatchError, "spy/kernel", "spy/bias", "strict=False"):
        load_weights_from_checkpoint(model, other)
    np.testing.assert_equal(values(model), before)
    with pytest.warns(UserWarning, match="spy/kernel"):
        report = load_weights_from_checkpoint(model, other, strict=False)
    assert sorted(report.missing) == ["spy/bias", "spy/kernel"]


# ---- variables without a place ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("google_bert", "bert/encoder/layer_0/attention/adapter/kernel"),
        ("google_bert", "bert/encoder/embedding_hidden_mapping_in/kernel"),
        ("google_bert", "bert/embeddings/word_embeddings_3"),
        ("google_albert", f"{GROUP_0}ffn_2/intermediate/dense/kernel"),
        ("albert_zh", "bert/encoder/layer_shared/intermediate_1/dense/bias"),
    ],
)
def test_an_encoder_with_more_than_ours(kind, name):
    # Left out without a word, it would change every number of the model.
    with refused(WeightMismatchError, name):
        build(kind, arrays_of(kind) | {name: np.zeros((32,), "float32")})


def test_no_projection_in_the_config_but_in_the_file():
    square = config_of("google_albert", embedding_size=32)
    with refused(WeightMismatchError, "embedding_size is 32 in the configuration, 16 in the file"):
        build("google_albert", config=square)
    with refused(WeightMismatchError, "embedding_size is 16 in the configuration, 32 in the file"):
        build("google_albert", arrays_of("google_albert", square))

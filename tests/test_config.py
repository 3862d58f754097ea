"""Reading configurations: what is accepted, what it means, what is refused and how."""

import dataclasses
import json

import numpy as np
import pytest

from fixtures import tiny_config, write_config
from harness import refused
from kerasbert import build_transformer_model
from kerasbert.config import ModelConfig
from kerasbert.config_file import config_style, read_config, resolve_aliases
from kerasbert.errors import ConfigError

REQUIRED = [
    "hidden_act",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_hidden_layers",
    "vocab_size",
]


def config(kind="google_bert", **overrides):
    family = "bert" if kind == "google_bert" else "albert"
    return ModelConfig.from_dict(tiny_config(kind, **overrides), family)


# ---- reading ---------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [[key] for key in REQUIRED] + [REQUIRED[:3], REQUIRED])
def test_missing_keys_are_all_named(missing, tmp_path):
    path = write_config(
        tmp_path / "my_config.json", tiny_config("google_bert", **dict.fromkeys(missing, ...))
    )
    with refused(ConfigError, path, *missing) as caught:
        build_transformer_model(path)
    named = str(caught.value).splitlines()[0]
    assert not [key for key in REQUIRED if key in named and key not in missing]


@pytest.mark.parametrize("key", REQUIRED)
def test_null_is_as_good_as_missing(key):
    with refused(ConfigError, key):
        config(**{key: None})


def test_an_empty_configuration(tmp_path):
    path = write_config(tmp_path / "config.json", {})
    with refused(ConfigError, path, "hidden_size", "none"):
        build_transformer_model(path)
    with refused(ConfigError, "dict", *REQUIRED):
        build_transformer_model({})
    with refused(ConfigError, "no config", *REQUIRED):
        build_transformer_model()


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"hidden_size: 32", b'{"hidden_size": 32,}', b"\xff\xfe{}", b"[" * 100_000],
    ids=["empty", "cut", "yaml", "comma", "utf16", "deep"],
)
def test_no_json(text, tmp_path):
    path = tmp_path / "bert_config.json"
    path.write_bytes(text)
    with refused(ConfigError, path, "JSON", cause=Exception):
        build_transformer_model(path)


@pytest.mark.parametrize("value", ["[1, 2]", "3", '"text"', "null", "true"])
def test_json_that_is_no_object(value, tmp_path):
    path = tmp_path / "bert_config.json"
    path.write_text(value)
    with refused(ConfigError, path, "object"):
        build_transformer_model(path)


def test_no_such_file(tmp_path):
    with refused(ConfigError, tmp_path / "bert_config.json", cause=FileNotFoundError):
        build_transformer_model(tmp_path / "bert_config.json")
    with refused(ConfigError, "config.json", cause=ValueError):
        read_config("a\0b/config.json")


@pytest.mark.parametrize("value", [5, b"config.json", ["config.json"], object])
def test_no_config_at_all(value):
    with refused(ConfigError, type(value).__name__, "path", "dict"):
        build_transformer_model(value)


def test_keys_that_are_no_strings():
    with refused(ConfigError, "hidden_size"):
        build_transformer_model({1: 2, "vocab_size": 100})


def test_a_byte_order_mark_and_non_ascii_are_read(tmp_path):
    path = tmp_path / "配置 bert.json"
    path.write_text(json.dumps(tiny_config("google_bert", 说明="中文")), "utf-8-sig")
    values, source = read_config(path)
    assert values["说明"] == "中文"
    assert str(path) in source


def test_the_dict_of_the_user_is_not_changed():
    values = tiny_config("google_albert")
    before = json.dumps(values)
    build_transformer_model(values, model="albert", dropout_rate=0.3, with_sop=True)
    assert json.dumps(values) == before


# ---- values ----------------------------------------------------------------------------------

COUNTS = [
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "embedding_size",
    "max_position_embeddings",
    "num_hidden_groups",
    "inner_group_num",
]
RATES = ["hidden_dropout_prob", "attention_probs_dropout_prob"]


@pytest.mark.parametrize("value", [0, -1, "32", 32.0, 32.5, True, False, [32], {}, float("nan")])
@pytest.mark.parametrize("key", COUNTS)
def test_counts(key, value):
    with refused(ConfigError, key, repr(value)):
        config("google_albert", **{key: value})


@pytest.mark.parametrize("value", [-1, "2", 2.0, True, [2]])
def test_segment_types(value):
    with refused(ConfigError, "type_vocab_size", repr(value)):
        config(type_vocab_size=value)
    assert config(type_vocab_size=0).type_vocab_size == 0


@pytest.mark.parametrize("value", [-0.1, 1.0, 1, 7, "0.1", True, [0.1], float("nan")])
@pytest.mark.parametrize("key", RATES)
def test_dropouts(key, value):
    with refused(ConfigError, key, repr(value)):
        config(**{key: value})


@pytest.mark.parametrize("value", [0, -1e-3, "0.02", True, float("nan"), float("inf")])
@pytest.mark.parametrize("key", ["initializer_range", "layer_norm_eps"])
def test_small_numbers(key, value):
    with refused(ConfigError, key, repr(value)):
        config(**{key: value})


@pytest.mark.parametrize("key", ["ln_type", "embedding_order", "unshare"])
@pytest.mark.parametrize("value", ["postLN", "other", "", 0, False])
def test_choices(key, value):
    with refused(ConfigError, key, repr(value)):
        config("google_albert", **{key: value})


def test_a_wrong_value_in_a_file_names_the_file(tmp_path):
    path = write_config(tmp_path / "bert_config.json", tiny_config("google_bert", vocab_size=0))
    with refused(ConfigError, "vocab_size", 0, path):
        build_transformer_model(path)


def test_heads_that_do_not_divide():
    with refused(ConfigError, "hidden_size=30", "num_attention_heads=4"):
        config(hidden_size=30)
    with refused(ConfigError, "hidden_size=32", "num_attention_heads=64"):
        config(num_attention_heads=64)


@pytest.mark.parametrize("value", [0, 0.0, None, ...])
def test_no_dropout(value):
    made = config(**dict.fromkeys(RATES, value))
    assert (made.hidden_dropout_prob, made.attention_probs_dropout_prob) == (0, 0)
    model = build_transformer_model(tiny_config("google_bert", **dict.fromkeys(RATES, value)))
    ids = [np.array(part, "int32") for part in ([[5, 6, 7]], [[0, 0, 0]])]
    assert np.array_equal(model(ids, training=True), model(ids, training=False))


def test_defaults_of_what_files_leave_out():
    made = config(
        "google_albert",
        **dict.fromkeys(
            ["max_position_embeddings", "type_vocab_size", "embedding_size", "initializer_range"],
            ...,
        ),
        num_hidden_groups=...,
        inner_group_num=...,
    )
    assert (made.max_position_embeddings, made.type_vocab_size) == (512, 2)
    assert (made.embedding_size, made.initializer_range) == (32, 0.02)
    assert (made.num_hidden_groups, made.inner_group_num, made.sharing_groups) == (1, 1, 1)
    assert (made.layer_norm_eps, made.ln_type, made.embedding_order) == (
        1e-12,
        "postln",
        "project_last",
    )


# ---- meaning ---------------------------------------------------------------------------------

HUGGING_FACE = [
    {"architectures": ["BertModel"]},
    {"layer_norm_eps": 1e-12},
    {"model_type": "bert"},
    {"transformers_version": "4.30.0"},
]


@pytest.mark.parametrize("mark", HUGGING_FACE, ids=lambda mark: next(iter(mark)))
def test_gelu_of_hugging_face_is_erf(mark):
    assert config(**mark).hidden_act == "gelu_erf"
    assert config(**mark, hidden_act="gelu_new").hidden_act == "gelu_tanh"
    assert config(**mark, hidden_act="relu").hidden_act == "relu"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("gelu", "gelu_tanh"),
        ("GELU", "gelu_tanh"),
        ("relu", "relu"),
        ("gelu_new", "gelu_tanh"),
        ("gelu_pytorch_tanh", "gelu_tanh"),
        ("gelu_erf", "gelu_erf"),
        ("tanh", "tanh"),
        ("linear", "linear"),
        ("swish", "swish"),
        ("silu", "swish"),
    ],
)
@pytest.mark.parametrize("kind", ["google_bert", "google_albert", "albert_zh"])
def test_activations_of_google(kind, name, meant):
    assert config(kind, hidden_act=name).hidden_act == meant


@pytest.mark.parametrize("name", ["gelu_neww", "rleu", "mish2"])
def test_unknown_activation(name):
    near = {"gelu_neww": "gelu_new", "rleu": "relu", "mish2": "swish"}[name]
    with refused(ConfigError, repr(name), "gelu", "relu", "tanh", near) as caught:
        config(hidden_act=name)
    assert name == "mish2" or f"Did you mean {near!r}" in str(caught.value)


@pytest.mark.parametrize("value", [[], 3, True, {"name": "gelu"}])
def test_activation_of_a_wrong_type(value):
    with refused(ConfigError, "hidden_act", repr(value), "relu"):
        config(hidden_act=value)
    with refused(ConfigError, "hidden_act", repr(value), "relu"):
        config(hidden_act=["gelu", value])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("position_embedding_type", "relative_key"),
        ("position_embedding_type", "rotary"),
        ("is_decoder", True),
        ("add_cross_attention", True),
        ("pruned_heads", {"0": [1]}),
        ("rotary_value", True),
        ("hierarchical_position", 1.4),
        ("residual_attention_scores", "yes"),
        ("shared_segment_embeddings", 1),
        ("attention_head_size", 0),
        ("attention_key_size", -3),
    ],
)
def test_keys_that_would_change_the_maths(key, value):
    with refused(ConfigError, key, repr(value)):
        config(**{key: value})


def test_keys_that_change_nothing():
    plain = config("google_albert")
    more = {
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "pruned_heads": {},
        "pooler_fc_size": 768,
        "layers_to_keep": [],
        "gap_size": 0,
        "from_the_future": {"x": [1]},
        "prefix": None,
        "name": None,
        "torch_dtype": "float16",
    }
    assert config("google_albert", **more) == plain
    build_transformer_model(tiny_config("google_albert", **more), model="albert")


def test_the_precision_a_torch_model_was_saved_in_is_not_ours():
    # transformers writes "dtype" into its files; it says nothing about a Keras policy.
    values = tiny_config("google_bert", model_type="bert", dtype="bfloat16")
    model = build_transformer_model(values)
    assert {layer.compute_dtype for layer in model.layers if layer.weights} == {"float32"}


@pytest.mark.parametrize("other", ["albert", "electra", "t5", "roformer", "gpt2"])
def test_model_type_of_another_family(other):
    with refused(ConfigError, repr(other), "bert", "model="):
        config(model_type=other)
    assert config(model_type="bert").family == "bert"
    assert config(model_type=None).family == "bert"


@pytest.mark.parametrize("ln_type", ["postln", "preln", None, ...])
def test_ln_type(ln_type):
    made = config("albert_zh", ln_type=ln_type)
    assert made.ln_type == ("preln" if ln_type == "preln" else "postln")
    style = config_style(tiny_config("albert_zh", ln_type=ln_type))
    assert style == (None if ln_type in (None, ...) else "albert_zh")
    assert made.projects_first is (style == "albert_zh")


def test_aliases_win_over_the_file():
    values = {"hidden_dropout_prob": 0.1, "dropout_rate": 0.2, "max_position": 8, "x": 1}
    assert resolve_aliases(values) == {
        "hidden_dropout_prob": 0.2,
        "max_position_embeddings": 8,
        "x": 1,
    }


# ---- round trip ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "made",
    [
        config(),
        config("google_albert", num_hidden_groups=3, inner_group_num=2, type_vocab_size=0),
        config("google_albert", unshare="attention", unshare_layers=[0, 2]),
        config("google_albert", unshare_layers=[]),
        config("albert_zh", ln_type="preln", hidden_act="relu"),
    ],
)
def test_label_survives_json(made):
    again = ModelConfig.from_label(json.loads(json.dumps(made.to_dict())))
    assert again == made
    assert again.sharing == made.sharing
    assert set(made.to_dict()) == {field.name for field in dataclasses.fields(ModelConfig)}


@pytest.mark.parametrize(
    ("model", "key", "value", "reader"),
    [
        ("bert", "num_decoder_layers", 3, "t5"),
        ("albert", "tie_word_embeddings", False, "t5"),
        ("roformer", "max_relative_position", 32, "nezha"),
    ],
)
def test_keywords_that_only_other_families_read(model, key, value, reader):
    with refused(ConfigError, f"{key}={value!r}", model, reader):
        build_transformer_model(tiny_config("google_bert"), model=model, **{key: value})
    # In a file they mean nothing there.
    build_transformer_model({**tiny_config("google_bert"), key: value}, model=model, verbose=0)

"""What only GPT, GPT-2 and GPT2_ML have: their head, their padding, words of configurations."""

import json

import keras
import numpy as np
import pytest

from fixtures import random_batch
from harness import default_and_slow, refused, silent, to_numpy
from kerasbert import (
    build_transformer_model,
    hidden_state,
    save_pretrained,
    save_weights_as_checkpoint,
)
from kerasbert.errors import ConfigError, WeightMismatchError
from kerasbert.models.view import find_encoder
from reference.forward import softmax
from reference.zoo import run
from reference.zoo_bert import Settings, post_norm_blocks
from reference.zoo_parts import activation_of, as_float64, visible_keys
from reference.zoo_weights import zoo_arrays, zoo_config

FAMILIES = ("gpt", "gpt2", "gpt2_ml")
REFERENCE = {
    "gpt": {"epsilon": 1e-5},
    "gpt2": {},
    "gpt2_ml": {"activation": "gelu_erf"},
}
# GPT-2's sizes in the words of transformers.
THEIRS = {
    "model_type": "gpt2",
    "vocab_size": 60,
    "n_embd": 24,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 20,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
}
each = pytest.mark.parametrize("family", FAMILIES)


def sample(family):
    config = zoo_config(family)
    return config, zoo_arrays(family, config)


def build(family, config=None, arrays=None, **options):
    own, own_arrays = sample(family)
    arrays = own_arrays if arrays is None else arrays
    options = {"model": family, "verbose": 0, **options}
    return build_transformer_model(config or own, arrays, **options)


def batch_of(family, rows=3, length=9):
    ids, segments = random_batch(np.random.default_rng(4), 60, rows, length)
    return [ids, segments] if family == "gpt" else [ids]


def call(model, *batch):
    return to_numpy(model(list(batch) if len(batch) > 1 else batch[0], training=False))


def expected(family, batch, **options):
    config, arrays = sample(family)
    return run(family, arrays, config, *batch, **REFERENCE[family], **options)


# ---- the head --------------------------------------------------------------------------------


@each
def test_forms_of_the_head(family):
    batch = batch_of(family)
    wanted = expected(family, batch)
    for name, options in (
        ("lm", {}),
        ("lm", {"application": "lm"}),
        ("lm", {"with_lm": "softmax", "final_activation": "linear"}),
        ("lm_logits", {"final_activation": "linear"}),
        ("lm_logits", {"with_lm": lambda x: x}),
        ("sequence_output", {"with_lm": False}),
        ("sequence_output", {"with_lm": False, "final_activation": "linear"}),
    ):
        found = call(build(family, **options), *batch)
        np.testing.assert_allclose(found, wanted[name], rtol=0, atol=1e-5, err_msg=str(options))


@each
def test_layers_by_name(family):
    builder = build(family, return_keras_model=False)
    names = [layer.name for layer in builder.model.layers]
    assert names[-1] == "LM-Activation"
    assert ("Output-Norm" in names) == (family == "gpt2")
    assert ("Embedding-Norm" in names) == (family == "gpt2_ml")
    assert ("Embedding-Segment" in names) == (family == "gpt")
    assert not [name for name in names if name.startswith(("MLM-", "Pooler", "NSP-"))]
    assert len(builder.model.inputs) == (2 if family == "gpt" else 1)
    assert builder.model.output.shape == (None, None, 60)
    assert builder.config.to_dict()["family"] == family
    last = builder.model.get_layer("Transformer-2-FeedForward").output
    assert hidden_state(builder.model, -1) is last  # before the last norm


@each
@pytest.mark.parametrize("option", ["with_pool", "with_nsp", "with_sop", "with_mlm"])
def test_heads_of_bert(family, option):
    with refused(ConfigError, f"the {family} family has no such head", "with_lm"):
        build(family, **{option: True})


@pytest.mark.parametrize(
    ("option", "value"), [("with_lm", True), ("with_lm", "linear"), ("final_activation", "linear")]
)
@pytest.mark.parametrize("model", ["bert", "albert", "electra"])
def test_other_families_have_no_such_head(model, option, value):
    config = zoo_config("bert", embedding_size=12)
    own = "with_discriminator" if model == "electra" else "with_mlm"
    with refused(ConfigError, f"{option}={value!r}", model, own, "model='gpt2'") as caught:
        build_transformer_model(config, model=model, verbose=0, **{option: value})
    assert ("application='lm'" in str(caught.value)) == (model != "electra")
    silent(build_transformer_model, config, model=model, verbose=0, with_lm=False)


@each
@pytest.mark.parametrize("option", ["with_lm", "final_activation"])
@pytest.mark.parametrize("value", [3, "sofmax"])
def test_wrong_activation(family, option, value):
    with refused(ConfigError, repr(value)):
        build(family, **{option: value})


@each
def test_tables_as_wide_as_the_blocks(family):
    with refused(ConfigError, "embedding_size=12", "hidden_size=24", family):
        build_transformer_model({**zoo_config(family), "embedding_size": 12}, model=family)


# ---- who sees whom ---------------------------------------------------------------------------


def test_two_texts_by_the_reference():
    """Application "unilm": the first text is read as a whole."""
    config, arrays = sample("gpt")
    v = as_float64(arrays)
    ids = np.array([[5, 9, 3, 8, 7, 2, 0], [4, 6, 11, 12, 0, 0, 0]], "int32")
    segments = np.array([[0, 0, 0, 1, 1, 1, 0], [0, 1, 1, 1, 0, 0, 0]], "int32")
    scope = "gpt/embeddings"
    x = v[f"{scope}/word_embeddings"][ids] + v[f"{scope}/position_embeddings"][:7]
    x = x + v[f"{scope}/token_type_embeddings"][segments]
    visible = visible_keys(ids != 0, segments=segments)
    settings = Settings(4, activation_of(config), visible, 1e-5)
    states = post_norm_blocks(v, "gpt/transformer", x, 3, settings)
    wanted = softmax(states[-1] @ v[f"{scope}/word_embeddings"].T)
    found = call(build("gpt", application="unilm"), ids, segments)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
    assert np.abs(found - call(build("gpt"), ids, segments))[0, :2].max() > 1e-3


@pytest.mark.parametrize("family", ["gpt2", "gpt2_ml"])
def test_two_texts_need_segments(family):
    with refused(ConfigError, "'unilm'", family, "no segments", "lm"):
        build(family, application="unilm")


def test_two_texts_need_the_segments_that_were_removed():
    with refused(ConfigError, "'unilm'", "segment_vocab_size"):
        build("gpt", application="unilm", segment_vocab_size=0)


@each
@pytest.mark.parametrize("changed", [0, 4])
def test_what_comes_later_changes_nothing(family, changed):
    model = build(family)
    batch = batch_of(family, rows=1)
    batch[0][:] = np.arange(10, 19)
    other = [batch[0].copy(), *batch[1:]]
    other[0][:, changed] = 55
    before, after = call(model, *batch), call(model, *other)
    np.testing.assert_array_equal(before[:, :changed], after[:, :changed])
    assert (np.abs(before - after)[0].max(axis=-1) > 1e-6)[changed:].all()


# ---- padding ---------------------------------------------------------------------------------


def pad_of(model):
    return find_encoder(model).config.pad_token_id


@each
def test_id_0_is_padding_in_files_of_tensorflow(family):
    batch = batch_of(family, rows=1)
    batch[0][:] = np.arange(10, 19)
    batch[0][0, :3] = 0
    found = call(build(family), *batch)
    wanted = expected(family, batch)["lm"]
    np.testing.assert_allclose(found[:, 3:], wanted[:, 3:], rtol=0, atol=1e-5)
    assert np.isfinite(found).all()  # what stands at padding itself means nothing
    shown = expected(family, batch, mask=np.ones_like(batch[0]))["lm"]
    assert np.abs(found - shown)[0, 4:].max() > 1e-3


@pytest.mark.parametrize(
    ("keys", "options", "pad"),
    default_and_slow(
        [
            ({}, {}, None),
            ({"pad_token_id": None}, {}, None),
            ({"pad_token_id": -1}, {}, None),
            ({"pad_token_id": 3}, {}, 3),
            ({"pad_token_id": 0}, {}, 0),
            ({"pad_token_id": 3, "eos_token_id": 3}, {}, None),
            ({"pad_token_id": 3, "eos_token_id": 4}, {}, 3),
            ({"pad_token_id": 3}, {"pad_token_id": 0}, 0),
            ({}, {"pad_token_id": 0}, 0),
            ({"pad_token_id": 3}, {"pad_token_id": -1}, None),
        ],
        [({}, {}, None), ({"pad_token_id": 3, "eos_token_id": 4}, {}, 3)],
    ),
)
def test_padding_in_files_of_transformers(keys, options, pad, tmp_path):
    config = {**THEIRS, **keys}
    model = build_transformer_model(config, model="gpt2", verbose=0, with_lm="linear", **options)
    assert pad_of(model) == pad
    ids = np.array([[3, 0, 9, 3, 0, 8]], "int32")
    mask = np.ones_like(ids) if pad is None else (ids != pad).astype("int32")
    masked = build_transformer_model(
        config, model="gpt2", verbose=0, with_lm="linear", with_mask_input=True, **options
    )
    masked.set_weights(model.get_weights())
    found = call(model, ids)
    np.testing.assert_allclose(found, call(masked, ids, mask), rtol=0, atol=1e-6)
    # All forms of files remember it.
    model.save(tmp_path / "model.keras")
    saved = keras.models.load_model(tmp_path / "model.keras")
    paths = save_weights_as_checkpoint(model, tmp_path / "tf" / "model.ckpt", verbose=0)
    save_pretrained(model, tmp_path / "hf", verbose=0)
    for again in (
        saved,
        build_transformer_model(
            paths["config"], paths["checkpoint"], model="gpt2", with_lm="linear", verbose=0
        ),
        build_transformer_model(tmp_path / "hf", with_lm="linear", verbose=0),
    ):
        assert pad_of(again) == pad
        np.testing.assert_array_equal(call(again, ids), found)


@pytest.mark.parametrize("value", [-2, 1.5, "0"])
def test_wrong_padding(value):
    with refused(ConfigError, "pad_token_id", value):
        build_transformer_model(THEIRS, model="gpt2", pad_token_id=value, verbose=0)


# ---- configurations --------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [{}, {"n_inner": None}])
def test_width_of_the_feed_forward_layer_by_default(keys):
    model = build_transformer_model({**THEIRS, **keys}, verbose=0)
    config = find_encoder(model).config
    assert (config.family, config.intermediate_size) == ("gpt2", 96)
    assert (config.hidden_act, config.layer_norm_eps) == ("gelu_tanh", 1e-5)


@each
def test_what_the_family_means(family):
    config = find_encoder(build(family)).config
    assert config.layer_norm_eps == 1e-5
    assert config.hidden_act == ("gelu_erf" if family == "gpt2_ml" else "gelu_tanh")
    assert config.pad_token_id == 0
    assert config.type_vocab_size == (2 if family == "gpt" else 0)


@each
def test_a_head_of_its_own(family):
    config = {**zoo_config(family), "tie_word_embeddings": False}
    with refused(ConfigError, "tie_word_embeddings", family):
        build_transformer_model(config, model=family, verbose=0)


def test_what_changes_the_attention_is_refused():
    with refused(ConfigError, "scale_attn_by_inverse_layer_idx"):
        build_transformer_model({**THEIRS, "scale_attn_by_inverse_layer_idx": True}, verbose=0)


def test_a_head_that_is_not_the_table(tmp_path):
    from safetensors.numpy import load_file, save_file

    model = build_transformer_model(THEIRS, verbose=0)
    save_pretrained(model, tmp_path, verbose=0)
    arrays = load_file(tmp_path / "model.safetensors")
    arrays["lm_head.weight"] = arrays["transformer.wte.weight"]
    save_file(arrays, tmp_path / "model.safetensors")
    silent(build_transformer_model, tmp_path, verbose=0)
    arrays["lm_head.weight"] = arrays["lm_head.weight"] + 1
    save_file(arrays, tmp_path / "model.safetensors")
    with refused(WeightMismatchError, "lm_head.weight", "differ"):
        build_transformer_model(tmp_path, verbose=0)
    silent(build_transformer_model, tmp_path, with_lm=False, verbose=0)


# ---- forms of files --------------------------------------------------------------------------


def test_from_tensorflow_to_transformers_and_back(tmp_path):
    model = build("gpt2")
    save_pretrained(model, tmp_path, verbose=0)
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    assert {**THEIRS, "pad_token_id": 0, "n_inner": 40}.items() <= config.items()
    assert config["architectures"] == ["GPT2LMHeadModel"]
    again = build_transformer_model(tmp_path, verbose=0)
    batch = batch_of("gpt2")
    np.testing.assert_array_equal(call(again, *batch), call(model, *batch))


@pytest.mark.parametrize("family", ["gpt", "gpt2_ml"])
def test_transformers_has_no_such_model(family, tmp_path):
    with refused(WeightMismatchError, family, "save_weights_as_checkpoint"):
        save_pretrained(build(family), tmp_path, verbose=0)


@each
def test_without_segments_in_the_file(family, tmp_path):
    """A table of zeros is written where the original code has one."""
    model = build(family, segment_vocab_size=0)
    paths = save_weights_as_checkpoint(model, tmp_path / "model.ckpt", verbose=0)
    again = build_transformer_model(paths["config"], paths["checkpoint"], model=family, verbose=0)
    assert len(again.inputs) == (2 if family == "gpt" else 1)
    batch = batch_of(family)
    np.testing.assert_array_equal(call(again, *batch), call(model, batch[0]))


@pytest.mark.parametrize(
    "names",
    [
        ("gpt/embeddings/word_embeddings",),
        ("newslm/embeddings/word_embed", "newslm/embeddings/pos_embed"),
        ("transformer.h.0.ln_1.weight",),
        ("wte.weight", "wpe.weight"),
    ],
)
def test_only_a_part_of_a_file(names):
    arrays = {name: np.zeros((2, 2), "float32") for name in names}
    with refused(WeightMismatchError, "only a part of a", "missing"):
        build_transformer_model(zoo_config("gpt"), arrays, verbose=0)


def test_number_of_heads_of_cpm():
    config = zoo_config(
        "gpt2", hidden_size=2560, num_hidden_layers=1, intermediate_size=1, vocab_size=2
    )
    arrays = zoo_arrays("gpt2", config)
    with pytest.warns(UserWarning, match="num_attention_heads=32"):
        build_transformer_model(None, arrays, verbose=0)


def test_conditional_norms():
    """The part without a norm does without the condition."""
    condition = keras.Input((5,), name="condition")
    rng = np.random.default_rng(0)
    for family in FAMILIES:
        model = build_transformer_model(
            zoo_config(family),
            model=family,
            layer_norm_cond=condition,
            additional_input_layers=condition,
            verbose=0,
        )
        for weight in model.weights:
            weight.assign(rng.normal(0, 0.2, weight.shape))
        batch = batch_of(family)
        outputs = [call(model, *batch, np.full((3, 5), value, "float32")) for value in (0.0, 1.0)]
        assert np.abs(outputs[0] - outputs[1]).max() > 1e-3, family

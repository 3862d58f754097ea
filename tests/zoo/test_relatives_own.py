"""What single families among BERT's relatives have, lack, or refuse."""

import keras
import numpy as np
import pytest
from families import MLM_HEAD, Family, assert_close, family_of, outputs_of

from harness import default_and_slow, refused, silent, to_numpy
from kerasbert import build_transformer_model, model_report, save_pretrained
from kerasbert import save_weights_as_checkpoint as save
from kerasbert.errors import ConfigError, WeightMismatchError

NEZHA, ROFORMER, V2, GAU = (
    Family(name, MLM_HEAD, "") for name in ("nezha", "roformer", "roformer_v2", "gau_alpha")
)
BARE = pytest.mark.parametrize("family", [V2, GAU], ids=str)


def layer_names(model):
    return [layer.name for layer in model.layers]


def test_layers_have_bert4keras_names():
    assert "Embedding-Relative-Position" in layer_names(NEZHA.build(*NEZHA.sample()))
    assert "Embedding-Rotary-Position" in layer_names(ROFORMER.build(*ROFORMER.sample()))
    names = layer_names(GAU.build(*GAU.sample(embedding_size=12), with_mlm=True))
    assert {"Transformer-2-GatedAttentionUnit", "Output-Mapping", "Output-MLM-Dropout"} <= {*names}
    assert "Transformer-2-FeedForward" not in names
    assert names.index("Embedding-Dropout") < names.index("Embedding-Norm")
    assert "Output-Mapping" not in layer_names(V2.build(*V2.sample(), with_mlm=True))


# ---- positions -------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [NEZHA, ROFORMER, V2, GAU], ids=str)
def test_texts_may_be_longer_than_any_table(family):
    config, arrays = family.sample(max_position_embeddings=4, hidden_act="relu")
    if family is GAU:
        config["hidden_act"] = "swish"
    model = family.build(config, arrays, sequence_length=9, hidden_states=True)
    batch = family.batch()
    assert_close(outputs_of(model, batch)[1:], family.expected(config, arrays, batch))


@pytest.mark.backends
@pytest.mark.parametrize("family", default_and_slow([ROFORMER, V2, GAU], [V2, GAU]), ids=str)
def test_positions_may_be_given(family):
    config, arrays = family.sample()
    model = family.build(config, arrays, custom_position_ids=True)
    plain = family.build(config, arrays)
    batch = family.batch()
    counted = np.tile(np.arange(9, dtype="int32"), (3, 1))
    (expected,) = outputs_of(plain, batch)
    for places in (counted, counted + 700):  # only distances matter
        assert_close(outputs_of(model, [*batch, places]), [expected], 3e-5)
    (spread,) = outputs_of(model, [*batch, counted * 3])
    assert np.abs(spread - expected).max() > 1e-3


@pytest.mark.parametrize("largest", [2, 100])
def test_another_largest_distance_of_nezha(largest, tmp_path):
    config, arrays = NEZHA.sample(max_relative_position=largest)
    model = NEZHA.build(config, arrays, hidden_states=True)
    batch = NEZHA.batch()
    wanted = NEZHA.expected(config, arrays, batch, max_distance=largest)
    assert_close(outputs_of(model, batch)[1:], wanted)
    save(model, tmp_path / "model.ckpt", verbose=0)
    again = build_transformer_model(tmp_path, hidden_states=True, verbose=0)
    assert_close(outputs_of(again, batch), outputs_of(model, batch), 0)


@pytest.mark.parametrize("family", [NEZHA, ROFORMER, V2], ids=str)
def test_odd_heads_have_no_pairs(family):
    config, arrays = family.sample(num_attention_heads=8)
    with refused(ConfigError, "=3", "even"):
        family.build(config, arrays)


def test_odd_keys_of_a_gated_unit():
    with refused(ConfigError, "=7", "even"):
        GAU.build(*GAU.sample(attention_key_size=7))


def test_use_relative_position_switched_off_tells_nothing():
    config, _ = NEZHA.sample(use_relative_position=False)
    assert family_of(build_transformer_model(config, verbose=0)) == "bert"


# ---- without biases --------------------------------------------------------------------------


@BARE
def test_the_way_back_to_the_table_may_be_fresh(family):
    config, arrays = family.sample(embedding_size=12)
    name = "cls/predictions/output_mapping/kernel"
    arrays.pop(name)
    with refused(WeightMismatchError, "no mlm head", name, "strict=False"):
        family.build(config, arrays, with_mlm=True)
    with pytest.warns(UserWarning, match="keep their initial values"):
        model = family.build(config, arrays, with_mlm=True, strict=False)
    assert model_report(model).missing == ["Output-Mapping/kernel"]
    assert to_numpy(model.get_layer("Output-Mapping").kernel).std() > 0.05
    silent(family.build, config, arrays)


@BARE
def test_only_matrices_and_gammas_are_trained(family):
    config, arrays = family.sample(embedding_size=12)
    model = family.build(config, arrays, with_mlm=True)
    ends = {weight.path.rpartition("/")[2] for weight in model.weights}
    assert ends == {"embeddings", "kernel"} | ({"gamma"} if family is GAU else set())


@BARE
def test_what_norms_without_numbers_cannot_have(family):
    with refused(ConfigError, "layer_norm_cond", family.name):
        family.build(*family.sample(), layer_norm_cond=keras.Input((4,)))
    with refused(WeightMismatchError, "transformers has no model", family.name):
        save_pretrained(family.build(*family.sample()), "nowhere", verbose=0)


@pytest.mark.parametrize(("family", "power"), [(V2, 1 / 2), (GAU, 1 / 3)], ids=str)
def test_deeper_models_start_smaller(family, power):
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 8, "vocab_size": 90}
    config, _ = family.sample(**sizes)
    model = build_transformer_model(config, model=family.name, verbose=0)
    wanted = 64**-0.5 * 8**-power
    layer = "Transformer-0-GatedAttentionUnit" if family is GAU else "Transformer-0-FeedForward"
    kernel = to_numpy(model.get_layer(layer).weights[0])
    assert kernel.std() == pytest.approx(wanted, rel=0.05)
    table = to_numpy(model.get_layer("Embedding-Token").embeddings)
    assert table.std() == pytest.approx(90**-0.5 * 8**-power, rel=0.05)


# ---- GAU-alpha -------------------------------------------------------------------------------


def test_the_key_size_of_a_file_and_by_default():
    config, arrays = GAU.sample()
    del config["attention_key_size"], config["num_attention_heads"]
    model = GAU.build(config, arrays)
    assert model.get_layer("Transformer-0-GatedAttentionUnit").key_size == 8
    assert any("attention_key_size=8" in note for note in model_report(model).notes)
    fresh = build_transformer_model(config, model="gau_alpha", verbose=0)
    assert fresh.get_layer("Transformer-0-GatedAttentionUnit").key_size == 128
    with refused(WeightMismatchError, "attention_key_size", 16, 8):
        GAU.build(config, arrays, attention_key_size=16)


def test_scores_are_not_handed_on_by_gated_units():
    with refused(ConfigError, "residual_attention_scores", "gau_alpha"):
        GAU.build(*GAU.sample(), residual_attention_scores=True)

"""Masked LM at the masked places, and the order of sentences: losses, gradients, files."""

import keras
import numpy as np
import pytest
from batches_of_masks import (
    QUICK,
    VOCABULARY,
    at_places,
    batch,
    built,
    cross_entropy,
    dropout_free,
    fresh,
    masked_mean,
    steps_of,
)

from fixtures import make_arrays, read_checkpoint
from harness import refused, saved_and_loaded, to_numpy
from kerasbert import build_transformer_model, hidden_state, save_weights_as_checkpoint
from kerasbert.errors import ConfigError, KerasbertError
from kerasbert.layers import TakePlaces
from kerasbert.models.masked_head import masked_head
from kerasbert.models.view import find_encoder
from kerasbert.optimizers import LAMB, AdamW
from kerasbert.pretraining import (
    compile_objectives,
    for_model,
    masked_lm_model,
    pretraining_optimizer,
)
from reference.forward import forward

BATCH = batch()
X, Y, W = BATCH


def compiled(model, rate=1.0, **options):
    return compile_objectives(model, keras.optimizers.SGD(rate), **{**QUICK, **options})


def trained_by_one_step(model):
    before = [to_numpy(weight) for weight in model.trainable_weights]
    (logs,) = steps_of(model, BATCH)
    pairs = zip(model.trainable_weights, before, strict=True)
    return logs, {weight.path: to_numpy(weight) - old for weight, old in pairs}


# ---- the numbers -----------------------------------------------------------------------------


@pytest.mark.backends
@pytest.mark.parametrize("kind", ["google_albert", "google_bert"])
def test_losses_are_those_of_a_plain_reference(kind):
    config = dropout_free(kind)
    arrays = make_arrays(kind, config, 1)
    model = built(kind, kind.removeprefix("google_"), arrays=arrays)
    logs = compiled(masked_lm_model(model)).test_on_batch(*BATCH, return_dict=True)
    out = forward(arrays, config, X["input_ids"], X["segment_ids"], X["input_mask"])
    places = X["masked_lm_positions"]
    logits = at_places(out["mlm_logits"], places)
    masked = masked_mean(cross_entropy(logits, Y["masked_lm"]), W["masked_lm"])
    sentence = cross_entropy(out["nsp_logits"], Y["next_sentence"]).mean()
    right = logits.argmax(-1) == Y["masked_lm"]
    expected = {
        "loss": masked + sentence,
        "masked_lm_loss": masked,
        "next_sentence_loss": sentence,
        "masked_lm_accuracy": masked_mean(right, W["masked_lm"]),
        "next_sentence_accuracy": (out["nsp_logits"].argmax(-1) == Y["next_sentence"]).mean(),
    }
    assert set(logs) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(float(logs[name]), value, atol=1e-4, err_msg=name)


def over_all_tokens(model):
    """A model whose masked-LM head runs on every token, with targets and weights for it."""
    _, _, logits = masked_head(find_encoder(model))
    name = keras.layers.Activation("linear", name="masked_lm", dtype="float32")
    whole = keras.Model(model.inputs, {"masked_lm": name(logits)})
    ids, weights = np.zeros((2, *X["input_ids"].shape), "float32")
    for row, places in enumerate(X["masked_lm_positions"]):
        real = W["masked_lm"][row] > 0
        ids[row, places[real]] = Y["masked_lm"][row][real]
        weights[row, places[real]] = 1
    return whole, ({"masked_lm": ids}, {"masked_lm": weights})


@pytest.mark.backends
@pytest.mark.parametrize(
    ("kind", "family"),
    [("google_albert", "albert"), ("google_bert", "bert"), ("albert_zh", "albert")],
)
def test_gathered_places_give_the_gradients_of_all_tokens(kind, family):
    heads = {"with_nsp": False}
    gathered = compiled(masked_lm_model(built(kind, family, **heads)))
    whole, (y, weights) = over_all_tokens(built(kind, family, **heads))
    compiled(whole)
    logs, found = trained_by_one_step(gathered)
    before = [to_numpy(weight) for weight in whole.trainable_weights]
    other = whole.train_on_batch([X["input_ids"], X["segment_ids"]], y, weights, return_dict=True)
    np.testing.assert_allclose(float(logs["loss"]), float(other["loss"]), rtol=1e-5)
    expected = {
        weight.path: to_numpy(weight) - old
        for weight, old in zip(whole.trainable_weights, before, strict=True)
    }
    assert found.keys() == expected.keys()
    for path, change in expected.items():
        np.testing.assert_allclose(found[path], change, atol=2e-5, rtol=1e-3, err_msg=path)
    assert max(np.abs(change).max() for change in found.values()) > 0.01


def test_the_product_with_the_vocabulary_is_done_for_the_places_alone():
    model = masked_lm_model(built())
    assert tuple(model.output["masked_lm"].shape) == (None, None, VOCABULARY)
    assert to_numpy(model(X)["masked_lm"]).shape == (4, 3, VOCABULARY)
    (call,) = find_encoder(model).calls("MLM-Dense")
    assert isinstance(call.input_tensors[0]._keras_history.operation, TakePlaces)


def test_what_fills_up_has_no_effect():
    x, y, w = batch()
    padding = w["masked_lm"] == 0
    assert padding.any()
    changed = (
        {**x, "masked_lm_positions": np.where(padding, 5, x["masked_lm_positions"])},
        {**y, "masked_lm": np.where(padding, 77, y["masked_lm"])},
        w,
    )
    longer = (
        {**x, "masked_lm_positions": np.pad(x["masked_lm_positions"], ((0, 0), (0, 4)))},
        {**y, "masked_lm": np.pad(y["masked_lm"], ((0, 0), (0, 4)))},
        {**w, "masked_lm": np.pad(w["masked_lm"], ((0, 0), (0, 4)))},
    )
    results = []
    for data in ((x, y, w), changed, longer):
        model = compiled(masked_lm_model(built()))
        (logs,) = steps_of(model, data)
        results.append((logs, [to_numpy(weight) for weight in model.weights]))
    (logs, weights), *others = results
    for other_logs, other_weights in others:
        for name in logs:
            np.testing.assert_allclose(float(other_logs[name]), float(logs[name]), rtol=1e-6)
        for one, other in zip(weights, other_weights, strict=True):
            np.testing.assert_allclose(other, one, atol=1e-6)


@pytest.mark.parametrize("activation", [True, "linear"])
def test_the_loss_of_sentences_is_that_of_the_head(activation):
    model = built(with_mlm=True, with_nsp=activation)
    logs = compiled(masked_lm_model(model)).test_on_batch(*BATCH, return_dict=True)
    output = np.asarray(model.predict_on_batch([X["input_ids"], X["segment_ids"]])[0], "float64")
    logits = output if activation == "linear" else np.log(output)
    expected = cross_entropy(logits, Y["next_sentence"]).mean()
    np.testing.assert_allclose(float(logs["next_sentence_loss"]), expected, rtol=1e-5)


def test_sure_and_wrong_sentences_have_a_gradient_still():
    model = built()
    model.get_layer("NSP-Proba").bias.assign([40.0, -40.0])
    trained = compiled(masked_lm_model(model), rate=0.1)
    y = {**Y, "next_sentence": np.ones(4, "int32")}
    logs = trained.train_on_batch(X, y, W, return_dict=True)
    assert 70 < float(logs["next_sentence_loss"]) < 90
    assert to_numpy(model.get_layer("NSP-Proba").bias)[0] < 40.0


# ---- the graph -------------------------------------------------------------------------------


def test_names_are_those_of_the_records():
    model = masked_lm_model(built(), name="trained")
    assert model.name == "trained"
    assert sorted(model.input) == sorted(X)
    assert sorted(model.output) == ["masked_lm", "next_sentence"]
    assert sorted(model.output_names) == ["masked_lm", "next_sentence"]
    assert {tensor.dtype for tensor in model.inputs} == {"int32"}


def test_it_trains_the_model_itself():
    model = built()
    trained = compiled(masked_lm_model(model))
    assert {id(w) for w in trained.weights} == {id(w) for w in model.weights}
    assert {id(w) for w in find_encoder(trained).model.weights} == {id(w) for w in model.weights}
    before = to_numpy(model.get_layer("MLM-Dense").kernel)
    steps_of(trained, BATCH)
    assert np.abs(to_numpy(model.get_layer("MLM-Dense").kernel) - before).max() > 0
    states = keras.Model(trained.input, hidden_state(trained, -1))
    assert states(X).shape == (4, 10, 32)


def test_the_mask_of_a_batch_counts_where_the_model_takes_one():
    model = masked_lm_model(built(with_mask_input=True))
    hole = {**X, "input_mask": X["input_mask"].copy()}
    hole["input_mask"][:, 2:4] = 0
    assert np.abs(to_numpy(model(hole)["masked_lm"]) - to_numpy(model(X)["masked_lm"])).max() > 0.1
    blind = masked_lm_model(built())
    np.testing.assert_array_equal(
        to_numpy(blind(hole)["masked_lm"]), to_numpy(blind(X)["masked_lm"])
    )


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("albert_unshared", "google_albert"),
        ("nezha", "google_bert"),
        ("roformer", "google_bert"),
        ("roformer_v2", "google_bert"),
    ],
)
def test_other_families(family, kind):
    keras.utils.set_random_seed(0)
    model = build_transformer_model(dropout_free(kind), model=family, with_mlm=True, verbose=0)
    trained = masked_lm_model(model)
    found = to_numpy(trained(X)["masked_lm"])
    probabilities = np.exp(found) / np.exp(found).sum(-1, keepdims=True)
    whole = model.predict_on_batch([X["input_ids"], X["segment_ids"]])
    expected = at_places(whole, X["masked_lm_positions"])
    np.testing.assert_allclose(probabilities, expected, atol=1e-5)


def test_a_fixed_length_is_kept():
    model = masked_lm_model(built(sequence_length=10))
    assert model.input["input_ids"].shape == (None, 10)
    assert to_numpy(model(X)["masked_lm"]).shape == (4, 3, VOCABULARY)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_logits_are_float32_in_mixed_precision(policy):
    exact = to_numpy(masked_lm_model(built())(X)["masked_lm"])
    model = compiled(masked_lm_model(built(dtype=policy)), rate=1e-3)
    logits = model(X)
    assert {tensor.dtype for tensor in model.output.values()} == {"float32"}
    assert np.abs(to_numpy(logits["masked_lm"]) - exact).max() < 0.1 * np.abs(exact).max()
    assert np.isfinite(float(steps_of(model, BATCH)[0]["loss"]))


def test_saved_and_loaded_it_goes_on(tmp_path):
    model = compile_objectives(masked_lm_model(built()), AdamW(1e-3), **QUICK)
    steps_of(model, BATCH, 2)
    again = saved_and_loaded(model, tmp_path)
    for one, other in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))
    first, second = (steps_of(m, BATCH)[0] for m in (model, again))
    # The metrics of the first had seen more batches.
    assert float(second["loss"]) > 0 and first.keys() == second.keys()
    for one, other in zip(model.weights, again.weights, strict=True):
        np.testing.assert_allclose(to_numpy(one), to_numpy(other), atol=1e-6)


def test_written_in_the_form_of_google(tmp_path):
    trained = compiled(masked_lm_model(built()), rate=0.1)
    steps_of(trained, BATCH)
    paths = save_weights_as_checkpoint(trained, tmp_path / "model.ckpt", verbose=0)
    names = read_checkpoint(paths["checkpoint"])
    assert {"cls/predictions/output_bias", "cls/seq_relationship/output_weights"} <= set(names)
    again = build_transformer_model(
        paths["config"], paths["checkpoint"], "albert", with_mlm=True, with_nsp=True, verbose=0
    )
    for name, values in masked_lm_model(again)(X).items():
        np.testing.assert_array_equal(to_numpy(values), to_numpy(trained(X)[name]))


# ---- training --------------------------------------------------------------------------------


@pytest.mark.backends
def test_some_steps_lower_the_loss():
    model = compile_objectives(masked_lm_model(fresh(with_nsp=True)), AdamW(2e-2), **QUICK)
    first = steps_of(model, BATCH, 12)[0]
    assert float(first["masked_lm_loss"]) == pytest.approx(np.log(VOCABULARY), abs=0.3)
    model.reset_metrics()
    logs = model.test_on_batch(*BATCH, return_dict=True)
    assert float(logs["masked_lm_loss"]) < 2.5 and float(logs["loss"]) < 3.2


def test_the_optimizers_have_the_numbers_of_the_authors():
    lamb = pretraining_optimizer(125000)
    assert type(lamb) is LAMB and lamb.weight_decay == 0.01 and lamb.global_clipnorm == 1.0
    assert float(lamb._learning_rate(3125)) == pytest.approx(0.00176 * (1 - 3125 / 125000))
    adamw = pretraining_optimizer(1000000, "adamw")
    assert float(adamw._learning_rate(5000)) == pytest.approx(5e-5)
    electra = pretraining_optimizer(1000000, "electra", learning_rate=1e-3)
    assert float(electra._learning_rate(5000)) == pytest.approx(0.5e-3 * (1 - 0.005))
    for wrong, fact in (
        ({"name": "lam"}, "Did you mean 'lamb'"),
        ({"warmup": 2}, "warmup=2"),
        ({"learning_rate": 0}, "learning_rate=0"),
    ):
        with refused(ConfigError, fact):
            pretraining_optimizer(10, **wrong)


def test_batches_are_fitted_to_the_model():
    model = masked_lm_model(fresh())
    ((x, y, w),) = for_model(model, [({**X, "more": 1}, Y, W)])
    assert sorted(x) == sorted(X) and list(y) == list(w) == ["masked_lm"]
    with refused(ConfigError, "next_sentence", "targets"):
        list(for_model(masked_lm_model(built()), [batch(sentence=False)]))


# ---- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ({"with_mlm": False}, "with_mlm=True"),
        ({"custom_position_ids": True}, "Input-Position"),
        ({"with_nsp": "sigmoid"}, "with_sop=True"),
    ],
)
def test_models_that_cannot_be_trained_so(options, fact):
    with refused(ConfigError, fact):
        masked_lm_model(built(**options))


def test_what_is_no_model():
    with refused(KerasbertError, "Expected a Keras model"):
        masked_lm_model("albert")
    with refused(ConfigError, "no output that is an objective"):
        compile_objectives(built(), "adam")
    with refused(ConfigError, "replaced", "masked_lm"):
        compile_objectives(masked_lm_model(built()), "adam", loss_weights={"replaced": 2.0})

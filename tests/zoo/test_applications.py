"""Language models made of encoders: who sees whom, by the reference and by trying."""

import functools

import keras
import numpy as np
import pytest
from families import assert_close, family_of, outputs_of

from fixtures import random_batch, write_checkpoint
from harness import WITHOUT_XLA, default_and_slow, refused, silent, to_numpy
from kerasbert import build_transformer_model, model_report
from kerasbert.errors import ConfigError
from reference.forward import dense
from reference.zoo import run
from reference.zoo_parts import as_float64, visible_keys
from reference.zoo_weights import zoo_arrays, zoo_config

MODELS = ("bert", "albert", "albert_unshared", "nezha", "roformer")
each = pytest.mark.parametrize("model", default_and_slow(MODELS, ["albert", "roformer"]))
APPLICATIONS = ("encoder", "lm", "unilm")
each_application = pytest.mark.parametrize("application", APPLICATIONS)
REFERENCE = {"roformer": {"activation": "gelu_erf"}}

# The name of a block's variables in a BERT, and in an ALBERT.
OF_ALBERT = {
    "attention/self": "attention_1/self",
    "attention/output/dense": "attention_1/output/dense",
    "attention/output/LayerNorm": "LayerNorm",
    "intermediate/dense": "ffn_1/intermediate/dense",
    "output/dense": "ffn_1/intermediate/output/dense",
    "output/LayerNorm": "LayerNorm_1",
}
IDS = np.array([[5, 9, 3, 8, 7, 12, 0, 0], [4, 6, 11, 13, 2, 15, 16, 17]], "int32")
SEGMENTS = np.array([[0, 0, 0, 1, 1, 1, 0, 0], [0, 0, 0, 0, 0, 1, 1, 1]], "int32")


@functools.cache
def sample(model):
    """A config, arrays to load, and arrays for the reference.

    An ALBERT is a BERT whose blocks are equal.
    """
    albert = model.startswith("albert")
    family = "bert" if albert else model
    config = zoo_config(family, **({"embedding_size": 12} if albert else {}))
    arrays = zoo_arrays(family, config)
    if not albert:
        return config, arrays, arrays
    outer = {name: array for name, array in arrays.items() if "/layer_" not in name}
    first = {
        name.partition("/layer_0/")[2]: array
        for name, array in arrays.items()
        if "/layer_0/" in name
    }
    whole, shared = dict(outer), dict(outer)
    for name, array in first.items():
        start = next(start for start in OF_ALBERT if name.startswith(start))
        own = OF_ALBERT[start] + name.removeprefix(start)
        shared[f"bert/encoder/transformer/group_0/inner_group_0/{own}"] = array
        for layer in range(config["num_hidden_layers"]):
            whole[f"bert/encoder/layer_{layer}/{name}"] = array
    return config, shared, whole


def build(model, **options):
    config, arrays, _ = sample(model)
    options = {"model": model, "verbose": 0, **options}
    return silent(build_transformer_model, config, arrays, **options)


def expected(model, batch, **options):
    config, _, arrays = sample(model)
    family = "bert" if model.startswith("albert") else model
    return run(family, arrays, config, *batch, **{**REFERENCE.get(model, {}), **options})


def call(network, batch):
    return outputs_of(network, batch)[0]


# ---- numbers ---------------------------------------------------------------------------------


@pytest.mark.backends
@each
@each_application
def test_every_hidden_state_and_the_head(model, application):
    ids, segments = random_batch(np.random.default_rng(1), 60, 3, 11)
    for batch in ([IDS, SEGMENTS], [ids, segments]):
        wanted = expected(model, batch, application=application)
        states = wanted["hidden_states"]
        network = build(model, application=application, hidden_states=True, with_mlm="linear")
        assert_close(outputs_of(network, batch), [wanted["mlm_logits"], *states])
        # Asked for by the application alone, the head gives probabilities.
        plain = call(build(model, application=application), batch)
        assert_close([plain], [wanted["sequence_output" if application == "encoder" else "mlm"]])


@each
def test_the_three_differ(model):
    """Else the test before would say nothing."""
    found = [
        call(build(model, application=a, with_mlm=True), [IDS, SEGMENTS]) for a in APPLICATIONS
    ]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert np.abs(found[one] - found[other]).max() > 1e-3


@each
@each_application
def test_who_depends_on_whom(model, application):
    """Through all blocks, the first text is seen by all, the second only by what follows."""
    network = build(model, application=application)
    visible = visible_keys(
        IDS != 0,
        causal=application == "lm",
        segments=SEGMENTS if application == "unilm" else None,
    )
    before = call(network, [IDS, SEGMENTS])
    places = np.argwhere(IDS != 0)
    changed = np.repeat(IDS[None], len(places), axis=0)
    changed[(np.arange(len(places)), *places.T)] += 20
    # All in one batch; of the rows none knows of another.
    batch = [changed.reshape(-1, 8), np.tile(SEGMENTS, (len(places), 1))]
    after = call(network, batch).reshape(len(places), *before.shape)
    for (row, place), states in zip(places, after, strict=True):
        moved = np.abs(states - before).max(axis=-1) > 1e-6
        real = IDS[row] != 0
        np.testing.assert_array_equal(moved[row][real], visible[row, :, place][real])
        assert not moved[1 - row].any()


@each
@pytest.mark.parametrize("application", ["lm", "unilm"])
def test_padding_is_never_seen(model, application):
    network = build(model, application=application)
    alone = call(network, [IDS[:1, :6], SEGMENTS[:1, :6]])
    np.testing.assert_allclose(call(network, [IDS, SEGMENTS])[:1, :6], alone, rtol=0, atol=2e-6)
    # Also when a mask of the user's says what is padding.
    masked = build(model, application=application, with_mask_input=True)
    ids = np.where(IDS == 0, 33, IDS)
    found = call(masked, [ids, SEGMENTS, (IDS != 0).astype("int32")])
    np.testing.assert_allclose(found[:1, :6], alone, rtol=0, atol=2e-6)


@pytest.mark.parametrize("model", ["bert", "nezha"])
def test_a_language_model_without_segments(model):
    """As bert4keras' NEZHA-GEN is built."""
    network = build(model, application="lm", segment_vocab_size=0)
    assert len(network.inputs) == 1
    table = "bert/embeddings/token_type_embeddings"
    config, _, arrays = sample(model)
    arrays = {**arrays, table: np.zeros_like(arrays[table])}
    wanted = run(model, arrays, config, IDS, application="lm")["mlm"]
    assert_close([call(network, [IDS])], [wanted])


@pytest.mark.parametrize("model", ["roberta", "distilbert"])
def test_language_models_of_families_without_segments(model):
    words = {"model_type": model, **zoo_config("bert"), "pad_token_id": 0}
    if model == "distilbert":
        words["type_vocab_size"] = 0
    network = build_transformer_model(words, model=model, application="lm", verbose=0)
    rng = np.random.default_rng(3)
    for weight in network.weights:
        weight.assign(rng.normal(0, 0.3, weight.shape))
    ids = IDS[1:, :6].copy()
    assert network.output.shape == (None, None, 60)
    changed = ids.copy()
    changed[:, 3] += 20
    moved = np.abs(call(network, [changed]) - call(network, [ids]))[0].max(axis=-1) > 1e-6
    assert moved.tolist() == [False] * 3 + [True] * 3
    with refused(ConfigError, "'unilm'", "segment"):
        build_transformer_model(words, model=model, application="unilm", verbose=0)


# ---- models in use ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("model", ["bert", "albert"])
@pytest.mark.parametrize("application", ["lm", "unilm"])
def test_saved_and_trained(model, application, tmp_path):
    network = build(model, application=application)
    batch = [IDS, SEGMENTS]
    network.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(call(again, batch), call(network, batch))
    # The next token is learned by heart.
    loss = "sparse_categorical_crossentropy"
    again.compile(keras.optimizers.Adam(0.01), loss, **WITHOUT_XLA)
    shifted = np.roll(IDS, -1, axis=1)
    weights = (shifted != 0).astype("float32")
    losses = again.fit(batch, shifted, sample_weight=weights, epochs=12, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]


def test_simbert():
    """A BERT that compares texts by a pooled output without tanh, and writes similar ones."""
    batch = [IDS, SEGMENTS]
    wanted = expected("bert", batch, application="unilm")
    arrays = as_float64(sample("bert")[2])
    pooled = dense(arrays, "bert/pooler/dense", wanted["sequence_output"][:, 0])
    network = build("bert", application="unilm", with_pool="linear")
    assert_close(outputs_of(network, batch), [pooled, wanted["mlm"]])
    # Only the first text is read for the vector: alone it gives the same.
    encoder = keras.Model(network.inputs, network.outputs[0])
    one = call(encoder, [IDS[:1, :3], SEGMENTS[:1, :3]])
    np.testing.assert_allclose(one, pooled[:1], rtol=0, atol=1e-5)


def test_labse(tmp_path):
    """A BERT with a large vocabulary, whose file has a pooler and no other head."""
    config = zoo_config("bert", vocab_size=501, type_vocab_size=2)
    arrays = {n: a for n, a in zoo_arrays("bert", config).items() if not n.startswith("cls/")}
    prefix = write_checkpoint(tmp_path / "bert_model.ckpt", arrays)
    network = silent(build_transformer_model, config, prefix, with_pool=True, verbose=0)
    assert family_of(network) == "bert"
    report = model_report(network)
    assert not report.missing and not report.unused and not report.unused_heads
    ids, segments = random_batch(np.random.default_rng(0), 501, 2, 7)
    wanted = run("bert", arrays, config, ids, segments)["pooled_output"]
    assert_close([call(network, [ids, segments])], [wanted])
    # In low precision as well, as large models are used.
    half = build_transformer_model(config, prefix, with_pool=True, dtype="bfloat16", verbose=0)
    assert np.abs(to_numpy(half([ids, segments])) - wanted).max() < 0.1


# ---- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize("application", ["lm", "unilm"])
def test_no_head_to_predict_with(application):
    with refused(ConfigError, repr(application), "electra", "masked-LM", "encoder"):
        build_transformer_model(zoo_config("bert"), model="electra", application=application)


@each
def test_two_texts_need_segments(model):
    with refused(ConfigError, "'unilm'", "segment_vocab_size"):
        build(model, application="unilm", segment_vocab_size=0)


@each
@pytest.mark.parametrize("application", ["", None, 1, "Lm", ["lm"]])
def test_unknown_applications(model, application):
    with refused(ConfigError, f"application={application!r}", "encoder, lm, unilm"):
        build(model, application=application)

"""Losses and metrics over label sequences inside compiled models: padding, saving, XLA."""

import keras
import numpy as np
import pytest
from test_crf import every_kind, make, reference

from harness import STEP_BY_STEP, refused, silent, to_numpy
from kerasbert.errors import ConfigError

N, L, K, V, H = 6, 7, 3, 9, 5
RNG = np.random.default_rng(8)
LENGTHS = (7, 3, 5, 1, 4, 6)
REAL = np.arange(L) < np.array(LENGTHS)[:, None]
REAL[0, 2:4] = False  # a hole
IDS = np.where(REAL, RNG.integers(1, V, (N, L)), 0)
LABELS = RNG.integers(0, K, (N, L))
ONE_HOT = np.eye(K, dtype="float32")[LABELS]

pytestmark = pytest.mark.backends
# With torch, XLA's place is taken by a compiler that needs C++.
XLA = {"jit_compile": True} if keras.backend.backend() != "torch" else {}


def model_of(kind, optimizer=None, dense=False, options=STEP_BY_STEP, **more):
    """A compiled model from ids to scores, with new weights, and its last layer."""
    layer = make(kind, K, **more)
    inputs = keras.Input((None,), dtype="int32")
    hidden = keras.layers.Embedding(V, H, mask_zero=True)(inputs)
    model = keras.Model(inputs, layer(keras.layers.Dense(K)(hidden)))
    loss, metric = (
        (layer.dense_loss, layer.dense_accuracy)
        if dense
        else (layer.sparse_loss, layer.sparse_accuracy)
    )
    optimizer = optimizer or keras.optimizers.SGD(1.0)
    model.compile(optimizer, loss, metrics=[metric], **{"jit_compile": False, **options})
    return model, layer


def values(model):
    return [to_numpy(weight).astype("float64") for weight in model.trainable_weights]


def start_alike(*models):
    for model in models[1:]:
        model.set_weights(models[0].get_weights())


def reference_loss(kind, weights, multiplier):
    """Mean loss of the whole batch, from the values of a model's weights."""
    table, kernel, bias, *trans = weights
    trans = [multiplier * factor for factor in trans]
    trans = trans[0] if len(trans) == 1 else trans[0] @ trans[1].T
    scores = table[IDS] @ kernel + bias
    losses = [
        -reference(kind, s, trans, y, m) for s, y, m in zip(scores, LABELS, REAL, strict=True)
    ]
    return np.mean(losses if kind == "crf" else losses / REAL.sum(1))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        pytest.param("crf", XLA, id="crf-XLA"),
        pytest.param("memm", STEP_BY_STEP, id="memm"),
        pytest.param("memm_factors", STEP_BY_STEP, id="memm_factors"),
        pytest.param("crf", STEP_BY_STEP, id="crf", marks=pytest.mark.slow),
        pytest.param("memm_factors", XLA, id="memm_factors-XLA", marks=pytest.mark.slow),
    ],
)
def test_loss_and_gradients(kind, options):
    model, _ = model_of(kind, lr_multiplier=3, options=options)
    before = values(model)
    loss = model.train_on_batch(IDS, LABELS)[0]
    assert loss == pytest.approx(reference_loss(kind, before, 3), rel=1e-5)
    for number, (old, new) in enumerate(zip(before, values(model), strict=True)):
        numeric = np.zeros_like(old)
        for index in np.ndindex(*old.shape):
            sides = []
            for step in (1e-5, -1e-5):
                moved = [value.copy() for value in before]
                moved[number][index] += step
                sides.append(reference_loss(kind, moved, 3))
            numeric[index] = (sides[0] - sides[1]) / 2e-5
        assert np.abs(numeric).max() > 1e-3
        np.testing.assert_allclose(old - new, numeric, atol=2e-5)


@every_kind
def test_padding_moves_neither_loss_nor_weights(kind):
    one, _ = model_of(kind)
    other, _ = model_of(kind)
    start_alike(one, other)
    table = other.layers[1].embeddings
    table.assign(np.where(np.arange(V)[:, None] == 0, 1e6, to_numpy(table)))
    labels = np.where(REAL, LABELS, RNG.integers(-9, 99, (N, L)))
    for _ in range(2):
        assert one.train_on_batch(IDS, LABELS) == other.train_on_batch(IDS, labels)
    (first, *rest), (second, *others) = values(one), values(other)
    np.testing.assert_array_equal(first[1:], second[1:])
    assert (second[0] == 1e6).all()
    for a, b in zip(rest, others, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@every_kind
def test_longer_padding_and_other_batches_change_nothing(kind):
    model, _ = model_of(kind)
    pad = ((0, 0), (0, 4))
    expected = model.evaluate(IDS, LABELS, batch_size=N, verbose=0)
    padded = model.evaluate(np.pad(IDS, pad), np.pad(LABELS, pad), batch_size=N, verbose=0)
    np.testing.assert_allclose(padded, expected, rtol=1e-6)
    for size in (1, 4):
        found = model.evaluate(IDS, LABELS, batch_size=size, verbose=0)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    right = (to_numpy(model(IDS)).argmax(-1) == LABELS)[REAL].mean()
    assert expected[1] == pytest.approx(right)


@every_kind
def test_dense_labels_are_sparse_labels(kind):
    sparse, _ = model_of(kind)
    dense, _ = model_of(kind, dense=True)
    start_alike(sparse, dense)
    for left_out in (False, True):
        labels = np.where(RNG.random((N, L)) < 0.3, -1, LABELS) if left_out else LABELS
        one_hot = ONE_HOT * (labels >= 0)[..., None]
        expected = sparse.test_on_batch(IDS, labels)
        np.testing.assert_allclose(dense.test_on_batch(IDS, one_hot), expected, rtol=1e-6)
    column = sparse.test_on_batch(IDS, labels[..., None])
    np.testing.assert_allclose(column, expected, rtol=1e-6)


def test_weights_of_sequences():
    model, layer = model_of("crf")
    each = -to_numpy(layer.log_likelihood(model(IDS), LABELS))
    weight = np.array([0.0, 1.0, 2.0, 0.0, 0.5, 1.0], "float32")
    found = model.evaluate(IDS, LABELS, sample_weight=weight, batch_size=N, verbose=0)[0]
    assert found == pytest.approx((each * weight).mean(), rel=1e-5)
    with refused(ConfigError, "sample_weight", (N, L)):
        layer.sparse_loss(LABELS, to_numpy(model(IDS)), np.ones((N, L)))


@pytest.mark.slow
@pytest.mark.parametrize("options", [XLA, {}] if XLA else [{}])
def test_learns_what_only_transitions_tell(options):
    # Labels run 0 1 2 0 1 2 …, and only the first token tells where they start.
    rng = np.random.default_rng(0)
    first = rng.integers(0, K, 96)
    labels = (first[:, None] + np.arange(L)) % K
    ids = np.where(np.arange(L) == 0, first[:, None] + 1, 8)
    ids = np.where(np.arange(L) < rng.integers(3, L + 1, 96)[:, None], ids, 0)
    model, crf = model_of("crf", keras.optimizers.Adam(0.02), lr_multiplier=5, options=options)
    before = to_numpy(crf.trans)
    model.train_on_batch(ids[:8], labels[:8])
    # Adam's first step has the length of the learning rate.
    np.testing.assert_allclose(np.abs(to_numpy(crf.trans) - before), 0.02 * 5, rtol=1e-2)
    history = model.fit(ids, labels, batch_size=16, epochs=12, verbose=0).history
    assert history["loss"][-1] < 0.1 * history["loss"][0]
    found = to_numpy(crf.decode(model.predict(ids, verbose=0)))
    assert (found == labels)[ids > 0].all()
    assert history["sparse_accuracy"][-1] < 0.9


@pytest.mark.slow
@every_kind
def test_saved_models_predict_and_go_on_training(kind, tmp_path):
    adam = keras.optimizers.Adam(0.01)
    model, layer = model_of(kind, adam, name="labels", lr_multiplier=10)
    options = {"batch_size": N, "epochs": 2, "shuffle": False, "verbose": 0}
    model.fit(IDS, LABELS, **options)
    silent(model.save, tmp_path / "model.keras")
    again = silent(keras.models.load_model, tmp_path / "model.keras")
    found = again.get_layer("labels")
    assert again.loss.layer is found is not layer
    scores = model.predict(IDS, verbose=0)
    np.testing.assert_array_equal(again.predict(IDS, verbose=0), scores)
    np.testing.assert_array_equal(to_numpy(found.decode(scores)), to_numpy(layer.decode(scores)))
    first, second = (m.fit(IDS, LABELS, **options).history for m in (model, again))
    assert first == second and set(first) == {"loss", "sparse_accuracy"}
    for old, new in zip(values(model), values(again), strict=True):
        np.testing.assert_array_equal(old, new)


def test_weights_alone_and_configuration_alone(tmp_path):
    model, _ = model_of("crf", name="labels")
    model.fit(IDS, LABELS, verbose=0)
    model.save_weights(tmp_path / "model.weights.h5")
    again = keras.models.model_from_json(model.to_json())
    assert again.loss.layer is again.get_layer("labels")
    silent(again.load_weights, tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(to_numpy(again(IDS)), to_numpy(model(IDS)))
    np.testing.assert_array_equal(
        to_numpy(again.get_layer("labels").trans), to_numpy(model.get_layer("labels").trans)
    )


def test_a_loss_without_its_layer_says_so():
    _, layer = model_of("crf", name="of_no_other_test")
    written = keras.saving.serialize_keras_object(layer.sparse_loss)
    loss = keras.saving.deserialize_keras_object(written)
    with refused(ConfigError, "sparse_loss", "'of_no_other_test'", "Compile"):
        loss(LABELS, np.zeros((N, L, K), "float32"))
    assert keras.saving.serialize_keras_object(loss) == written


@pytest.mark.slow
def test_mixed_precision_trains():
    for policy in ("mixed_float16", "mixed_bfloat16"):
        model, _ = model_of("crf", keras.optimizers.Adam(0.05), dtype=policy)
        losses = [model.train_on_batch(IDS, LABELS)[0] for _ in range(8)]
        assert np.isfinite(losses).all() and losses[-1] < losses[0]

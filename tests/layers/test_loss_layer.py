"""A layer that is a loss: under fit without targets, saved and loaded."""

import json

import keras
import numpy as np
import pytest
from keras import ops

from harness import STEP_BY_STEP, WITHOUT_XLA, default_and_slow, silent, to_numpy
from kerasbert.layers import Embedding, Loss

B, L, C = 8, 4, 3
RNG = np.random.default_rng(1)
IDS = RNG.integers(1, 6, (B, L)).astype("int32")
IDS[::2, 2:] = 0
LABELS = (IDS % C).astype("int32")


@keras.saving.register_keras_serializable(package="kerasbert_tests")
class MaskedCrossEntropy(Loss):
    """Cross-entropy of the real tokens only."""

    def compute_loss(self, inputs, mask=None):
        labels, scores = inputs
        losses = keras.losses.sparse_categorical_crossentropy(labels, scores, from_logits=True)
        real = ops.cast(mask[1], losses.dtype)
        return ops.sum(losses * real) / ops.sum(real)


@keras.saving.register_keras_serializable(package="kerasbert_tests")
class Square(Loss):
    """The squares of a single input; not a scalar."""

    def compute_loss(self, inputs, mask=None):
        return ops.square(inputs)


def tagger(output_axis=1, dtype=None):
    tokens = keras.Input((None,), dtype="int32", name="tokens")
    labels = keras.Input((None,), dtype="int32", name="labels")
    hidden = keras.layers.Embedding(6, 8, mask_zero=True, name="table", dtype=dtype)(tokens)
    scores = keras.layers.Dense(C, dtype=dtype)(hidden)
    outputs = MaskedCrossEntropy(output_axis, name="loss", dtype=dtype)([labels, scores])
    return keras.Model([tokens, labels], outputs)


def reference_loss(scores, labels, real):
    total = []
    for place in np.argwhere(real):
        row = scores[tuple(place)].astype("float64")
        total.append(np.log(np.exp(row).sum()) - row[labels[tuple(place)]])
    return np.mean(total)


@pytest.mark.backends
@pytest.mark.parametrize("dtype", default_and_slow([None, "mixed_bfloat16"], [None]))
def test_fits_without_targets(dtype):
    model = tagger(dtype=dtype)
    expected = reference_loss(to_numpy(model([IDS, LABELS])), LABELS, IDS != 0)
    model.compile(keras.optimizers.Adam(0.05), **WITHOUT_XLA)
    found = model.evaluate([IDS, LABELS], batch_size=B, verbose=0)
    assert found == pytest.approx(expected, rel=1e-5 if dtype is None else 1e-2)
    history = model.fit([IDS, LABELS], epochs=30, batch_size=B, verbose=0).history["loss"]
    assert history[-1] < 0.1 < history[0]
    assert model.predict([IDS, LABELS], verbose=0).shape == (B, L, C)


@pytest.mark.backends
def test_adds_to_the_loss_of_the_model():
    inputs = keras.Input((2,))
    model = keras.Model(inputs, Square()(inputs))
    model.compile("sgd", "mae", **WITHOUT_XLA)
    x = np.array([[1.0, 2.0], [3.0, 5.0]], "float32")
    found = model.evaluate(x, np.zeros_like(x), verbose=0)
    assert found == pytest.approx(2.75 + 9.75)  # the mean of |x|, and the mean of the squares


def test_saves_and_loads(tmp_path):
    model = tagger()
    model.compile(keras.optimizers.Adam(0.05), **STEP_BY_STEP)
    model.fit([IDS, LABELS], epochs=2, batch_size=B, verbose=0)
    silent(model.save, tmp_path / "model.keras")
    again = silent(keras.models.load_model, tmp_path / "model.keras")
    assert again.get_layer("loss").output_axis == 1
    batch = [IDS, LABELS]
    np.testing.assert_array_equal(to_numpy(again(batch)), to_numpy(model(batch)))
    first, second = (m.evaluate(batch, batch_size=B, verbose=0) for m in (model, again))
    assert first == second
    losses = again.fit(batch, epochs=3, batch_size=B, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


@pytest.mark.backends
@pytest.mark.parametrize("axis", [None, 0, 1, [1], [1, 0]])
def test_what_is_passed_on(axis):
    inputs = [ops.convert_to_tensor(LABELS), ops.cast(RNG.normal(size=(B, L, C)), "float32")]
    inputs[1]._keras_mask = ops.convert_to_tensor(IDS != 0)
    outputs = MaskedCrossEntropy(axis)(inputs)
    chosen = {None: [0, 1], 0: 0, 1: 1}.get(axis, axis) if not isinstance(axis, list) else axis
    if isinstance(chosen, int):
        outputs, chosen = [outputs], [chosen]
    assert len(outputs) == len(chosen)
    for output, index in zip(outputs, chosen, strict=True):
        np.testing.assert_array_equal(to_numpy(output), to_numpy(inputs[index]))
        masked = getattr(output, "_keras_mask", None) is not None
        assert masked == (index == 1)
    shapes = tagger(axis).output_shape
    assert (shapes if isinstance(shapes, list) else [shapes]) == [
        [(None, None), (None, None, C)][index] for index in chosen
    ]
    config = MaskedCrossEntropy(axis).get_config()
    assert MaskedCrossEntropy.from_config(json.loads(json.dumps(config))).get_config() == config


@pytest.mark.parametrize("dtype", ["float16", "mixed_float16"])
def test_types_of_inputs_are_kept(dtype):
    layer = Square(dtype=dtype)
    assert "float32" in str(layer(ops.ones((2, 3), dtype="float32")).dtype)
    # 2049 is not a number in float16.
    scores = ops.ones((1, 1, 2050), dtype="float32")
    labels = ops.array([[2049]], dtype="int32")
    scores._keras_mask = ops.ones((1, 1), dtype="bool")
    passed = MaskedCrossEntropy(0, dtype=dtype)([labels, scores])
    assert int(passed[0, 0]) == 2049 and "int32" in str(passed.dtype)


def test_a_mask_of_embeddings_reaches_the_loss():
    table = Embedding(6, C)
    hidden = table(IDS, mask=IDS)
    layer = MaskedCrossEntropy(1)
    layer([ops.convert_to_tensor(LABELS), hidden])
    expected = reference_loss(to_numpy(hidden), LABELS, IDS != 0)
    assert float(layer.losses[0]) == pytest.approx(expected, rel=1e-5)


def test_the_bare_class_says_what_is_missing():
    with pytest.raises(NotImplementedError, match="Loss does not say what its loss is"):
        Loss()(np.ones((1, 2), "float32"))

"""The losses for many labels against plain numpy in float64, and under training."""

import math

import keras
import numpy as np
import pytest
from keras import ops

from harness import WITHOUT_XLA, silent, to_numpy
from kerasbert.losses import (
    MASKED_SCORE,
    global_pointer_crossentropy,
    multilabel_categorical_crossentropy,
    sparse_multilabel_categorical_crossentropy,
)

RNG = np.random.default_rng(17)
N, C = 6, 9
SCORES = (3 * RNG.normal(size=(N, C))).astype("float32")
LABELS = (RNG.random((N, C)) < 0.3).astype("float32")
LABELS[0], LABELS[1] = 0, 1
PARTS = RNG.random((N, C)).astype("float32")
PARTS[2, :3], PARTS[3, 4:] = 0, 1


def reference(labels, scores):
    """The loss of one row, by a loop over its classes."""
    negative = positive = 1.0
    for label, score in zip(labels.astype("float64"), scores.astype("float64"), strict=True):
        if score > MASKED_SCORE:
            negative += (1 - label) * math.exp(score)
            positive += label * math.exp(-score)
    return math.log(negative) + math.log(positive)


def rows(labels, scores):
    flat = zip(
        labels.reshape(-1, labels.shape[-1]), scores.reshape(-1, scores.shape[-1]), strict=True
    )
    return np.array([reference(*row) for row in flat]).reshape(scores.shape[:-1])


def gradient_of(loss, scores):
    """The gradient of the summed loss, from the step that plain descent takes."""

    class Table(keras.layers.Layer):
        def build(self, shape):
            self.scores = self.add_weight(shape=scores.shape, initializer="zeros")

        def call(self, inputs):
            return self.scores + 0 * ops.sum(inputs)

    table = Table()
    inputs = keras.Input((1,), batch_size=len(scores))
    model = keras.Model(inputs, table(inputs))
    table.scores.assign(scores)
    model.compile(
        keras.optimizers.SGD(1.0),
        lambda y_true, y_pred: ops.sum(loss(y_pred)),
        run_eagerly=True,
        jit_compile=False,
    )
    model.train_on_batch(np.zeros((len(scores), 1)), np.zeros(len(scores)))
    return scores - to_numpy(table.scores)


def numerical_gradient(function, scores, step=1e-5):
    gradient = np.zeros(scores.shape)
    for place in np.ndindex(*scores.shape):
        up, down = scores.astype("float64"), scores.astype("float64")
        up[place] += step
        down[place] -= step
        gradient[place] = (function(up).sum() - function(down).sum()) / (2 * step)
    return gradient


# ---- dense -----------------------------------------------------------------------------------


@pytest.mark.backends
@pytest.mark.parametrize("labels", [LABELS, PARTS, LABELS.astype("int32"), LABELS > 0])
def test_against_loops(labels):
    found = to_numpy(multilabel_categorical_crossentropy(labels, SCORES))
    np.testing.assert_allclose(found, rows(labels.astype("float32"), SCORES), rtol=1e-6)
    # More axes in front are rows too.
    shape = (2, 3, C)
    nested = multilabel_categorical_crossentropy(labels.reshape(shape), SCORES.reshape(shape))
    np.testing.assert_array_equal(to_numpy(nested), found.reshape(2, 3))


@pytest.mark.backends
@pytest.mark.parametrize("scale", [1e-3, 30.0, 300.0])
def test_extreme_scores(scale):
    scores = np.array([[scale, -scale, 2 * scale, 0], [-scale] * 4, [scale] * 4], "float32")
    for labels in (np.eye(4)[[0, 1, 2]], np.ones((3, 4)), np.zeros((3, 4))):
        found = to_numpy(multilabel_categorical_crossentropy(labels, scores))
        # logaddexp goes where exp overflows.
        expected = [
            np.logaddexp.reduce([0.0, *row[label < 1]]) + np.logaddexp.reduce([0, *-row[label > 0]])
            for row, label in zip(scores.astype("float64"), labels, strict=True)
        ]
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-30)


@pytest.mark.backends
@pytest.mark.parametrize("masked", [MASKED_SCORE, -np.inf, -1e9, -1e30])
@pytest.mark.parametrize("labels", [LABELS, PARTS])
def test_masked_classes_take_no_part(masked, labels):
    scores = SCORES.copy()
    scores[:, ::3] = masked
    scores[4] = masked
    shown = np.delete(SCORES, np.s_[::3], axis=1)
    expected = [
        reference(label, row)
        for label, row in zip(np.delete(labels, np.s_[::3], axis=1), shown, strict=True)
    ]
    expected[4] = 0.0
    found = to_numpy(multilabel_categorical_crossentropy(labels, scores))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)
    gradient = gradient_of(lambda s: multilabel_categorical_crossentropy(labels, s), scores)
    finite = np.isfinite(scores)
    assert np.isfinite(gradient[finite]).all()
    hidden = scores <= MASKED_SCORE
    assert not gradient[hidden & finite].any()
    assert gradient[~hidden].any()


@pytest.mark.backends
@pytest.mark.parametrize("labels", [LABELS, PARTS])
def test_gradients(labels):
    found = gradient_of(lambda s: multilabel_categorical_crossentropy(labels, s), SCORES)
    expected = numerical_gradient(lambda s: rows(labels, s), SCORES)
    np.testing.assert_allclose(found, expected, atol=2e-6)


@pytest.mark.backends
def test_labels_that_are_computed_have_gradients():
    found = gradient_of(lambda labels: multilabel_categorical_crossentropy(labels, SCORES), PARTS)
    assert np.isfinite(found).all()
    inside = (PARTS > 0) & (PARTS < 1)
    expected = numerical_gradient(lambda labels: rows(labels, SCORES), PARTS)
    np.testing.assert_allclose(found[inside], expected[inside], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_low_precision_is_summed_in_float32(dtype):
    scores = ops.cast(np.full((1, 4000), 10.0), dtype)
    loss = multilabel_categorical_crossentropy(np.zeros((1, 4000)), scores)
    assert "float32" in str(loss.dtype)
    assert float(to_numpy(loss)[0]) == pytest.approx(10 + math.log(4000), rel=1e-6)


def test_zero_is_the_threshold():
    # At the minimum for one right class and one wrong one, scores stand on either side of 0.
    gradient = gradient_of(
        lambda s: multilabel_categorical_crossentropy(np.array([[1, 0]]), s),
        np.zeros((1, 2), "float32"),
    )
    assert gradient.tolist() == [[-0.5, 0.5]]


# ---- by number -------------------------------------------------------------------------------


def numbers_of(labels):
    """Class numbers (N, P), of which 0 fills up."""
    found = [np.flatnonzero(row) for row in labels]
    width = max(map(len, found))
    return np.array([[*row, *[0] * (width - len(row))] for row in found], "int32")


@pytest.mark.backends
@pytest.mark.parametrize("shape", [(N,), (2, 3), (3, 1, 2)])
def test_sparse_against_loops(shape):
    numbers = np.array([[3, 1], [2, 2], [0, 8], [5, 0], [7, 6], [4, 4]])
    labels = np.zeros((N, C))
    for row, places in enumerate(numbers):
        labels[row, places] = 1
    loss = sparse_multilabel_categorical_crossentropy(
        numbers.reshape(*shape, 2), SCORES.reshape(*shape, C)
    )
    np.testing.assert_allclose(to_numpy(loss), rows(labels, SCORES).reshape(shape), rtol=1e-6)


@pytest.mark.backends
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_zero_fills_up(dtype):
    labels = LABELS.copy()
    labels[:, 0] = 0
    loss = sparse_multilabel_categorical_crossentropy(
        numbers_of(labels).astype(dtype), SCORES, mask_zero=True
    )
    np.testing.assert_allclose(to_numpy(loss), rows(labels[:, 1:], SCORES[:, 1:]), rtol=1e-6)


@pytest.mark.backends
@pytest.mark.parametrize("mask_zero", [False, True])
def test_sparse_gradients(mask_zero):
    labels = LABELS.copy()
    labels[:, 0] = 0
    numbers = numbers_of(labels)

    def expected_loss(scores):
        dense = labels.copy()
        if not mask_zero:
            for row, places in zip(dense, numbers, strict=True):
                row[places] = 1
            return rows(dense, scores)
        return rows(dense, np.where(np.arange(C) == 0, -np.inf, scores))

    found = gradient_of(
        lambda s: sparse_multilabel_categorical_crossentropy(numbers, s, mask_zero=mask_zero),
        SCORES,
    )
    np.testing.assert_allclose(found, numerical_gradient(expected_loss, SCORES), atol=2e-6)


@pytest.mark.backends
def test_sparse_keeps_its_digits_where_positives_dominate():
    scores = np.array([[30.0, 28.0, -20.0, -25.0]], "float32")
    loss = sparse_multilabel_categorical_crossentropy(np.array([[0, 1]]), scores)
    gradient = gradient_of(
        lambda s: sparse_multilabel_categorical_crossentropy(np.array([[0, 1]]), s), scores
    )
    exact = math.log1p(math.exp(-20) + math.exp(-25)) + math.log1p(math.exp(-30) + math.exp(-28))
    assert float(to_numpy(loss)[0]) == pytest.approx(exact, rel=1e-5)
    assert (np.sign(gradient) <= [[0, 0, 1, 1]]).all()


def test_masked_scores_in_sparse():
    scores = SCORES.copy()
    scores[:, 5:] = MASKED_SCORE
    loss = sparse_multilabel_categorical_crossentropy(np.full((N, 2), [1, 7]), scores)
    labels = np.zeros((N, C))
    labels[:, [1, 7]] = 1
    np.testing.assert_allclose(to_numpy(loss), rows(labels, scores), rtol=1e-6)


# ---- spans -----------------------------------------------------------------------------------


@pytest.mark.backends
def test_all_spans_of_a_text_are_its_classes():
    labels = (RNG.random((2, 3, 3, 3)) < 0.2).astype("float32")
    scores = RNG.normal(size=(2, 3, 3, 3)).astype("float32")
    loss = to_numpy(global_pointer_crossentropy(labels, scores))
    assert loss.shape == (2, 3)
    for text, head in np.ndindex(2, 3):
        expected = reference(labels[text, head].ravel(), scores[text, head].ravel())
        assert loss[text, head] == pytest.approx(expected, rel=1e-6)


# ---- models ----------------------------------------------------------------------------------


@keras.saving.register_keras_serializable(package="kerasbert_tests")
def filled_up(y_true, y_pred):
    return sparse_multilabel_categorical_crossentropy(y_true, y_pred, mask_zero=True)


@pytest.mark.backends
@pytest.mark.slow
@pytest.mark.parametrize(
    "loss",
    [
        multilabel_categorical_crossentropy,
        sparse_multilabel_categorical_crossentropy,
        filled_up,
    ],
)
def test_compiled_models_learn_save_and_load(loss, tmp_path):
    labels = np.zeros((8, C), "float32")
    for row in range(8):
        labels[row, [1 + row % 3, 4 + row % 4]] = 1
    y = labels if loss is multilabel_categorical_crossentropy else numbers_of(labels)
    x = np.eye(8, dtype="float32")
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(C)])
    model.compile(keras.optimizers.Adam(0.1), loss, **WITHOUT_XLA)
    first = model.evaluate(x, y, batch_size=4, verbose=0)
    assert first == pytest.approx(float(np.mean(to_numpy(loss(y, model(x))))), rel=1e-5)
    model.fit(x, y, batch_size=4, epochs=60, verbose=0)
    start = int(loss is filled_up)  # class 0 is nothing then
    np.testing.assert_array_equal(to_numpy(model(x))[:, start:] > 0, labels[:, start:] > 0)
    silent(model.save, tmp_path / "model.keras")
    again = silent(keras.models.load_model, tmp_path / "model.keras")
    assert again.loss is loss
    assert again.evaluate(x, y, batch_size=4, verbose=0) == pytest.approx(
        model.evaluate(x, y, batch_size=4, verbose=0)
    )

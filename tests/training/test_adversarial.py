"""Adversarial training and R-Drop against steps that are put together by hand."""

import keras
import numpy as np
import pytest
from tiny import IDS, LABELS, SEGMENTS, classifier, compiled, difference, one_step, table_index

from harness import refused, to_numpy
from kerasbert.errors import ConfigError, KerasbertError
from kerasbert.models.view import find_encoder
from kerasbert.training import FGM, GradientPenalty, RDrop, VirtualAdversarial

PLAIN = {
    "FGM": lambda model: FGM(model, epsilon=0.0),
    "GradientPenalty": lambda model: GradientPenalty(model, epsilon=0.0),
    "VirtualAdversarial": lambda model: VirtualAdversarial(model, epsilon=0.0),
    "tiny FGM": lambda model: FGM(model, epsilon=1e-9),
}
ALL = {"FGM": FGM, "GradientPenalty": GradientPenalty, "VAT": VirtualAdversarial, "RDrop": RDrop}
SLOW = pytest.mark.slow
each = pytest.mark.parametrize(
    "wrap",
    [pytest.param(ALL[name], id=name, marks=() if name == "FGM" else SLOW) for name in ALL],
)


def table_gradient(model, weights):
    """The gradient (4, 5, E) of the mean loss by the token vectors, from one step of rate 1."""
    where = table_index(model)
    _, after = one_step(model, weights)
    return (weights[where] - after[where])[IDS] * (IDS > 0)[..., None]


def shifted(model, weights, shifts):
    """Weights whose table gives every token of the batch its shifted vector."""
    moved = [weight.copy() for weight in weights]
    moved[table_index(model)][IDS] += shifts * (IDS > 0)[..., None]
    return moved


def of_length(shifts, length):
    return length * shifts / np.sqrt((shifts**2).sum((1, 2), keepdims=True))


# ---- nothing added is a plain step -----------------------------------------------------------


@pytest.mark.parametrize("name", PLAIN)
def test_epsilon_of_0_is_a_plain_step(name):
    plain = compiled(classifier("google_bert", "bert", dropout=0.1))
    loss, after = one_step(plain)
    seeds = [to_numpy(variable) for variable in plain.non_trainable_variables]
    wrapped = compiled(PLAIN[name](classifier("google_bert", "bert", dropout=0.1)))
    found, weights = one_step(wrapped)
    assert found == pytest.approx(loss, abs=0 if name == "FGM" else 1e-6)
    assert difference(weights, after) <= (0 if name == "FGM" else 1e-6)
    if name != "VirtualAdversarial":
        # Dropout goes on as after a plain step.
        assert difference(seeds, [to_numpy(v) for v in wrapped.non_trainable_variables]) == 0


# ---- the numbers -----------------------------------------------------------------------------


@pytest.mark.parametrize("share", [pytest.param(0.5, marks=pytest.mark.backends), 1.0])
def test_fgm_is_a_step_at_a_shifted_table(share):
    plain = compiled(classifier(), rate=1.0)
    weights = plain.get_weights()
    loss, after = one_step(plain, weights)
    shifts = of_length(table_gradient(plain, weights), 0.7)
    moved = shifted(plain, weights, shifts)
    loss_there, after_there = one_step(plain, moved)
    wrapped = compiled(FGM(classifier(), epsilon=0.7, share=share), rate=1.0)
    found, updated = one_step(wrapped, weights)
    assert found == pytest.approx((1 - share) * loss + share * loss_there, rel=1e-5)
    assert loss_there > loss + 0.01
    expected = [
        w + (1 - share) * (a - w) + share * (b - m)
        for w, a, b, m in zip(weights, after, after_there, moved, strict=True)
    ]
    assert difference(updated, expected) < 2e-5
    # Rows that no text has do not move: the shift left no trace.
    unused = np.setdiff1d(np.arange(100), IDS)
    where = table_index(wrapped)
    assert np.array_equal(updated[where][unused], weights[where][unused])


@pytest.mark.backends
def test_gradient_penalty_is_the_squared_gradient():
    plain = compiled(classifier(), rate=1.0)
    weights = plain.get_weights()
    loss, _ = one_step(plain, weights)
    norms = ((4 * table_gradient(plain, weights)) ** 2).sum((1, 2))
    wrapped = compiled(GradientPenalty(classifier(), epsilon=0.3), rate=1e-4)
    found, after = one_step(wrapped, weights)
    assert found == pytest.approx(loss + 0.15 * norms.mean(), rel=1e-4)
    # Along its own gradient the loss falls by the square of that.
    slope = sum(((w - a) ** 2).sum() for w, a in zip(weights, after, strict=True)) / 1e-4**2
    back = [w + (w - a) for w, a in zip(weights, after, strict=True)]
    drop = one_step(wrapped, back)[0] - one_step(wrapped, after)[0]
    assert drop / 2e-4 == pytest.approx(slope, rel=0.03)


def test_the_virtual_shift_is_worse_than_random_ones():
    plain = compiled(classifier())
    weights = plain.get_weights()
    loss, _ = one_step(plain, weights)
    wrapped = compiled(VirtualAdversarial(classifier(), epsilon=0.3, xi=0.05))
    added = one_step(wrapped, weights)[0] - loss
    plain.set_weights(weights)
    before = plain.predict_on_batch([IDS, SEGMENTS])
    rng = np.random.default_rng(0)
    others = []
    for _ in range(8):
        noise = rng.normal(size=(4, 5, 16)) * (IDS > 0)[..., None]
        plain.set_weights(shifted(plain, weights, of_length(noise, 0.3)))
        after = plain.predict_on_batch([IDS, SEGMENTS])
        others.append((before * np.log(before / after)).sum(-1).mean())
    assert added > 2 * max(others) > 0


@pytest.mark.parametrize("alpha", [0.0, pytest.param(4.0, marks=pytest.mark.backends)])
def test_rdrop_by_hand(alpha):
    model = classifier("google_bert", "bert", dropout=0.2)
    weights = model.get_weights()
    wrapped = compiled(RDrop(classifier("google_bert", "bert", dropout=0.2), alpha=alpha))
    found, _ = one_step(wrapped, weights)
    # On torch, Keras drops out by torch's own random numbers.
    keras.utils.set_random_seed(5)
    p, q = (to_numpy(model([IDS, SEGMENTS], training=True)) for _ in range(2))
    assert np.abs(p - q).max() > 0.01
    rows = np.arange(4)
    losses = -(np.log(p[rows, LABELS]) + np.log(q[rows, LABELS])) / 2
    both = ((p - q) * np.log(p / q)).sum(-1)
    assert found == pytest.approx((losses + alpha / 4 * both).mean(), rel=1e-4)


# ---- wherever plain training works -----------------------------------------------------------


@pytest.mark.parametrize(
    ("wrap", "policy"),
    [
        (FGM, "mixed_float16"),
        # Nothing is scaled with it, whatever is added to the loss.
        pytest.param(FGM, "mixed_bfloat16", marks=SLOW),
        *(
            pytest.param(ALL[name], "mixed_float16", marks=SLOW, id=name)
            for name in ALL
            if name != "FGM"
        ),
    ],
)
def test_low_precision(wrap, policy):
    # In low precision dropout drops others.
    dropout = 0.1 if wrap is RDrop else 0.0
    wrapped = compiled(wrap(classifier(dropout=dropout, dtype=policy)))
    full = compiled(wrap(classifier(dropout=dropout)))
    found, weights = one_step(wrapped, full.get_weights())
    expected, after = one_step(full)
    assert all(np.isfinite(weight).all() for weight in weights)
    if not dropout:
        assert found == pytest.approx(expected, rel=0.1)
        assert difference(weights, after) < 0.05


def test_an_overflow_gives_no_shift():
    keras.utils.set_random_seed(0)
    from kerasbert.training.shifts import of_length as scaled

    gradient = np.ones((3, 2, 2), "float32")
    gradient[0, 0, 0] = np.inf
    gradient[1] = 0
    gradient[2] = 1e30
    found = to_numpy(scaled([keras.ops.convert_to_tensor(gradient)], 2.0)[0])
    assert np.array_equal(found[:2], np.zeros((2, 2, 2)))
    assert np.allclose(found[2], 1.0)


def as_dict():
    return {"Input-Token": IDS, "Input-Segment": SEGMENTS}


def as_generator():
    while True:
        yield (IDS, SEGMENTS), LABELS, np.array([1, 0, 2, 1], "float32")


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return as_dict(), LABELS


@each
def test_every_form_of_data(wrap):
    wrapped = compiled(wrap(classifier("google_bert", "bert", dropout=0.1)))
    for data, options in [(as_generator(), {"steps_per_epoch": 2}), (Batches(), {})]:
        history = wrapped.fit(data, epochs=1, verbose=0, validation_data=Batches(), **options)
        assert np.isfinite(history.history["loss"]).all()
    weights = np.zeros(4, "float32")
    assert np.isfinite(wrapped.train_on_batch(as_dict(), LABELS, sample_weight=weights)).all()


# What is shifted stands below the blocks: whether these are shared is nothing to XLA.
@pytest.mark.parametrize(
    ("kind", "jit"), [("unshared", False), pytest.param("shared", True, marks=SLOW)]
)
def test_shared_and_unshared_compiled(kind, jit):
    model = classifier(model="albert" if kind == "shared" else "albert_unshared")
    eager, weights = one_step(compiled(FGM(model)), model.get_weights())
    start = classifier(model="albert" if kind == "shared" else "albert_unshared")
    found, after = one_step(compiled(FGM(start), jit_compile=jit))
    assert found == pytest.approx(eager, rel=1e-4)
    assert difference(after, weights) < 1e-5


def test_losses_that_layers_add_count_once_a_pass():
    class Added(keras.layers.Layer):
        def call(self, inputs):
            self.add_loss(keras.ops.mean(inputs))
            return inputs

    base = classifier()
    model = keras.Model(base.inputs, Added()(base.output))
    loss, _ = one_step(compiled(classifier()))
    found, _ = one_step(compiled(FGM(model, epsilon=1e-9)))
    # The mean of a softmax over two classes is 1/2.
    assert found == pytest.approx(loss + 0.5, abs=1e-5)


# ---- what is left of it ----------------------------------------------------------------------


@each
def test_the_saved_model_is_plain(wrap, tmp_path):
    model = classifier("google_bert", "bert", dropout=0.1)
    wrapped = compiled(wrap(model))
    wrapped.train_on_batch(as_dict(), LABELS)
    wrapped.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded).__name__ == "Functional"
    assert loaded.compiled and int(loaded.optimizer.iterations) == 1
    expected = to_numpy(model([IDS, SEGMENTS]))
    assert np.array_equal(to_numpy(wrapped([IDS, SEGMENTS])), expected)
    assert np.abs(to_numpy(loaded([IDS, SEGMENTS])) - expected).max() < 1e-6
    assert find_encoder(wrapped).config == find_encoder(loaded).config
    # A checkpoint of weights fits both.
    wrapped.save_weights(tmp_path / "w.weights.h5")
    loaded.load_weights(tmp_path / "w.weights.h5")


def test_refusals():
    with refused(KerasbertError, "holds no encoder"):
        FGM(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))
    with refused(ConfigError, "model=3"):
        FGM(3)
    inner = classifier()
    hidden = keras.Model(inner.inputs, keras.layers.Dense(2)(inner(inner.inputs)))
    with refused(ConfigError, "as one layer", "encoder.output"):
        FGM(hidden)
    with refused(ConfigError, "epsilon=-1", "at least 0"):
        GradientPenalty(inner, epsilon=-1)
    with refused(ConfigError, "share=2", "of at least 0 and at most 1"):
        FGM(inner, share=2)
    with refused(ConfigError, "no dropout", "hidden_dropout_prob"):
        RDrop(inner)

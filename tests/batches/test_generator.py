"""`DataGenerator`: each sample once an epoch, in every form in which it goes into `fit`."""

import warnings

import keras
import numpy as np
import pytest

from batches.counting import Texts, assert_each_once, counting_model, new_model
from harness import WITHOUT_XLA
from kerasbert.data import DataGenerator
from kerasbert.errors import ConfigError

SAMPLES, EPOCHS = 21, 3

# All full batches are of one length, the last one of another: what Keras takes for fixed.
DATA = [([i, *[1] * 5], i % 2) for i in range(20)] + [([20, 1], 0)]

pytestmark = pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")


class Unsized:
    """Data without a length, such as a file."""

    def __iter__(self):
        return iter(DATA)


@pytest.mark.backends
@pytest.mark.parametrize("form", ["forfit", "itself", "with steps", "unsized"])
def test_each_sample_once_an_epoch(form):
    generator = Texts(Unsized() if form == "unsized" else DATA, batch_size=5)
    steps = None if form == "itself" else 5
    data = generator if form in ("itself", "with steps") else generator.forfit()
    model, check = counting_model(SAMPLES)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", message="`shuffle=True` was passed")
        history = model.fit(
            data, steps_per_epoch=steps, epochs=EPOCHS, verbose=0, callbacks=[check]
        ).history
    assert_each_once(check, SAMPLES, EPOCHS)
    assert min(history["loss"]) > 0.1
    whole = [tuple(one) for one in generator.passes if len(one) == SAMPLES]
    assert len(set(whole)) == len(whole) >= EPOCHS
    assert all(list(one) != sorted(one) for one in whole)


@pytest.mark.backends
def test_evaluates_validates_and_predicts():
    generator = Texts(DATA, batch_size=5)
    model, check = counting_model(SAMPLES)
    # In order, as padding is summed up as well in this model.
    ordered = Texts(DATA, 5, shuffle=False)
    history = model.fit(
        generator, epochs=2, validation_data=ordered, verbose=0, callbacks=[check]
    ).history
    assert_each_once(check, SAMPLES, 2)
    loss, accuracy = model.evaluate(ordered, verbose=0)
    np.testing.assert_allclose(history["val_loss"][-1], loss, atol=1e-6)
    single = [model(list(map(np.array, ([row], [row])))) for row, _ in DATA]
    logits = np.concatenate([np.array(keras.ops.convert_to_numpy(row)) for row in single])
    tested = model.predict(generator.fortest(), steps=len(generator), verbose=0)
    np.testing.assert_allclose(tested, logits, atol=1e-6)
    plain = model.predict(ordered, verbose=0)
    np.testing.assert_allclose(plain, logits, atol=1e-6)
    labels = np.array([label for _, label in DATA])
    np.testing.assert_allclose(accuracy, (logits.argmax(-1) == labels).mean(), atol=1e-6)


def test_an_epoch_can_be_shorter_than_the_data():
    model, check = counting_model(SAMPLES)
    model.fit(Texts(DATA, 5).forfit(), steps_per_epoch=2, epochs=5, verbose=0, callbacks=[check])
    assert check.epochs[1].sum() == 20 and check.epochs[1].max() == 1
    # Ten batches are two passes.
    assert (check.epochs[-1] == 2).all()


def test_an_interrupted_epoch_leaves_nothing_behind():
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise KeyboardInterrupt

    generator = Texts(DATA, batch_size=5)
    stream = generator.forfit()
    for data in (generator, stream):
        model, check = counting_model(SAMPLES)
        with pytest.raises(KeyboardInterrupt):
            model.fit(data, steps_per_epoch=5, verbose=0, callbacks=[Stop()])
        model, check = counting_model(SAMPLES)
        model.fit(data, steps_per_epoch=5, epochs=2, verbose=0, callbacks=[check])
        assert_each_once(check, SAMPLES, 2)


def test_length_and_samples():
    assert [len(Texts(DATA, size)) for size in (1, 5, 7, 21, 22)] == [21, 5, 3, 1, 1]
    generator = DataGenerator(range(5))
    assert list(generator.sample()) == [(i == 4, i) for i in range(5)]
    assert sorted(generator.sample(random=True))[-1][0]
    assert {i for _, i in generator.sample(random=True)} == set(range(5))
    assert list(DataGenerator([]).sample()) == []


@pytest.mark.parametrize("buffer_size", [1, 3, 50, None])
def test_mixing_data_without_a_length(buffer_size):
    generator = DataGenerator(Unsized(), batch_size=2, buffer_size=buffer_size)
    for _ in range(2):
        ends, samples = zip(*generator.sample(random=True), strict=True)
        assert sorted(samples) == sorted(DATA)
        assert ends == (False,) * 20 + (True,)
        assert buffer_size == 1 or list(samples) != DATA
    with pytest.raises(TypeError, match="unknown length"):
        len(generator)


def test_loops_of_ones_own_get_what_was_yielded():
    generator = Texts(DATA, batch_size=5)
    endless = generator.forfit(random=False)
    batches = [next(endless) for _ in range(6)]
    assert isinstance(batches[0][0], list)
    assert [len(labels) for _, labels in batches] == [5, 5, 5, 5, 1, 5]
    inputs = next(generator.fortest())
    assert len(inputs) == 2 and inputs[0][:, 0].tolist() == [0, 1, 2, 3, 4]


def test_labels_that_are_none():
    class Unlabelled(Texts):
        def __iter__(self, random=False):
            return ((inputs, None) for inputs, _ in super().__iter__(random))

    model, _counter = new_model(SAMPLES)
    model.add_loss = None
    inputs = [keras.Input((None,), dtype="int32") for _ in range(2)]

    class Own(keras.layers.Layer):
        def call(self, x):
            self.add_loss(keras.ops.mean(keras.ops.square(x)))
            return x

    own = keras.Model(inputs, Own()(model(inputs)))
    own.compile("sgd", **WITHOUT_XLA)
    history = own.fit(Unlabelled(DATA, 5), epochs=2, verbose=0).history["loss"]
    assert history[0] > history[1] > 0


@pytest.mark.backends
def test_to_dataset():
    pytest.importorskip("tensorflow", reason="needs TensorFlow, for tf.data")

    class Samples(DataGenerator):
        def __iter__(self, random=False):
            for _, (row, label) in self.sample(random):
                yield [row, [0] * len(row)], label

    generator = Samples(DATA, batch_size=5)
    dataset = generator.to_dataset(
        types=(["int32", "int32"], "int32"),
        shapes=([[None], [None]], []),
        names=None,
        padded_batch=True,
    )
    model, check = counting_model(SAMPLES)
    model.fit(dataset, steps_per_epoch=len(generator), epochs=2, verbose=0, callbacks=[check])
    assert_each_once(check, SAMPLES, 2)


def test_to_dataset_by_names():
    pytest.importorskip("tensorflow", reason="needs TensorFlow, for tf.data")

    class Samples(DataGenerator):
        def __iter__(self, random=False):
            for _, (row, _) in self.sample(random):
                yield row[:2], row[:2]

    dataset = Samples(DATA, batch_size=5).to_dataset(
        ("int32", "int32"), ([2], [2]), names=("Input-Token", "Input-Segment")
    )
    batch = next(iter(dataset))
    assert {name: array.shape for name, array in batch.items()} == {
        "Input-Token": (5, 2),
        "Input-Segment": (5, 2),
    }


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: DataGenerator(iter(DATA)), "read once only"),
        (lambda: DataGenerator(DATA, 0), "batch_size=0"),
        (lambda: DataGenerator(DATA, 2, buffer_size=0), "buffer_size=0"),
        (lambda: setattr(Texts(DATA), "workers", 2), "workers=2"),
        (lambda: setattr(Texts(DATA), "use_multiprocessing", True), "use_multiprocessing"),
        (lambda: Texts([])[0], "yields no batch"),
    ],
)
def test_refuses(make, said):
    with pytest.raises(ConfigError, match=said):
        make()


def test_a_generator_without_iter_says_so():
    with pytest.raises(NotImplementedError, match="has no __iter__"):
        next(DataGenerator(DATA).forfit())

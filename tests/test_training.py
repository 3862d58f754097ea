"""Models of ours learn with plain `fit`, on each backend, and every weight takes part."""

import keras
import numpy as np
import pytest

from fixtures import make_arrays, random_batch, tiny_config
from kerasbert import build_transformer_model

MODELS = [
    ("google_bert", "bert"),
    ("google_albert", "albert"),
    ("google_albert", "albert_unshared"),
    ("albert_zh", "albert"),
]
each_model = pytest.mark.parametrize(("kind", "model"), MODELS)


def build(kind, model, config=None, **options):
    config = config or tiny_config(kind)
    return build_transformer_model(
        config, make_arrays(kind, config, 3), model=model, verbose=0, **options
    )


def batch_and_labels(seed=0, size=8):
    rng = np.random.default_rng(seed)
    ids, segments = random_batch(rng, 100, size, 9)
    return ids, segments, np.arange(size) % 2


def classifier(encoder, **compile_options):
    outputs = keras.layers.Dense(2, activation="softmax")(encoder.output)
    network = keras.Model(encoder.inputs, outputs)
    network.compile(
        keras.optimizers.Adam(3e-3),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        **compile_options,
    )
    return network


@pytest.mark.backends
@each_model
def test_fit_lowers_the_loss(kind, model):
    network = classifier(build(kind, model, with_pool=True))
    ids, segments, labels = batch_and_labels()
    history = network.fit([ids, segments], labels, batch_size=4, epochs=30, verbose=0).history
    assert history["loss"][-1] < 0.5 * history["loss"][0]


@pytest.mark.backends
@each_model
def test_every_weight_moves(kind, model):
    """One optimizer step reaches each variable, heads and tied tables included."""
    encoder = build(kind, model, with_nsp=True, with_mlm=True)
    ids, segments, labels = batch_and_labels()
    losses = ["sparse_categorical_crossentropy"] * 2
    encoder.compile(keras.optimizers.SGD(0.1), losses)
    before = {w.path: keras.ops.convert_to_numpy(w).copy() for w in encoder.trainable_weights}
    encoder.train_on_batch([ids, segments], [labels, ids])
    for weight in encoder.trainable_weights:
        moved = np.abs(keras.ops.convert_to_numpy(weight) - before[weight.path]).max()
        # The softmax over keys takes no notice of a constant in all of them.
        if not weight.path.endswith("key/bias"):
            assert moved > 0, f"{weight.path} got no gradient"


@pytest.mark.parametrize("rate", [0, None, 0.1])
def test_dropout_of_the_config(rate):
    config = tiny_config(
        "google_albert", hidden_dropout_prob=rate, attention_probs_dropout_prob=rate
    )
    encoder = build("google_albert", "albert", config)
    ids, segments, _ = batch_and_labels()
    first, second = (
        keras.ops.convert_to_numpy(encoder([ids, segments], training=True)) for _ in range(2)
    )
    assert np.array_equal(first, second) == (not rate)
    calm = [keras.ops.convert_to_numpy(encoder([ids, segments])) for _ in range(2)]
    np.testing.assert_array_equal(*calm)


def test_the_same_data_in_every_form():
    ids, segments, labels = batch_and_labels()
    named = {"Input-Token": ids, "Input-Segment": segments}
    tf = pytest.importorskip("tensorflow", reason="one of the forms is a tf.data.Dataset")
    forms = {
        "list": ([ids, segments], labels),
        "dict": (named, labels),
        "dataset": (tf.data.Dataset.from_tensor_slices((named, labels)).batch(4), None),
    }
    losses = {}
    for name, (x, y) in forms.items():
        network = classifier(build("google_albert", "albert", with_pool=True))
        network.layers[-1].set_weights([np.linspace(-1, 1, 64).reshape(32, 2), np.zeros(2)])
        size = None if y is None else 4
        history = network.fit(x, y, batch_size=size, shuffle=False, verbose=0).history
        losses[name] = history["loss"][0]
    assert max(losses.values()) - min(losses.values()) < 1e-5


def test_training_compiled_by_xla():
    network = classifier(build("google_albert", "albert", with_pool=True), jit_compile=True)
    ids, segments, labels = batch_and_labels()
    losses = [network.train_on_batch([ids, segments], labels)[0] for _ in range(8)]
    assert losses[-1] < losses[0]


def test_interrupted_training_goes_on_as_if_it_had_not_been(tmp_path):
    ids, segments, labels = batch_and_labels()
    options = {"batch_size": 4, "shuffle": False, "verbose": 0}
    config = tiny_config("google_albert", hidden_dropout_prob=0, attention_probs_dropout_prob=0)
    whole = classifier(build("google_albert", "albert", config, with_pool=True))
    whole.save(tmp_path / "start.keras")
    whole.fit([ids, segments], labels, epochs=2, **options)

    half = keras.models.load_model(tmp_path / "start.keras")
    half.fit([ids, segments], labels, epochs=1, **options)
    half.save(tmp_path / "half.keras")
    again = keras.models.load_model(tmp_path / "half.keras")
    again.fit([ids, segments], labels, epochs=1, **options)
    for one, other in zip(whole.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)

"""Where random initial values are drawn, and where a file makes them unnecessary."""

import threading

import keras
import numpy as np
import pytest

from fixtures import make_arrays, tiny_config
from harness import refused, to_numpy
from kerasbert import build_transformer_model, unshare
from kerasbert.errors import WeightMismatchError
from kerasbert.layers.composite import TruncatedNormal, no_initial_values, truncated_normal
from kerasbert.models.bert import BERT

pytestmark = pytest.mark.backends

CONFIG = tiny_config("google_bert", num_hidden_layers=1)
KERNELS = ("kernel", "embeddings")


def kernels(model):
    """The variables that start as random numbers, by their paths."""
    return {w.path: to_numpy(w.value) for w in model.weights if w.path.endswith(KERNELS)}


def are_random(arrays):
    """Whether all arrays are N(0, 0.02^2) cut at two standard deviations, and all differ."""
    values = [array.ravel() for array in arrays]
    starts = {tuple(value[:8]) for value in values}
    return len(starts) == len(values) and all(
        0.005 < value.std() < 0.03 and np.abs(value).max() < 0.05 for value in values
    )


def test_random_without_a_checkpoint():
    assert are_random(kernels(build_transformer_model(CONFIG, with_mlm=True)).values())


def test_a_head_that_the_file_lacks_starts_random():
    arrays = make_arrays("google_bert", CONFIG, 1, heads=False)
    with pytest.warns(UserWarning, match="keep their initial values"):
        model = build_transformer_model(
            CONFIG, arrays, with_nsp=True, with_mlm=True, strict=False, verbose=0
        )
    head = {
        path: v for path, v in kernels(model).items() if path.startswith(("Pooler", "NSP", "MLM"))
    }
    assert len(head) == 3
    assert are_random(head.values())


@pytest.mark.parametrize(
    ("kind", "model", "heads"),
    [
        ("google_bert", "bert", ["with_nsp", "with_mlm"]),
        ("google_albert", "albert", ["with_nsp", "with_mlm"]),
        ("google_albert", "albert_unshared", ["with_nsp", "with_mlm"]),
        ("albert_zh", "albert", ["with_nsp", "with_mlm"]),
    ],
)
def test_a_file_fills_everything_that_was_left_out(kind, model, heads, monkeypatch):
    """Not a number is drawn, and not a kernel stays as it was made."""
    config = tiny_config(kind, num_hidden_layers=2)

    def draw(self, shape, dtype=None):
        raise AssertionError("a random number was drawn")

    monkeypatch.setattr(keras.initializers.TruncatedNormal, "__call__", draw)
    builder = build_transformer_model(
        config,
        make_arrays(kind, config, 1),
        model,
        return_keras_model=False,
        verbose=0,
        **dict.fromkeys(heads, True),
    )
    assert all(np.all(array) for array in kernels(builder.model).values())
    # Nothing was made besides the model that the loader would not see.
    of_layers = {id(w) for layer in builder.layers.values() for w in layer.weights}
    assert of_layers == {id(weight) for weight in builder.model.weights}


class WithSpare(BERT):
    """A model of a user's, who makes a layer that is no part of it."""

    def __init__(self, config, options):
        super().__init__(config, options)
        self.spare = self.dense("Spare", 40)
        self.spare.build((None, 32))


def test_layers_of_the_user_start_random():
    arrays = make_arrays("google_bert", CONFIG, 1, heads=False)
    builder = build_transformer_model(
        CONFIG, arrays, WithSpare, return_keras_model=False, verbose=0
    )
    top = builder.dense("Top", 3)
    top(builder.model.output)
    assert are_random([to_numpy(builder.spare.kernel.value), to_numpy(top.kernel.value)])


def test_after_a_refusal_numbers_are_drawn_again():
    arrays = make_arrays("google_bert", CONFIG, 1, heads=False)
    with refused(WeightMismatchError):
        build_transformer_model(CONFIG, arrays, with_mlm=True, verbose=0)
    assert are_random(kernels(build_transformer_model(CONFIG)).values())


def test_other_threads_go_on_drawing():
    found = []
    with no_initial_values():
        thread = threading.Thread(
            target=lambda: found.append(to_numpy(truncated_normal(0.02)((64, 64))))
        )
        thread.start()
        thread.join()
        assert not np.any(to_numpy(truncated_normal(0.02)((64, 64))))
    assert are_random(found)


# ---- the initializer itself ------------------------------------------------------------------


def test_its_numbers_are_those_of_keras():
    own, other = (
        TruncatedNormal(stddev=0.5, seed=3),
        keras.initializers.TruncatedNormal(0.0, 0.5, 3),
    )
    np.testing.assert_array_equal(to_numpy(own((7, 5))), to_numpy(other((7, 5))))
    assert own.get_config() == other.get_config()


def test_its_configuration_makes_another():
    made = TruncatedNormal(stddev=0.5, seed=3)
    again = keras.initializers.deserialize(keras.initializers.serialize(made))
    for other in (again, made.clone()):
        assert type(other) is TruncatedNormal
        assert other.get_config() == made.get_config()
        np.testing.assert_array_equal(to_numpy(other((7, 5))), to_numpy(made((7, 5))))


@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_a_saved_model_comes_back(suffix, tmp_path):
    model = build_transformer_model(
        CONFIG, make_arrays("google_bert", CONFIG, 1), with_mlm=True, verbose=0
    )
    model.save(tmp_path / f"model.{suffix}")
    again = keras.models.load_model(tmp_path / f"model.{suffix}")
    for old, new in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(old.value), to_numpy(new.value))
    assert type(again.get_layer("Embedding-Token").embeddings_initializer) is TruncatedNormal


def test_a_clone_of_a_loaded_model_starts_random():
    model = build_transformer_model(
        CONFIG, make_arrays("google_bert", CONFIG, 1), with_mlm=True, verbose=0
    )
    assert are_random(kernels(keras.models.clone_model(model)).values())


def test_unsharing_copies_what_was_loaded():
    config = tiny_config("google_albert", num_hidden_layers=2)
    model = build_transformer_model(config, make_arrays("google_albert", config, 1), verbose=0)
    ids = np.array([[2, 7, 9, 3, 0]], "int32")
    np.testing.assert_allclose(
        to_numpy(unshare(model)([ids, ids * 0])), to_numpy(model([ids, ids * 0])), atol=1e-6
    )

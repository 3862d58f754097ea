"""The layers of pre-training: places are taken, filled, drawn and chosen as they say."""

import keras
import numpy as np
import pytest

from harness import LayerCase, refused, to_numpy
from kerasbert.errors import ConfigError
from kerasbert.layers import KeepHardest, PutPlaces, SampleTokens, TakePlaces

RNG = np.random.default_rng(5)
HIDDEN = RNG.normal(size=(3, 7, 4)).astype("float32")
PLACES = np.array([[1, 6, 3], [2, 0, 0], [5, 1, 0]], "int32")
IDS = RNG.integers(5, 50, (3, 7)).astype("int32")
VALUES = RNG.integers(50, 99, (3, 3)).astype("int32")
# One logit stands out so far that noise cannot change the draw.
CERTAIN = (1000 * np.eye(6)[RNG.integers(0, 6, (3, 4))]).astype("float32")


CASES = [
    LayerCase("take", TakePlaces, {}, {"inputs": HIDDEN, "places": PLACES}, {}),
    LayerCase("put", PutPlaces, {}, {"inputs": IDS, "places": PLACES, "values": VALUES}, {}),
    LayerCase("sample", SampleTokens, {"temperature": 0.5, "seed": 1}, {"inputs": CERTAIN}, {}),
    LayerCase(
        "hardest",
        KeepHardest,
        {"share": 1.0, "temperature": 2.0, "seed": 1},
        {
            "inputs": CERTAIN,
            "ids": np.ones((3, 4), "int32"),
            "weights": np.ones((3, 4), "int32"),
        },
        {},
    ),
]


@pytest.mark.backends
def test_places_are_taken():
    found = to_numpy(TakePlaces()(HIDDEN, PLACES))
    np.testing.assert_array_equal(found, HIDDEN[np.arange(3)[:, None], PLACES])


@pytest.mark.backends
@pytest.mark.parametrize("where", [None, np.array([[1, 0, 1], [1, 1, 1], [0, 0, 0]], "float32")])
def test_places_are_filled(where):
    found = np.asarray(to_numpy(PutPlaces()(IDS, PLACES, VALUES, where)), "int64")
    expected = IDS.copy()
    for row in range(3):
        for column, place in enumerate(PLACES[row]):
            if place and (where is None or where[row, column]):
                expected[row, place] = VALUES[row, column]
    np.testing.assert_array_equal(found, expected)
    assert (found[:, 0] == IDS[:, 0]).all()


@pytest.mark.backends
def test_tokens_are_drawn_with_their_probabilities():
    wanted = np.array([0.5, 0.3, 0.15, 0.05])
    logits = np.broadcast_to(np.log(wanted), (20, 1000, 4)).astype("float32")
    drawn = to_numpy(SampleTokens(seed=3)(logits))
    shares = np.bincount(drawn.astype(int).ravel(), minlength=4) / drawn.size
    np.testing.assert_allclose(shares, wanted, atol=0.012)
    # Twice as cold is the square of them.
    cold = to_numpy(SampleTokens(temperature=0.5, seed=3)(logits))
    squares = wanted**2 / (wanted**2).sum()
    shares = np.bincount(cold.astype(int).ravel(), minlength=4) / cold.size
    np.testing.assert_allclose(shares, squares, atol=0.012)


def test_drawing_goes_on_where_a_saved_seed_was():
    logits = np.zeros((2, 3, 50), "float32")
    layer = SampleTokens(seed=9)
    layer(logits)
    state = to_numpy(layer.seed_generator.state.value)
    second = to_numpy(layer(logits))
    other = SampleTokens(seed=1)
    other.seed_generator.state.assign(state.astype("uint32"))
    np.testing.assert_array_equal(to_numpy(other(logits)), second)


@pytest.mark.backends
def test_hard_places_are_kept():
    rows = 4000
    weights = np.broadcast_to(np.array([1, 1, 1, 1, 0, 0], "float32"), (rows, 6))
    hardness = np.array([0.1, 3.0, 1.0, 0.5, 99.0, 99.0])
    logits = np.zeros((rows, 6, 2), "float32")
    logits[..., 0] = np.log(np.expm1(hardness))
    kept = to_numpy(KeepHardest(0.5, seed=2)(logits, np.ones((rows, 6), "int32"), weights))
    assert (kept.sum(1) == 2).all() and not kept[:, 4:].any()
    # Drawn without putting back, the first with a chance like exp(hardness).
    chance = np.exp(hardness[:4]) / np.exp(hardness[:4]).sum()
    second = [
        sum(chance[j] * chance[i] / (1 - chance[j]) for j in range(4) if j != i) for i in range(4)
    ]
    np.testing.assert_allclose(kept[:, :4].mean(0), chance + second, atol=0.03)


def test_one_place_is_always_kept():
    kept = KeepHardest(0.01)(np.zeros((2, 3, 5), "float32"), np.ones((2, 3)), np.ones((2, 3)))
    assert to_numpy(kept).sum(1).tolist() == [1, 1]


def test_no_gradient_passes_a_draw():
    inputs = keras.Input((None, 4))
    dense = keras.layers.Dense(6, name="dense")
    logits = dense(inputs)
    drawn = keras.ops.cast(SampleTokens()(logits), "float32")
    kept = KeepHardest()(logits, ids=keras.ops.ones_like(drawn, "int32"), weights=drawn + 1)
    model = keras.Model(inputs, keras.layers.Dense(1, name="end")((drawn + kept)[..., None]))
    before = dense.get_weights()
    model.compile(keras.optimizers.SGD(1.0), "mse", jit_compile=False)
    model.train_on_batch(HIDDEN, np.ones((3, 7, 1)))
    for old, new in zip(before, dense.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize(
    ("layer", "arguments", "fact"),
    [
        (SampleTokens, {"temperature": 0}, "temperature=0"),
        (KeepHardest, {"share": 0}, "share=0"),
        (KeepHardest, {"share": 1.5}, "share=1.5"),
        (KeepHardest, {"temperature": -1}, "temperature=-1"),
    ],
)
def test_refusals(layer, arguments, fact):
    with refused(ConfigError, fact):
        layer(**arguments)

"""What BERT's relatives without a position table are made of."""

import json
import math

import keras
import numpy as np
import pytest

from harness import (
    LayerCase,
    check_precision,
    default_and_slow,
    fill,
    refused,
    to_numpy,
    weights_of,
)
from kerasbert.errors import ConfigError
from kerasbert.layers import ResidualGatedAttention, SinusoidalRelativePositionEmbedding
from kerasbert.layers.composite import no_initial_values
from kerasbert.layers.initializers import DepthScaledNormal
from reference.zoo_bare import gated_attention
from reference.zoo_parts import relative_vectors, rms_norm, sinusoids, visible_keys

B, L, H, U, S = 2, 5, 6, 7, 4
RNG = np.random.default_rng(31)
X = RNG.normal(size=(B, L, H)).astype("float32")
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]], bool)
WAVES = sinusoids(L, S)[None].astype("float32")
RMS = {"zero_mean": False, "scale": False, "offset": False, "epsilon": 1e-7}
BARE = {
    "i_dense/kernel": (H, 2 * U + S),
    "o_dense/kernel": (U, H),
    "q_scaleoffset/gamma": (S,),
    "k_scaleoffset/gamma": (S,),
}
NORM = {"norm/gamma": (H,), "norm/beta": (H,)}
SIZES = {"units": U, "key_size": S, "use_bias": False, "normalization": "softmax_plus"}


def unit(name, norm, weights=BARE, **inputs):
    inputs = {"inputs": X, **inputs}
    return LayerCase(name, ResidualGatedAttention, {**SIZES, "norm": norm}, inputs, weights)


UNITS = [
    unit("unit", RMS),
    unit("unit_masked", RMS, attention_mask=MASK[:, None]),
    unit("unit_rotary", RMS, attention_mask=MASK[:, None], position_bias=np.repeat(WAVES, B, 0)),
    unit("unit_pre", {"placement": "pre"}, {**BARE, **NORM}),
]
DISTANCES = [
    LayerCase(
        f"distances_{rows}",
        SinusoidalRelativePositionEmbedding,
        {"input_dim": rows, "output_dim": S},
        {"queries": X},
        {},
    )
    for rows in (5, 129)
]
CASES = UNITS + DISTANCES
# Checks that this file makes in its own way, see test_every_layer.
OWN = ["precision"]
each = pytest.mark.parametrize("case", CASES, ids=str)


@each
@pytest.mark.parametrize(
    "policy",
    default_and_slow(["float16", "bfloat16", "mixed_bfloat16", "mixed_float16"], ["mixed_float16"]),
)
def test_low_precision(case, policy):
    layer = case.make()
    layer.build(case.shape())
    check_precision(case, policy, to_numpy(case.call(fill(layer))))


@pytest.mark.backends
@pytest.mark.parametrize("case", UNITS[1:3], ids=str)
def test_units_against_loops(case):
    layer = case.make()
    layer.build(case.shape())
    v = {f"gau/{p}": to_numpy(w).astype("float64") for p, w in weights_of(fill(layer)).items()}
    x, visible = X.astype("float64"), visible_keys(MASK)
    with_positions = rms_norm(x + gated_attention(v, "gau", x, visible), 1e-7)
    found = to_numpy(case.call(layer))
    difference = np.abs(found - with_positions).max()
    # The reference always rotates.
    assert (difference < 1e-5) == ("position_bias" in case.inputs)


@pytest.mark.backends
@pytest.mark.parametrize("largest", [1, 2, 64])
def test_distances_against_loops(largest):
    layer = SinusoidalRelativePositionEmbedding(2 * largest + 1, S)
    x = np.zeros((1, 80, 3), "float32")
    expected = relative_vectors(80, 80, S, largest)
    np.testing.assert_allclose(to_numpy(layer(x)), expected, rtol=0, atol=1e-5)
    assert not layer.weights


def test_odd_distances():
    with refused(ConfigError, "output_dim=5", "even"):
        SinusoidalRelativePositionEmbedding(3, 5)


# ---- initial values --------------------------------------------------------------------------


@pytest.mark.backends
@pytest.mark.parametrize(
    ("shape", "width"), [((96, 400), 96), ((20000, 64), 64), ((4, 900), 900), ((10, 999), 10)]
)
@pytest.mark.parametrize("order", [2, 3])
def test_deviation_of_initial_values(shape, width, order):
    values = to_numpy(DepthScaledNormal(num_layers=12, order=order, seed=1)(shape))
    wanted = 1 / math.sqrt(width) * 12 ** (-1 / order)
    assert values.std() == pytest.approx(wanted, rel=0.03)
    # Cut at two deviations; Keras on torch gives up on one value in some millions.
    assert (np.abs(values) > 2 * 1.13684723 * wanted * (1 + 1e-6)).mean() < 1e-5


def test_an_initializer_and_its_clones():
    first = DepthScaledNormal(num_layers=2, order=3)
    again = keras.initializers.deserialize(
        json.loads(json.dumps(keras.initializers.serialize(first)))
    )
    assert (again.num_layers, again.order) == (2, 3)
    assert type(first.clone()) is DepthScaledNormal
    seeded = DepthScaledNormal(num_layers=2, seed=7)
    np.testing.assert_array_equal(to_numpy(seeded((9, 20))), to_numpy(seeded.clone()((9, 20))))
    assert np.abs(to_numpy(first((20, 9))) - to_numpy(first.clone()((20, 9)))).max() > 0
    with no_initial_values():
        assert not to_numpy(first((20, 9))).any()
    for wrong in ({"num_layers": 0}, {"num_layers": 2, "order": 0}):
        with refused(ConfigError, "=0"):
            DepthScaledNormal(**wrong)

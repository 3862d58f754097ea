"""NEZHA's fixed vectors of distances: through the harness, and against loops in float64."""

import keras
import numpy as np
import pytest

from harness import (
    LayerCase,
    refused,
    to_numpy,
)
from kerasbert.errors import ConfigError
from kerasbert.layers import SelfAttention, SinusoidalRelativePositionEmbedding
from reference.zoo_parts import relative_vectors

B, L, K, D = 2, 9, 12, 6
QUERIES, KEYS = np.ones((B, L, 4), "float32"), np.ones((B, K, 5), "float32")


def case(name, rows, **inputs):
    arguments = {"input_dim": rows, "output_dim": D}
    return LayerCase(name, SinusoidalRelativePositionEmbedding, arguments, inputs, {})


CASES = [
    case("clipped", 7, queries=QUERIES),
    case("wide", 129, queries=QUERIES),
    case("keys", 9, queries=QUERIES, keys=KEYS),
]
each = pytest.mark.parametrize("case", CASES, ids=str)


@pytest.mark.backends
@each
def test_against_loops(case):
    keys = case.inputs.get("keys", QUERIES)
    largest = (case.arguments["input_dim"] - 1) // 2
    expected = relative_vectors(L, keys.shape[1], D, largest)
    np.testing.assert_allclose(to_numpy(case.call(case.make())), expected, atol=1e-6, rtol=0)


@pytest.mark.backends
def test_attention_learns_of_positions_by_it():
    # Without positions, attention to equal vectors gives equal vectors.
    hidden = keras.Input((None, 2 * D))
    vectors = SinusoidalRelativePositionEmbedding(7, D)(hidden)
    output = SelfAttention(2)(hidden, position_bias=vectors, p_bias="typical_relative")
    found = to_numpy(keras.Model(hidden, output)(np.ones((B, L, 2 * D), "float32")))
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)
    assert np.abs(found[0, 0] - found[0, -1]).max() > 0.01


def test_wrong_sizes():
    with refused(ConfigError, "output_dim", "5", "even"):
        SinusoidalRelativePositionEmbedding(7, 5)
    with refused(ConfigError, "input_dim", "0"):
        SinusoidalRelativePositionEmbedding(0, D)

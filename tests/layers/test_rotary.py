"""Sinusoidal vectors and rotary positions against loops over single numbers."""

import math

import numpy as np
import pytest
from keras import ops

from harness import refused, to_numpy
from kerasbert.errors import ConfigError
from kerasbert.layers.rotary import apply_rotary_position_embeddings, sinusoidal_embeddings

RNG = np.random.default_rng(8)


def reference_sinusoidal(position, dim, base=10000):
    angles = [position / base ** (2 * i / dim) for i in range(dim // 2)]
    return [number for angle in angles for number in (math.sin(angle), math.cos(angle))]


def reference_rotation(vector, position, base=10000):
    """Pairs as complex numbers, turned by exp(i angle)."""
    turned = []
    for i in range(0, len(vector), 2):
        pair = complex(vector[i], vector[i + 1])
        pair *= complex(np.exp(1j * position / base ** (i / len(vector))))
        turned += [pair.real, pair.imag]
    return turned


@pytest.mark.backends
@pytest.mark.parametrize("base", [10000, 500.0])
@pytest.mark.parametrize("dim", [2, 6, 64])
def test_sinusoidal_against_loops(dim, base):
    positions = np.array([[0, 1, 2, 511], [3, 3, -7, 40]], "int32")
    found = to_numpy(sinusoidal_embeddings(positions, dim, base))
    assert found.shape == (2, 4, dim)
    for place in np.ndindex(2, 4):
        expected = reference_sinusoidal(float(positions[place]), dim, base)
        np.testing.assert_allclose(found[place], expected, atol=5e-5)


@pytest.mark.backends
@pytest.mark.parametrize("shape", [(3, 5, 8), (3, 5, 2, 8)])
@pytest.mark.parametrize("batched", [False, True])
def test_rotation_against_complex_numbers(shape, batched):
    x, y = RNG.normal(size=(2, *shape)).astype("float32")
    positions = np.array([[0, 1, 2, 3, 4], [4, 0, 0, 9, 2], [7, 7, 1, 0, 30]])
    positions = positions if batched else positions[0]
    sinusoidal = sinusoidal_embeddings(positions, 8)
    both = apply_rotary_position_embeddings(sinusoidal, x, y)
    assert isinstance(both, list)
    single = to_numpy(apply_rotary_position_embeddings(sinusoidal, x))
    np.testing.assert_array_equal(single, to_numpy(both[0]))
    for tensor, found in zip((x, y), map(to_numpy, both), strict=True):
        for place in np.ndindex(*shape[:-1]):
            position = positions[place[:2]] if batched else positions[place[1]]
            expected = reference_rotation(tensor[place].tolist(), position)
            np.testing.assert_allclose(found[place], expected, atol=1e-5)


def test_products_depend_on_distances_only():
    query, key = RNG.normal(size=(2, 1, 1, 16)).astype("float32")
    products = []
    for start in (0, 5, 300):
        angles = sinusoidal_embeddings(np.array([[start], [start + 4]]), 16)
        turned = to_numpy(apply_rotary_position_embeddings(angles[:1], query))
        other = to_numpy(apply_rotary_position_embeddings(angles[1:], key))
        products.append(float((turned * other).sum()))
    np.testing.assert_allclose(products, products[0], atol=1e-4)
    assert abs(products[0] - float((query * key).sum())) > 0.01


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_low_precision_knows_far_positions(dtype):
    # 2049 is not a number in float16, nor 257 in bfloat16.
    positions = ops.arange(2049, 2052)
    x = RNG.normal(size=(1, 3, 8)).astype("float32")
    expected = to_numpy(
        apply_rotary_position_embeddings(sinusoidal_embeddings(positions, 8), ops.cast(x, dtype))
    )
    for i, position in enumerate((2049, 2050, 2051)):
        exact = reference_rotation(to_numpy(ops.cast(x, dtype))[0, i].tolist(), position)
        np.testing.assert_allclose(expected[0, i], exact, atol=2e-2, rtol=0)
    turned = apply_rotary_position_embeddings(
        sinusoidal_embeddings(positions, 8), ops.cast(x, dtype)
    )
    assert str(turned.dtype).endswith(f"{dtype}'>") or dtype in str(turned.dtype)


@pytest.mark.parametrize("dim", [3, 0, -2, 4.0, True, None])
def test_wrong_sizes(dim):
    with refused(ConfigError, "dim", repr(dim), "even"):
        sinusoidal_embeddings(np.arange(3), dim)


def test_sizes_that_do_not_fit():
    angles = sinusoidal_embeddings(np.arange(5), 4)
    with refused(ConfigError, "[8]", "4"):
        apply_rotary_position_embeddings(angles, np.zeros((1, 5, 8), "float32"))
    with refused(ConfigError, "at least one"):
        apply_rotary_position_embeddings(angles)

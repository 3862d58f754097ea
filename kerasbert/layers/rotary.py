"""Sinusoidal position vectors, and the rotation by them (RoPE).

Shapes: B batch, L length, N heads, D size of a vector, in D/2 pairs.
"""

import keras
import numpy as np
from keras import ops

from kerasbert.errors import ConfigError


def sinusoidal_embeddings(positions, dim, base=10000):
    """Computes the sinusoidal vectors of positions, sine and cosine alternating.

    Entry 2i is `sin(p / base^(2i/dim))`, entry 2i + 1 the cosine of the same angle.

    Args:
        positions: int or float tensor of any shape (…), such as (L,) or (B, L).
        dim: size D of the vectors, an even number.
        base: the slowest pair turns about `base` times slower than the fastest.

    Returns:
        Float32 tensor (…, D), whatever the dtype policy: half precision does not tell
        position 2049 from 2048.

    Raises:
        ConfigError: if `dim` is not a positive even integer.

    Example:
        >>> sinusoidal_embeddings(keras.ops.arange(3), 4).shape
        TensorShape([3, 4])

    Source: Vaswani et al. 2017 (arXiv:1706.03762), with the two parts interleaved.
    """
    check_pairs("dim", dim)
    # Made in float64, so that only the last rounding is float32's.
    frequencies = (float(base) ** (-np.arange(0, dim, 2) / dim)).astype("float32")
    positions = ops.expand_dims(ops.cast(positions, "float32"), axis=-1)  # (…, 1)
    angles = positions * ops.convert_to_tensor(frequencies)  # (…, D/2)
    pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # (…, D/2, 2)
    return ops.reshape(pairs, (*ops.shape(positions)[:-1], dim))


def check_pairs(name, size):
    """Refuses a size of sinusoidal vectors that is not made of pairs.

    Raises:
        ConfigError: names the argument and its value.
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 2 or size % 2:
        raise ConfigError(
            f"{name}={size!r}: sinusoidal vectors are made of pairs, a sine and a cosine each.\n"
            "Expected a positive even integer.\n"
            "Choose an even size, for rotary positions the size of a head."
        )


def apply_rotary_position_embeddings(sinusoidal, *tensors):
    """Rotates each pair of entries by the angle of its position.

    Pair i are the entries 2i and 2i + 1. The inner product of two rotated vectors depends on
    the distance of their positions only.

    Args:
        sinusoidal: tensor (L, D) or (B, L, D) from `sinusoidal_embeddings`.
        *tensors: float tensors (B, L, D) or (B, L, N, D), queries and keys for example.

    Returns:
        The rotated tensor, or a list of them if there are several; shapes and dtypes are kept,
        the rotation itself is computed in float32.

    Raises:
        ConfigError: if there is no tensor, or its last axis is not that of `sinusoidal`.

    Example:
        >>> angles = sinusoidal_embeddings(keras.ops.arange(5), 8)
        >>> query, key = keras.ops.ones((2, 5, 4, 8)), keras.ops.ones((2, 5, 4, 8))
        >>> query, key = apply_rotary_position_embeddings(angles, query, key)
        >>> key.shape
        TensorShape([2, 5, 4, 8])

    Source: Su et al. 2021 (arXiv:2104.09864).
    """
    sizes = [tensor.shape[-1] for tensor in tensors]
    if not sizes or set(sizes) != {sinusoidal.shape[-1]}:
        raise ConfigError(
            f"The last axes of the tensors to rotate are {sizes}, that of the sinusoidal "
            f"vectors {sinusoidal.shape[-1]}.\n"
            "Expected at least one tensor, and the same size for all.\n"
            "Call sinusoidal_embeddings with dim= the size of a head."
        )
    rotated = [_rotate(sinusoidal, tensor) for tensor in tensors]
    return rotated[0] if len(rotated) == 1 else rotated


def _rotate(sinusoidal, tensor):
    """Rotates one tensor (B, L, D) or (B, L, N, D)."""
    if len(tensor.shape) == 4:
        sinusoidal = ops.expand_dims(sinusoidal, axis=-2)  # (…, L, 1, D)
    dtype = keras.backend.standardize_dtype(tensor.dtype)
    wide = ops.cast(tensor, keras.backend.result_type(dtype, "float32"))
    # A layer of half precision gets its inputs in that.
    sinusoidal = ops.cast(sinusoidal, wide.dtype)
    signs = np.tile(np.array([-1, 1], "float32"), sinusoidal.shape[-1] // 2)
    sin = ops.repeat(sinusoidal[..., ::2], 2, axis=-1) * ops.cast(signs, wide.dtype)
    cos = ops.repeat(sinusoidal[..., 1::2], 2, axis=-1)
    # To split the pairs and to stack them again takes three times as long.
    shape = ops.shape(tensor)
    pairs = ops.reshape(wide, (*shape[:-1], shape[-1] // 2, 2))
    swapped = ops.reshape(ops.flip(pairs, axis=-1), shape)
    return ops.cast(wide * cos + swapped * sin, dtype)

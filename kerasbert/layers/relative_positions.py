"""Vectors for the distance of a key from a query, learned or fixed.

Shapes: B batch, Q queries, K keys, D size of a vector.
"""

import math

import keras
import numpy as np
from keras import ops

from kerasbert.errors import ConfigError, check_integer
from kerasbert.layers.rotary import check_pairs, sinusoidal_embeddings
from kerasbert.layers.tables import TableLayer, pair


@keras.saving.register_keras_serializable(package="kerasbert")
class RelativePositionEmbedding(TableLayer):
    """Looks up one vector for the distance of every key from every query.

    Distances beyond the table are those at its ends. The middle row is distance 0, the rows
    after it belong to keys that follow their query.

    Args:
        input_dim: number of rows, an odd one: twice the largest distance and one more.
        output_dim: size D of the vectors.
        embeddings_initializer: what the table starts with; None for BERT's.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        queries: tensor (B, Q, …), of which only the length matters; or the list
            `[queries, keys]`.
        keys: tensor (B, K, …), of which only the length matters; default the queries.

    Returns:
        Float tensor (Q, K, D).

    Raises:
        ConfigError: if a size is no positive integer.

    Example:
        >>> RelativePositionEmbedding(129, 64)(keras.ops.ones((2, 5, 16))).shape
        TensorShape([5, 5, 64])

    Source: Shaw et al. 2018 (arXiv:1803.02155).
    """

    def __init__(self, input_dim, output_dim, embeddings_initializer=None, **kwargs):
        check_integer("output_dim", output_dim, minimum=1)
        super().__init__(input_dim, output_dim, embeddings_initializer, **kwargs)

    def build(self, queries_shape, keys_shape=None):
        """Creates the table (input_dim, D)."""
        self.add_table(self.output_dim)

    def call(self, queries, keys=None):
        """Returns the vectors of all distances; see the class for shapes."""
        queries, keys = pair(queries, queries if keys is None else keys)
        rows = ops.arange(ops.shape(queries)[1], dtype="int32")[:, None]
        columns = ops.arange(ops.shape(keys)[1], dtype="int32")[None]
        return self.vectors_of(columns - rows)  # (Q, K, D)

    def vectors_of(self, distances):
        """Returns the vectors (…, D) of distances (…), key minus query."""
        table = ops.cast(self.table(), self.compute_dtype)
        return ops.take(table, self.rows_of(distances), axis=0)

    def table(self):
        """Returns the vectors (input_dim, D) of all distances."""
        return self.embeddings

    def rows_of(self, distances):
        """Returns the row of the table for each distance, key minus query."""
        largest = (self.input_dim - 1) // 2
        return ops.clip(distances, -largest, largest) + largest

    def compute_mask(self, queries, previous_mask=None):
        """Returns no mask: the output has no axis for the batch."""
        return None

    def compute_output_shape(self, queries_shape, keys_shape=None):
        """Returns (Q, K, D)."""
        queries, keys = pair(queries_shape, queries_shape if keys_shape is None else keys_shape)
        return (queries[1], keys[1], self.output_dim)


@keras.saving.register_keras_serializable(package="kerasbert")
class SinusoidalRelativePositionEmbedding(RelativePositionEmbedding):
    """`RelativePositionEmbedding` with fixed vectors of sines and cosines, as in NEZHA.

    They are computed, so that the layer has no variable to load, to save or to train.

    Args:
        input_dim: number of distances, an odd one: twice the largest and one more.
        output_dim: size D of the vectors, an even number.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        queries: tensor (B, Q, …), of which only the length matters; or the list
            `[queries, keys]`.
        keys: tensor (B, K, …), of which only the length matters; default the queries.

    Returns:
        Float tensor (Q, K, D).

    Raises:
        ConfigError: if a size is no positive integer, or D is odd.

    Example:
        >>> SinusoidalRelativePositionEmbedding(129, 64)(keras.ops.ones((2, 5, 16))).shape
        TensorShape([5, 5, 64])

    Source: Wei et al. 2019 (arXiv:1909.00204).
    """

    def __init__(self, input_dim, output_dim, **kwargs):
        super().__init__(input_dim, output_dim, **kwargs)
        check_pairs("output_dim", output_dim)

    def build(self, queries_shape, keys_shape=None):
        """There is nothing to create."""

    def table(self):
        """Returns the vectors (input_dim, D) of all distances."""
        vectors = sinusoidal_embeddings(ops.arange(self.input_dim), self.output_dim)
        return ops.cast(vectors, self.compute_dtype)

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        config = super().get_config()
        del config["embeddings_initializer"]
        return config


@keras.saving.register_keras_serializable(package="kerasbert")
class RelativePositionEmbeddingT5(RelativePositionEmbedding):
    """Looks up one vector for the bucket of every distance, as T5 does.

    Small distances have a bucket each; larger ones share buckets that grow with the logarithm
    of the distance, up to `max_distance`.

    Args:
        input_dim: number of buckets.
        output_dim: size D of the vectors, in T5 the number of heads.
        max_distance: from this distance on there is one bucket.
        bidirectional: whether keys after their query have buckets of their own, half of all;
            otherwise they share the bucket of distance 0.
        embeddings_initializer: what the table starts with; None for BERT's.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        queries: tensor (B, Q, …), of which only the length matters; or the list
            `[queries, keys]`.
        keys: tensor (B, K, …), of which only the length matters; default the queries.

    Returns:
        Float tensor (Q, K, D).

    Raises:
        ConfigError: if a size is no positive integer, there are too few buckets, or
            `max_distance` lies among the distances with a bucket each.

    Example:
        >>> RelativePositionEmbeddingT5(32, 12)(keras.ops.ones((2, 5, 16))).shape
        TensorShape([5, 5, 12])

    Source: Raffel et al. 2019 (arXiv:1910.10683).
    """

    def __init__(
        self,
        input_dim,
        output_dim,
        max_distance=128,
        bidirectional=True,
        embeddings_initializer=None,
        **kwargs,
    ):
        super().__init__(input_dim, output_dim, embeddings_initializer, **kwargs)
        check_integer("max_distance", max_distance, minimum=1)
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        self._check_buckets()
        self._buckets = self._make_buckets()

    def _check_buckets(self):
        exact = self._one_side() // 2
        if exact < 1:
            raise ConfigError(
                f"input_dim={self.input_dim}, bidirectional={self.bidirectional}.\n"
                f"Expected at least {4 if self.bidirectional else 2} buckets.\n"
                "T5 has 32."
            )
        if self.max_distance <= exact:
            raise ConfigError(
                f"max_distance={self.max_distance}, with input_dim={self.input_dim} buckets.\n"
                f"Expected more than {exact}, the number of distances with a bucket each.\n"
                "T5 has max_distance=128."
            )

    def _one_side(self):
        """The number of buckets for the keys before their query, that itself included."""
        return self.input_dim // 2 if self.bidirectional else self.input_dim

    def _make_buckets(self):
        """Returns the buckets of the distances from -max_distance to max_distance.

        Logarithms of different backends may fall on either side of the border of a bucket;
        made here, they are the same on all.
        """
        side = self._one_side()
        before = [_bucket(n, side, self.max_distance) for n in range(self.max_distance + 1)]
        after = [side + n for n in before] if self.bidirectional else [0] * len(before)
        return np.array(before[::-1] + after[1:], "int32")

    def rows_of(self, distances):
        """Returns the bucket of each distance, key minus query."""
        places = ops.clip(distances, -self.max_distance, self.max_distance) + self.max_distance
        return ops.take(ops.convert_to_tensor(self._buckets), places, axis=0)

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        return {
            **super().get_config(),
            "max_distance": self.max_distance,
            "bidirectional": self.bidirectional,
        }


def _bucket(distance, buckets, max_distance):
    """Returns the bucket of one distance ≥ 0, of so many on this side, rounded as T5 rounds."""
    exact = buckets // 2
    if distance < exact:
        return distance
    # T5 computes in float32. NumPy's own logarithm in it depends on the processor.
    part = np.float32(math.log(np.float32(distance) / np.float32(exact)))
    part = part / np.float32(math.log(max_distance / exact)) * np.float32(buckets - exact)
    return min(exact + int(part), buckets - 1)

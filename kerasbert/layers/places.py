"""Layers that read or change chosen places of sequences, as pre-training does.

Shapes: B batch, L length, H width, M places of a row, V vocabulary.
"""

import keras
from keras import ops

from kerasbert.errors import check_number


@keras.saving.register_keras_serializable(package="kerasbert")
class TakePlaces(keras.layers.Layer):
    """Takes the vectors at some places of every row.

    Call arguments:
        inputs: float tensor (B, L, H).
        places: int tensor (B, M), each from 0 to L - 1.

    Returns:
        Float tensor (B, M, H), without a Keras mask.

    Example:
        >>> hidden = keras.ops.array([[[1.0], [2.0], [3.0]]])
        >>> TakePlaces()(hidden, places=keras.ops.array([[2, 0]])).numpy().tolist()
        [[[3.0], [1.0]]]
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs, places):
        """Returns the vectors at the places."""
        batch, length, width = ops.shape(inputs)
        rows = ops.take(ops.reshape(inputs, (-1, width)), flat_places(places, length), axis=0)
        return ops.reshape(rows, (batch, ops.shape(places)[1], width))

    def compute_mask(self, inputs, previous_mask=None, **kwargs):
        """The places are no longer those of the input, so there is no mask."""
        return None

    def compute_output_spec(self, inputs, places):
        """Returns the symbolic vectors."""
        shape = (inputs.shape[0], places.shape[1], inputs.shape[-1])
        return keras.KerasTensor(shape, dtype=self.compute_dtype)


@keras.saving.register_keras_serializable(package="kerasbert")
class PutPlaces(keras.layers.Layer):
    """Puts ids at some places of every row, in the place of those that are there.

    Place 0 is left as it is: there is [CLS] in every row, so it fills up rows that have fewer
    than M places.

    Call arguments:
        inputs: int tensor (B, L) of ids.
        places: int tensor (B, M), each place at most once in a row.
        values: int tensor (B, M), what to put there.
        where: optional tensor (B, M); a place where it is 0 is left as it is.

    Returns:
        Int tensor (B, L).

    Example:
        >>> ids = keras.ops.array([[2, 4, 4, 3]])
        >>> PutPlaces()(ids, keras.ops.array([[2, 0]]), keras.ops.array([[9, 9]])).numpy().tolist()
        [[2, 4, 9, 3]]
    """

    def __init__(self, **kwargs):
        # Half precision would round weights that are only compared with 0.
        super().__init__(autocast=False, **kwargs)

    def call(self, inputs, places, values, where=None):
        """Returns the ids with the new ones in their places."""
        return put(inputs, places, values, where)

    def compute_output_spec(self, inputs, places, values, where=None):
        """Returns the symbolic ids."""
        return keras.KerasTensor(inputs.shape, dtype=inputs.dtype)


@keras.saving.register_keras_serializable(package="kerasbert")
class SampleTokens(keras.layers.Layer):
    """Draws one token for every place, each with the probability that a model gives it.

    The draw is the largest of the logits after Gumbel noise was added; no gradient passes.

    Args:
        temperature: what the logits are divided by.
        seed: of the random numbers; None for a new one each time.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: float tensor (B, M, V) of logits.

    Returns:
        Int tensor (B, M) of ids.

    Raises:
        ConfigError: if the temperature is not above 0.

    Example:
        >>> logits = keras.ops.array([[[0.0, 99.0, 0.0]]])
        >>> SampleTokens()(logits).numpy().tolist()
        [[1]]

    Source: Clark et al. 2020 (arXiv:2003.10555); google-research/electra `run_pretraining.py`.
    """

    def __init__(self, temperature=1.0, seed=None, **kwargs):
        # Half precision has too few numbers near 1 for the noise.
        super().__init__(autocast=False, **kwargs)
        check_number("temperature", temperature, above=0)
        self.temperature = float(temperature)
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def call(self, inputs):
        """Returns the drawn ids."""
        logits = ops.stop_gradient(ops.cast(inputs, "float32")) / self.temperature
        noise = gumbel(ops.shape(logits), self.seed_generator)
        return ops.cast(ops.argmax(logits + noise, axis=-1), "int32")

    def compute_output_spec(self, inputs):
        """Returns the symbolic ids."""
        return keras.KerasTensor(inputs.shape[:-1], dtype="int32")

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        return {**super().get_config(), "temperature": self.temperature, "seed": self.seed}


@keras.saving.register_keras_serializable(package="kerasbert")
class KeepHardest(keras.layers.Layer):
    """Chooses, of the places of a row, those where a model predicts worst.

    A place is chosen the likelier the greater the model's cross entropy there is; the choice is
    random, without putting back, and no gradient passes.

    Args:
        share: of the places of a row, how many are chosen; at least one.
        temperature: the greater, the less the cross entropy matters.
        seed: of the random numbers; None for a new one each time.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: float tensor (B, M, V) of the model's logits.
        ids: int tensor (B, M), the right tokens.
        weights: tensor (B, M), 0 where a row has no place.

    Returns:
        Int32 tensor (B, M), 1 at the places that were chosen, else 0.

    Raises:
        ConfigError: if an argument is out of range.

    Example:
        >>> logits = keras.ops.array([[[99.0, 0.0], [0.0, 99.0]]])
        >>> ones = keras.ops.ones((1, 2), "int32")
        >>> KeepHardest(0.5)(logits, ids=ones, weights=ones).numpy().tolist()
        [[1, 0]]

    Source: Kool et al. 2019 (arXiv:1903.06059) for drawing several without putting back.
    """

    def __init__(self, share=0.5, temperature=1.0, seed=None, **kwargs):
        super().__init__(autocast=False, **kwargs)
        check_number("share", share, above=0, most=1)
        check_number("temperature", temperature, above=0)
        self.share = float(share)
        self.temperature = float(temperature)
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def call(self, inputs, ids, weights):
        """Returns which places were chosen."""
        logits = ops.stop_gradient(ops.cast(inputs, "float32"))
        hardness = ops.sparse_categorical_crossentropy(ids, logits, from_logits=True)  # (B, M)
        scores = hardness / self.temperature + gumbel(ops.shape(hardness), self.seed_generator)
        real = ops.not_equal(weights, 0)
        scores = ops.where(real, scores, float("-inf"))
        rank = ops.argsort(ops.argsort(-scores, axis=-1), axis=-1)
        count = ops.sum(ops.cast(real, "float32"), axis=-1, keepdims=True)
        wanted = ops.maximum(ops.round(count * self.share), 1.0)
        kept = ops.logical_and(real, ops.cast(rank, "float32") < wanted)
        return ops.cast(kept, "int32")

    def compute_output_spec(self, inputs, ids, weights):
        """Returns the symbolic choice."""
        return keras.KerasTensor(inputs.shape[:-1], dtype="int32")

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        own = {"share": self.share, "temperature": self.temperature, "seed": self.seed}
        return {**super().get_config(), **own}


def flat_places(places, length):
    """Returns the indexes (B * M,) of places (B, M) in the rows of length L, one after another."""
    places = ops.cast(places, "int32")
    starts = ops.arange(ops.shape(places)[0], dtype="int32") * length
    return ops.reshape(places + ops.expand_dims(starts, -1), (-1,))


def put(inputs, places, values, where=None):
    """Returns ids (B, L) with others at some places; see `PutPlaces`."""
    shape = ops.shape(inputs)
    changed = ops.greater(places, 0)
    if where is not None:
        changed = ops.logical_and(changed, ops.not_equal(where, 0))
    flat, index = ops.reshape(inputs, (-1,)), flat_places(places, shape[1])
    # What is left as it is gets its own value again: shapes stay known.
    values = ops.reshape(ops.cast(values, inputs.dtype), (-1,))
    values = ops.where(ops.reshape(changed, (-1,)), values, ops.take(flat, index))
    return ops.reshape(ops.scatter_update(flat, ops.expand_dims(index, -1), values), shape)


def gumbel(shape, seed):
    """Returns Gumbel noise, float32."""
    # 0 would give an infinite number, which no logit can outweigh.
    uniform = keras.random.uniform(shape, minval=1e-30, maxval=1.0, dtype="float32", seed=seed)
    return -ops.log(-ops.log(uniform))

"""What the layers with a table, and those that merge vectors into their input, have in common.

Shapes: B batch, L length, E width of the input, D size of a vector.
"""

import keras
from keras import ops

from kerasbert.errors import ConfigError, check_integer, did_you_mean
from kerasbert.layers.composite import truncated_normal

MERGE_MODES = ("add", "mul", "zero", "concat")


class TableLayer(keras.layers.Layer):
    """A layer that owns a table of vectors, the variable `embeddings`.

    Args:
        input_dim: number of vectors.
        output_dim: their size; None where the layer takes it from its input.
        embeddings_initializer: what the table starts with, a Keras initializer or its name;
            None is BERT's, a normal distribution of deviation 0.02 cut at two of them.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    def __init__(self, input_dim, output_dim=None, embeddings_initializer=None, **kwargs):
        super().__init__(**kwargs)
        check_integer("input_dim", input_dim, minimum=1)
        if output_dim is not None:
            check_integer("output_dim", output_dim, minimum=1)
        self.supports_masking = True
        self.input_dim = input_dim
        self.output_dim = output_dim
        self.embeddings_initializer = keras.initializers.get(
            truncated_normal(0.02) if embeddings_initializer is None else embeddings_initializer
        )

    def add_table(self, width):
        """Creates the table (input_dim, width)."""
        self.embeddings = self.add_weight(
            shape=(self.input_dim, width),
            initializer=self.embeddings_initializer,
            name="embeddings",
        )

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        return {
            **super().get_config(),
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
        }


class MergingLayer(keras.layers.Layer):
    """A layer that merges one vector per position into its input.

    Subclasses have an attribute `output_dim`, None for the width of the input, and a method
    `vectors(inputs, positions)` that returns the vectors (1 or B, L, D).

    Args:
        merge_mode: "add"; "mul", the product of the input and 1 + the vector; "concat", the
            vector after the input; or "zero", the vectors alone.
        custom_position_ids: whether a call without `positions` is an error. The positions may
            then also come as the second item of a list, `layer([inputs, positions])`.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    def __init__(self, merge_mode="add", custom_position_ids=False, **kwargs):
        super().__init__(**kwargs)
        if merge_mode not in MERGE_MODES:
            raise ConfigError(
                f"merge_mode={merge_mode!r}.{did_you_mean(merge_mode, MERGE_MODES)}\n"
                f"Expected one of: {', '.join(MERGE_MODES)}."
            )
        self.supports_masking = True
        self.merge_mode = merge_mode
        self.custom_position_ids = custom_position_ids

    def build(self, inputs_shape, positions_shape=None):
        """Checks that vectors of size D can be merged into inputs of shape (B, L, E)."""
        shape, _ = pair(inputs_shape, positions_shape)
        if self.merge_mode in ("add", "mul") and self.vector_size(shape) != shape[-1]:
            raise ConfigError(
                f"{self.name}: output_dim={self.output_dim}, the input is {shape[-1]} wide.\n"
                f'Expected the same width for merge_mode="{self.merge_mode}".\n'
                f'Set output_dim={shape[-1]}, or merge_mode="concat".'
            )

    def vector_size(self, inputs_shape):
        """Returns the size D of the vectors for inputs of this shape, nested or not."""
        shape, _ = pair(inputs_shape, None)
        return shape[-1] if self.output_dim is None else self.output_dim

    def call(self, inputs, positions=None):
        """Returns the input with the vectors of its positions merged into it."""
        inputs, positions = pair(inputs, positions)
        self._check_positions(positions)
        vectors = ops.cast(self.vectors(inputs, positions), self.compute_dtype)  # (1 or B, L, D)
        if self.merge_mode == "add":
            return inputs + vectors
        if self.merge_mode == "mul":
            return inputs * (vectors + 1)
        if self.merge_mode == "zero":
            return vectors
        batch, length = ops.shape(inputs)[:2]
        vectors = ops.broadcast_to(vectors, (batch, length, vectors.shape[-1]))
        return ops.concatenate([inputs, vectors], axis=-1)

    def _check_positions(self, positions):
        if positions is None and self.custom_position_ids:
            raise ConfigError(
                f"{self.name}: called without positions, with custom_position_ids=True.\n"
                "Expected the position of every token, a tensor of integers (batch, length).\n"
                "Call it as layer(inputs, positions=positions)."
            )
        if positions is None:
            return
        dtype = keras.backend.standardize_dtype(positions.dtype)
        if dtype in ("float16", "bfloat16"):
            # Keras itself has cast floats to the half type of the layer.
            raise ConfigError(
                f"{self.name}: the positions are numbers of type {dtype}, which has no room for "
                "large odd ones.\n"
                "Expected integers, such as int32.\n"
                'Make the input of the positions with dtype="int32".'
            )

    def compute_mask(self, inputs, previous_mask=None):
        """Returns the mask of the inputs; the vectors alone have none."""
        if self.merge_mode == "zero":
            return None
        return previous_mask[0] if is_nested(inputs) else previous_mask

    def compute_output_shape(self, inputs_shape, positions_shape=None):
        """Returns (B, L, D), (B, L, E + D) with "concat"; B is 1 where no positions are given."""
        shape, positions_shape = pair(inputs_shape, positions_shape)
        size = self.vector_size(shape)
        if self.merge_mode == "zero":
            return (1 if positions_shape is None else shape[0], shape[1], size)
        return (*shape[:-1], shape[-1] + size if self.merge_mode == "concat" else size)

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        return {
            **super().get_config(),
            "merge_mode": self.merge_mode,
            "custom_position_ids": self.custom_position_ids,
        }

    @classmethod
    def from_config(cls, config):
        """Makes the layer that `get_config` describes."""
        # Keras' reader of HDF5 files puts its function `add` in the place of that word.
        mode = config.get("merge_mode", "add")
        return super().from_config({**config, "merge_mode": getattr(mode, "__name__", mode)})


def is_nested(value):
    """Whether this is a list of tensors or of shapes, not one tensor or one shape."""
    return isinstance(value, list | tuple) and not (value[0] is None or isinstance(value[0], int))


def pair(first, second):
    """Returns two tensors, or two shapes, whether they came as one list or one by one."""
    return first if is_nested(first) else (first, second)

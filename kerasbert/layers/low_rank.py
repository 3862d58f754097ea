"""The low-rank update of a dense layer (LoRA).

Shapes: B batch, L length, I and O inputs and outputs of the dense layer, R rank.
"""

import keras
from keras import ops

from kerasbert.errors import check_integer, check_number


@keras.saving.register_keras_serializable(package="kerasbert")
class LowRankAdapter(keras.layers.Layer):
    """Computes `alpha / rank * x A B`, which is added to the output of a dense layer.

    `B` starts at zero, so a new adapter changes nothing. The matrices are float32 whatever the
    precision: small steps of training would get lost in a half type.

    Args:
        units: width O of the output.
        rank: number R of columns of A.
        alpha: the update is multiplied by `alpha / rank`; default is `rank`.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: float tensor (B, L, I), the input of the dense layer.

    Returns:
        Float tensor (B, L, O).

    Raises:
        ConfigError: if a size is no positive integer or `alpha` no positive number.

    Example:
        >>> LowRankAdapter(16, rank=2)(keras.ops.ones((2, 5, 32))).shape
        TensorShape([2, 5, 16])

    Source: Hu et al. 2021 (arXiv:2106.09685).
    """

    def __init__(self, units, rank, alpha=None, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        check_integer("units", units, minimum=1)
        check_integer("rank", rank, minimum=1)
        self.units = units
        self.rank = rank
        self.alpha = checked_alpha(rank if alpha is None else alpha)

    def build(self, input_shape):
        """Creates A (I, R) and B (R, O)."""
        self.a = self.add_weight(
            shape=(input_shape[-1], self.rank),
            initializer="he_uniform",
            dtype="float32",
            name="lora_a",
        )
        self.b = self.add_weight(
            shape=(self.rank, self.units), initializer="zeros", dtype="float32", name="lora_b"
        )

    def call(self, inputs):
        """Returns the update; see the class for shapes."""
        # Keras does so itself only under a mixed policy.
        a, b = (ops.cast(matrix, self.compute_dtype) for matrix in (self.a, self.b))
        update = ops.matmul(ops.matmul(inputs, a), b)
        return update * (self.alpha / self.rank)

    def product(self):
        """Returns what the adapter adds to the kernel, float32 (I, O)."""
        return ops.matmul(self.a, self.b) * (self.alpha / self.rank)

    def compute_output_shape(self, input_shape):
        """Replaces the last axis."""
        return (*input_shape[:-1], self.units)

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        settings = {"units": self.units, "rank": self.rank, "alpha": self.alpha}
        return {**super().get_config(), **settings}


def checked_alpha(alpha):
    """Returns `alpha`, a positive number.

    Raises:
        ConfigError: names the value.
    """
    check_number("alpha", alpha, above=0, hint="; the update is multiplied by alpha / rank")
    return alpha

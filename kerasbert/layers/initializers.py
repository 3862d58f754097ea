"""Initial values that depend on the depth of a model."""

import keras

from kerasbert.errors import check_integer
from kerasbert.layers.composite import TruncatedNormal

# A normal distribution that is cut at two deviations is narrower by this factor.
_CUT_AT_TWO = 1.13684723

# An axis of so many entries, or so few, is that of a vocabulary, or of segments.
_LONGEST_WIDTH, _SHORTEST_WIDTH = 10000, 10


@keras.saving.register_keras_serializable(package="kerasbert")
class DepthScaledNormal(TruncatedNormal):
    """A cut normal distribution of deviation `width**-0.5 * num_layers**(-1 / order)`.

    The width is the first axis of the matrix, or the second one if the first runs over a
    vocabulary or over segments.

    Args:
        num_layers: number of layers of the model.
        order: 2 for RoFormer V2, 3 for GAU-alpha.
        seed: a Python integer; by default each initializer has a random one.

    Raises:
        ConfigError: if `num_layers` or `order` is no positive integer.

    Example:
        >>> DepthScaledNormal(num_layers=4, order=2)((64, 32)).shape
        TensorShape([64, 32])

    Source: ZhuiyiTechnology/roformer-v2 and ZhuiyiTechnology/GAU-alpha.
    """

    def __init__(self, num_layers, order=2, seed=None):
        super().__init__(seed=seed)
        check_integer("num_layers", num_layers, minimum=1)
        check_integer("order", order, minimum=1)
        self.num_layers = num_layers
        self.order = order

    def __call__(self, shape, dtype=None):
        """Returns the initial value, a tensor of this shape."""
        is_width = _SHORTEST_WIDTH <= shape[0] <= _LONGEST_WIDTH
        width = shape[0] if is_width else shape[1]
        deviation = _CUT_AT_TWO * width**-0.5 * self.num_layers ** (-1 / self.order)
        return TruncatedNormal(stddev=deviation, seed=self.seed)(shape, dtype)

    def get_config(self):
        """Returns the arguments that rebuild this initializer."""
        seed = super().get_config()["seed"]
        return {"num_layers": self.num_layers, "order": self.order, "seed": seed}

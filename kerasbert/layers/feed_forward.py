"""The feed-forward half of a Transformer block, alone and with its residual connection."""

import keras

from kerasbert import activations
from kerasbert.errors import ConfigError, check_integer
from kerasbert.layers.composite import CompositeLayer
from kerasbert.layers.residual import ResidualLayer


@keras.saving.register_keras_serializable(package="kerasbert")
class FeedForward(CompositeLayer):
    """Two dense layers, or with a list of activations a gated unit.

    Args:
        units: width I of the inner layer.
        activation: an unambiguous name (`gelu_tanh`, `gelu_erf`, `relu`, …), or a list of
            them: then the inner layer is the product of one dense layer for each, as
            ["gelu_tanh", "linear"] in T5 1.1.
        use_bias: whether the dense layers have a bias.
        kernel_initializer: a Keras initializer or its name.
        **kwargs: arguments of `CompositeLayer`.

    Call arguments:
        inputs: float tensor (B, L, H).

    Returns:
        Float tensor (B, L, H).

    Raises:
        ConfigError: if `units` is not a positive integer, or an activation is unknown or the
            ambiguous "gelu".

    Example:
        >>> FeedForward(64, "gelu_tanh")(keras.ops.ones((2, 5, 32))).shape
        TensorShape([2, 5, 32])

    Source: Vaswani et al. 2017 (arXiv:1706.03762); Shazeer 2020 (arXiv:2002.05202).
    """

    def __init__(
        self,
        units,
        activation="relu",
        use_bias=True,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_integer("units", units, minimum=1)
        self.units = units
        self.activation = list(activation) if isinstance(activation, tuple) else activation
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        names = self.activation if isinstance(self.activation, list) else [self.activation]
        if not names:
            raise ConfigError("activation=[].\nExpected at least one activation.")
        self._activations = [activations.get(name) for name in names]

    def build(self, input_shape):
        """Makes and builds the sub-layers for inputs of shape (B, L, H)."""
        self.build_dense(input_shape)
        self.freeze_sublayers()

    def build_dense(self, input_shape):
        """Makes and builds the dense layers."""
        names = ["intermediate"]
        if isinstance(self.activation, list):
            names = [f"intermediate_{index}" for index in range(len(self.activation))]
        inner_shape = (*input_shape[:-1], self.units)
        self.intermediates = [
            self.built_dense(name, self.units, input_shape, use_bias=self.use_bias)
            for name in names
        ]
        self.output_dense = self.built_dense(
            "output", input_shape[-1], inner_shape, use_bias=self.use_bias
        )

    @property
    def intermediate(self):
        """The inner dense layer, the first of them in a gated unit."""
        return self.intermediates[0]

    def call(self, inputs):
        """Returns the transformed hidden state; see the class for shapes."""
        return self.transform(inputs)

    def transform(self, hidden, adapter=None):
        """Returns the transformed hidden state (B, L, H)."""
        inner = None
        for dense, function in zip(self.intermediates, self._activations, strict=True):
            factor = function(self.adapted(dense, hidden, adapter))  # (B, L, I)
            inner = factor if inner is None else inner * factor
        return self.adapted(self.output_dense, inner, adapter)  # (B, L, H)

    def compute_output_shape(self, input_shape):
        """The output has the shape of the input."""
        return input_shape

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        return {
            **super().get_config(),
            "units": self.units,
            "activation": self.activation,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


@keras.saving.register_keras_serializable(package="kerasbert")
class ResidualFeedForward(ResidualLayer, FeedForward):
    """`FeedForward` with its residual connection and layer normalisation.

    Args:
        units: as in `FeedForward`.
        activation: as in `FeedForward`.
        **kwargs: further arguments of `FeedForward`, and those of `ResidualLayer`.

    Call arguments:
        inputs: float tensor (B, L, H).
        condition: float tensor (B, C) or (B, L, C), where the norm is conditional.
        adapter: number of the use whose adapters count, see `CompositeLayer`.

    Returns:
        Float tensor (B, L, H).

    Example:
        >>> ResidualFeedForward(64, "gelu_tanh")(keras.ops.ones((2, 5, 32))).shape
        TensorShape([2, 5, 32])

    Source: as `FeedForward`; google-research/bert `modeling.py`.
    """

    def __init__(self, units, activation="relu", **kwargs):
        super().__init__(units=units, activation=activation, **kwargs)

    def build(self, inputs_shape, condition_shape=None):
        """Makes and builds the sub-layers for inputs of shape (B, L, H)."""
        self.build_dense(inputs_shape)
        self.build_residual(inputs_shape, condition_shape)

    def call(self, inputs, condition=None, adapter=None):
        """Returns the hidden state after the half block; see the class for shapes."""
        outputs = self.transform(self.before(inputs, condition), adapter)
        return self.after(inputs, outputs, condition)

    def compute_output_shape(self, inputs_shape, condition_shape=None):
        """The output has the shape of the input."""
        return inputs_shape

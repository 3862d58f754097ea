"""The feed-forward half of a Transformer block."""

import keras

from kerasbert import activations
from kerasbert.errors import check_integer
from kerasbert.layers.composite import ResidualLayer


@keras.saving.register_keras_serializable(package="kerasbert")
class FeedForward(ResidualLayer):
    """Two dense layers with their residual connection and layer normalisation.

    Args:
        units: width I of the inner layer.
        activation: an unambiguous name: `gelu_tanh`, `gelu_erf`, `relu`, ….
        **kwargs: arguments of `ResidualLayer`.

    Call arguments:
        inputs: float tensor (B, L, H).

    Returns:
        Float tensor (B, L, H).

    Raises:
        ConfigError: if `units` is not a positive integer, or the activation is unknown or the
            ambiguous "gelu".

    Example:
        >>> FeedForward(64, "gelu_tanh")(keras.ops.ones((2, 5, 32))).shape
        TensorShape([2, 5, 32])

    Source: Vaswani et al. 2017 (arXiv:1706.03762); google-research/bert `modeling.py`.
    """

    def __init__(self, units, activation, **kwargs):
        super().__init__(**kwargs)
        check_integer("units", units, minimum=1)
        self.units = units
        self.activation = activation
        self._activation_function = activations.get(activation)

    def build(self, input_shape):
        """Makes and builds the sub-layers for inputs of shape (B, L, H)."""
        inner_shape = (*input_shape[:-1], self.units)
        self.intermediate = self.built_dense("intermediate", self.units, input_shape)
        self.output_dense = self.built_dense("output", input_shape[-1], inner_shape)
        super().build(input_shape)

    def call(self, inputs):
        """Returns the hidden state after the block; see the class for shapes."""
        return self.residual(inputs, self._transform)

    def _transform(self, hidden):
        inner = self._activation_function(self.intermediate(hidden))  # (B, L, I)
        return self.output_dense(inner)  # (B, L, H)

    def compute_output_shape(self, input_shape):
        """The output has the shape of the input."""
        return input_shape

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        return {**super().get_config(), "units": self.units, "activation": self.activation}

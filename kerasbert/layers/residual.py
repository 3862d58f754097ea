"""The residual connection and the norm around half a Transformer block."""

import keras

from kerasbert.errors import ConfigError, did_you_mean
from kerasbert.layers.composite import CompositeLayer
from kerasbert.layers.normalization import LayerNormalization

_PLACEMENTS = ("post", "pre", "both", "none")


class ResidualLayer(CompositeLayer):
    """Half a Transformer block: some transformation, its residual connection and its norm.

    Where the norm stands is its `placement`:

    - "post": `norm(x + dropout(transform(x)))`, as in BERT;
    - "pre": `x + dropout(transform(norm(x)))`, as in GPT-2 and T5;
    - "both": `norm(x + dropout(transform(inner_norm(x))))`, as GPT2-ML's feed-forward part;
    - "none": `x + dropout(transform(x))`, as GPT2-ML's attention part.

    Subclasses call `before` and `after` around their transformation.

    Args:
        rate: dropout rate of the transformation's output, from 0 to 1.
        norm: dict of arguments of `LayerNormalization`, and "placement". Not given, they are
            the post-LN form and BERT's epsilon, 1e-12.
        **kwargs: arguments of `CompositeLayer`.

    Raises:
        ConfigError: if the placement is unknown.
    """

    def __init__(self, rate=0.0, norm=None, **kwargs):
        super().__init__(**kwargs)
        self.rate = rate
        self.norm_arguments = {"placement": "post", "epsilon": 1e-12, **(norm or {})}
        placement = self.norm_arguments["placement"]
        if placement not in _PLACEMENTS:
            raise ConfigError(
                f"The placement of a norm is {placement!r}.{did_you_mean(placement, _PLACEMENTS)}\n"
                f"Expected one of: {', '.join(_PLACEMENTS)}."
            )
        self.placement = placement

    def build_residual(self, input_shape, condition_shape=None):
        """Makes and builds dropout and norms for inputs (B, L, H) and a condition (B, …, C)."""
        self.dropout = keras.layers.Dropout(self.rate, name="dropout", dtype=self.dtype_policy)
        if self.placement != "none":
            self.norm = self._built_norm("norm", input_shape, condition_shape)
        if self.placement == "both":
            self.inner_norm = self._built_norm("inner_norm", input_shape, condition_shape)
        self.freeze_sublayers()

    def _built_norm(self, name, input_shape, condition_shape):
        arguments = {k: v for k, v in self.norm_arguments.items() if k != "placement"}
        arguments.update(self.state_inside(name))
        norm = LayerNormalization(name=name, dtype=self.sublayer_dtype(name), **arguments)
        norm.build(input_shape, condition_shape)
        return norm

    def before(self, inputs, condition=None):
        """Returns what the transformation gets, (B, L, H)."""
        if self.placement == "pre":
            return self.norm(inputs, condition=condition)
        if self.placement == "both":
            return self.inner_norm(inputs, condition=condition)
        return inputs

    def after(self, inputs, outputs, condition=None):
        """Joins the inputs of the layer and the outputs of the transformation, (B, L, H)."""
        hidden = inputs + self.dropout(outputs)
        if self.placement in ("post", "both"):
            return self.norm(hidden, condition=condition)
        return hidden

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        return {**super().get_config(), "rate": self.rate, "norm": dict(self.norm_arguments)}

"""An affine map of the last axis, and the condition that may steer it.

Shapes: B batch, L length, H size of the last axis, C size of the condition.
"""

import keras
from keras import ops

from kerasbert import activations
from kerasbert.errors import ConfigError, check_integer, is_finite_number
from kerasbert.layers.composite import CompositeLayer


class ConditionalLayer(CompositeLayer):
    """A layer with a gamma and a beta that a second input, the condition, may shift.

    The shifts are linear in the condition and start at zero: a new condition changes nothing
    until it is trained. A subclass calls `separate_shapes` and `build_condition` in `build`,
    `separate` and `shifts` in `call`. If Keras has the layer, name this class first:
    `class LayerNormalization(ConditionalLayer, keras.layers.LayerNormalization)`.

    Args:
        conditional: whether there is a condition. It is given as a second input,
            `layer([inputs, condition])`, or by name, `layer(inputs, condition=condition)`.
        hidden_units: width of a layer between condition and shifts; None for no such layer.
        hidden_activation: its activation.
        hidden_initializer: its initializer.
        **kwargs: arguments of `CompositeLayer` and of the other base class.

    Raises:
        ConfigError: if `hidden_units` is neither None nor a positive integer, or the
            activation is unknown.

    Source: Su 2020, "conditional layer normalization" (https://kexue.fm/archives/7124).
    """

    def __init__(
        self,
        conditional=False,
        hidden_units=None,
        hidden_activation="linear",
        hidden_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        if hidden_units is not None:
            check_integer("hidden_units", hidden_units, minimum=1)
        self.conditional = conditional
        self.hidden_units = hidden_units
        self.hidden_activation = hidden_activation
        self.hidden_initializer = keras.initializers.get(hidden_initializer)
        self._hidden_function = activations.get(hidden_activation)
        self.hidden_dense = self.beta_dense = self.gamma_dense = None

    def separate(self, inputs, condition=None):
        """Returns (inputs, condition), however they were given; the condition may be None.

        Raises:
            ConfigError: if there is a condition and `conditional` is not set, or the reverse.
        """
        return self._separate(inputs, condition, isinstance(inputs, list | tuple))

    def separate_shapes(self, inputs_shape, condition_shape=None):
        """Does for shapes what `separate` does for tensors."""
        nested = bool(inputs_shape) and isinstance(inputs_shape[0], list | tuple)
        return self._separate(inputs_shape, condition_shape, nested)

    def _separate(self, inputs, condition, nested):
        found = len(inputs) if nested else 1 + (condition is not None)
        if found != 1 + bool(self.conditional) or (nested and condition is not None):
            raise ConfigError(
                f"{self.name}: conditional={self.conditional}, and the layer is called with "
                f"{found + (nested and condition is not None)} tensors.\n"
                "Expected one tensor, and with conditional=True a second one, the condition.\n"
                "Call layer([inputs, condition]), or layer(inputs, condition=condition)."
            )
        if not nested:
            return inputs, condition
        return inputs[0], inputs[1] if self.conditional else None

    def build_condition(self, condition_shape, size, scale=True, offset=True):
        """Makes the sub-layers of a condition; none if the layer has no condition.

        Args:
            condition_shape: (B, C) or (B, L, C), from `separate_shapes`.
            size: H, the number of gammas and betas.
            scale: whether the condition shifts gamma.
            offset: whether the condition shifts beta.
        """
        if not self.conditional:
            return
        shape = tuple(condition_shape)
        if self.hidden_units is not None:
            self.hidden_dense = self.built_dense(
                "hidden_dense",
                self.hidden_units,
                shape,
                self.hidden_initializer,
                activation=self._hidden_function,
                use_bias=False,
            )
            shape = (*shape[:-1], self.hidden_units)
        if offset:
            self.beta_dense = self.built_dense("beta_dense", size, shape, "zeros", use_bias=False)
        if scale:
            self.gamma_dense = self.built_dense("gamma_dense", size, shape, "zeros", use_bias=False)
        self.freeze_sublayers()

    def shifts(self, condition, rank):
        """Computes what a condition adds to gamma and to beta.

        Args:
            condition: tensor (B, C), one for all positions, or (B, L, C); or None.
            rank: number of axes of the layer's input.

        Returns:
            Two tensors that broadcast to the input, of gamma and of beta; 0.0 in place of a
            shift that there is not.

        Raises:
            ConfigError: if the condition has more axes than the input.
        """
        if condition is None:
            return 0.0, 0.0
        if len(condition.shape) > rank:
            raise ConfigError(
                f"{self.name}: the condition has {len(condition.shape)} axes, the input {rank}.\n"
                "Expected a condition (B, C), or one with the axes of the input, (B, L, C).\n"
                "Pool the condition over its length first."
            )
        if self.hidden_dense is not None:
            condition = self.hidden_dense(condition)
        while len(condition.shape) < rank:
            condition = ops.expand_dims(condition, axis=1)  # (B, 1, C)
        gamma = 0.0 if self.gamma_dense is None else self.gamma_dense(condition)
        beta = 0.0 if self.beta_dense is None else self.beta_dense(condition)
        return gamma, beta

    def compute_mask(self, inputs, previous_mask=None):
        """The output has the mask of the input; that of the condition is not passed on."""
        return previous_mask[0] if isinstance(inputs, list | tuple) else previous_mask

    def compute_output_shape(self, inputs_shape, condition_shape=None):
        """The output has the shape of the input."""
        return tuple(self.separate_shapes(inputs_shape, condition_shape)[0])

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        return {
            **super().get_config(),
            "conditional": self.conditional,
            "hidden_units": self.hidden_units,
            "hidden_activation": self.hidden_activation,
            "hidden_initializer": keras.initializers.serialize(self.hidden_initializer),
        }


@keras.saving.register_keras_serializable(package="kerasbert")
class ScaleOffset(ConditionalLayer):
    """Multiplies the last axis by gamma and adds beta: `y = x * gamma + beta`.

    Args:
        scale: True for a learned vector gamma, a number for a constant one, False or None
            for no multiplication.
        offset: True for a learned vector beta, a number for a constant one, False or None
            for no addition.
        conditional: whether a condition shifts gamma and beta, those that there are.
        hidden_units: width of a layer between condition and shifts; None for no such layer.
        hidden_activation: its activation.
        hidden_initializer: its initializer.
        **kwargs: arguments of `CompositeLayer`.

    Call arguments:
        inputs: float tensor (B, …, H), or a list of it and the condition.
        condition: float tensor (B, C) or (B, …, C), if `conditional` and not in the list.

    Returns:
        Float tensor (B, …, H), with the Keras mask of the input.

    Raises:
        ConfigError: if an argument is not as said above, or the condition is missing, not
            asked for, or of more axes than the input.

    Example:
        >>> ScaleOffset(scale=2, offset=1)(keras.ops.ones((1, 3))).numpy().tolist()
        [[3.0, 3.0, 3.0]]

    Source: Su 2020 (https://kexue.fm/archives/7124) for the condition.
    """

    def __init__(
        self,
        scale=True,
        offset=True,
        conditional=False,
        hidden_units=None,
        hidden_activation="linear",
        hidden_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(
            conditional=conditional,
            hidden_units=hidden_units,
            hidden_activation=hidden_activation,
            hidden_initializer=hidden_initializer,
            **kwargs,
        )
        self.scale = _flag_or_number("scale", scale)
        self.offset = _flag_or_number("offset", offset)
        self.gamma = self.beta = None

    def build(self, inputs_shape, condition_shape=None):
        """Creates beta (H,), gamma (H,) and the sub-layers of the condition."""
        shape, condition_shape = self.separate_shapes(inputs_shape, condition_shape)
        size = shape[-1]
        if self.offset is True:
            self.beta = self.add_weight(shape=(size,), initializer="zeros", name="beta")
        if self.scale is True:
            self.gamma = self.add_weight(shape=(size,), initializer="ones", name="gamma")
        self.build_condition(
            condition_shape, size, scale=self.scale is not False, offset=self.offset is not False
        )

    def call(self, inputs, condition=None):
        """Returns the scaled and shifted input; see the class for shapes."""
        inputs, condition = self.separate(inputs, condition)
        more_gamma, more_beta = self.shifts(condition, len(inputs.shape))
        if self.scale is not False:
            inputs = inputs * (more_gamma + (self.scale if self.gamma is None else self.gamma))
        if self.offset is not False:
            inputs = inputs + (more_beta + (self.offset if self.beta is None else self.beta))
        return inputs

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        return {**super().get_config(), "scale": self.scale, "offset": self.offset}


def _flag_or_number(name, value):
    """Returns True, False or a float; None is False."""
    if value is None or isinstance(value, bool):
        return bool(value)
    if not is_finite_number(value):
        raise ConfigError(
            f"{name}={value!r} (of type {type(value).__name__}).\n"
            "Expected True for a learned vector, a finite number for a constant, or False for none."
        )
    return float(value)

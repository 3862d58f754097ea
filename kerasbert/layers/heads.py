"""Small layers that heads are made of."""

import keras

from kerasbert.errors import check_integer


@keras.saving.register_keras_serializable(package="kerasbert")
class FirstToken(keras.layers.Layer):
    """Takes the vector of the first token, [CLS], of every row.

    Call arguments:
        inputs: float tensor (B, L, H).

    Returns:
        Float tensor (B, H), without a Keras mask.

    Example:
        >>> FirstToken()(keras.ops.ones((2, 5, 32))).shape
        TensorShape([2, 32])
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs):
        """Returns the first position of `inputs`."""
        return inputs[:, 0]

    def compute_mask(self, inputs, previous_mask=None):
        """The sequence axis is gone, so there is no mask."""
        return None

    def compute_output_shape(self, input_shape):
        """Drops the length axis."""
        return (input_shape[0], *input_shape[2:])


@keras.saving.register_keras_serializable(package="kerasbert")
class TakeFeature(keras.layers.Layer):
    """Takes one number from the last axis and keeps the Keras mask.

    Args:
        index: which number.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: float tensor (B, L, F) with F above `index`.

    Returns:
        Float tensor (B, L).

    Example:
        >>> TakeFeature(1)(keras.ops.ones((2, 5, 3))).shape
        TensorShape([2, 5])
    """

    def __init__(self, index, **kwargs):
        super().__init__(**kwargs)
        check_integer("index", index, minimum=0)
        self.supports_masking = True
        self.index = index

    def call(self, inputs):
        """Returns one number per position."""
        return inputs[..., self.index]

    def compute_output_shape(self, input_shape):
        """Drops the last axis."""
        return input_shape[:-1]

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        return {**super().get_config(), "index": self.index}


@keras.saving.register_keras_serializable(package="kerasbert")
class BiasAdd(keras.layers.Layer):
    """Adds a learned vector to the last axis.

    Call arguments:
        inputs: float tensor (…, V).

    Returns:
        Float tensor of the same shape.

    Example:
        >>> BiasAdd()(keras.ops.ones((2, 5, 100))).shape
        TensorShape([2, 5, 100])
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, input_shape):
        """Creates the bias (V,)."""
        self.bias = self.add_weight(shape=(input_shape[-1],), initializer="zeros", name="bias")

    def call(self, inputs):
        """Returns `inputs` plus the bias."""
        return inputs + self.bias

    def compute_output_shape(self, input_shape):
        """The output has the shape of the input."""
        return input_shape

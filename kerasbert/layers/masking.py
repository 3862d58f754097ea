"""The attention mask, computed once for all blocks."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="kerasbert")
class AttentionMask(keras.layers.Layer):
    """Turns token ids, or a 0/1 padding mask, into the mask that every block receives.

    A row without any real token attends to all its positions, as the softmax of scores
    that are all lowered alike does in Google's code; so no row can give NaN.

    Args:
        label: JSON-serialisable description of the encoder this layer belongs to. It
            travels with saved and extended models and is read by the weight functions,
            never by a computation.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: int tensor (B, L), zero at padding.

    Returns:
        Bool tensor (B, 1, L), True at the keys that may be attended to.

    Example:
        >>> AttentionMask()(keras.ops.array([[7, 8, 0]])).numpy().tolist()
        [[[True, True, False]]]
    """

    def __init__(self, label=None, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.label = label

    def call(self, inputs):
        """Returns the attention mask of a batch; see the class for shapes."""
        real = ops.not_equal(inputs, 0)  # (B, L)
        empty = ops.logical_not(ops.any(real, axis=-1, keepdims=True))  # (B, 1)
        return ops.expand_dims(ops.logical_or(real, empty), axis=1)

    def compute_output_spec(self, inputs):
        """Returns the symbolic mask for `inputs`."""
        return keras.KerasTensor((inputs.shape[0], 1, inputs.shape[1]), dtype="bool")

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        return {**super().get_config(), "label": self.label}


@keras.saving.register_keras_serializable(package="kerasbert")
class PaddingMask(keras.layers.Layer):
    """Marks the real tokens of models whose padding id is not 0.

    Args:
        pad_token_id: the id of padding.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: int tensor (B, L) of token ids.

    Returns:
        Int tensor (B, L), 1 at real tokens and 0 at padding.

    Example:
        >>> PaddingMask(1)(keras.ops.array([[0, 7, 1]])).numpy().tolist()
        [[1, 1, 0]]
    """

    def __init__(self, pad_token_id, **kwargs):
        super().__init__(**kwargs)
        self.pad_token_id = pad_token_id

    def call(self, inputs):
        """Returns the padding mask of a batch."""
        return ops.cast(ops.not_equal(inputs, self.pad_token_id), "int32")

    def compute_output_spec(self, inputs):
        """Returns the symbolic mask for `inputs`."""
        return keras.KerasTensor(inputs.shape, dtype="int32")

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        return {**super().get_config(), "pad_token_id": self.pad_token_id}

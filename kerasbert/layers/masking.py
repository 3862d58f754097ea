"""The attention mask, computed once for all blocks."""

import keras
from keras import ops

from kerasbert.errors import ConfigError, did_you_mean

APPLICATIONS = ("encoder", "lm", "unilm")


@keras.saving.register_keras_serializable(package="kerasbert")
class AttentionMask(keras.layers.Layer):
    """Turns token ids, or a 0/1 padding mask, into the mask that every block receives.

    A row without any real token attends to all its positions, as the softmax of scores
    that are all lowered alike does in Google's code; so no row can give NaN.

    Args:
        application: what the model is for. "encoder": all real tokens are seen; "lm": only
            those up to the own position; "unilm": the tokens of segment 0 see each other, and
            each token of segment 1 sees them and those up to itself.
        label: JSON-serialisable description of the encoder this layer belongs to. It
            travels with saved and extended models and is read by the weight functions,
            never by a computation.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: int tensor (B, L), zero at padding.
        segments: int tensor (B, L) of segment ids; needed by "unilm" only.

    Returns:
        Bool tensor, True at the keys that may be attended to: (B, 1, L) for an encoder, else
        (B, L, L), where row i holds what position i sees.

    Raises:
        ConfigError: if `application` is unknown, or "unilm" gets no segments.

    Example:
        >>> AttentionMask()(keras.ops.array([[7, 8, 0]])).numpy().tolist()
        [[[True, True, False]]]

    Source: Dong et al. 2019 (arXiv:1905.03197) for "unilm", by the cumulative sum of segment
    ids as in bert4keras.
    """

    def __init__(self, application="encoder", label=None, **kwargs):
        super().__init__(**kwargs)
        if application not in APPLICATIONS:
            raise ConfigError(
                f"application={application!r}.{did_you_mean(application, APPLICATIONS)}\n"
                f"Expected one of: {', '.join(APPLICATIONS)}."
            )
        self.supports_masking = True
        self.application = application
        self.label = label
        # Name tables of the class that built the encoder; unlike the label not saved with it.
        self.dialects = ()

    def call(self, inputs, segments=None):
        """Returns the attention mask of a batch; see the class for shapes."""
        real = ops.not_equal(inputs, 0)  # (B, L)
        empty = ops.logical_not(ops.any(real, axis=-1, keepdims=True))  # (B, 1)
        visible = ops.expand_dims(ops.logical_or(real, empty), axis=1)  # (B, 1, L)
        if self.application == "encoder":
            return visible
        order = self._order(inputs, segments)
        in_time = ops.expand_dims(order, axis=1) <= ops.expand_dims(order, axis=2)
        return ops.logical_and(visible, in_time)

    def _order(self, inputs, segments):
        """When each token becomes visible to the others, (1 or B, L)."""
        if self.application == "lm":
            return ops.expand_dims(ops.arange(ops.shape(inputs)[1]), axis=0)
        if segments is None:
            raise ConfigError(
                f"{self.name}: application='unilm' was called without segment ids.\n"
                "Expected them: they tell the text to read from the text to write."
            )
        return ops.cumsum(ops.cast(segments, "int32"), axis=1)

    def compute_output_spec(self, inputs, segments=None):
        """Returns the symbolic mask for `inputs`."""
        batch, length = inputs.shape
        queries = 1 if self.application == "encoder" else length
        return keras.KerasTensor((batch, queries, length), dtype="bool")

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        return {**super().get_config(), "application": self.application, "label": self.label}


@keras.saving.register_keras_serializable(package="kerasbert")
class PaddingMask(keras.layers.Layer):
    """Marks the real tokens of models whose padding id is not 0.

    Args:
        pad_token_id: the id of padding, None if all tokens are real.
        starts_with_padding: whether the first token is real although it has that id, as the
            one with which T5's decoder starts.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: int tensor (B, L) of token ids.

    Returns:
        Int tensor (B, L), 1 at real tokens and 0 at padding.

    Example:
        >>> PaddingMask(1)(keras.ops.array([[0, 7, 1]])).numpy().tolist()
        [[1, 1, 0]]
    """

    def __init__(self, pad_token_id=None, starts_with_padding=False, **kwargs):
        super().__init__(**kwargs)
        self.pad_token_id = pad_token_id
        self.starts_with_padding = starts_with_padding

    def call(self, inputs):
        """Returns the padding mask of a batch."""
        if self.pad_token_id is None:
            return ops.ones_like(inputs, dtype="int32")
        real = ops.not_equal(inputs, self.pad_token_id)
        if self.starts_with_padding:
            real = ops.logical_or(real, ops.arange(ops.shape(inputs)[1]) == 0)
        return ops.cast(real, "int32")

    def compute_output_spec(self, inputs):
        """Returns the symbolic mask for `inputs`."""
        return keras.KerasTensor(inputs.shape, dtype="int32")

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        return {
            **super().get_config(),
            "pad_token_id": self.pad_token_id,
            "starts_with_padding": self.starts_with_padding,
        }


@keras.saving.register_keras_serializable(package="kerasbert")
class VectorMask(keras.layers.Layer):
    """Marks the vectors of a sequence that are not all zeros.

    T5's encoder gives zeros at padding, by which a decoder that is a model of its own finds it.

    Call arguments:
        inputs: float tensor (B, L, H).

    Returns:
        Int tensor (B, L), 1 at real vectors and 0 at zeros.

    Example:
        >>> VectorMask()(keras.ops.array([[[0.5, 0.0], [0.0, 0.0]]])).numpy().tolist()
        [[1, 0]]
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs):
        """Returns the padding mask of a batch."""
        return ops.cast(ops.any(ops.not_equal(inputs, 0), axis=-1), "int32")

    def compute_mask(self, inputs, previous_mask=None):
        """Returns no mask: the output is one."""
        return None

    def compute_output_spec(self, inputs):
        """Returns the symbolic mask for `inputs`."""
        return keras.KerasTensor(inputs.shape[:-1], dtype="int32")


@keras.saving.register_keras_serializable(package="kerasbert")
class ZeroPadding(keras.layers.Layer):
    """Sets the vectors of padding to zero, and keeps the Keras mask.

    Call arguments:
        inputs: float tensor (B, L, H).
        padding: int tensor (B, L), zero at padding.

    Returns:
        Float tensor (B, L, H).

    Example:
        >>> hidden = keras.ops.ones((1, 2, 1))
        >>> ZeroPadding()(hidden, padding=keras.ops.array([[7, 0]])).numpy().tolist()
        [[[1.0], [0.0]]]
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs, padding):
        """Returns the hidden state without padding."""
        real = ops.expand_dims(ops.not_equal(padding, 0), axis=-1)
        # Not by a product: padding may hold infinite numbers.
        return ops.where(real, inputs, ops.zeros_like(inputs))

    def compute_output_shape(self, inputs_shape, padding_shape=None):
        """The output has the shape of the input."""
        return inputs_shape

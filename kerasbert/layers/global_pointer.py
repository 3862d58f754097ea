"""Scores for all spans of a text at once, nested ones included.

Shapes: B batch, L length, H hidden, N heads (types of entities), D head size.
"""

import math

import keras
from keras import ops

from kerasbert.errors import ConfigError, check_integer
from kerasbert.layers.composite import CompositeLayer
from kerasbert.layers.rotary import apply_rotary_position_embeddings, sinusoidal_embeddings
from kerasbert.losses import MASKED_SCORE


@keras.saving.register_keras_serializable(package="kerasbert")
class GlobalPointer(CompositeLayer):
    """Scores each pair (start, end) of positions as an entity of each type.

    A span is an entity if its score is above 0. Spans that begin or end at padding, and with
    `tril_mask` those that end before they begin, have the score -32768 (`MASKED_SCORE` of
    kerasbert.losses), which every float type holds and the losses there recognise.

    Args:
        heads: number N of types.
        head_size: size D of the vectors whose inner product is the score.
        RoPE: whether starts and ends are rotated by their positions, so that the score knows
            the length of a span; needs an even `head_size`.
        use_bias: whether the dense layer has a bias.
        tril_mask: whether spans that end before they begin are masked.
        kernel_initializer: initializer of the kernels.
        **kwargs: arguments of `CompositeLayer`.

    Call arguments:
        inputs: float tensor (B, L, H).
        mask: optional bool tensor (B, L), the Keras mask of the input unless given.

    Returns:
        Float tensor (B, N, L, L), indexed by type, start and end; without a Keras mask.

    Raises:
        ConfigError: if `heads` or `head_size` is not a positive integer, or `head_size` is odd
            though there is RoPE.

    Example:
        >>> GlobalPointer(heads=3, head_size=16)(keras.ops.ones((2, 5, 32))).shape
        TensorShape([2, 3, 5, 5])

    Source: Su et al. 2022 (arXiv:2208.03054).
    """

    def __init__(
        self,
        heads,
        head_size,
        RoPE=True,  # noqa: N803
        use_bias=True,
        tril_mask=True,
        kernel_initializer="lecun_normal",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_integer("heads", heads, minimum=1)
        check_integer("head_size", head_size, minimum=1)
        if RoPE and head_size % 2:
            raise ConfigError(
                f"head_size={head_size} with RoPE=True: rotary positions turn pairs of entries.\n"
                "Expected an even number.\n"
                f"Use head_size={head_size + 1}, or RoPE=False."
            )
        self.heads = heads
        self.head_size = head_size
        self.RoPE = RoPE
        self.use_bias = use_bias
        self.tril_mask = tril_mask
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, input_shape):
        """Makes and builds the dense layer (H, 2 N D)."""
        width = 2 * self.heads * self.head_size
        self.dense = self.built_dense("dense", width, input_shape, use_bias=self.use_bias)
        self.freeze_sublayers()

    def call(self, inputs, mask=None):
        """Returns the scores of all spans; see the class for shapes."""
        shape = ops.shape(inputs)
        both = ops.reshape(self.dense(inputs), (*shape[:2], self.heads, 2, self.head_size))
        starts, ends = self._rotated(both[..., 0, :], both[..., 1, :])  # (B, L, N, D)
        scores = ops.einsum("bmhd,bnhd->bhmn", starts * self._scale(), ends)
        return self._masked(scores, mask)

    def _scale(self):
        # Starts are scaled, not scores: float16 would overflow before.
        return 1.0 / math.sqrt(self.head_size)

    def _rotated(self, starts, ends):
        """Rotates two tensors (B, L, …, D) by the positions 0, 1, 2, …."""
        if not self.RoPE:
            return starts, ends
        positions = ops.arange(ops.shape(starts)[1])
        return apply_rotary_position_embeddings(
            sinusoidal_embeddings(positions, self.head_size), starts, ends
        )

    def _masked(self, scores, mask):
        """Sets the scores (B, N, L, L) of impossible spans to `MASKED_SCORE`."""
        if mask is not None:
            real = ops.cast(mask, "bool")
            both = ops.logical_and(real[:, None, :, None], real[:, None, None, :])
            scores = ops.where(both, scores, ops.cast(MASKED_SCORE, scores.dtype))
        if self.tril_mask:
            positions = ops.arange(ops.shape(scores)[-1])
            forward = ops.less_equal(positions[:, None], positions[None, :])  # start <= end
            scores = ops.where(forward, scores, ops.cast(MASKED_SCORE, scores.dtype))
        return scores

    def compute_mask(self, inputs, previous_mask=None):
        """The scores of padding say so themselves; there is no Keras mask."""
        return None

    def compute_output_shape(self, input_shape):
        """One score for each type, start and end."""
        return (input_shape[0], self.heads, input_shape[1], input_shape[1])

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        return {
            **super().get_config(),
            "heads": self.heads,
            "head_size": self.head_size,
            "RoPE": self.RoPE,
            "use_bias": self.use_bias,
            "tril_mask": self.tril_mask,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


@keras.saving.register_keras_serializable(package="kerasbert")
class EfficientGlobalPointer(GlobalPointer):
    """Is `GlobalPointer` with one matrix of scores for all types, and few numbers for each.

    The shared score tells spans from non-spans; a type adds a number for the start and one for
    the end. A further type costs 4 D + 2 parameters instead of 2 D (H + 1).

    Args:
        heads: number N of types.
        head_size: size D of the vectors whose inner product is the shared score.
        RoPE: as for `GlobalPointer`.
        use_bias: whether the dense layers have biases.
        tril_mask: as for `GlobalPointer`.
        kernel_initializer: initializer of the kernels.
        **kwargs: arguments of `CompositeLayer`.

    Call arguments:
        inputs: float tensor (B, L, H).
        mask: optional bool tensor (B, L), the Keras mask of the input unless given.

    Returns:
        Float tensor (B, N, L, L), as from `GlobalPointer`.

    Raises:
        ConfigError: as `GlobalPointer`.

    Example:
        >>> EfficientGlobalPointer(heads=3, head_size=16)(keras.ops.ones((2, 5, 32))).shape
        TensorShape([2, 3, 5, 5])

    Source: Su et al. 2022 (arXiv:2208.03054); the order of entries is bert4keras'.
    """

    def build(self, input_shape):
        """Makes and builds the dense layers (H, 2 D) and (2 D, 2 N)."""
        inner_shape = (*input_shape[:-1], 2 * self.head_size)
        bias = {"use_bias": self.use_bias}
        self.p_dense = self.built_dense("p_dense", 2 * self.head_size, input_shape, **bias)
        self.q_dense = self.built_dense("q_dense", 2 * self.heads, inner_shape, **bias)
        self.freeze_sublayers()

    def call(self, inputs, mask=None):
        """Returns the scores of all spans; see the class for shapes."""
        inner = self.p_dense(inputs)  # (B, L, 2D), entries of starts and ends alternate
        starts, ends = self._rotated(inner[..., ::2], inner[..., 1::2])  # (B, L, D)
        shared = ops.einsum("bmd,bnd->bmn", starts * self._scale(), ends)
        types = ops.transpose(self.q_dense(inner), (0, 2, 1)) / 2  # (B, 2N, L)
        of_ends, of_starts = types[:, ::2, None, :], types[:, 1::2, :, None]
        return self._masked(shared[:, None] + of_ends + of_starts, mask)

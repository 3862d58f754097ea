"""Sums and maxima over all label sequences, as plain functions.

Everything is computed in float32. Masks may have any form: padding on either side, holes,
rows without any token; the labels on both sides of a hole are neighbours. The loops are
Keras' recurrent layer, which compiles on every backend; `keras.ops.scan` has no gradient
under XLA on TensorFlow.

Shapes: B batch, L length, K labels.
"""

import keras
from keras import ops

# What stands at padding, for all labels. The scores of tokens are kept above it, so that no
# token is ever taken for padding. Both are finite in float16 and survive a change of type.
_PADDING, _LOWEST_SCORE = -65504.0, -32752.0


def mark_padding(scores, mask):
    """Returns `scores` (B, L, K) with one low number where `mask` (B, L) is zero."""
    scores = ops.maximum(scores, ops.cast(_LOWEST_SCORE, scores.dtype))
    if mask is None:
        return scores
    mask = ops.expand_dims(ops.cast(mask, "bool"), -1)
    return ops.where(mask, scores, ops.cast(_PADDING, scores.dtype))


def tokens_of(scores, mask=None):
    """Tells tokens from padding.

    Args:
        scores: float tensor (B, L, K), perhaps with padding as `mark_padding` marks it.
        mask: tensor (B, L), zero at more padding, or None.

    Returns:
        The scores in float32, zero at padding, and a bool tensor (B, L), True at tokens.
    """
    scores = ops.cast(scores, "float32")
    # Asked this way round, NaN counts as a token's: a fault that the loss has to show.
    real = ops.logical_not(ops.all(scores <= _PADDING, axis=-1))
    if mask is not None:
        real = ops.logical_and(real, ops.cast(mask, "bool"))
    return ops.where(ops.expand_dims(real, -1), scores, 0.0), real


def label_before(labels, real):
    """Finds the label of the token before each token.

    Args:
        labels: int tensor (B, L).
        real: bool tensor (B, L), True at tokens.

    Returns:
        Int tensor (B, L) of labels, and a bool tensor (B, L), True at the tokens that have
        one before them.
    """
    length = ops.shape(labels)[1]
    positions = ops.arange(length, dtype="int32")
    # No two keys are equal: the sort brings the tokens to the front and keeps their order.
    order = ops.argsort(ops.where(real, positions, positions + length), axis=1)
    rank = ops.cumsum(ops.cast(real, "int32"), axis=1) - 1
    labels = ops.take_along_axis(labels, order, axis=1)
    before = ops.take_along_axis(labels, ops.maximum(rank - 1, 0), axis=1)
    return before, ops.logical_and(real, rank > 0)


def pick(scores, labels):
    """Returns the score (B, L) of each position's label; NaN where there is no such label."""
    size = scores.shape[-1]
    index = ops.expand_dims(ops.clip(labels, 0, size - 1), -1)
    chosen = ops.squeeze(ops.take_along_axis(scores, index, axis=-1), -1)
    # Labels are data: a compiled loss cannot refuse them, but none may pass for another.
    return ops.where(ops.logical_and(labels >= 0, labels < size), chosen, float("nan"))


def rows(table, labels):
    """Returns the row (B, L, D) of `table` (K, D) for each of `labels` (B, L)."""
    return ops.take(table, ops.clip(labels, 0, table.shape[0] - 1), axis=0)


def path_score(scores, trans, labels, real):
    """Returns the score (B,) of `labels` (B, L) under the transitions `trans` (K, K)."""
    before, has_before = label_before(labels, real)
    steps = ops.where(has_before, pick(rows(trans, before), labels), 0.0)
    return ops.sum(ops.where(real, pick(scores, labels), 0.0) + steps, axis=1)


def log_partition(scores, trans, real):
    """Returns log sum exp (B,) of the scores of all label sequences; 0 without any token."""
    loop = keras.layers.RNN(_ForwardStep(trans), return_state=True, dtype="float32")
    sums = loop(scores, mask=real)[1]
    return ops.where(ops.any(real, axis=1), ops.logsumexp(sums, axis=-1), 0.0)


def best_path(step, scores, real):
    """Finds the label sequence of the highest score.

    Args:
        step: a `ViterbiStep`.
        scores: float32 tensor (B, L, K).
        real: bool tensor (B, L), True at tokens.

    Returns:
        Int32 tensor (B, L), 0 at padding.
    """
    options = {"return_sequences": True, "dtype": "float32"}
    pointers, *states = keras.layers.RNN(step, return_state=True, **options)(scores, mask=real)
    last = ops.argmax(states[1] + step.last(states[2]), axis=-1, keepdims=True)
    back = keras.layers.RNN(_TracebackStep([1, 1]), go_backwards=True, **options)
    path = back(pointers, initial_state=[ops.cast(last, "float32")] * 2, mask=real)
    path = ops.flip(ops.cast(ops.squeeze(path, -1), "int32"), axis=1)
    return ops.where(real, path, 0)


class _Step:
    """One step of a loop over positions, in the form that `keras.layers.RNN` takes.

    At padding the states stay as they are. The first one has the shape of the output, as JAX
    repeats it there.

    Args:
        state_size: widths of the states, which are all zero at first.
    """

    compute_dtype = "float32"

    def __init__(self, state_size):
        self.state_size = state_size

    def get_initial_state(self, batch_size):
        return [ops.zeros((batch_size, size), "float32") for size in self.state_size]

    def __call__(self, inputs, states):
        return self.call(inputs, states)


class _ForwardStep(_Step):
    """States: the log sums up to this token, and those on the way to the next one."""

    def __init__(self, trans):
        super().__init__([trans.shape[0]] * 2)
        self.trans = trans

    def call(self, inputs, states):
        sums = states[1] + inputs  # nothing comes in at the first token
        return sums, [sums, ops.logsumexp(ops.expand_dims(sums, 2) + self.trans, axis=1)]


class ViterbiStep(_Step):
    """A step towards the best label sequence.

    States: pointers to the label before, best sums up to this token, scores of this token
    (all B, K), and whether there was any token (B, 1).

    Args:
        size: the number of labels.
        first: function from the scores (B, K) of the first token to what they add.
        pair: function from the scores (B, K) of two neighbours to what they add (B, K, K),
            by the label of the one before and of the one behind.
        last: function from the scores (B, K) of the last token to what they add at the end.
    """

    def __init__(self, size, first, pair, last):
        super().__init__([size, size, size, 1])
        self.first, self.pair, self.last = first, pair, last

    def call(self, inputs, states):
        """Returns the pointers (B, K), as floats, and the new states."""
        _, best, before, started = states
        sums = ops.expand_dims(best, 2) + self.pair(before, inputs)
        best = ops.where(started > 0, ops.max(sums, axis=1), self.first(inputs))
        pointers = ops.cast(ops.argmax(sums, axis=1), "float32")
        return pointers, [pointers, best, inputs, ops.ones_like(started)]


class _TracebackStep(_Step):
    """From the last token to the first. States: the label of this token, and of the one before."""

    def call(self, inputs, states):
        label = states[1]
        before = ops.take_along_axis(inputs, ops.cast(label, "int32"), axis=1)
        return label, [label, before]

"""Losses for many labels at once, where few classes of many are right.

Shapes: C classes, P positive ones.
"""

import keras
from keras import ops

# A score at or below this is masked: its class does not take part, whatever the label says.
# A power of two that float16, bfloat16 and float32 all hold exactly, so that a mask survives
# every cast; and far enough down that its exponential is 0.
MASKED_SCORE = -(2.0**15)


@keras.saving.register_keras_serializable(package="kerasbert")
def multilabel_categorical_crossentropy(y_true, y_pred):
    """Pushes the scores of the right classes above 0, those of all others below.

    `log(1 + sum_neg exp(s)) + log(1 + sum_pos exp(-s))`: softmax's loss for any number of right
    classes. A prediction is every class with a score above 0; scores take no activation.

    Args:
        y_true: tensor (…, C) of labels, 0, 1, or probabilities between them.
        y_pred: float tensor (…, C) of scores. Scores of `MASKED_SCORE` or less, -inf included,
            take no part and get no gradient.

    Returns:
        Float tensor (…), float32 at least.

    Raises:
        Nothing: shapes that do not broadcast are refused by Keras.

    Example:
        >>> scores = keras.ops.array([[2.0, -3.0, 1.0]])
        >>> float(multilabel_categorical_crossentropy([[1, 0, 1]], scores)[0])
        0.4561...

    Source: Su et al. 2022 (arXiv:2208.02955); for probabilities
    https://kexue.fm/archives/9064.
    """
    y_pred = ops.convert_to_tensor(y_pred)
    dtype = keras.backend.result_type(y_pred.dtype, "float32")
    y_pred, y_true = ops.cast(y_pred, dtype), ops.cast(y_true, dtype)
    visible = ops.greater(y_pred, MASKED_SCORE)
    negative = ops.logical_and(visible, ops.less(y_true, 1))
    positive = ops.logical_and(visible, ops.greater(y_true, 0))
    # The inner `where` keeps log(0) out of sight: labels that are computed have a gradient too,
    # and that of log(0) would be NaN even where it is not taken.
    log_negative = ops.log1p(-ops.where(negative, y_true, 0.0))
    log_positive = ops.log(ops.where(positive, y_true, 1.0))
    return _log_one_plus(negative, y_pred + log_negative) + _log_one_plus(
        positive, log_positive - y_pred
    )


@keras.saving.register_keras_serializable(package="kerasbert")
def sparse_multilabel_categorical_crossentropy(y_true, y_pred, mask_zero=False):
    """Is `multilabel_categorical_crossentropy` for right classes that are given by number.

    Args:
        y_true: int tensor (…, P) of class numbers from 0 to C - 1. A number that stands there
            twice counts once.
        y_pred: float tensor (…, C) of scores, as for `multilabel_categorical_crossentropy`.
        mask_zero: whether 0 fills up rows with fewer than P right classes. Class 0 then takes
            no part.

    Returns:
        Float tensor (…), float32 at least.

    Raises:
        Nothing: numbers out of range are refused by TensorFlow and torch, JAX passes them over.

    Example:
        >>> scores = keras.ops.array([[2.0, -3.0, 1.0]])
        >>> float(sparse_multilabel_categorical_crossentropy([[0, 2]], scores)[0])
        0.4561...

    Source: Su et al. 2022 (arXiv:2208.02955). The sum over negatives is taken directly, not as
    a difference of two sums, which loses all digits once the positives dominate.
    """
    y_pred = ops.convert_to_tensor(y_pred)
    y_true = ops.cast(y_true, "int32")
    classes = ops.shape(y_pred)[-1]
    scores = ops.reshape(y_pred, (-1, classes))  # (N, C)
    labels = _many_hot(ops.reshape(y_true, (-1, ops.shape(y_true)[-1])), classes)
    if mask_zero:
        # Class 0 is masked by its score.
        hidden = ops.full_like(scores[:, :1], MASKED_SCORE)
        scores = ops.concatenate([hidden, scores[:, 1:]], axis=-1)
    loss = multilabel_categorical_crossentropy(labels, scores)  # (N,)
    return ops.reshape(loss, ops.shape(y_pred)[:-1])


@keras.saving.register_keras_serializable(package="kerasbert")
def global_pointer_crossentropy(y_true, y_pred):
    """Is `multilabel_categorical_crossentropy` over all spans of a text, for `GlobalPointer`.

    Args:
        y_true: tensor (B, heads, L, L), 1 at [start, end] of every entity, else 0.
        y_pred: float tensor (B, heads, L, L) of scores.

    Returns:
        Float tensor (B, heads), a loss for each text and type of entity.

    Raises:
        Nothing: shapes that do not broadcast are refused by Keras.

    Example:
        >>> nothing = keras.ops.zeros((2, 3, 5, 5))
        >>> global_pointer_crossentropy(nothing, nothing).shape
        TensorShape([2, 3])

    Source: Su et al. 2022 (arXiv:2208.03054).
    """
    y_true, y_pred = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
    batch, heads, length, _ = ops.shape(y_pred)
    spans = (batch, heads, length * length)
    return multilabel_categorical_crossentropy(
        ops.reshape(y_true, spans), ops.reshape(y_pred, spans)
    )


def _log_one_plus(taking_part, exponents):
    """Computes log(1 + sum exp(x)) over the entries (…, C) that take part."""
    exponents = ops.where(taking_part, exponents, MASKED_SCORE)
    return ops.softplus(ops.logsumexp(exponents, axis=-1))


def _many_hot(numbers, classes):
    """Turns class numbers (N, P) into labels (N, C), 0 or 1; needs no (N, P, C) in between."""
    rows = ops.expand_dims(ops.arange(ops.shape(numbers)[0], dtype="int32"), axis=-1)  # (N, 1)
    places = ops.stack([ops.broadcast_to(rows, ops.shape(numbers)), numbers], axis=-1)  # (N, P, 2)
    places = ops.reshape(places, (-1, 2))
    values = ops.ones_like(places[:, 0], dtype="float32")
    counts = ops.scatter(places, values, (ops.shape(numbers)[0], classes))
    return ops.minimum(counts, 1.0)

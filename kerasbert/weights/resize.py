"""Fills a model from a checkpoint of other widths.

Growing repeats pairs of numbers along an axis and divides by the root of how often, so that
norms, and with them the inner products of two grown vectors, stay what they were. Through
tables, dense layers and layer norms that factor passes unchanged; where something is not
linear, or divides by a width itself, a variable needs a factor of its own.
"""

import math

import numpy as np

from kerasbert.errors import ConfigError

WINDOW = 2

# The symbols of `Row.dims` that are widths. The others count tokens, positions, segments or
# labels, whose rows have a meaning each: repeating them would give every id another one.
_WIDTHS = ("E", "H", "I", "W")

# Dense layers of heads with an activation, which has to see what it saw before, and those that
# read what comes out. The masked-LM transform is read by a norm, which takes any scale.
_BEFORE_ACTIVATION = ("MLM-Dense", "Pooler-Dense", "Classifier-Dense", "Discriminator-Dense")
_READS = {
    "NSP-Proba": ("Pooler-Dense",),
    "Classifier": ("Classifier-Dense", "Pooler-Dense"),
    "Discriminator-Prediction": ("Discriminator-Dense",),
}


def orthogonally_resize(array, new_shape, window=WINDOW):
    """Resizes an array so that matrices stay as orthogonal, and as large, as they were.

    A growing axis repeats its blocks of `window` numbers and is cut to size; a shrinking one
    is cut. The result has the Frobenius norm of the array.

    Args:
        array: numpy array.
        new_shape: shape of the result, with as many axes.
        window: how many numbers stay together.

    Returns:
        A float array of shape `new_shape`.

    Raises:
        ConfigError: if the number of axes differs, or a growing axis is no multiple of `window`.

    Example:
        >>> orthogonally_resize(np.array([3.0, 4.0]), (4,)).round(3).tolist()
        [2.121, 2.828, 2.121, 2.828]

    Source: bert4keras 0.11.5, `snippets.py`, function of that name.
    """
    array = np.asarray(array)
    if array.dtype.itemsize < 4:
        array = array.astype("float32")  # a sum of squares in float16 overflows
    reason = _why_not(array.shape, new_shape, window)
    if reason:
        raise ConfigError(
            f"Cannot resize {tuple(array.shape)} to {tuple(new_shape)}: {reason}.\n"
            f"Expected as many axes, and growing ones that are multiples of {window}."
        )
    resized = array
    for axis, (old, new) in enumerate(zip(array.shape, new_shape, strict=True)):
        if new > old:
            blocks = np.split(resized, old // window, axis)
            times = -(-new // old)
            resized = np.concatenate([b for block in blocks for b in [block] * times], axis)
        resized = np.take(resized, range(new), axis)
    norm = np.linalg.norm(resized)
    # A bias that is all zero is as large as it was already.
    return resized if norm == 0 else (resized * (np.linalg.norm(array) / norm)).astype(array.dtype)


def why_not(row, old, new):
    """Says why a variable cannot be resized, None if it can.

    Args:
        row: its `Row`.
        old: shape of the array of the file, the way our variable is laid out.
        new: shape of the variable.
    """
    reason = _why_not(old, new, WINDOW)
    if reason:
        return reason
    for symbol, before, after in zip(_symbols(row), old, new, strict=True):
        if before != after and symbol not in _WIDTHS:
            return f"its axis of {before} is no width, and each row has a meaning of its own"
    return None


def resized(row, view, layer_name, array, new_shape):
    """Returns the value of a variable for an array of another width.

    Args:
        row: the `Row` of the variable.
        view: `EncoderView` of the model.
        layer_name: name of its layer, prefix not counted.
        array: what the file has, the way our variable is laid out.
        new_shape: shape of the variable.
    """
    factor = _factor(row, view, layer_name, array.shape, new_shape)
    return orthogonally_resize(array, new_shape) * np.float32(factor)


def _factor(row, view, layer_name, old, new):
    part, _, rest = row.ours.partition("/")
    symbols = _symbols(row)
    if part == "attention" and rest.split("/")[0] in ("query", "key"):
        # Scores are divided by the root of the head size, and queries and keys share the factor.
        scaled = getattr(view.layer(layer_name), "attention_scale", True)
        return (new[-1] / old[-1]) ** 0.25 if scaled else 1.0
    inner = part == "feed_forward"
    if (inner and symbols[-1] == "I") or part in _BEFORE_ACTIVATION:
        return math.sqrt(new[-1] / old[-1])
    reads = any(view.has_layer(layer) for layer in _READS.get(part, ()))
    if len(old) == 2 and ((inner and symbols[0] == "I") or reads):
        return math.sqrt(old[0] / new[0])
    return 1.0


def _symbols(row):
    """The symbols of a row in the order of our axes."""
    symbols = row.dims.split()
    return symbols[::-1] if row.transpose else symbols


def _why_not(old, new, window):
    if len(old) != len(new):
        return f"{len(old)} axes against {len(new)}"
    for before, after in zip(old, new, strict=True):
        if after > before and (before % window or not before):
            return f"an axis of {before} grows to {after} and is no multiple of {window}"
    return None

"""The table of sines and cosines that RoFormer has as a variable in transformers."""

import numpy as np

from kerasbert.errors import WeightMismatchError
from kerasbert.weights.dialects.huggingface import WAVES

# Tables in half precision are further away from float64's than those in float32.
_TOLERANCE = 0.01


def tables_of_waves(config, prefix):
    """Returns a dict from the name of the table to its values; empty for other families."""
    if config.family != "roformer":
        return {}
    return {f"{prefix}{WAVES}": _waves(config.max_position_embeddings, config.attention_key_size)}


def check_waves(loader):
    """Refuses a table that was trained, as transformers 5 does: ours is always computed.

    Raises:
        WeightMismatchError: names it.
    """
    for name in loader.report.buffers:
        if not name.endswith(WAVES):
            continue
        found = np.asarray(loader.read(name), dtype="float32")
        if not _are_waves(found):
            raise WeightMismatchError(
                f"{name} in {loader.checkpoint.source}, of shape {found.shape}, does not hold the "
                "sines and cosines of rotary positions.\n"
                "Expected them as they are: they are no weights to be trained.\n"
                "Freeze this table where the model is trained, or restore it."
            )


def _are_waves(table):
    if table.ndim != 2 or table.shape[1] % 2:
        return False
    return bool(np.all(np.abs(table - _waves(*table.shape)) <= _TOLERANCE))


def _waves(rows, size):
    """Sines in the first half of the columns, cosines in the second."""
    angles = np.arange(rows)[:, None] * 10000.0 ** (-np.arange(0, size, 2) / size)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype("float32")

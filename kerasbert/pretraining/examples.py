"""Arrays as `tf.train.Example`, by the feature names of Google's pre-training code, and back.

TensorFlow is imported when records are written or read, whichever backend computes.
"""

import numpy as np

from kerasbert.errors import CorpusError, listing

_FLOATS = ("masked_lm_weights",)
NAMES = (
    "input_ids",
    "input_mask",
    "segment_ids",
    "token_boundary",
    "masked_lm_positions",
    "masked_lm_ids",
    *_FLOATS,
    "next_sentence_labels",
)
#: What there is no row without.
NEEDED = NAMES[:3]

_CHUNK = 2048


def encode(rows):
    """Returns each row as the bytes of a `tf.train.Example`.

    Args:
        rows: dict of arrays (N, …) by some of `NAMES`.

    Source: google-research/bert, create_pretraining_data.py, for the features.
    """
    import tensorflow as tf

    train = tf.train
    names = [name for name in NAMES if name in rows]
    records = []
    for start in range(0, len(rows[names[0]]), _CHUNK):
        # Python's numbers at once: one by one, numpy's would take most of the time.
        columns = [rows[name][start : start + _CHUNK].tolist() for name in names]
        for values in zip(*columns, strict=True):
            features = {
                name: train.Feature(float_list=train.FloatList(value=one))
                if name in _FLOATS
                else train.Feature(int64_list=train.Int64List(value=one))
                for name, one in zip(names, values, strict=True)
            }
            example = train.Example(features=train.Features(feature=features))
            # The order of the features would differ from run to run.
            records.append(example.SerializeToString(deterministic=True))
    return records


def decode(records, source):
    """Returns the arrays of some records.

    Args:
        records: list of bytes, at least one.
        source: where they stand, for the message.

    Returns:
        Dict of arrays (N, …) by those of `NAMES` that the records have; int32, float32 for the
        weights, int8 for what is 0 or 1 in every token.

    Raises:
        CorpusError: if a record is no `tf.train.Example`, lacks a feature or has one of another
            length than the first record has.
    """
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    try:
        features = [tf.train.Example.FromString(record).features.feature for record in records]
    except DecodeError as error:
        raise CorpusError(
            f"{source} holds records that are no tf.train.Example.\n"
            "Expected records made by build_records, or by Google's create_pretraining_data.py."
        ) from error
    names = [name for name in NAMES if name in features[0]]
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise CorpusError(
            f"{source} holds records without {listing(missing)}; they have "
            f"{listing(sorted(features[0])) or 'nothing'}.\n"
            "Expected the features of Google's create_pretraining_data.py."
        )
    return {name: _column(name, features, source) for name in names}


def _column(name, features, source):
    kind = "float_list" if name in _FLOATS else "int64_list"
    values = [getattr(row[name], kind).value for row in features]
    lengths = {len(one) for one in values}
    if len(lengths) > 1 or lengths == {0}:
        raise CorpusError(
            f"{source}: the feature {name} has {listing(sorted(lengths))} values.\n"
            "Expected the same number, above 0, in every record.\n"
            "Files of different lengths cannot be read together."
        )
    small = name in ("input_mask", "segment_ids", "token_boundary")
    dtype = "float32" if name in _FLOATS else "int8" if small else "int32"
    (length,) = lengths
    found = np.empty((len(values), length), dtype)
    for row, one in zip(found, values, strict=True):
        row[:] = one
    return found

"""Files of records: TensorFlow reads what we write, and the other way round."""

import gzip

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from harness import refused
from kerasbert.errors import CorpusError
from kerasbert.pretraining.examples import NAMES, decode, encode
from kerasbert.pretraining.tfrecord import checksums, framed, read_stretch, stretches
from pretraining.plain_records import crc32c, joined


def masked(crc):
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@given(st.lists(st.binary(max_size=40), max_size=12))
def test_checksums(payloads):
    assert checksums(payloads).tolist() == [masked(crc32c(payload)) for payload in payloads]


def test_known_checksums():
    # RFC 3720, appendix B.4.
    known = {bytes(32): 0x8A9136AA, b"\xff" * 32: 0x62A8AB43, bytes(range(32)): 0x46DD794E}
    assert checksums(list(known)).tolist() == [masked(crc) for crc in known.values()]


RECORDS = [b"", b"a", bytes(range(256)) * 9, b"long" * 5000, b"\0" * 7] * 3


def test_tensorflow_reads_our_files(tmp_path):
    path = tmp_path / "ours"
    path.write_bytes(framed(RECORDS))
    assert list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator()) == RECORDS


def test_we_read_the_files_of_tensorflow(tmp_path):
    path = str(tmp_path / "theirs")
    with tf.io.TFRecordWriter(path) as writer:
        for record in RECORDS:
            writer.write(record)
    parts = stretches(path, 4)
    assert [part.count for part in parts] == [4, 4, 4, 3]
    assert joined(map(read_stretch, parts)) == RECORDS
    assert (tmp_path / "theirs").read_bytes() == framed(RECORDS)
    (tmp_path / "empty").touch()
    assert stretches(tmp_path / "empty", 4) == [] and framed([]) == b""


@pytest.mark.parametrize("place", [0, 9, 12, 20, 40, 60])
def test_every_flipped_bit_is_noticed(tmp_path, place):
    content = bytearray(framed([b"12345678901234567890", b"abcdefghij"]))
    content[place] ^= 4
    path = tmp_path / "flipped"
    path.write_bytes(content)
    with refused(CorpusError, path):
        for part in stretches(path, 10):
            read_stretch(part)


@given(st.integers(1, 61))
def test_a_file_that_ends_early_is_noticed(tmp_path_factory, size):
    path = tmp_path_factory.mktemp("cut") / "file"
    whole = framed([b"12345678901234567890", b"abcdefghij"])
    if size == 36:  # the end of a record
        return
    path.write_bytes(whole[:size])
    with refused(CorpusError, path, "ends inside of a record"):
        stretches(path, 10)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "packed").write_bytes(gzip.compress(framed(RECORDS)))
    (tmp_path / "text").write_text("no records here, only a text of some length")
    for name in ("packed", "text"):
        with refused(CorpusError, tmp_path / name, "TFRecords"):
            stretches(tmp_path / name, 10)


# ---- examples --------------------------------------------------------------------------------


def rows(count=5, length=6, places=3, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "input_ids": rng.integers(0, 30_000, (count, length)).astype("int32"),
        "input_mask": rng.integers(0, 2, (count, length)).astype("int8"),
        "segment_ids": rng.integers(0, 2, (count, length)).astype("int8"),
        "token_boundary": rng.integers(0, 2, (count, length)).astype("int8"),
        "masked_lm_positions": rng.integers(0, length, (count, places)).astype("int32"),
        "masked_lm_ids": rng.integers(0, 30_000, (count, places)).astype("int32"),
        "masked_lm_weights": rng.integers(0, 2, (count, places)).astype("float32"),
        "next_sentence_labels": rng.integers(0, 2, (count, 1)).astype("int32"),
    }


def assert_same(found, wanted):
    assert found.keys() == wanted.keys()
    for name in wanted:
        assert found[name].dtype == wanted[name].dtype
        assert (found[name] == wanted[name]).all()


def test_round_trip():
    wanted = rows(count=3000)
    assert_same(decode(encode(wanted), "here"), wanted)
    assert set(wanted) == set(NAMES)


def test_by_the_features_that_run_pretraining_asks_for():
    wanted = rows()
    spec = {  # google-research/bert, run_pretraining.py, for 6 tokens and 3 places
        "input_ids": tf.io.FixedLenFeature([6], tf.int64),
        "input_mask": tf.io.FixedLenFeature([6], tf.int64),
        "segment_ids": tf.io.FixedLenFeature([6], tf.int64),
        "masked_lm_positions": tf.io.FixedLenFeature([3], tf.int64),
        "masked_lm_ids": tf.io.FixedLenFeature([3], tf.int64),
        "masked_lm_weights": tf.io.FixedLenFeature([3], tf.float32),
        "next_sentence_labels": tf.io.FixedLenFeature([1], tf.int64),
    }
    parsed = tf.io.parse_example(tf.constant(encode(wanted)), spec)
    for name in spec:
        assert (parsed[name].numpy() == wanted[name]).all()


def example(**features):
    kinds = {int: ("int64_list", tf.train.Int64List), float: ("float_list", tf.train.FloatList)}
    made = {}
    for name, values in features.items():
        field, kind = kinds[type(values[0])]
        made[name] = tf.train.Feature(**{field: kind(value=values)})
    return tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()


def test_refused_examples():
    plain = {"input_ids": [1, 2], "input_mask": [1, 1], "segment_ids": [0, 0]}
    assert decode([example(**plain)], "here").keys() == plain.keys()
    with refused(CorpusError, "here", "segment_ids", "input_ids, input_mask"):
        decode([example(input_ids=[1], input_mask=[1])], "here")
    with refused(CorpusError, "input_ids has 2, 3 values"):
        decode([example(**plain), example(**plain | {"input_ids": [1, 2, 3]})], "here")
    with refused(CorpusError, "here", "no tf.train.Example"):
        decode([b"\xff\xff\xff"], "here")

"""Batches of records: each once an epoch, masked anew or not, and what `fit` makes of them."""

import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from harness import refused
from kerasbert.errors import ConfigError, CorpusError
from kerasbert.pretraining import Masking, PretrainingDataset, RecordSettings, build_records
from kerasbert.pretraining import dataset as dataset_module
from kerasbert.pretraining.masking import restored
from pretraining.made_up import TOKENIZER, TOKENS, by_character, written
from pretraining.plain_records import joined


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("records")
    text = written(place / "text.txt", documents=60)
    settings = RecordSettings(max_length=24, dupe_factor=1, masking=Masking(max_predictions=5))
    records = place / "records"
    build_records(text, records, TOKENIZER, settings, shard_bytes=2000, workers=1, verbose=0)
    return records


@pytest.fixture(autouse=True)
def small_stretches(monkeypatch):
    monkeypatch.setattr(dataset_module, "_STRETCH", 16)


def batches(data):
    return [data[i] for i in range(len(data))]


def plain(batch):
    """The rows of a batch as they were before masking, as a list of tuples."""
    x, y, weights = batch
    rows = {"input_ids": x["input_ids"], "masked_lm_positions": x["masked_lm_positions"]}
    rows |= {"masked_lm_ids": y["masked_lm"], "masked_lm_weights": weights["masked_lm"]}
    return [tuple(row) for row in restored(rows)["input_ids"].tolist()]


def epoch_of(data):
    return joined(map(plain, batches(data)))


def test_what_a_batch_is(folder):
    x, y, weights = PretrainingDataset(folder, 8)[0]
    assert {name: array.shape for name, array in x.items()} == {
        "input_ids": (8, 24),
        "input_mask": (8, 24),
        "segment_ids": (8, 24),
        "masked_lm_positions": (8, 5),
    }
    assert {name: array.shape for name, array in y.items()} == {
        "masked_lm": (8, 5),
        "next_sentence": (8,),
    }
    assert all(array.dtype == "int32" for array in (*x.values(), *y.values()))
    assert {name: array.dtype for name, array in weights.items()} == {
        "masked_lm": "float32",
        "next_sentence": "float32",
    }
    assert (weights["next_sentence"] == 1).all() and 0 < weights["masked_lm"].mean() < 1


@pytest.mark.parametrize("pool_records", [1, 40, 100_000])
@pytest.mark.parametrize("masking", [None, "ngram"])
def test_every_record_once_an_epoch(folder, pool_records, masking):
    options = {"tokenizer": TOKENIZER, "masking": masking} if masking else {}
    data = PretrainingDataset(folder, 7, pool_records=pool_records, seed=3, **options)
    assert len(data._pools) == (
        1 if pool_records > 100 else -(-len(data._stretches) // data._in_pool)
    )
    wanted = sorted(epoch_of(PretrainingDataset(folder, 1000, shuffle=False)))
    orders = []
    for _ in range(3):
        orders.append(epoch_of(data))
        assert sorted(orders[-1]) == wanted
        sizes = [len(x["input_ids"]) for x, *_ in batches(data)]
        assert set(sizes[:-1]) == {7} and sum(sizes) == data.num_records == len(wanted)
        data.on_epoch_end()
    assert orders[0] != orders[1] != orders[2]


def assert_equal(one, other):
    for left, right in zip(one, other, strict=True):
        assert left.keys() == right.keys()
        assert all((left[name] == right[name]).all() for name in left)


def test_a_batch_follows_from_seed_epoch_and_number(folder):
    options = {"masking": "whole_word", "tokenizer": TOKENIZER, "pool_records": 50, "seed": 5}
    data = PretrainingDataset(folder, 6, **options)
    data.epoch = 2
    wanted = batches(data)
    again = pickle.loads(pickle.dumps(PretrainingDataset(folder, 6, **options)))
    again.epoch = 2
    for i in np.random.default_rng(0).permutation(len(data)):
        assert_equal(again[int(i)], wanted[i])
    other = PretrainingDataset(folder, 6, **options | {"seed": 6})
    other.epoch = 2
    assert plain(other[0]) != plain(wanted[0])
    with pytest.raises(IndexError, match=str(len(data))):
        data[len(data)]


def test_masks_of_the_records_or_new_ones(folder):
    fixed = PretrainingDataset(folder, 1000, shuffle=False)
    first = fixed[0]
    fixed.on_epoch_end()
    assert_equal(fixed[0], first)
    masking = Masking(rate=0.3, max_predictions=9)
    anew = PretrainingDataset(folder, 1000, masking, TOKENIZER, shuffle=False, seed=0)
    second = anew[0]
    anew.on_epoch_end()
    third = anew[0]
    assert second[0]["masked_lm_positions"].shape[1] == 9
    assert plain(first) == plain(second) == plain(third)
    assert (second[0]["input_ids"] != third[0]["input_ids"]).mean() > 0.1


def test_words_of_a_segmenter_are_masked_whole_anew(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("今天气很好我们去公园玩\n房间干净电池不用久\n\n" * 9, encoding="utf-8")
    settings = RecordSettings(max_length=24, dupe_factor=1)
    build_records(
        text, tmp_path / "r", TOKENIZER, settings, segmenter=by_character, workers=1, verbose=0
    )
    data = PretrainingDataset(tmp_path / "r", 64, Masking(0.3, whole_word=True), TOKENIZER)
    x, _, weights = data[0]
    for row in plain(data[0]):
        assert [TOKENS[i] for i in row[:3]] in (["[CLS]", "今", "天"], ["[CLS]", "房", "间"])
    masked = np.zeros(x["input_ids"].shape, bool)
    rows, places = np.nonzero(weights["masked_lm"])
    masked[rows, x["masked_lm_positions"][rows, places]] = True
    assert (masked[:, 1] == masked[:, 2]).all() and 0 < masked[:, 1].mean() < 1


def test_a_shorter_last_batch_may_be_left_out(folder):
    whole = PretrainingDataset(folder, 7)
    assert whole.num_records % 7
    assert len(PretrainingDataset(folder, 7, drop_remainder=True)) == len(whole) - 1
    with refused(CorpusError, "batch_size=100000"):
        PretrainingDataset(folder, 100_000, drop_remainder=True)


def test_files_that_google_wrote_under_any_names(tmp_path, folder):
    rows = PretrainingDataset(folder, 100, shuffle=False)[0]
    x, y, weights = rows
    names = ["part.0", "wiki-tf_examples.tf_record@7"]
    for name, part in zip(names, (slice(0, 30), slice(30, 100)), strict=True):
        with tf.io.TFRecordWriter(str(tmp_path / name)) as writer:
            for i in range(*part.indices(100)):
                features = {name: x[name][i] for name in x} | {"masked_lm_ids": y["masked_lm"][i]}
                features["next_sentence_labels"] = [y["next_sentence"][i]]
                made = {
                    name: tf.train.Feature(int64_list=tf.train.Int64List(value=value))
                    for name, value in features.items()
                }
                made["masked_lm_weights"] = tf.train.Feature(
                    float_list=tf.train.FloatList(value=weights["masked_lm"][i])
                )
                example = tf.train.Example(features=tf.train.Features(feature=made))
                writer.write(example.SerializeToString())
    for files in (tmp_path, [tmp_path / name for name in names], str(tmp_path / "*[0-9]")):
        assert_equal(PretrainingDataset(files, 100, shuffle=False)[0], rows)
    anew = PretrainingDataset(tmp_path, 100, "whole_word", TOKENIZER, shuffle=False)[0]
    assert plain(anew) == plain(rows)


def test_sentence_objective_as_noted(tmp_path):
    text = written(tmp_path / "text.txt", documents=4)
    for objective, there in (("none", False), ("unilm", False), ("nsp", True)):
        settings = RecordSettings(max_length=24, dupe_factor=1, objective=objective)
        folder = tmp_path / objective
        build_records(text, folder, TOKENIZER, settings, workers=1, verbose=0)
        assert ("next_sentence" in PretrainingDataset(folder)[0][1]) is there
        assert "next_sentence" in PretrainingDataset(folder, next_sentence=True)[0][2]
    with refused(ConfigError, "objective='unilm'"):
        PretrainingDataset(tmp_path / "unilm", 8, "bert", TOKENIZER)


def test_refused_records(tmp_path, folder):
    with refused(CorpusError, "absent"):
        PretrainingDataset(tmp_path / "absent")
    for given, missing in (("masking", "tokenizer"), ("tokenizer", "masking")):
        values = {"masking": "bert", "tokenizer": TOKENIZER}
        with refused(ConfigError, f"{given} was given without {missing}"):
            PretrainingDataset(folder, 8, **{given: values[given]})
    small = type(TOKENIZER)(dict(list(TOKENIZER._token_dict.items())[:30]))
    with refused(CorpusError, "below 30"):
        PretrainingDataset(folder, 8, "bert", small)[0]
    bare = tf.train.Example()
    for name in ("input_ids", "input_mask", "segment_ids"):
        bare.features.feature[name].int64_list.value.extend([2, 1])
    with tf.io.TFRecordWriter(str(tmp_path / "bare")) as writer:
        writer.write(bare.SerializeToString())
    with refused(CorpusError, "without masks"):
        PretrainingDataset(tmp_path / "bare")[0]
    with refused(CorpusError, "without next_sentence_labels"):
        PretrainingDataset(tmp_path / "bare", 1, "bert", TOKENIZER)[0]
    x, *_ = PretrainingDataset(tmp_path / "bare", 1, "bert", TOKENIZER, next_sentence=False)[0]
    assert x["input_ids"].shape == (1, 2)
    with refused(CorpusError, "bare", "same lengths"):
        files = [tmp_path / "bare", *folder.glob("*d")]
        PretrainingDataset(files, 1, "bert", TOKENIZER, next_sentence=False)[0]


def test_unfinished_records_are_refused(tmp_path, folder):
    content = (folder / "manifest.json").read_text("utf-8")
    (tmp_path / "manifest.json").write_text(content.replace('"count": ', '"count": 9'), "utf-8")
    with refused(CorpusError, "Call build_records again"):
        PretrainingDataset(tmp_path)


@pytest.mark.backends
def test_in_fit(folder):
    places, vocabulary = 5, len(TOKENS)
    ids = keras.Input((24,), dtype="int32", name="input_ids")
    others = [keras.Input((24,), dtype="int32", name=n) for n in ("input_mask", "segment_ids")]
    positions = keras.Input((places,), dtype="int32", name="masked_lm_positions")
    hidden = keras.layers.Embedding(vocabulary, 16)(ids)
    hidden = hidden + keras.layers.Embedding(2, 16)(others[1])
    taken = ops.take_along_axis(hidden, ops.expand_dims(positions, -1), axis=1)
    outputs = {
        "masked_lm": keras.layers.Dense(vocabulary, name="masked_lm")(taken),
        "next_sentence": keras.layers.Dense(2, name="next_sentence")(hidden[:, 0]),
    }
    model = keras.Model([ids, *others, positions], outputs)
    loss = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight"
    )
    model.compile("adam", dict.fromkeys(outputs, loss), jit_compile=False)
    data = PretrainingDataset(folder, 16, Masking(max_predictions=5), TOKENIZER, seed=1)
    history = model.fit(data, epochs=3, verbose=0).history["loss"]
    assert np.isfinite(history).all() and history[-1] < history[0]
    assert np.isfinite(model.evaluate(data, verbose=0)).all()


def test_as_tf_data(folder):
    data = PretrainingDataset(folder, 16, shuffle=False)
    for ours, theirs in zip(batches(data), data.to_tf_data().as_numpy_iterator(), strict=True):
        assert_equal(ours, theirs)

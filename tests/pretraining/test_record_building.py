"""Records made of text: whole, the same in every way to make them, and only of one kind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from harness import refused
from kerasbert.errors import ConfigError, CorpusError
from kerasbert.pretraining import Corpus, Masking, RecordSettings, build_records
from kerasbert.pretraining.examples import decode
from kerasbert.pretraining.masking import restored
from kerasbert.pretraining.tfrecord import read_stretch, stretches
from pretraining import building
from pretraining.made_up import TABLE, TOKENIZER, by_character, written

SETTINGS = RecordSettings(max_length=32, dupe_factor=2, masking="ngram")


def built(folder, text, settings=SETTINGS, **options):
    options = {"shard_bytes": 1000, "workers": 1, "verbose": 0} | options
    return build_records(text, folder, options.pop("tokenizer", TOKENIZER), settings, **options)


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


def rows_of(path):
    return next(decode(read_stretch(part), path) for part in stretches(path, 10_000))


@pytest.fixture
def text(tmp_path):
    return written(tmp_path / "text.txt")


def test_records_of_a_text(tmp_path, text):
    paths = built(tmp_path / "records", text)
    assert len(paths) > 3
    assert [path.name for path in paths] == sorted(path.name for path in paths)
    words = {TOKENIZER.token_to_id(word) for word in text.read_text("utf-8").split()}
    labels = []
    for path in paths:
        rows = rows_of(path)
        assert rows["input_ids"].shape[1] == 32 and rows["masked_lm_ids"].shape[1] == 20
        plain = restored(rows)["input_ids"]
        assert set(np.unique(plain)) <= words | {0, 2, 3} | {
            TOKENIZER.token_to_id(token) for token in ("un", "##aff", "##able", "。")
        }
        inside = (rows["token_boundary"] == 0) & (rows["input_mask"] > 0)
        assert (inside == (~TABLE.word_starts[plain] & (rows["input_mask"] > 0))).all()
        labels += rows["next_sentence_labels"][:, 0].tolist()
    assert 0.3 < np.mean(labels) < 0.9
    raw = tf.data.TFRecordDataset([str(path) for path in paths])
    assert len(list(raw)) == len(labels)


def test_each_copy_is_cut_and_masked_anew(tmp_path, text):
    settings = RecordSettings(max_length=32, dupe_factor=6, objective="none", short_seq_prob=0.0)
    rows = rows_of(built(tmp_path / "records", text, settings, shard_bytes=1 << 20)[0])
    plain = restored(rows)["input_ids"]
    unique, counts = np.unique(plain, axis=0, return_counts=True)
    assert (counts % 6 == 0).all(), "whole sentences are the same in every copy"
    assert len(np.unique(rows["input_ids"], axis=0)) > 5 * len(unique)
    assert (plain[0] != plain[1]).any() and (np.diff(plain[:, 1]) != 0).any(), "and they are mixed"


@pytest.mark.parametrize("objective", ["lm", "unilm"])
def test_records_of_next_tokens(tmp_path, text, objective):
    settings = RecordSettings(max_length=16, dupe_factor=1, objective=objective)
    rows = rows_of(built(tmp_path / "records", text, settings)[0])
    assert rows["masked_lm_ids"].shape[1] == 15
    for ids, positions, labels, weights, segments in zip(
        *(rows[name] for name in ("input_ids", "masked_lm_positions", "masked_lm_ids")),
        *(rows[name] for name in ("masked_lm_weights", "segment_ids")),
        strict=True,
    ):
        positions, labels = positions[weights > 0], labels[weights > 0]
        assert (ids[positions + 1] == labels).all()
        assert objective == "lm" or (segments[positions + 1] == 1).all()
        assert labels[-1] == 3


def test_the_same_again_and_another_with_another_seed(tmp_path, text):
    built(tmp_path / "one", text)
    built(tmp_path / "two", text)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    built(tmp_path / "three", text, RecordSettings(**vars(SETTINGS) | {"seed": 1}))
    one, three = contents(tmp_path / "one"), contents(tmp_path / "three")
    assert all(one[name] != three[name] for name in one)


class BreakError(Exception):
    """What stops a build in these tests."""


def stopping(after):
    """A segmenter that fails after some texts."""
    left = [after]

    def by_character(text):
        left[0] -= 1
        if left[0] < 0:
            raise BreakError
        return [text[i : i + 2] for i in range(0, len(text), 2)]

    by_character.__module__, by_character.__qualname__ = "tests", "by_character"
    return by_character


def test_what_is_finished_is_kept_after_a_break(tmp_path, text):
    built(tmp_path / "whole", text, segmenter=stopping(10**9))
    folder = tmp_path / "broken"
    for after in (40, 40):
        with pytest.raises(BreakError):
            built(folder, text, segmenter=stopping(after))
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*.tfrecord")}
    assert 2 <= len(before) < len(contents(tmp_path / "whole")) - 1
    (folder / ".shard-00009-of-00010.tfrecord.77.tmp").write_bytes(b"of a process that was killed")
    built(folder, text, segmenter=stopping(10**9))
    assert contents(folder) == contents(tmp_path / "whole")
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())


def test_finished_files_are_checked(tmp_path, text):
    folder = tmp_path / "records"
    paths = built(folder, text)
    whole = contents(folder)
    paths[0].unlink()
    paths[1].write_bytes(whole[paths[1].name][:-20])
    damaged = bytearray(whole[paths[2].name])
    damaged[300] ^= 1
    paths[2].write_bytes(damaged)
    built(folder, text)
    assert contents(folder) == whole
    times = {path: path.stat().st_mtime_ns for path in paths}
    built(folder, text)
    assert {path: path.stat().st_mtime_ns for path in paths} == times


def test_other_settings_are_refused(tmp_path, text):
    folder = tmp_path / "records"
    built(folder, text)
    whole = contents(folder)
    others = {
        "max_length was 32, is 64": RecordSettings(max_length=64, dupe_factor=2),
        "masking.rate was 0.15, is 0.2": RecordSettings(
            max_length=32, dupe_factor=2, masking=Masking(0.2, ngram=3, whole_word=True)
        ),
        "objective was 'sop', is 'lm'": RecordSettings(32, "lm", dupe_factor=2),
    }
    for fact, settings in others.items():
        with refused(CorpusError, folder, fact):
            built(folder, text, settings)
    with refused(CorpusError, "segmenter was None, is 'pretraining.made_up.by_character'"):
        built(folder, text, segmenter=by_character)
    with refused(CorpusError, "line was 'sentence', is 'document'"):
        built(folder, Corpus(text, line="document"))
    cased = type(TOKENIZER)(TOKENIZER._token_dict, do_lower_case=False)
    with refused(CorpusError, "tokenizer was"):
        built(folder, text, tokenizer=cased)
    with refused(CorpusError, "files was"):
        built(folder, written(tmp_path / "other.txt"))
    assert contents(folder) == whole


def test_another_text_of_the_same_name_is_refused(tmp_path, text):
    folder = tmp_path / "records"
    built(folder, text)
    content = text.read_bytes()
    text.write_bytes(content[:-30].replace(b"w1 ", b"w2 ") + content[-30:])
    with refused(CorpusError, text, "has changed"):
        built(folder, text)


def test_folders_of_others_are_refused(tmp_path, text):
    folder = tmp_path / "records"
    folder.mkdir()
    (folder / "precious.tfrecord").touch()
    with refused(CorpusError, folder, "precious.tfrecord"):
        built(folder, text)
    (folder / "manifest.json").write_text("[]")
    with refused(CorpusError, "manifest.json", cause=TypeError):
        built(folder, text)
    made = {"format": 0, "settings": {}, "count": 1, "shards": {}}
    (folder / "manifest.json").write_text(json.dumps(made))
    with refused(CorpusError, "format 0"):
        built(folder, text)


def test_refused_texts(tmp_path):
    blank = tmp_path / "blank.txt"
    blank.write_text("\n \n\u200b\n")
    with refused(CorpusError, blank, "no row"):
        built(tmp_path / "records", blank)
    with refused(ConfigError, "workers=0"):
        built(tmp_path / "records", blank, workers=0)
    with refused(CorpusError, "segmenter='thulac'"):
        built(tmp_path / "records", blank, segmenter="thulac")
    with refused(CorpusError, "dict"):
        built(tmp_path / "records", blank, tokenizer={})


def test_work_that_no_other_process_can_do(tmp_path, text):
    with refused(CorpusError, "workers=1"):
        built(tmp_path / "records", text, workers=2, segmenter=lambda text: [text])


# ---- other processes -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_killed_and_resumed(tmp_path, text, workers):
    whole, folder = tmp_path / "whole", tmp_path / "records"
    wanted = building.build(whole, text, 1)
    root = Path(building.__file__).parents[2]
    paths = os.pathsep.join([str(root), str(root / "tests"), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, building.__file__, str(folder), str(text), str(workers)],
        env=os.environ | {"PYTHONPATH": paths},
        stdout=subprocess.PIPE,
    )
    while not folder.is_dir() or len(list(folder.glob("*.tfrecord"))) < 2:
        assert process.poll() is None, "was too quick, or failed"
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    # Ends when all of its workers have ended too: they hold its output.
    process.communicate(timeout=60)
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("*.tfrecord")}
    assert 2 <= len(kept) < len(wanted)
    noted = json.loads((folder / "manifest.json").read_text())["shards"]
    assert len(noted) >= 1
    building.build(folder, text, 3 - workers)
    assert contents(folder) == contents(whole)
    for path, modified in kept.items():
        assert path.name not in noted or path.stat().st_mtime_ns == modified

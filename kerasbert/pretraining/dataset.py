"""Batches of records for pre-training, for `fit` on every backend.

Shapes: B batch, L length, M places of a row, N rows.
"""

import os
from glob import glob
from pathlib import Path
from threading import Lock

import keras
import numpy as np

from kerasbert.data.tf_data import batches_to_tf_data
from kerasbert.data.workers import check_workers
from kerasbert.errors import ConfigError, CorpusError, check_integer
from kerasbert.pretraining.examples import decode
from kerasbert.pretraining.manifest import Manifest
from kerasbert.pretraining.masking import Masking, restored
from kerasbert.pretraining.tfrecord import read_stretch, stretches
from kerasbert.pretraining.words import TokenTable

_INPUTS = ("input_ids", "input_mask", "segment_ids", "masked_lm_positions")

# So many records are read together, and stand together on their way to be mixed.
_STRETCH = 4096

# So many pools of rows are kept: a batch may need the end of one and the start of the next.
_KEPT = 2


class PretrainingDataset(keras.utils.PyDataset):
    """Batches of TFRecords for masked-LM pre-training, made by `build_records` or Google's code.

    A batch is `(x, y, sample_weight)`: x a dict of `input_ids`, `input_mask`, `segment_ids` (B, L)
    and `masked_lm_positions` (B, M); y a dict of `masked_lm` (B, M), and `next_sentence` (B,) if
    there is a sentence objective; sample_weight a dict by the same names. All are int32, the
    weights float32.

    Batch `i` of an epoch is the same in every run with the same seed. Records are mixed among
    `pool_records` of them, in stretches of 4,096 from all files; more are not in memory.

    Args:
        files: a folder that `build_records` filled; or a path, a pattern with wildcards, or a
            list of them, whatever the files are called.
        batch_size: B.
        masking: a `Masking` or its name, see `Masking.of`, to mask all rows anew in every epoch;
            None for the masks that the records have.
        tokenizer: the `Tokenizer` or `SpTokenizer` of the records; for masking anew.
        next_sentence: whether there is a sentence objective; None for what `build_records` noted
            in that folder, and True where it noted nothing.
        shuffle: whether each epoch has an order of its own.
        seed: of the orders and masks; None draws one by numpy's global generator, which
            `keras.utils.set_random_seed` sets.
        drop_remainder: whether to leave out the last batch if it is shorter.
        pool_records: among how many records they are mixed.
        **kwargs: `workers`, `use_multiprocessing`, `max_queue_size` of a `PyDataset`; several
            workers on TensorFlow only.

    Attributes:
        num_records: N, how many records there are.
        epoch: the number of the epoch, from which order and masks follow. May be set, to go on
            where a training stopped: `fit` adds 1 at its start, and after every epoch.

    Raises:
        CorpusError: if there are no records, if they are damaged or not finished, or lack masks.
        ConfigError: for arguments that do not go together.

    Example:
        >>> text = "房间很干净。电池用不久。很好！"
        >>> _ = Path("hotel.txt").write_text(text, encoding="utf-8")
        >>> settings = RecordSettings(max_length=16, dupe_factor=2)
        >>> corpus = Corpus("hotel.txt", line="paragraph")
        >>> _ = build_records(corpus, "hotel", tokenizer, settings, workers=1, verbose=0)
        >>> x, y, weights = PretrainingDataset("hotel", batch_size=2)[0]
        >>> x["input_ids"].shape, y["masked_lm"].shape, y["next_sentence"].shape
        ((2, 16), (2, 20), (2,))
    """

    def __init__(
        self,
        files,
        batch_size=32,
        masking=None,
        tokenizer=None,
        *,
        next_sentence=None,
        shuffle=True,
        seed=None,
        drop_remainder=False,
        pool_records=100_000,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_workers(self)
        check_integer("batch_size", batch_size, minimum=1)
        check_integer("pool_records", pool_records, minimum=1)
        paths, noted = _found(files)
        self.masking = None if masking is None else Masking.of(masking)
        self.table = None if tokenizer is None else TokenTable.of(tokenizer)
        self._check_masking(noted)
        if next_sentence is None:
            next_sentence = noted.get("objective", "sop") in ("sop", "nsp")
        self.next_sentence = next_sentence
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = np.random.randint(2**31) if seed is None else seed
        self._stretches = [one for path in paths for one in stretches(path, _STRETCH)]
        self._in_pool = max(pool_records // _STRETCH, 1)
        self.num_records = sum(stretch.count for stretch in self._stretches)
        full, rest = divmod(self.num_records, batch_size)
        self._length = full + (rest > 0 and not drop_remainder)
        if not self._length:
            raise CorpusError(
                f"{files}: {self.num_records} records for batch_size={batch_size}.\n"
                "Expected enough of them for a batch."
            )
        self._cache, self._lock = {}, Lock()
        self.epoch = 0

    def _check_masking(self, noted):
        if (self.masking is None) != (self.table is None):
            given, other = ("masking", "tokenizer")[:: 1 if self.masking else -1]
            raise ConfigError(
                f"{given} was given without {other}.\n"
                "Expected both to mask anew in every epoch, or none of them to keep the masks of "
                "the records."
            )
        if self.masking and noted.get("objective") in ("lm", "unilm"):
            raise ConfigError(
                f"masking was given for records of objective={noted['objective']!r}.\n"
                "Expected none: they hold the next tokens to predict, not masks.\n"
                "Build records with objective='none' for masking."
            )

    def __getstate__(self):
        # For other processes, which read by themselves.
        return self.__dict__ | {"_cache": {}, "_lock": None}

    def __setstate__(self, state):
        self.__dict__.update(state, _lock=Lock())

    @property
    def epoch(self):
        """The number of the epoch."""
        return self._epoch

    @epoch.setter
    def epoch(self, value):
        """Arranges the stretches of that epoch into pools."""
        check_integer("epoch", value, minimum=0)
        self._epoch = value
        order = np.arange(len(self._stretches))
        if self.shuffle:
            np.random.default_rng([self.seed, value]).shuffle(order)
        # In the order of the files, so that a pool of all records is the same in every epoch.
        starts = range(0, len(order), self._in_pool)
        self._pools = [tuple(sorted(order[i : i + self._in_pool].tolist())) for i in starts]
        counts = [sum(self._stretches[i].count for i in pool) for pool in self._pools]
        self._ends = np.cumsum(counts)
        self._orders = {}

    def __len__(self):
        return self._length

    def __getitem__(self, index):
        """Returns the batch with a number: `(x, y, sample_weight)`, three dicts of arrays."""
        if not 0 <= index < len(self):
            raise IndexError(f"There is no batch {index}: an epoch has {len(self)}.")
        places = np.arange(index * self.batch_size, (index + 1) * self.batch_size)
        places = places[places < self.num_records]
        numbers = np.searchsorted(self._ends, places, side="right")
        parts = [self._rows(n, places[numbers == n]) for n in np.unique(numbers)]
        rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        if self.masking is not None:
            rng = np.random.default_rng([self.seed, self._epoch, index])
            rows = self.masking.apply(rows, self.table, rng)
        return self._batch(rows)

    def on_epoch_end(self):
        """Makes the order of the next epoch; called by Keras."""
        self.epoch += 1

    def to_tf_data(self):
        """Returns the same batches as a `tf.data.Dataset`; each pass has an order of its own."""
        return batches_to_tf_data(self)

    def _rows(self, number, places):
        """Returns rows at places of the epoch, all of the pool with that number."""
        pool = self._pools[number]
        with self._lock:
            if pool not in self._cache:
                while len(self._cache) >= _KEPT:
                    self._cache.pop(next(iter(self._cache)))
                self._cache[pool] = self._read(pool)
            rows = self._cache[pool]
            size = len(rows["input_ids"])
            if number not in self._orders:
                rng = np.random.default_rng([self.seed, self._epoch, number, 1])
                self._orders[number] = rng.permutation(size) if self.shuffle else np.arange(size)
            order = self._orders[number]
        chosen = order[places - (self._ends[number] - size)]
        return {name: array[chosen] for name, array in rows.items()}

    def _read(self, pool):
        """Returns the rows of some stretches."""
        parts = []
        for stretch in (self._stretches[i] for i in pool):
            rows = decode(read_stretch(stretch), stretch.path)
            if self.masking is not None:
                rows = restored(rows) if "masked_lm_positions" in rows else rows
            elif "masked_lm_positions" not in rows:
                raise CorpusError(
                    f"{stretch.path} holds records without masks.\n"
                    "Expected masked_lm_positions in them.\nPass masking= and tokenizer=."
                )
            if self.next_sentence and "next_sentence_labels" not in rows:
                raise CorpusError(
                    f"{stretch.path} holds records without next_sentence_labels.\n"
                    "Expected them, for a sentence objective.\nPass next_sentence=False."
                )
            self._check_ids(rows["input_ids"], stretch)
            parts.append(rows)
        _check_alike(parts, [self._stretches[i].path for i in pool])
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _check_ids(self, ids, stretch):
        if self.table is not None and not 0 <= ids.min() <= ids.max() < self.table.size:
            raise CorpusError(
                f"{stretch.path} holds token ids from {ids.min()} to {ids.max()}.\n"
                f"Expected them below {self.table.size}, the size of the tokenizer's vocabulary.\n"
                "Pass the tokenizer that the records were made with."
            )

    def _batch(self, rows):
        x = {name: rows[name].astype("int32") for name in _INPUTS}
        y = {"masked_lm": rows["masked_lm_ids"].astype("int32")}
        weights = {"masked_lm": rows["masked_lm_weights"]}
        if self.next_sentence:
            y["next_sentence"] = rows["next_sentence_labels"][:, 0].astype("int32")
            weights["next_sentence"] = np.ones(len(y["next_sentence"]), "float32")
        return x, y, weights


def _found(files):
    """Returns the paths of records, and what was noted of them by `build_records`."""
    listed = [files] if isinstance(files, str | os.PathLike) else list(files)
    paths, noted = [], {}
    for one in map(os.path.expanduser, map(os.fspath, listed)):
        if os.path.isdir(one):
            manifest = Manifest.read(one)
            if manifest is not None and not manifest.is_complete:
                raise CorpusError(
                    f"{one} has {len(manifest.shards)} of {manifest.count} files of records.\n"
                    "Expected all of them.\nCall build_records again, which goes on."
                )
            noted = manifest.settings if manifest else noted
            paths += manifest.paths() if manifest else _files_in(Path(one))
        else:
            paths += [one] if os.path.isfile(one) else sorted(glob(one))
    missing = [str(path) for path in paths if not os.path.isfile(path)]
    if missing or not paths:
        raise CorpusError(
            f"No records: {missing[0] if missing else files}.\n"
            "Expected a folder that build_records filled, paths of TFRecords, or a pattern."
        )
    return paths, noted


def _files_in(folder):
    """Returns the files of a folder that somebody else wrote, under whatever names."""
    shown = [path for path in sorted(folder.iterdir()) if path.is_file() and path.name[0] != "."]
    return [path for path in shown if "tfrecord" in path.name] or shown


def _check_alike(parts, paths):
    shapes = [{name: array.shape[1:] for name, array in part.items()} for part in parts]
    for shape, path in zip(shapes, paths, strict=True):
        if shape != shapes[0]:
            raise CorpusError(
                f"{path} holds records of {shape}, {paths[0]} of {shapes[0]}.\n"
                "Expected the same features, of the same lengths, in all files."
            )

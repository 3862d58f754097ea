"""Records for pre-training from text files, made by all cores, and resumed after a break."""

import multiprocessing
import multiprocessing.connection
import os
import pickle
import threading
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from kerasbert.errors import CorpusError, check_integer
from kerasbert.pretraining.corpus import Corpus, name_of
from kerasbert.pretraining.examples import encode
from kerasbert.pretraining.manifest import Manifest, checksum
from kerasbert.pretraining.segments import make_rows
from kerasbert.pretraining.settings import RecordSettings
from kerasbert.pretraining.tfrecord import framed
from kerasbert.pretraining.words import TokenTable, find_segmenter, tokenize
from kerasbert.tokenizers.vocab import write_atomically

_PROBE = "Ａé Ǆ İ 房间很干净，1,9 don't ﬁx unaffable"


def build_records(
    corpus,
    folder,
    tokenizer,
    settings=None,
    *,
    segmenter=None,
    shard_bytes=1 << 22,
    workers=None,
    verbose=1,
):
    """Makes TFRecords for pre-training, which Google's run_pretraining.py reads too.

    The text is divided into shards, each of which becomes a file; second segments of other
    documents come from the same shard. A file is written under another name and moved when it is
    whole. After a break, even by kill -9, the same call goes on: finished files are kept if their
    checksums are right, and the result is the same, byte for byte, as without the break, and
    whatever the number of workers.

    In a script, call it under `if __name__ == "__main__":`, as new processes read the script.

    Args:
        corpus: a `Corpus`; or a path or list of paths, for files with a sentence a line.
        folder: where to put the records, and what has been done.
        tokenizer: a `Tokenizer` or `SpTokenizer`.
        settings: a `RecordSettings`; None for its defaults.
        segmenter: function from a text to a list of its words, or "jieba": what masking takes for
            whole words in languages without spaces.
        shard_bytes: about how many bytes of text a shard has; a worker needs about 100 times as
            much memory for 10 copies.
        workers: how many processes; None for one a core, 1 for this process alone.
        verbose: whether to show a progress bar.

    Returns:
        The paths of the records, in the order of the text.

    Raises:
        CorpusError: if the folder holds records of other settings or of another text, if the text
            cannot be read, or if a worker dies.
        ConfigError: for settings out of range.

    Example:
        >>> text = "房间很干净。电池用不久。很好！"
        >>> _ = Path("reviews.txt").write_text(text, encoding="utf-8")
        >>> corpus = Corpus("reviews.txt", line="paragraph")
        >>> settings = RecordSettings(max_length=16, dupe_factor=2)
        >>> build_records(corpus, "records", tokenizer, settings, workers=1, verbose=0)
        [...Path('records/shard-00000-of-00001.tfrecord')]
    """
    corpus = corpus if isinstance(corpus, Corpus) else Corpus(corpus)
    settings = RecordSettings() if settings is None else settings
    workers = _cores() if workers is None else workers
    check_integer("workers", workers, minimum=1)
    if segmenter is not None:
        find_segmenter(segmenter)
    shards = corpus.shards(shard_bytes)
    described = _described(corpus, tokenizer, settings, segmenter, shard_bytes)
    manifest = Manifest.start(folder, described, len(shards))
    job = _Job(corpus, str(folder), tokenizer, settings, segmenter)
    sizes = [sum(piece.stop - piece.start for piece in shard) for shard in shards]
    with tqdm(
        desc="records", total=sum(sizes), unit="B", unit_scale=True, disable=not verbose
    ) as bar:
        waiting = []
        for number, shard in enumerate(shards):
            if _is_done(manifest, corpus, number, shard):
                bar.update(sizes[number])
            else:
                waiting.append((number, manifest.name(number), shard))
        for number, known in job.results(waiting, workers):
            manifest.add(number, known)
            bar.update(sizes[number])
    if not sum(known["records"] for known in manifest.shards.values()):
        raise CorpusError(
            f"{corpus.files[0]}: no row could be made of the text.\n"
            "Expected documents of sentences; with skip_single_sentences, of two at least."
        )
    return manifest.paths()


def _cores():
    counted = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if counted else os.cpu_count() or 1


def _described(corpus, tokenizer, settings, segmenter, shard_bytes):
    """Returns all that the records depend on, but for the text, as a flat dict."""
    TokenTable.of(tokenizer)  # refuses what is no tokenizer
    vocabulary = sorted(tokenizer.hugging_face_files().items())
    vocabulary.append(("probe", repr(tokenizer.encode(_PROBE)).encode()))
    return {
        **settings.description(),
        **corpus.description(),
        "tokenizer": checksum(b"".join(name.encode() + content for name, content in vocabulary)),
        "segmenter": name_of(segmenter) if callable(segmenter) else segmenter,
        "shard_bytes": shard_bytes,
    }


def _is_done(manifest, corpus, number, shard):
    """Whether the file of a shard is finished, of the same text.

    Raises:
        CorpusError: if it was made of another text.
    """
    if not manifest.is_whole(number):
        manifest.forget(number)
        return False
    if manifest.shards[manifest.name(number)]["text"] != corpus.digest(shard):
        files = " and ".join(sorted({corpus.files[piece.file] for piece in shard}))
        raise CorpusError(
            f"{files}: the text has changed since {manifest.folder / manifest.name(number)} was "
            "made of it.\nExpected the same text, to go on where it was left.\n"
            "Pass another folder, or delete this one."
        )
    return True


@dataclass(frozen=True)
class _Job:
    """What a worker has to know, to make the file of any shard."""

    corpus: Corpus
    folder: str
    tokenizer: Any
    settings: RecordSettings
    segmenter: Any

    def results(self, waiting, workers):
        """Yields (number, what is known of the file) as the files get finished.

        Args:
            waiting: list of (number, name of the file, pieces).
            workers: how many processes.
        """
        workers = min(workers, len(waiting))
        if workers <= 1:
            for number, name, pieces in waiting:
                yield number, self.make(number, name, pieces)
            return
        self._check_pickles()
        # Not forked: TensorFlow and the tokenizers run threads, which a fork does not survive.
        pool = ProcessPoolExecutor(
            workers, multiprocessing.get_context("spawn"), initializer=_start_worker
        )
        try:
            futures = {pool.submit(self.make, *one): one[0] for one in waiting}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool as error:
            raise CorpusError(
                "A worker died while it made records: was memory used up, or is the script "
                'without `if __name__ == "__main__":`?\n'
                "Expected all workers to live; what they finished is kept.\n"
                "Call it again, with fewer workers or a smaller shard_bytes in another folder."
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)

    def make(self, number, name, pieces):
        """Makes the file of a shard; returns what is known of it."""
        table = TokenTable.of(self.tokenizer)
        text = tokenize(self.corpus.documents(pieces), self.tokenizer, self.segmenter)
        rng = np.random.default_rng([self.settings.seed, number])
        passes = []
        for _ in range(self.settings.dupe_factor):
            rows = make_rows(text, table, self.settings, rng)
            passes.append(self.settings.with_targets(rows, table, rng))
        order = rng.permutation(sum(len(rows["input_ids"]) for rows in passes))
        rows = {key: np.concatenate([rows[key] for rows in passes])[order] for key in passes[0]}
        del passes
        content = framed(encode(rows))
        write_atomically(Path(self.folder) / name, content)
        return {
            "records": len(order),
            "bytes": len(content),
            "checksum": checksum(content),
            "text": self.corpus.digest(pieces),
        }

    def _check_pickles(self):
        try:
            pickle.dumps(self)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise CorpusError(
                f"The work cannot be handed to other processes: {error}.\n"
                "Expected functions (segmenter, splitter, pre_tokenize) that stand in a module.\n"
                "Move them out of other functions, or pass workers=1."
            ) from error


def _start_worker():
    """Readies a process: one thread for tokenising, and no life without the first process."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    parent = multiprocessing.parent_process()

    def end_with_parent():
        # A pool's processes would wait forever for one that was killed.
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()

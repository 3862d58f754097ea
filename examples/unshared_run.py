"""One run of the study of un-sharing; unshared_study.py starts it, in a process of its own.

Its only argument is a JSON object: the task, the variant, the seed, the files and the sizes. It
leaves the figures in `figures.json` of the folder `output`.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import json
import re
import resource
import sys
import time
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import keras
from runs import Run, ScoreByEpoch, starting_point
from shared import in_one_line
from unshared_tasks import TASKS

FILES = ("config", "checkpoint", "vocab", "train", "valid", "test", "data", "output")


class Clock(keras.callbacks.Callback):
    """Times the epochs, without what the callbacks after it do.

    Attributes:
        seconds: of each epoch.
        processor_seconds: the same, of all cores together.
    """

    def __init__(self):
        super().__init__()
        self.seconds, self.processor_seconds = [], []

    def on_epoch_begin(self, epoch, logs=None):
        """Starts both clocks."""
        self.started = time.perf_counter(), time.process_time()

    def on_epoch_end(self, epoch, logs=None):
        """Reads both clocks."""
        started, processor_started = self.started
        self.seconds.append(round(time.perf_counter() - started, 2))
        self.processor_seconds.append(round(time.process_time() - processor_started, 2))


def peak_megabytes():
    """Returns the most memory that this process has had so far."""
    status = Path("/proc/self/status")
    if status.exists():
        # On Linux the peak of getrusage is at least that of the process which started this one.
        kilobytes = re.search(r"VmHWM:\s+(\d+) kB", status.read_text("utf-8"))[1]
        return round(int(kilobytes) / 2**10)
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit)


def run(args):
    """Trains and scores a variant, and writes the figures."""
    session = Run("unshared_study", args)
    libraries = peak_megabytes()
    task = TASKS[args.task]
    _, tokenizer = starting_point(args, ())
    prepared = task.prepare(args, tokenizer)
    clock = Clock()
    watch = ScoreByEpoch(task.metric, lambda _: prepared.score())
    history = session.fit(prepared.model, prepared.batches, callbacks=[clock, watch])
    figures = {
        "by_epoch": [round(share, 4) for share in history[watch.name]],
        "guess": round(float(prepared.guess), 4),
        "epoch_seconds": clock.seconds,
        "epoch_processor_seconds": clock.processor_seconds,
        "peak_megabytes": peak_megabytes(),
        "megabytes_of_libraries": libraries,
        "parameters": prepared.model.count_params(),
        "training_texts": prepared.texts,
        "scored_texts": prepared.scored,
        "processor_seconds": round(time.process_time() - session.started[1]),
        "date": str(date.today()),
    }
    (args.output / "figures.json").write_text(json.dumps(figures), "utf-8")


def arguments(text):
    """Returns what `run` takes, from a JSON object; files that are not given are None."""
    args = SimpleNamespace(**{**dict.fromkeys(FILES), **json.loads(text)})
    for name in FILES:
        if getattr(args, name) is not None:
            setattr(args, name, Path(getattr(args, name)))
    return args


if __name__ == "__main__":
    in_one_line("unshared_study", lambda: run(arguments(sys.argv[1])))

"""Checkpoints of a training: Google's files, and the state to go on from."""

import os
import re
import shutil
import uuid
from pathlib import Path

import keras

from kerasbert.distribution import check_strategy
from kerasbert.errors import CheckpointError, ConfigError, check_integer
from kerasbert.pretraining.state import read_about, read_state, write_state
from kerasbert.training.gradients import random_state, set_random_state
from kerasbert.weights.towers import save_towers

_NAME = re.compile(r"step-(\d{8,})")
_ASIDE = ".unfinished-"


class PretrainingCheckpoint(keras.callbacks.Callback):
    """Writes a checkpoint every so many steps, and goes on from the last one.

    Each is a folder `step-00001000` with the model in Google's form (`model.ckpt`,
    `model_config.json`; both towers of ELECTRA, see `save_towers`), which
    `build_transformer_model` loads, and `state.npz`: weights, optimizer and random seeds. It is
    written under another name and renamed when it is whole, so a program that is killed at any
    moment leaves the last ones as they were.

    A step is a batch. Where the last batch of an epoch is due, the checkpoint is written after
    validation.

    Args:
        folder: where the folders are made.
        every: after how many steps.
        keep: how many of the last checkpoints are kept.

    Attributes:
        step: how many batches were seen, in earlier runs too.
        history: list of a dict for each checkpoint: "step", and what Keras reported.

    Raises:
        ConfigError: for numbers that are none.

    Example:
        >>> from kerasbert.pretraining import PretrainingCheckpoint
        >>> checkpoint = PretrainingCheckpoint("out/pretraining", every=1000)
        >>> checkpoint.latest() is None
        True

    Source: the files are those of `tf.compat.v1.train.Saver`, as google-research/albert has
    them; what `keras.callbacks.BackupAndRestore` writes does not hold random seeds.
    """

    def __init__(self, folder, every, keep=3):
        super().__init__()
        check_integer("every", every, minimum=1)
        check_integer("keep", keep, minimum=1)
        self.folder = Path(os.path.expanduser(os.fspath(folder)))
        self.every = every
        self.keep = keep
        self.step = 0
        self.history = []
        self._before_epoch = 0
        self._due = False
        self._random = None

    def latest(self):
        """Returns the path of the last whole checkpoint, None if there is none."""
        found = self._whole()
        return found[-1] if found else None

    def restore(self, model):
        """Gives a compiled model the state of the last checkpoint.

        Args:
            model: the model, compiled as it was. It may have more layers, if they share their
                weights.

        Returns:
            How many batches it has seen; 0 if there is no checkpoint, and nothing changes.

        Raises:
            CheckpointError: if it is damaged, or of another model or optimizer.
        """
        path = self.latest()
        if path is not None:
            about = read_state(model, path)
            self.step, self.history = about["step"], about["history"]
            self._random = random_state()
        return self.step

    def on_train_begin(self, logs=None):
        """Refuses to start anew where checkpoints of later steps are."""
        check_strategy(self.model)
        path = self.latest()
        if path is not None and read_about(path)["step"] > self.step:
            raise ConfigError(
                f"{self.folder} holds the checkpoint {path.name}, but training starts at step "
                f"{self.step}.\n"
                "Expected a training that goes on from there.\n"
                "Call restore(model) before fit, or choose another folder."
            )

    def on_epoch_begin(self, epoch, logs=None):
        """Notes where the epoch begins."""
        self._before_epoch = self.step

    def on_train_batch_begin(self, batch, logs=None):
        """Goes on with the random numbers of the checkpoint."""
        # torch's own: to begin with the batches draws some, more at the start of `fit`.
        if self._random is not None:
            set_random_state(self._random)
            self._random = None

    def on_train_batch_end(self, batch, logs=None):
        """Counts, and writes a checkpoint when it is due."""
        before, self.step = self.step, self._before_epoch + batch + 1
        self._due = self.step // self.every > before // self.every
        if self._due and batch + 1 != (self.params or {}).get("steps"):
            self._write(logs)

    def on_epoch_end(self, epoch, logs=None):
        """Writes the checkpoint that was due with the last batch."""
        if self._due:
            self._write(logs)

    def _write(self, logs):
        self._due = False
        numbers = {name: float(value) for name, value in (logs or {}).items()}
        self.history.append({"step": self.step, **numbers})
        self._random = random_state()
        model = self.model  # on JAX, this brings the variables up to date
        aside = self.folder / f"{_ASIDE}{uuid.uuid4().hex}"
        try:
            aside.mkdir(parents=True)
            save_towers(model, aside / "model.ckpt")
            write_state(model, aside, {"step": self.step, "history": self.history})
            _flush(aside)
            self._place(aside, self.folder / f"step-{self.step:08d}")
        except OSError as error:
            raise CheckpointError(
                f"Cannot write a checkpoint into {self.folder}: {error}.\n"
                "Earlier ones are untouched.\n"
                "Check that the folder is writable and the disk not full."
            ) from error
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _place(self, aside, final):
        if final.exists():
            self._remove(final)
        aside.rename(final)
        for old in self._whole()[: -self.keep]:
            self._remove(old)
        # Of runs that were killed; no other run writes here.
        for left in self.folder.glob(f"{_ASIDE}*"):
            shutil.rmtree(left, ignore_errors=True)

    def _remove(self, path):
        # Under another name first: half of a folder must not look like a whole one.
        path.rename(bin_ := self.folder / f"{_ASIDE}{uuid.uuid4().hex}")
        shutil.rmtree(bin_, ignore_errors=True)

    def _whole(self):
        """The paths of all checkpoints, in the order of their steps."""
        if not self.folder.is_dir():
            return []
        found = [path for path in self.folder.iterdir() if _NAME.fullmatch(path.name)]
        return sorted(found, key=lambda path: int(_NAME.fullmatch(path.name)[1]))


def _flush(folder):
    """Makes the system write the files of a folder to disk."""
    for path in folder.iterdir():
        with open(path, "rb+") as file:
            os.fsync(file.fileno())

"""Trains in a process of its own; killed_run.py FOLDER WHAT STEPS [STOP].

At step STOP it says so by a file and waits, to be killed.
"""

import sys
import time
from pathlib import Path

import keras
import numpy as np
from batches_of_masks import CONFIGS, MaskedDataset

from kerasbert import build_transformer_model
from kerasbert.pretraining import (
    PretrainingCheckpoint,
    compile_objectives,
    electra_model,
    electra_towers,
    masked_lm_model,
    pretraining_optimizer,
    train_steps,
)


def masked_lm():
    model = build_transformer_model(
        CONFIGS["google_albert"], model="albert", with_mlm=True, with_sop=True, verbose=0
    )
    return masked_lm_model(model)


def electra():
    return electra_model(*electra_towers(CONFIGS["electra"], generator_size=0.5, verbose=0))


class Stop(keras.callbacks.Callback):
    def __init__(self, folder, step):
        super().__init__()
        self.folder, self.step, self.seen = folder, step, 0

    def on_train_batch_end(self, batch, logs=None):
        self.seen += 1
        if self.seen == self.step:
            (self.folder / "waiting").touch()
            time.sleep(600)


def main(folder, what, steps, stop=0):
    keras.utils.set_random_seed(int(time.time() * 1e6) % 2**31)  # what is restored decides
    if not list(folder.glob("run/step-*")):
        keras.utils.set_random_seed(0)
    model = {"masked_lm": masked_lm, "electra": electra}[what]()
    name = "lamb" if what == "masked_lm" else "electra"
    compile_objectives(model, pretraining_optimizer(steps, name, learning_rate=0.01))
    checkpoint = PretrainingCheckpoint(folder / "run", every=5, keep=2)
    train_steps(
        model,
        MaskedDataset(),
        steps,
        checkpoint,
        callbacks=[Stop(folder, stop)],
        verbose=0,
    )
    history = {
        f"{number}/{name}": value
        for number, row in enumerate(checkpoint.history)
        for name, value in row.items()
    }
    variables = [*model.variables, *model.optimizer.variables]
    arrays = {str(n): keras.ops.convert_to_numpy(v.value) for n, v in enumerate(variables)}
    np.savez(folder / "done.npz", **history, **arrays)


if __name__ == "__main__":
    where, task, *numbers = sys.argv[1:]
    main(Path(where), task, *map(int, numbers))

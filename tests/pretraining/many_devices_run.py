"""Pre-trains on one or two devices, in a process of its own; many_devices_run.py HOW FOLDER.

Prints the losses as JSON. HOW is "one", "mirrored" (TensorFlow) or "data" (JAX).
"""

import json
import sys
from contextlib import nullcontext
from pathlib import Path

import keras
import numpy as np
from batches_of_masks import CONFIGS, batch

from kerasbert import build_transformer_model
from kerasbert.optimizers import AdamW
from kerasbert.pretraining import (
    PretrainingCheckpoint,
    compile_objectives,
    electra_model,
    electra_towers,
    masked_lm_model,
    train_steps,
)

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def scope(how):
    """The function whose context models are to be made in."""
    if how == "mirrored":
        import tensorflow as tf

        device = tf.config.list_physical_devices("CPU")[0]
        halves = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(device, halves)
        return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope
    if how == "data":
        keras.distribution.set_distribution(keras.distribution.DataParallel())
    return nullcontext


def full_batch(seed):
    """A batch in which every place counts, so that devices have equal shares."""
    x, y, w = batch(seed)
    places = np.broadcast_to(np.arange(1, 4), x["masked_lm_positions"].shape)
    ids = np.random.default_rng(seed).integers(5, 99, places.shape)
    x = {**x, "masked_lm_positions": places.astype("int32")}
    ones = np.ones(places.shape, "float32")
    return x, {**y, "masked_lm": ids.astype("int32")}, {**w, "masked_lm": ones}


def albert():
    config = {**CONFIGS["google_albert"], **NO_DROPOUT}
    return masked_lm_model(
        build_transformer_model(config, model="albert", with_mlm=True, with_nsp=True, verbose=0)
    )


def electra():
    config = {**CONFIGS["electra"], **NO_DROPOUT}
    return electra_model(*electra_towers(config, generator_size=0.5, verbose=0), seed=1)


def losses(make, where, folder):
    """Trains two steps, then two more in a model that goes on."""
    rows = []
    for steps in (2, 4):
        keras.utils.set_random_seed(1)
        with where():
            model = compile_objectives(make(), AdamW(0.01))
        checkpoint = PretrainingCheckpoint(folder, every=1)
        data = [full_batch(seed) for seed in range(4)]
        rows = train_steps(model, data, steps, checkpoint, verbose=0)
    return [row["loss"] for row in rows]


if __name__ == "__main__":
    how, folder = sys.argv[1], Path(sys.argv[2])
    place = scope(how)
    found = {"albert": losses(albert, place, folder / "albert")}
    # What is drawn differs from device to device.
    drawn = losses(electra, place, folder / "electra")
    print(json.dumps({**found, "electra": len(drawn), "finite": bool(np.isfinite(drawn).all())}))

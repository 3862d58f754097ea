"""Trains models on JAX in a process of its own, and prints their losses as JSON.

    jax_run.py KINDS HOWS [ADDRESS PROCESSES ID]

``KINDS`` and ``HOWS`` are lists with commas; every kind is trained in every way. A way is "one",
"data" or "model", the last with the axes 2 x 4.
"""

import json
import sys

import keras
import numpy as np

from devices.models import batch, build, classifier
from kerasbert.distribution import layout_map

ROWS, STEPS = 8, 5


def main(kinds, hows, address=None, processes=1, process=0):
    if address:
        keras.distribution.initialize(address, int(processes), int(process))
    found = {
        kind: {how: run(kind, how, int(processes), int(process)) for how in hows.split(",")}
        for kind in kinds.split(",")
    }
    print(json.dumps(found))


def run(kind, how, processes, process):
    keras.utils.clear_session()
    keras.distribution.set_distribution(None)
    if how == "data":
        keras.distribution.set_distribution(keras.distribution.DataParallel())
    elif how != "one":
        mesh = keras.distribution.DeviceMesh(
            (2, 4), ["batch", "model"], keras.distribution.list_devices()
        )
        layouts = layout_map(make(kind), mesh, embeddings=how.partition(":")[2] or "hidden")
        keras.distribution.set_distribution(keras.distribution.ModelParallel(layout_map=layouts))
    model = make(kind)
    model.compile(keras.optimizers.Adam(0.01), "mse")
    inputs = batch(model, rows=ROWS)
    target = np.random.default_rng(1).normal(size=(ROWS, 3)).astype("float32")
    # Each process gives its own rows of the whole batch.
    share = ROWS // processes
    rows = slice(process * share, (process + 1) * share)
    inputs, target = [x[rows] for x in inputs], target[rows]
    losses = [float(model.train_on_batch(inputs, target)) for _ in range(STEPS)]
    split = [w.path for w in model.weights if not w.value.sharding.is_fully_replicated]
    return {"losses": losses, "split": split, "devices": keras.distribution.get_device_count()}


def make(kind):
    return classifier(build(kind, with_mlm=False, vocab_size=64))


if __name__ == "__main__":
    main(*sys.argv[1:])

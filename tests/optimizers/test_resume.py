"""Training that was saved, or killed, goes on as if nothing had happened."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
import pytest
from updates import cross_entropy, numbers, small_data, small_model

import kerasbert
from harness import STEP_BY_STEP, WITHOUT_XLA
from kerasbert.optimizers import (
    AdamW,
    Averaging,
    Lazy,
    Lookahead,
    WarmupDecay,
    extend,
)

ROOT = Path(kerasbert.__file__).parents[1]
# Five batches an epoch: with two to an update, one is left over for the next.
IDS, LABELS = small_data(20)
Everything = extend(AdamW, Averaging, Lookahead, Lazy)


def optimizer_of(make):
    arguments = {"multipliers": {"head": 0.5}, "gradient_accumulation_steps": 2}
    if make is Everything:
        arguments |= {"steps_per_slow_update": 2, "include_in_lazy_optimization": ["table"]}
    return make(WarmupDecay(0.1, total_steps=10, warmup_steps=4), **arguments)


def fit(model, epochs):
    model.fit(IDS, LABELS, batch_size=4, epochs=epochs, shuffle=False, verbose=0)


def state(model):
    return numbers(model.variables + model.optimizer.variables)


def one_and_one_and_two(make, folder, **options):
    models = []
    for epochs in (1, 2):
        model = small_model()
        model.get_layer("norm").trainable = False
        model.compile(optimizer_of(make), cross_entropy(), **options)
        fit(model, epochs)
        models.append(model)
    saved, whole = models
    saved.save(folder / "model.keras")
    again = keras.models.load_model(folder / "model.keras")
    assert not again.get_layer("norm").trainable
    fit(again, 1)
    return again, whole


# LAMB comes back in the tests of bert4keras' names.
@pytest.mark.backends
def test_an_epoch_and_after_a_reload_another_are_two(tmp_path):
    again, whole = one_and_one_and_two(Everything, tmp_path, **STEP_BY_STEP)
    assert int(again.optimizer.iterations) == 5
    for a, b in zip(state(again), state(whole), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_in_mixed_precision_too(policy, tmp_path):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        again, whole = one_and_one_and_two(AdamW, tmp_path, **WITHOUT_XLA)
    finally:
        keras.config.set_dtype_policy(before)
    scaled = isinstance(again.optimizer, keras.optimizers.LossScaleOptimizer)
    assert scaled == (policy == "mixed_float16")
    for a, b in zip(state(again), state(whole), strict=True):
        assert np.isfinite(b.astype("float32")).all()
        np.testing.assert_array_equal(a, b)


KILLED = """
import sys, time
import keras, numpy as np
import kerasbert
from kerasbert.optimizers import AdamW, WarmupDecay

keras.utils.set_random_seed(0)
folder, stop = sys.argv[1], int(sys.argv[2])
model = kerasbert.build_transformer_model(
    dict(vocab_size=40, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
         intermediate_size=16, hidden_act="gelu", max_position_embeddings=16,
         type_vocab_size=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
    model="albert", verbose=0, embedding_size=4,
)
x = keras.layers.Dense(2, name="head")(model.outputs[-1][:, 0])
model = keras.Model(model.inputs, x)
schedule = WarmupDecay(0.01, total_steps=15, warmup_steps=3)
model.compile(
    AdamW(schedule, gradient_accumulation_steps=2),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    jit_compile=False if keras.backend.backend() == "tensorflow" else "auto",
)
rng = np.random.default_rng(0)
ids = rng.integers(1, 40, (40, 8))
labels = rng.integers(0, 2, 40)

class Stop(keras.callbacks.Callback):
    seen = 0
    def on_train_batch_end(self, batch, logs=None):
        self.seen += 1
        if self.seen == stop:
            open(folder + "/waiting", "w").close()
            time.sleep(600)

model.fit(
    [ids, ids * 0], labels, batch_size=4, epochs=3, shuffle=False, verbose=0,
    callbacks=[keras.callbacks.BackupAndRestore(folder + "/backup", save_freq="epoch"), Stop()],
)
np.savez(folder + "/done.npz", *[keras.ops.convert_to_numpy(v) for v in
                                 model.variables + model.optimizer.variables])
"""


def run(folder, stop):
    folder.mkdir(exist_ok=True)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", KILLED, str(folder), str(stop)],
        env=environment,
        stderr=subprocess.PIPE,
    )


@pytest.mark.slow
def test_killed_in_the_middle_of_an_epoch(tmp_path):
    # Ten batches an epoch; killed at the 16th, in the second of three epochs. No dropout: Keras
    # does not keep the state of its random numbers in files of weights.
    whole = run(tmp_path / "whole", 0)
    assert whole.wait(300) == 0, whole.stderr.read()
    broken = run(tmp_path / "broken", 16)
    while not (tmp_path / "broken" / "waiting").exists():
        assert broken.poll() is None, broken.stderr.read()
        time.sleep(0.2)
    broken.send_signal(signal.SIGKILL)
    assert broken.wait(60) == -signal.SIGKILL
    again = run(tmp_path / "broken", 0)
    assert again.wait(300) == 0, again.stderr.read()
    with (
        np.load(tmp_path / "whole" / "done.npz") as a,
        np.load(tmp_path / "broken" / "done.npz") as b,
    ):
        assert a.files == b.files
        for name in a.files:
            np.testing.assert_array_equal(a[name], b[name])

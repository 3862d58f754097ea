"""Training that is stopped, or killed, and goes on: to the same numbers, from whole files."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
import pytest
from batches_of_masks import CONFIGS, QUICK, MaskedDataset, batch

import kerasbert
from harness import refused, to_numpy
from kerasbert import build_transformer_model
from kerasbert.errors import CheckpointError, ConfigError
from kerasbert.optimizers import LAMB, AdamW
from kerasbert.pretraining import (
    PretrainingCheckpoint,
    checkpoints,
    compile_objectives,
    electra_model,
    electra_towers,
    masked_lm_model,
    train_steps,
)

ROOT = Path(kerasbert.__file__).parents[1]


def albert(optimizer=keras.optimizers.SGD, **options):
    options = {"with_mlm": True, "with_nsp": True, "verbose": 0, **options}
    model = build_transformer_model(CONFIGS["google_albert"], model="albert", **options)
    return compile_objectives(masked_lm_model(model), optimizer(0.01), **QUICK)


def albert_by_lamb():
    return albert(LAMB)


def electra():
    towers = electra_towers(CONFIGS["electra"], generator_size=0.5, verbose=0)
    return compile_objectives(electra_model(*towers), AdamW(0.01), **QUICK)


def state(model):
    variables = [*model.variables, *model.optimizer.variables]
    return [to_numpy(variable) for variable in variables]


def run(make, folder, steps, seed, **options):
    keras.utils.set_random_seed(seed)
    model = make()
    checkpoint = PretrainingCheckpoint(folder, **{"every": 1, **options})
    history = train_steps(model, MaskedDataset(3), steps, checkpoint, verbose=0)
    return model, history


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A model after three batches, and the folder with the last two of its checkpoints."""
    folder = tmp_path_factory.mktemp("finished")
    return run(albert, folder, 3, seed=1, keep=2)[0], folder


@pytest.fixture
def folder(finished, tmp_path):
    """A copy of that folder."""
    return shutil.copytree(finished[1], tmp_path / "run")


@pytest.mark.backends
@pytest.mark.parametrize("make", [albert_by_lamb, pytest.param(electra, marks=pytest.mark.slow)])
def test_in_two_runs_as_in_one(make, tmp_path):
    # Four batches; an epoch of the data ends after three.
    whole, history = run(make, tmp_path / "whole", 4, seed=1, every=2)
    run(make, tmp_path / "parts", 2, seed=1, every=2)
    again, rows = run(make, tmp_path / "parts", 4, seed=77, every=2)
    assert rows == history and [row["step"] for row in rows] == [2, 4]
    for one, other in zip(state(whole), state(again), strict=True):
        np.testing.assert_array_equal(one, other)
    # All is done: nothing happens any more.
    same, rows = run(make, tmp_path / "parts", 4, seed=78, every=2)
    assert rows == history
    for one, other in zip(state(whole), state(same), strict=True):
        np.testing.assert_array_equal(one, other)


def test_each_checkpoint_is_a_release(finished):
    model, folder = finished
    folders = sorted(folder.iterdir())
    assert [folder.name for folder in folders] == ["step-00000002", "step-00000003"]
    again = build_transformer_model(folders[-1], with_mlm=True, with_nsp=True, verbose=0)
    for name, values in masked_lm_model(again)(batch()[0]).items():
        np.testing.assert_array_equal(to_numpy(values), to_numpy(model(batch()[0])[name]))
    names = {path.name for path in folders[-1].iterdir()}
    data = "model.ckpt.data-00000-of-00001"
    assert names == {"about.json", "model.ckpt.index", data, "model_config.json", "state.npz"}


def test_more_layers_go_on_from_fewer(finished, folder):
    keras.utils.set_random_seed(5)
    deeper = albert(num_hidden_layers=4)
    checkpoint = PretrainingCheckpoint(folder, every=1)
    assert checkpoint.restore(deeper) == 3
    for one, other in zip(finished[0].weights, deeper.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))
    train_steps(deeper, MaskedDataset(3), 4, checkpoint, verbose=0)
    assert checkpoint.history[-1]["step"] == 4


def test_within_epochs_and_with_validation(tmp_path):
    model = albert()
    checkpoint = PretrainingCheckpoint(tmp_path, every=2)
    data = MaskedDataset(3)
    model.fit(data, epochs=2, callbacks=[checkpoint], verbose=0, validation_data=data)
    assert [row["step"] for row in checkpoint.history] == [2, 4, 6]
    # The last batch of the second epoch is the sixth.
    assert "val_loss" in checkpoint.history[-1] and "val_loss" not in checkpoint.history[1]


def batches_of(kind):
    data = [batch(seed) for seed in range(3)]
    return {
        "list": data,
        "function": lambda done: (data[n % 3] for n in range(done, 99)),
    }[kind]


@pytest.mark.parametrize("kind", ["list", "function"])
def test_batches_may_come_in_other_forms(kind, tmp_path):
    losses = []
    for steps in ([4], [2, 4]):
        for number in steps:
            keras.utils.set_random_seed(1)
            model = albert()
            checkpoint = PretrainingCheckpoint(tmp_path / str(len(steps)), every=2)
            train_steps(model, batches_of(kind), number, checkpoint, verbose=0)
        losses.append([row["loss"] for row in checkpoint.history])
    assert losses[0] == losses[1] and len(losses[0]) == 2


# ---- killed ----------------------------------------------------------------------------------


def started(folder, *arguments):
    folder.mkdir(exist_ok=True)
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "tests", Path(__file__).parent)))
    script = Path(__file__).with_name("killed_run.py")
    return subprocess.Popen(
        [sys.executable, str(script), str(folder), *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": paths},
        stderr=subprocess.PIPE,
    )


@pytest.mark.slow
@pytest.mark.parametrize("what", ["masked_lm", "electra"])
def test_killed_between_two_checkpoints(what, tmp_path):
    whole = started(tmp_path / "whole", what, 20)
    assert whole.wait(300) == 0, whole.stderr.read()
    broken = started(tmp_path / "broken", what, 20, 13)
    while not (tmp_path / "broken" / "waiting").exists():
        assert broken.poll() is None, broken.stderr.read()
        time.sleep(0.2)
    broken.send_signal(signal.SIGKILL)
    assert broken.wait(60) == -signal.SIGKILL
    again = started(tmp_path / "broken", what, 20)
    assert again.wait(300) == 0, again.stderr.read()
    files = [tmp_path / name / "done.npz" for name in ("whole", "broken")]
    with np.load(files[0]) as one, np.load(files[1]) as other:
        assert one.files == other.files and len(one.files) > 100
        for name in one.files:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)


class Killed(BaseException):
    """Stands for a signal that ends the process at once."""


@pytest.mark.parametrize("at", ["save_towers", "write_state", "_flush", "rename"])
def test_ended_while_it_writes(at, folder, monkeypatch):
    def end(*args, **kwargs):
        raise Killed

    # Nothing is tidied up by one that was killed.
    monkeypatch.setattr(checkpoints.shutil, "rmtree", lambda *args, **kwargs: None)
    if at == "rename":
        monkeypatch.setattr(Path, "rename", end)
    else:
        monkeypatch.setattr(checkpoints, at, end)
    with pytest.raises(Killed):
        run(albert, folder, 4, seed=1)
    monkeypatch.undo()
    assert any(path.name.startswith(".unfinished") for path in folder.iterdir())
    assert PretrainingCheckpoint(folder, every=1).latest().name == "step-00000003"
    _, history = run(albert, folder, 4, seed=1)
    assert [row["step"] for row in history] == [1, 2, 3, 4]
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["step-00000002", "step-00000003", "step-00000004"]


# ---- refusals --------------------------------------------------------------------------------


def test_another_model_or_optimizer_is_refused(folder):
    checkpoint = PretrainingCheckpoint(folder, every=1)
    with refused(CheckpointError, "another model", "Embedding-Token"):
        checkpoint.restore(albert(vocab_size=101))
    with refused(CheckpointError, "another optimizer"):
        checkpoint.restore(albert(AdamW))
    model = albert()
    with refused(ConfigError, "step-00000003", "restore"):
        model.fit(MaskedDataset(3), callbacks=[PretrainingCheckpoint(folder, 1)], verbose=0)


@pytest.mark.parametrize("name", ["state.npz", "about.json"])
@pytest.mark.parametrize("damage", [b"", b"no such thing", None])
def test_damaged_files_are_named(name, damage, folder):
    checkpoint = PretrainingCheckpoint(folder, every=1)
    path = checkpoint.latest() / name
    path.unlink()
    if damage is not None:
        path.write_bytes(damage)
    model = albert()
    with refused(CheckpointError, name, "Delete that folder"):
        checkpoint.restore(model)
    shutil.rmtree(checkpoint.latest())
    assert checkpoint.restore(model) == 2


def test_what_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    model, checkpoint = albert(), PretrainingCheckpoint(tmp_path / "file", every=1)
    with refused(CheckpointError, "Earlier ones are untouched"):
        train_steps(model, MaskedDataset(3), 1, checkpoint, verbose=0)


def test_numbers_and_batches_are_checked(tmp_path):
    checkpoint = PretrainingCheckpoint(tmp_path, every=3)
    for options, fact in (({"every": 0}, "every=0"), ({"every": 3, "keep": 0}, "keep=0")):
        with refused(ConfigError, fact):
            PretrainingCheckpoint(tmp_path, **options)
    model = albert()
    with refused(ConfigError, "steps=4", "3"):
        train_steps(model, MaskedDataset(3), 4, checkpoint)
    with refused(ConfigError, "next_sentence"):
        train_steps(model, [batch(sentence=False)], 3, checkpoint, verbose=0)
    with refused(ConfigError, "ended before"):
        train_steps(model, iter([]), 3, checkpoint, verbose=0)


def test_what_is_noted_is_readable(finished):
    about = json.loads((finished[1] / "step-00000003" / "about.json").read_text("utf-8"))
    assert about["step"] == 3 and "masked_lm_accuracy" in about["history"][0]
    assert "MLM-Bias/bias" in about["variables"]["weights"]

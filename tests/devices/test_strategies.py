"""Training on several devices and in several processes, each run in processes of its own."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np
import pytest

from devices.models import build
from harness import refused
from kerasbert.distribution import check_strategy, layout_map
from kerasbert.errors import ConfigError
from kerasbert.optimizers import AdamW

TESTS = Path(__file__).parents[1]
HOWS = ("one", "data", "model", "model:vocabulary")
needs_jax = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="needs JAX: not installed"
)


def started(script, *arguments, backend, devices=1):
    flags = f"--xla_force_host_platform_device_count={devices}"
    paths = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    environment = {"KERAS_BACKEND": backend, "XLA_FLAGS": flags, "PYTHONPATH": paths}
    return subprocess.Popen(
        [sys.executable, str(TESTS / "devices" / script), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def last_line(process):
    printed, errors = process.communicate(timeout=500)
    assert process.returncode == 0, errors[-2000:]
    return printed.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def on_eight_devices():
    """Kind, way of training -> what came of it. One process for all, as each starts slowly."""
    run = started("jax_run.py", "albert,bert", ",".join(HOWS), backend="jax", devices=8)
    return json.loads(last_line(run))


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory):
    """Case of `strategy_run.py` -> "done" or what went wrong. One process for all."""
    folder = tmp_path_factory.mktemp("strategy")
    return json.loads(last_line(started("strategy_run.py", folder, backend="tensorflow")))


# ---- JAX -------------------------------------------------------------------------------------


@needs_jax
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["albert", "bert"])
def test_the_same_losses_on_eight_devices(kind, on_eight_devices):
    one = on_eight_devices[kind]["one"]
    assert one["devices"] == 8 and not one["split"]
    for how in HOWS[1:]:
        found = on_eight_devices[kind][how]
        np.testing.assert_allclose(found["losses"], one["losses"], atol=1e-5, err_msg=how)
        assert found["devices"] == 8
        names = {path.rpartition("-")[2] for path in found["split"]}
        inner = {"query", "key", "value", "output"}
        wanted = {f"MultiHeadSelfAttention/{name}/kernel" for name in inner}
        wanted |= {f"FeedForward/{name}/kernel" for name in ("intermediate", "output")}
        wanted |= {f"MultiHeadSelfAttention/{name}/bias" for name in inner - {"output"}}
        wanted |= {"FeedForward/intermediate/bias", "Token/embeddings"}
        assert names == (set() if how == "data" else wanted)


@needs_jax
@pytest.mark.slow
def test_two_processes_on_jax(on_eight_devices):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    processes = [
        started("jax_run.py", "albert", "data", address, 2, process, backend="jax")
        for process in range(2)
    ]
    both = [json.loads(last_line(process))["albert"]["data"] for process in processes]
    alone = on_eight_devices["albert"]["one"]
    assert [found["devices"] for found in both] == [2, 2]
    for found in both:
        np.testing.assert_allclose(found["losses"], alone["losses"], atol=1e-5)


def mesh(shape=(1, 1)):
    devices = np.array([f"cpu:{index}" for index in range(int(np.prod(shape)))])
    return keras.distribution.DeviceMesh(shape, ["batch", "model"], devices)


@pytest.fixture
def jax_is_said_to_compute(monkeypatch):
    """The checks of sizes need no JAX."""
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")


@pytest.mark.usefixtures("jax_is_said_to_compute")
def test_what_can_be_split():
    model = build("albert")
    layouts = layout_map(model, mesh((1, 2)), embeddings=None)
    assert layouts["my-Transformer-3-FeedForward/intermediate_0/kernel"].axes == (None, "model")
    assert layouts["Transformer-MultiHeadSelfAttention/output/kernel"].axes == ("model", None)
    for path in (
        "Embedding-Token/embeddings",
        "Transformer-MultiHeadSelfAttention/output/bias",
        "Transformer-MultiHeadSelfAttention/query_lora_0/lora_a",
        "Transformer-FeedForward/norm/gamma",
        "Pooler-Dense/kernel",
    ):
        assert layouts[path] is None
    with refused(ConfigError, "num_attention_heads=4", "3 devices", "multiple of 3"):
        layout_map(model, mesh((1, 3)))
    with refused(ConfigError, "the size 100 in Embedding-Token/embeddings", "8 devices"):
        layout_map(build("albert", num_attention_heads=8), mesh((1, 8)), embeddings="vocabulary")
    with refused(ConfigError, "axis='modell'", "Did you mean 'model'?", "batch"):
        layout_map(model, mesh(), axis="modell")
    with refused(ConfigError, "embeddings='vocab'", "'vocabulary'"):
        layout_map(model, mesh(), embeddings="vocab")


@pytest.mark.backends
def test_other_backends_are_refused():
    backend = keras.backend.backend()
    if backend == "jax":
        layouts = layout_map(build("albert"), mesh())
        assert layouts["Embedding-Token/embeddings"].axes == (None, "model")
        return
    with refused(ConfigError, repr(backend), "JAX", "KERAS_BACKEND=jax"):
        layout_map(build("albert"), mesh())


# ---- TensorFlow ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    ["equals_one_device", "loads_a_checkpoint", "low_precision", "loss_scaling", "adapters"],
)
def test_mirrored_strategy(case, mirrored):
    assert mirrored[case] == "done", mirrored[case]


@dataclass
class OneStrategy:
    """What is asked of a strategy of TensorFlow."""

    num_replicas_in_sync: int = 2


class MultiWorkerMirroredStrategy(OneStrategy):
    """As above, on several machines."""


@dataclass
class OneModel:
    """A model of which only these are asked."""

    distribute_strategy: OneStrategy
    optimizer: keras.optimizers.Optimizer
    name: str = "mine"


def test_what_a_strategy_cannot_do_is_refused():
    plain, adding = (
        keras.optimizers.Adam(gradient_accumulation_steps=steps) for steps in (None, 4)
    )
    check_strategy(OneModel(OneStrategy(2), plain))
    check_strategy(OneModel(OneStrategy(1), adding))
    check_strategy(OneModel(None, adding))
    check_strategy(OneModel(OneStrategy(2), AdamW(gradient_accumulation_steps=4)))
    check_strategy(keras.Sequential([keras.layers.Dense(1)]))
    with refused(ConfigError, "'mine'", "gradient_accumulation_steps=4", "2 replicas"):
        check_strategy(OneModel(OneStrategy(2), adding))
    with refused(ConfigError, "gradient_accumulation_steps=4", "2 replicas"):
        scaled = keras.optimizers.LossScaleOptimizer(adding)
        check_strategy(OneModel(OneStrategy(2), scaled))
    with refused(ConfigError, "MultiWorkerMirroredStrategy", "keras.distribution.initialize"):
        check_strategy(OneModel(MultiWorkerMirroredStrategy(1), plain))


@pytest.mark.slow
def test_keras_cannot_accumulate_under_a_strategy(mirrored):
    """Should this work one day, `check_strategy` need not refuse it any more."""
    errors = mirrored["accumulation"]
    assert "RuntimeError" in errors and "merge_call" in errors

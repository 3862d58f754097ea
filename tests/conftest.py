"""Settings and fixtures of all tests."""

import gc
import os
import random
import sys
import zlib
from pathlib import Path

# Before TensorFlow is imported for the first time. What changes numbers stays at its default.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest
from hypothesis import settings

# Triton, which torch would use if it is there, crashes when it is loaded after TensorFlow.
sys.modules.setdefault("triton", None)

# A model's first call is slow, and a failure must come again.
settings.register_profile("kerasbert", deadline=None, derandomize=True)
settings.load_profile("kerasbert")


def pytest_collection_finish():
    """Takes all that was imported out of Python's search for garbage.

    Keras searches whenever a layer gives up a weight, so ten times and more to quantise a model;
    among all objects of TensorFlow that takes a second each time.
    """
    gc.freeze()


@pytest.fixture(scope="session")
def shared_dir():
    """The folder of real weights and more recorded outputs, beside the repository."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("needs the folder `shared` beside the repository: not there")
    return folder


@pytest.fixture(autouse=True)
def _same_start(request):
    """Every test starts from its own fixed seeds, and leaves no Keras state behind.

    Keras is not imported here: a test that does not use it shall not pay for it.
    """
    seed = zlib.crc32(request.node.nodeid.encode())
    random.seed(seed)
    np.random.seed(seed)
    if "keras" in sys.modules:
        sys.modules["keras"].utils.set_random_seed(seed)
    yield
    if "keras" in sys.modules:
        sys.modules["keras"].utils.clear_session(free_memory=False)


@pytest.fixture
def do_not_compile(monkeypatch):
    """Runs what the package would compile as it is, which is quickest for a few steps."""
    from kerasbert import compilation

    monkeypatch.setattr(compilation, "compiled", lambda function, variables: function)
    monkeypatch.setattr(
        compilation,
        "compiled_writer",
        lambda function, variables: compilation.writes_afterwards(function),
    )
    if compilation._BACKEND == "tensorflow":
        monkeypatch.setattr(
            compilation,
            "write",
            lambda arrays, *new: compilation._assign_slices(arrays, *new) or arrays,
        )


@pytest.fixture
def quick_to_compile(request):
    """Leaves XLA out: a few steps are over before TensorFlow has so much as traced one.

    On JAX steps stay compiled: as they are they take longest there.
    """
    import keras

    if keras.backend.backend() == "tensorflow":
        request.getfixturevalue("do_not_compile")


@pytest.fixture
def step_by_step():
    """Runs what TensorFlow would trace as it is: a few steps are over before that is done."""
    import keras

    if keras.backend.backend() != "tensorflow":
        yield
        return
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)

"""Settings of the tests that compare with transformers on torch."""

import sys

import pytest

# Triton, which torch would use if it is there, crashes when it is loaded after TensorFlow.
sys.modules.setdefault("triton", None)


@pytest.fixture(autouse=True)
def _one_thread():
    """Torch's threads wait for each other by spinning, which takes the time of other tests."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)

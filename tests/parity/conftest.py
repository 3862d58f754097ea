"""Settings of the tests that compare with transformers on torch."""

import sys

import pytest


@pytest.fixture(autouse=True)
def _one_thread():
    """Torch's threads wait for each other by spinning, which takes the time of other tests."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)

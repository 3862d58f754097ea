"""Settings of the tests that compare with transformers on torch."""

import sys

# Triton, which torch would use if it is there, crashes when it is loaded after TensorFlow.
sys.modules.setdefault("triton", None)

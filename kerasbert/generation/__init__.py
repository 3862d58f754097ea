"""Writing text: token by token, with a memory for what was read already; and the tools of
masked language models.
"""

from kerasbert.generation.decoder import AutoRegressiveDecoder
from kerasbert.generation.generate import generate, stream
from kerasbert.generation.gibbs import gibbs_sample
from kerasbert.generation.masked import fill_mask
from kerasbert.generation.patterns import PatternClassifier

__all__ = [
    "AutoRegressiveDecoder",
    "PatternClassifier",
    "fill_mask",
    "generate",
    "gibbs_sample",
    "stream",
]

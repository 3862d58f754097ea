"""Writing text: searches that run a model again and again, and the tools of masked ones."""

from kerasbert.generation.decoder import AutoRegressiveDecoder
from kerasbert.generation.gibbs import gibbs_sample
from kerasbert.generation.masked import fill_mask
from kerasbert.generation.patterns import PatternClassifier

__all__ = ["AutoRegressiveDecoder", "PatternClassifier", "fill_mask", "gibbs_sample"]

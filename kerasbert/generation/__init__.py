"""Writing text: the tools of masked language models."""

from kerasbert.generation.gibbs import gibbs_sample
from kerasbert.generation.masked import fill_mask
from kerasbert.generation.patterns import PatternClassifier

__all__ = ["PatternClassifier", "fill_mask", "gibbs_sample"]

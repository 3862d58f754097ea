"""The name tables. Names of checkpoint variables stand in this folder and nowhere else."""

from kerasbert.weights.dialects.albert_zh import ALBERT_ZH, ALBERT_ZH_UNSHARED
from kerasbert.weights.dialects.google import GOOGLE_ALBERT, GOOGLE_BERT

DIALECTS = (GOOGLE_BERT, GOOGLE_ALBERT, ALBERT_ZH, ALBERT_ZH_UNSHARED)

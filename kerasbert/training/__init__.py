"""Training beyond a plain fit: adversarial shifts, R-Drop, default recipes, a watch for collapse."""

from kerasbert.training.adversarial import FGM, GradientPenalty
from kerasbert.training.consistency import RDrop, VirtualAdversarial

__all__ = [
    "FGM",
    "GradientPenalty",
    "RDrop",
    "VirtualAdversarial",
]

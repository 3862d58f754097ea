"""Training beyond a plain fit: adversarial shifts, R-Drop, recipes, a watch for collapse."""

from kerasbert.training.adversarial import FGM, GradientPenalty
from kerasbert.training.callbacks import CollapseWarning
from kerasbert.training.consistency import RDrop, VirtualAdversarial
from kerasbert.training.recipes import Recipe, recipe_for

__all__ = [
    "FGM",
    "CollapseWarning",
    "GradientPenalty",
    "RDrop",
    "Recipe",
    "VirtualAdversarial",
    "recipe_for",
]

"""Numbers for fine-tuning that the authors of the models used, by family and size."""

import math
from dataclasses import dataclass, replace

from kerasbert.errors import ConfigError, check_integer
from kerasbert.models.view import find_encoder
from kerasbert.optimizers import AdamW, WarmupDecay, layerwise_multipliers


@dataclass(frozen=True)
class Recipe:
    """Numbers for fine-tuning one model; change one with `dataclasses.replace`.

    Attributes:
        learning_rate: the highest rate.
        batch_size: texts in a batch.
        epochs: passes over the data. For small data sets (some thousand texts) more help.
        warmup: share of all updates in which the rate rises.
        dropout: for the layer before your own last layer.
        weight_decay: as in `kerasbert.optimizers.AdamW`.
        layer_decay: factor of the rate from a layer to the one below; 1 for none.
        by_uses: whether the rate of a block is divided by the number of layers it serves.
        clip: largest common norm of the gradients.
        source: where the numbers come from.
        note: what the source does not say about this model, or "".

    Example:
        >>> from kerasbert.training import Recipe
        >>> Recipe(2e-5, batch_size=32).steps(examples=1000)
        96

    Source: each recipe names its own, in `source`.
    """

    learning_rate: float
    batch_size: int = 32
    epochs: int = 3
    warmup: float = 0.1
    dropout: float = 0.1
    weight_decay: float = 0.01
    layer_decay: float = 1.0
    by_uses: bool = False
    clip: float = 1.0
    source: str = ""
    note: str = ""

    def steps(self, examples):
        """Returns the number of updates for so many training examples."""
        check_integer("examples", examples, minimum=1)
        return self.epochs * math.ceil(examples / self.batch_size)

    def optimizer(self, model, steps):
        """Returns a `kerasbert.optimizers.AdamW` whose rate rises, then falls to 0.

        Args:
            model: the model it is for, which decides the rates by depth.
            steps: number of all updates, for example of `steps`.

        Raises:
            ConfigError: if `steps` is no positive integer.
            KerasbertError: if rates by depth are asked for and the model has no encoder.
        """
        check_integer("steps", steps, minimum=1)
        rate = WarmupDecay(
            self.learning_rate, total_steps=steps, warmup_steps=round(self.warmup * steps)
        )
        multipliers = None
        if self.layer_decay != 1.0 or self.by_uses:
            multipliers = layerwise_multipliers(model, self.layer_decay, by_uses=self.by_uses)
        return AdamW(
            rate,
            weight_decay=self.weight_decay,
            global_clipnorm=self.clip,
            multipliers=multipliers,
        )


_BERT = "Devlin et al. 2018 (arXiv:1810.04805), appendix A.3: rates 2e-5 to 5e-5, 2 to 4 epochs"
_ALBERT = "Lan et al. 2019 (arXiv:1909.11942), table 14; google-research/albert run_glue.sh"
_ALBERT_ZH = "brightmart/albert_zh, README"
_ELECTRA = "Clark et al. 2020 (arXiv:2003.10555), appendix B, fine-tuning"
_ROBERTA = "Liu et al. 2019 (arXiv:1907.11692), table 10: rates 1e-5 to 3e-5"

# For each family the recipes by hidden size.
_RECIPES = {
    "bert": {
        # google-research/bert's README of the 24 smaller models tries 3e-5 to 3e-4, 4 epochs.
        256: Recipe(1e-4, epochs=4, source="Turc et al. 2019 (arXiv:1908.08962); " + _BERT),
        768: Recipe(3e-5, source=_BERT),
        # Its README: large models are unstable on small data sets; the lowest rate.
        1024: Recipe(2e-5, source=_BERT),
    },
    "albert": {
        # tiny, 4 layers of 312: the README's command has 1e-4, batches of 64 and 5 epochs.
        312: Recipe(1e-4, batch_size=64, epochs=5, source=_ALBERT_ZH),
        # small, 6 layers of 384.
        384: Recipe(1e-4, epochs=5, source="bert4keras examples/task_sentiment_albert.py"),
        # The table's rates, for xxlarge, are from 1e-5 (CoLA, SST-2, QNLI) to 5e-5 (QQP);
        # the smaller ones train with the upper, the larger with the lower of them.
        768: Recipe(2e-5, source=_ALBERT),
        1024: Recipe(1e-5, source=_ALBERT),
        # Users report collapse above it: google-research/google-research issue 151.
        2048: Recipe(5e-6, source=_ALBERT + "; google-research/google-research#151"),
        4096: Recipe(1e-5, source=_ALBERT),
    },
    "electra": {
        256: Recipe(3e-4, weight_decay=0.0, layer_decay=0.8, source=_ELECTRA),
        768: Recipe(1e-4, weight_decay=0.0, layer_decay=0.8, source=_ELECTRA),
        1024: Recipe(5e-5, weight_decay=0.0, layer_decay=0.9, source=_ELECTRA),
    },
    "roberta": {
        768: Recipe(2e-5, epochs=10, warmup=0.06, weight_decay=0.1, source=_ROBERTA),
        1024: Recipe(1e-5, epochs=10, warmup=0.06, weight_decay=0.1, source=_ROBERTA),
    },
    "gpt": {
        768: Recipe(
            6.25e-5, warmup=0.002, source="Radford et al. 2018 (the report of GPT), section 4.1"
        )
    },
}


def recipe_for(model):
    """Returns the numbers for fine-tuning a model, by its family and hidden size.

    A size that is not in the table gets the recipe of the nearest, and a family that is not
    gets BERT's: `note` says so.

    Args:
        model: Keras model that holds one encoder of ours.

    Returns:
        A `Recipe`.

    Raises:
        KerasbertError: if there is not exactly one encoder.
        ConfigError: for T5, which is trained from text to text, with other optimizers.

    Example:
        >>> from kerasbert.training import recipe_for
        >>> recipe = recipe_for(model)
        >>> model.compile(recipe.optimizer(model, recipe.steps(10000)), "mse")
        >>> recipe.batch_size, recipe.epochs
        (64, 5)

    Source: see `Recipe.source` of each.
    """
    config = find_encoder(model).config
    if config.family == "t5":
        raise ConfigError(
            "There is no recipe for the family 't5': its authors train it from text to text, "
            "with a constant rate of 1e-3 and Adafactor.\n"
            "Expected an encoder or a GPT.\n"
            "Compile with kerasbert.optimizers.AdaFactor(learning_rate=1e-3)."
        )
    return nearest_recipe(config.family, config.hidden_size)


def nearest_recipe(family, size):
    """Returns the `Recipe` of the size of a family that is nearest by ratio.

    Args:
        family: such as "bert"; one that has no recipes gets BERT's.
        size: hidden size.
    """
    known = family if family in _RECIPES else "bert"
    sizes = _RECIPES[known]
    nearest = min(sizes, key=lambda other: abs(math.log(other / size)))
    if (known, nearest) == (family, size):
        return sizes[nearest]
    return replace(
        sizes[nearest],
        note=f"These are the numbers for {known}, hidden size {nearest}; this model is "
        f"{family}, {size}.",
    )

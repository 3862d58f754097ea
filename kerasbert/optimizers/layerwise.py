"""Learning rates by depth: small ones below, where what was learnt before is most general."""

import re

from kerasbert.errors import check_number
from kerasbert.models.view import find_encoder


def layerwise_multipliers(model, decay=0.8, *, by_uses=False):
    """Returns the multiplier of every layer for layer-wise learning-rate decay.

    Embeddings have depth 0, the blocks 1 … L, everything behind them (the model's heads and
    your own layers) L + 2: a layer's multiplier is `decay ** (L + 2 - depth)`. A block that is
    shared by many depths gets the mean of what it would get at each.

    Args:
        model: a Keras model that holds one encoder of ours. Of an encoder with a decoder, the
            blocks of both are counted from their own embeddings.
        decay: from 0 to 1. ELECTRA has 0.8, for its large model 0.9.
        by_uses: whether to divide a shared block's multiplier by its number of uses: its
            gradient is a sum over them, and one step moves the model at all of them. With
            `decay=1` this is all that is done.

    Returns:
        Dict for the argument `multipliers` of every optimizer here.

    Raises:
        ConfigError: for a `decay` out of its range.
        KerasbertError: if there is not exactly one encoder.

    Example:
        >>> multipliers = layerwise_multipliers(model, 0.8)
        >>> model.compile(AdamW(1e-4, multipliers=multipliers), "mse")

    Source: Clark et al. 2020 (arXiv:2003.10555), google-research/electra
    model/optimization.py, `_get_layer_lrs`.
    """
    check_number("decay", decay, above=0, most=1)
    view = find_encoder(model)
    multipliers, deepest = {}, 0
    for stack in view.config.stacks:
        depths = _depths(view, stack)
        last = 1 + max((index for indexes in depths.values() for index in indexes), default=-1)
        deepest = max(deepest, last)
        for name, indexes in depths.items():
            rates = [decay ** (last + 1 - index) for index in indexes]
            multipliers[name] = sum(rates) / len(rates) / (len(rates) if by_uses else 1)
    for layer in view.model.layers:
        if "Embedding-" in layer.name and layer.name not in multipliers:
            multipliers[layer.name] = decay ** (deepest + 2)
    return {f"(^|/){re.escape(name)}/": value for name, value in multipliers.items()}


def _depths(view, stack):
    """Dict from the name of each layer of a stack's blocks to the depths it serves."""
    depths = {}
    for part in view.config.stacks[stack].layers:
        for index, name in enumerate(view.part_names(part, stack=stack)):
            if view.has_layer(name):
                depths.setdefault(name, []).append(index)
    # A model that was cut at some hidden state has only the first depths.
    return {view.full_name(n): d[: len(view.calls(n))] for n, d in depths.items()}

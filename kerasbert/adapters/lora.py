"""Adds low-rank adapters to a finished model, and merges them into its weights."""

import math

from kerasbert.adapters.sites import check_depths, check_targets, sites_of
from kerasbert.errors import KerasbertError, check_integer, listing
from kerasbert.layers import LowRankAdapter
from kerasbert.layers.low_rank import checked_alpha
from kerasbert.models.copying import GraphCopy
from kerasbert.models.unsharing import UnsharedCopy
from kerasbert.models.view import find_encoder
from kerasbert.weights.pairing import relative_weights


def add_lora(
    model,
    rank=8,
    alpha=None,
    targets=("query", "value"),
    layers=None,
    train_heads=True,
    verbose=1,
):
    """Returns a copy of a model in which only low-rank adapters and heads are trained.

    Each chosen kernel W of each layer gets an adapter and then acts as `W + alpha / rank * A B`.
    A block that an ALBERT shares gets adapters of their own for each of its uses. The copy
    gives the same output until it is trained. It is not compiled: an optimizer takes its list
    of variables when it is built, so adapters have to be there before.

    The copy saves and loads as any model does, adapters included; `save_lora` writes the
    adapters alone and `merge_lora` makes a plain model of it again.

    Args:
        model: a functional or sequential Keras model that holds one encoder of kerasbert.
        rank: number of columns of A.
        alpha: default is `rank`, a factor of 1.
        targets: names of dense layers: "query", "key", "value", "attention_output",
            "intermediate", "feed_forward_output"; for a gated attention unit "i_dense",
            "o_dense".
        layers: the layers (calls of a block, from 0) that get adapters; default all.
        train_heads: whether what stands on the encoder is trained too, so far as it was.
        verbose: 0 for silence; otherwise one line says how much is trained.

    Returns:
        A new `keras.Model`; `model` is left as it is.

    Raises:
        ConfigError: if a size, a name or a layer is wrong.
        KerasbertError: if the model holds no single encoder, has adapters already, or layers
            that cannot be copied.

    Example:
        >>> small = kerasbert.adapters.add_lora(model, rank=2, targets=("query", "value"))
        LoRA of rank 2 on query, value of 3 layers: 768 of ... parameters are trained (...
        >>> small.compile("adam", "mse")

    Source: Hu et al. 2021 (arXiv:2106.09685).
    """
    view = find_encoder(model)
    sites = sites_of(view)
    check_integer("rank", rank, minimum=1)
    alpha = checked_alpha(rank if alpha is None else alpha)
    targets, depths = check_targets(targets, sites), check_depths(layers, sites)
    if any(site.layer.adapters for site in sites):
        raise KerasbertError(
            f"{model.name!r} has adapters already.\nExpected a model without.\n"
            "Merge them with merge_lora first."
        )
    copy = _AdaptedCopy(sites, {"rank": rank, "alpha": alpha}, targets, depths)
    adapted = copy.make(model)
    copy.copy_weights()
    copy.freeze(_operations_below(view, sites), train_heads)
    if verbose:
        print(_headline(adapted, rank, targets, depths))
    return adapted


class _AdaptedCopy(GraphCopy):
    """A copy of one model, in which dense layers of the blocks have adapters."""

    def __init__(self, sites, sizes, targets, depths):
        super().__init__()
        self.adapters, self.depths = {}, {}
        for site in sites:
            uses = [depth for depth in site.depths if depth in depths]
            names = [n for target in targets for n in site.targets.get(target, ())]
            if uses and names:
                self.adapters[site.layer] = {name: {**sizes, "uses": uses} for name in names}
                self.depths[site.layer] = site.depths
        self._uses = {}  # from a new layer to the numbers of its next calls

    def clone(self, layer):
        """Returns a copy of a layer, with its adapters."""
        if layer not in self.adapters:
            return super().clone(layer)
        twin = self.twin(layer, adapters=self.adapters[layer])
        self._uses[twin] = iter(self.depths[layer])
        return twin

    def call(self, layer, *args, **kwargs):
        """Calls a copy and says at which depth."""
        # Keras runs through the graph in order, so the n-th call of a block is its n-th depth.
        depth = next(self._uses.get(layer, iter(())), None)
        if depth is not None:
            kwargs["adapter"] = depth
        return super().call(layer, *args, **kwargs)

    def copy_layer(self, old, new):
        """Gives a layer with adapters the weights of the one without."""
        if old in self.adapters:
            assign_by_path(old, new)
        else:
            super().copy_layer(old, new)

    def freeze(self, below, train_heads):
        """Leaves only adapters trainable, and heads if they are to be."""
        for old, new in self.copies:
            if old in self.adapters:
                new.trainable = True
                for part in new._flatten_layers(include_self=False, recursive=False):
                    part.trainable = isinstance(part, LowRankAdapter)
            elif old in below or not train_heads:
                new.trainable = False


def merge_lora(model):
    """Returns a copy of a model in which the adapters are added to the kernels they stand at.

    It has plain weights, so it can be saved as a checkpoint, quantised or given new adapters. A
    block that is shared becomes one of its own for each layer, as `unshare` makes them. The
    copy is not compiled, and all of the encoder is trainable again.

    Args:
        model: a model from `add_lora` or `load_lora`, also reloaded or extended.

    Returns:
        A new `keras.Model`; `model` is left as it is.

    Raises:
        KerasbertError: if the model has no adapters, or they stand at quantised kernels.

    Example:
        >>> adapted = kerasbert.adapters.add_lora(model, verbose=0)
        >>> merged = kerasbert.adapters.merge_lora(adapted)
    """
    view = find_encoder(model)
    sites = [site for site in sites_of(view) if site.layer.adapters]
    if not sites:
        raise KerasbertError(
            f"{model.name!r} has no adapters.\nExpected a model from add_lora or load_lora."
        )
    quantised = [
        f"{site.layer.name}/{name}"
        for site in sites
        for name in site.layer.adapters
        if site.dense(name).quantization_mode
    ]
    if quantised:
        raise KerasbertError(
            f"{model.name!r} has adapters at quantised kernels: {listing(quantised)}.\n"
            "Expected plain ones: the sum would be rounded to the steps of the old kernel.\n"
            "Load the adapters (save_lora, load_lora) into the model as it was before, merge, "
            "then quantise."
        )
    copy = _MergedCopy(view, _config_without_sharing(view.config, sites))
    merged = copy.make(model)
    copy.copy_weights()
    below = _operations_below(view, sites_of(view))
    for old, new in copy.copies:
        if old in below:
            for part in new._flatten_layers():
                part.trainable = True
    return merged


class _MergedCopy(UnsharedCopy):
    """A copy of one model, in which the kernels hold what adapters added to them."""

    def __init__(self, view, config):
        super().__init__(view, config)
        self._adapted = {site.layer for site in sites_of(view)}
        self._uses = {}  # from a new layer to the number of the use it stands for

    def twin(self, layer, **changes):
        """Returns a copy of a layer without adapters."""
        if layer in self._adapted:
            changes["adapters"] = None
        return super().twin(layer, **changes)

    def call(self, layer, *args, adapter=None, **kwargs):
        """Calls the copy that serves this depth."""
        layer = self.successor(layer)
        self._uses.setdefault(layer, adapter)
        return layer(*args, **kwargs)

    def copy_layer(self, old, new):
        """Gives a layer its weights, and kernels the sum with their adapters."""
        if old not in self._adapted:
            super().copy_layer(old, new)
            return
        assign_by_path(old, new)
        parts = {part.name: part for part in new._flatten_layers(include_self=False)}
        for name in old.adapters:
            adapter = old.adapter_of(name, self._uses[new])
            if adapter is not None:
                kernel = parts[name].kernel
                kernel.assign_add(adapter.product())


def assign_by_path(old, new):
    """Assigns the weights of one layer to those of another that have the same path in it."""
    values = relative_weights(old)
    for path, weight in relative_weights(new).items():
        if path in values:
            weight.assign(values[path].value)


def _config_without_sharing(config, sites):
    """The configuration in which every layer of a part with adapters is one of its own."""
    parts = {site.part for site in sites if len(site.depths) > 1}
    if not parts:
        return config
    partly = config.unshare is not None or config.unshare_layers is not None
    unshare = "all" if partly or len(parts) > 1 else next(iter(parts))
    return config.replace(unshare=unshare, unshare_layers=None)


def _operations_below(view, sites):
    """All operations that lead to the last hidden states, and the norms behind these."""
    nodes = [node for site in sites for node in view.calls_of(site.layer)]
    seen = set()
    while nodes:
        node = nodes.pop()
        if node not in seen:
            seen.add(node)
            histories = [tensor._keras_history for tensor in node.input_tensors]
            nodes += [h.operation._inbound_nodes[h.node_index] for h in histories]
    found = {node.operation for node in seen}
    norms = {layer for layer in view.model.layers if layer.name.endswith("Output-Norm")}
    return found | norms


def _headline(model, rank, targets, depths):
    trained = sum(math.prod(weight.shape) for weight in model.trainable_weights)
    total = model.count_params()
    return (
        f"LoRA of rank {rank} on {', '.join(targets)} of {len(depths)} layers: {trained:,} of "
        f"{total:,} parameters are trained ({trained / total:.2%}). Compile the model before fit."
    )

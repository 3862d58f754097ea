"""Where adapters can stand: the dense layers inside the blocks of an encoder."""

import re
from dataclasses import dataclass

import keras

from kerasbert.errors import ConfigError, KerasbertError, did_you_mean, listing
from kerasbert.layers.composite import CompositeLayer


@dataclass(frozen=True)
class Site:
    """One layer of a block, and where it is called.

    Attributes:
        layer: the layer.
        stack: "encoder" or "decoder".
        part: its part of the block, such as "attention".
        depths: tuple of the depths that it serves, in the order of its calls.
    """

    layer: CompositeLayer
    stack: str
    part: str
    depths: tuple

    @property
    def targets(self):
        """Dict from what users call a dense layer to the names of the sub-layers it stands for."""
        found = {}
        for dense in self.layer._flatten_layers(include_self=False, recursive=False):
            if isinstance(dense, keras.layers.Dense):
                found.setdefault(_target(self.part, dense.name), []).append(dense.name)
        return found

    def dense(self, name):
        """Returns the dense sub-layer called `name`."""
        return next(
            layer
            for layer in self.layer._flatten_layers(include_self=False, recursive=False)
            if layer.name == name
        )

    def adapters(self):
        """Yields (depth, name of the dense sub-layer, its adapter) of all that are used."""
        for name in self.layer.adapters:
            for depth in self.depths:
                adapter = self.layer.adapter_of(name, depth)
                if adapter is not None:
                    yield depth, name, adapter

    def key(self, depth, name):
        """Returns what a file calls the dense sub-layer `name` at a depth."""
        return f"{self.stack}/{depth}/{self.part}/{name}"


def _target(part, name):
    # Both halves of a block have an "output"; a gated one has "intermediate_0", "…_1".
    if name == "output":
        return "feed_forward_output" if part == "feed_forward" else "attention_output"
    return re.sub(r"_\d+$", "", name)


def sites_of(view):
    """Returns the `Site` of every layer in the blocks of an encoder.

    Args:
        view: its `EncoderView`.

    Raises:
        KerasbertError: if there is none, or a shared layer is called outside the blocks too.
    """
    found = {}
    for stack in view.config.stacks.values():
        for part in stack.layers:
            for depth, name in enumerate(view.part_names(part, stack=stack.name)):
                if view.has_layer(name) and isinstance(view.layer(name), CompositeLayer):
                    found.setdefault((view.layer(name), name, stack.name, part), []).append(depth)
    sites = []
    for (layer, name, stack, part), depths in found.items():
        calls = len(view.calls(name))
        if calls > len(depths) > 1:
            raise KerasbertError(
                f"{layer.name!r} serves {len(depths)} layers of {view.model.name!r} and is called "
                f"{calls - len(depths)} times more.\n"
                "Expected no other calls: it is not clear which adapter they would have.\n"
                "Add LoRA first, and what is on top of it later."
            )
        sites.append(Site(layer, stack, part, tuple(depths[:calls])))
    if not sites:
        raise KerasbertError(
            f"{view.model.name!r} has no blocks of kerasbert.\n"
            "Expected a model whose blocks build_transformer_model made."
        )
    return sites


def check_targets(targets, sites):
    """Returns `targets` as a tuple of names that the model has.

    Raises:
        ConfigError: names the first that it has not.
    """
    known = list(dict.fromkeys(name for site in sites for name in site.targets))
    names = (targets,) if isinstance(targets, str) else tuple(targets)
    for name in names:
        if name not in known:
            raise ConfigError(
                f"targets has {name!r}.{did_you_mean(name, known)}\n"
                f"Expected names among: {listing(known)}."
            )
    if not names:
        raise ConfigError(f"targets={targets!r}.\nExpected names among: {listing(known)}.")
    return tuple(name for name in known if name in names)


def check_depths(layers, sites):
    """Returns `layers` as a tuple of depths, all of them for None.

    Raises:
        ConfigError: names the first that the model has not.
    """
    count = max(max(site.depths) for site in sites) + 1
    if layers is None:
        return tuple(range(count))
    chosen = tuple(layers)
    for depth in chosen:
        if isinstance(depth, bool) or not isinstance(depth, int) or not 0 <= depth < count:
            raise ConfigError(
                f"layers has {depth!r}.\nExpected integers from 0 to {count - 1}, the calls of "
                "the blocks in order.\nLeave layers away to adapt all of them."
            )
    if not chosen:
        raise ConfigError("layers is empty.\nExpected at least one layer, or None for all.")
    return tuple(sorted(set(chosen)))

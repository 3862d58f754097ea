"""Which block runs at which depth.

A depth is one call of a block. ALBERT's layers fall into groups, and a layer may call
several inner blocks; a block is shared by all depths with the same (group, inner)
position unless some of them were given copies of their own.
"""

from dataclasses import dataclass
from numbers import Integral

from kerasbert.errors import ConfigError, did_you_mean

PARTS = ("attention", "feed_forward")


@dataclass(frozen=True)
class Depth:
    """One call of a block: its running number and where ALBERT's code would look for it."""

    index: int
    layer: int
    inner: int
    group: int


def depth_plan(num_layers, inner_group_num, num_groups):
    """Lists the depths of a model in the order of their calls.

    Args:
        num_layers: number L of layers.
        inner_group_num: blocks called one after the other inside each layer.
        num_groups: number G of groups the layers fall into.

    Returns:
        A tuple of L * inner_group_num `Depth`s.

    Example:
        >>> [depth.group for depth in depth_plan(4, 1, 2)]
        [0, 0, 1, 1]
    """
    return tuple(
        # The float division is Google's: for some L it skips groups, and checkpoints follow it.
        Depth(layer * inner_group_num + inner, layer, inner, int(layer / num_layers * num_groups))
        for layer in range(num_layers)
        for inner in range(inner_group_num)
    )


def groups_for_separate_layers(num_layers):
    """The smallest number of groups, at least L, for which no two of L layers share a group.

    It is L itself but where the float arithmetic of `depth_plan` skips groups (L = 22, 23, …).

    Example:
        >>> groups_for_separate_layers(12)
        12
    """
    num_groups = num_layers
    while len({depth.group for depth in depth_plan(num_layers, 1, num_groups)}) < num_layers:
        num_groups += 1
    return num_groups


@dataclass(frozen=True)
class BlockSharing:
    """Says which attention and which feed-forward layer serves each depth.

    Attributes:
        depths: the plan of `depth_plan`.
        unshare: None, "attention", "feed_forward" or "all": the parts that get copies.
        unshare_layers: the layers that get them; None for every layer. Given alone, it
            un-shares both parts.

    Raises:
        ConfigError: if `unshare` is unknown or a layer does not exist.

    Example:
        >>> BlockSharing(depth_plan(3, 1, 1), "attention").names("attention")
        ('Transformer-0', 'Transformer-1', 'Transformer-2')
    """

    depths: tuple
    unshare: str | None = None
    unshare_layers: tuple | None = None

    def __post_init__(self):
        known = (*PARTS, "all")
        if self.unshare is not None and self.unshare not in known:
            raise ConfigError(
                f"unshare={self.unshare!r}.{did_you_mean(self.unshare, known)}\n"
                f"Expected None or one of: {', '.join(known)}."
            )
        if self.unshare_layers is None:
            return
        num_layers = self.depths[-1].layer + 1
        layers = self.unshare_layers
        if not isinstance(layers, tuple) or not all(
            isinstance(layer, Integral) and not isinstance(layer, bool) and 0 <= layer < num_layers
            for layer in layers
        ):
            raise ConfigError(
                f"unshare_layers={layers!r}.\n"
                f"Expected a list of layer numbers from 0 to {num_layers - 1}."
            )

    def is_unshared(self, depth, part):
        """Whether `part` ("attention" or "feed_forward") has a copy of its own at `depth`."""
        unshare = self.unshare
        if unshare is None:
            unshare = None if self.unshare_layers is None else "all"
        in_layer = self.unshare_layers is None or depth.layer in self.unshare_layers
        return in_layer and unshare in (part, "all")

    def names(self, part):
        """Returns, for every depth, the name of the block that serves `part` there.

        Depths with the same name are served by one and the same object.
        """
        single = all(depth.group == 0 and depth.inner == 0 for depth in self.depths)
        names = []
        for depth in self.depths:
            if self.is_unshared(depth, part):
                names.append(f"Transformer-{depth.index}")
            elif single:
                names.append("Transformer")
            else:
                names.append(f"Transformer-group-{depth.group}-inner-{depth.inner}")
        return tuple(names)


@dataclass(frozen=True)
class Stack:
    """The blocks of an encoder or a decoder, and the names of their layers.

    Attributes:
        name: "encoder" or "decoder".
        prefix: what the names of its layers begin with, such as "Decoder-".
        sharing: its `BlockSharing`.
        layers: dict from each part of a block, in the order of its calls, to the end of the
            name of its layer.

    Example:
        >>> sharing = BlockSharing(depth_plan(2, 1, 1), "all")
        >>> Stack("encoder", "", sharing, {"feed_forward": "FeedForward"}).names("feed_forward")
        ('Transformer-0-FeedForward', 'Transformer-1-FeedForward')
    """

    name: str
    prefix: str
    sharing: BlockSharing
    layers: dict

    def names(self, part):
        """Returns the name of the layer that serves `part` at every depth.

        A part that is not among `layers`, of a user's own block, is itself the end of the name.
        """
        end = self.layers.get(part, part)
        return tuple(f"{self.prefix}{block}-{end}" for block in self.sharing.names(part))

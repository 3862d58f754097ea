"""Gives the layers of a finished ALBERT blocks of their own."""

from kerasbert.depth import PARTS
from kerasbert.errors import KerasbertError
from kerasbert.layers import AttentionMask
from kerasbert.models.copying import GraphCopy
from kerasbert.models.view import find_encoder


def unshare(model, unshare="all", unshare_layers=None):
    """Returns a copy of a shared ALBERT whose layers have blocks of their own.

    Every new block starts as an exact copy of the block it replaces, so both models give
    the same output until they are trained. Layers of your own on top are copied with their
    weights. The copy is not compiled.

    Args:
        model: a functional or sequential Keras model that holds one ALBERT of kerasbert, for
            example after fine-tuning.
        unshare: "all", "attention" or "feed_forward": what gets copies of its own.
        unshare_layers: the layers that get them; default all.

    Returns:
        A new `keras.Model`; `model` is left as it is.

    Raises:
        KerasbertError: if the model holds no single ALBERT, or layers that cannot be copied
            (unmerged LoRA), or if a part that is already un-shared would be shared again.
        ConfigError: if `unshare` or a layer number is unknown.

    Example:
        >>> wider = unshare(model)
        >>> wider.compile("adam", "sparse_categorical_crossentropy")
    """
    view = find_encoder(model)
    if view.config.family != "albert":
        raise KerasbertError(
            f"{model.name!r} holds a {view.config.family} encoder, which shares no blocks.\n"
            "Expected a model of the albert family."
        )
    layers = unshare_layers if unshare_layers is None else tuple(unshare_layers)
    config = view.config.replace(unshare=unshare, unshare_layers=layers)
    _refuse_sharing_again(view.config, config)
    copy = UnsharedCopy(view, config)
    unshared = copy.make(model)
    copy.copy_weights()
    return unshared


class UnsharedCopy(GraphCopy):
    """A copy in which a block layer is replaced by one or more copies of it.

    Args:
        view: `EncoderView` of the model.
        config: the `ModelConfig` of the copy, which says what is un-shared.
    """

    def __init__(self, view, config):
        super().__init__()
        self.view = view
        self.config = config
        self.blocks = view.block_layers
        self.successors = {}  # from the first copy of a block layer to those of all its calls

    def clone(self, layer):
        """Returns the first copy of a layer, and writes the new sharing on the label."""
        if isinstance(layer, AttentionMask) and layer.label is not None:
            label = {**layer.label, "config": self.config.to_dict()}
            return self.twin(layer, label=label)
        if layer not in self.blocks:
            return super().clone(layer)
        names = [self._name_at(layer, depth) for depth in self.blocks[layer]]
        twins = {name: self.twin(layer, name=name) for name in dict.fromkeys(names)}
        self.successors[twins[names[0]]] = iter([twins[name] for name in names])
        return twins[names[0]]

    def call(self, layer, *args, **kwargs):
        """Calls the copy that serves the depth of this call."""
        return super().call(self.successor(layer), *args, **kwargs)

    def successor(self, layer):
        """Returns the copy that serves the next call of the first copy of a layer."""
        # Keras runs through the graph in order, so the n-th call of a block is its n-th depth.
        # Calls beyond, of a user who puts a block on top, find any copy equal.
        return next(self.successors.get(layer, iter(())), layer)

    def _name_at(self, layer, depth):
        part = next(
            part for part in PARTS if layer.name.endswith(self.view.part_names(part)[depth])
        )
        return self.view.prefix + self.view.part_names(part, self.config)[depth]


def _refuse_sharing_again(old, new):
    for part in PARTS:
        for depth in old.depths:
            if old.sharing.is_unshared(depth, part) and not new.sharing.is_unshared(depth, part):
                raise KerasbertError(
                    f"Layer {depth.layer} already has a {part} layer of its own, which "
                    f"unshare={new.unshare!r}, unshare_layers={new.unshare_layers!r} would share "
                    "again.\nExpected a model that is shared there.\n"
                    "Pass unshare='all' to un-share the rest too."
                )

"""Gives the layers of a finished ALBERT blocks of their own."""

import keras

from kerasbert.depth import PARTS
from kerasbert.errors import KerasbertError, listing
from kerasbert.layers import AttentionMask
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
    if isinstance(model, keras.Sequential) and model.built:
        model = keras.Model(model.inputs, model.outputs, name=model.name)
    view = find_encoder(model)
    if view.config.family != "albert":
        raise KerasbertError(
            f"{model.name!r} holds a {view.config.family} encoder, which shares no blocks.\n"
            "Expected a model of the albert family."
        )
    layers = unshare_layers if unshare_layers is None else tuple(unshare_layers)
    config = view.config.replace(unshare=unshare, unshare_layers=layers)
    _refuse_sharing_again(view.config, config)
    return _Copy(model, view, config).make()


class _Copy:
    """One copy of one model, in which a block layer is replaced by one or more copies."""

    def __init__(self, model, view, config):
        self.model = model
        self.view = view
        self.config = config
        self.copies = []  # pairs (layer of the model, layer of the copy)
        self.successors = {}  # from the first copy of a block layer to those of its later calls

    def make(self):
        try:
            copy = keras.models.clone_model(
                self.model,
                clone_function=self._clone,
                call_function=self._call,
                recursive=True,
            )
        except ValueError as error:
            raise KerasbertError(
                f"Cannot copy {self.model.name!r}: {error}.\n"
                "Expected a functional model: keras.Model(inputs, outputs)."
            ) from error
        for old, new in self.copies:
            self._copy_weights(old, new)
        find_encoder(copy).block_layers  # noqa: B018 - every new block must be in the graph
        return copy

    def _clone(self, layer):
        if isinstance(layer, AttentionMask) and layer.label is not None:
            settings = layer.get_config()
            settings["label"] = {**layer.label, "config": self.config.to_dict()}
            return layer.from_config(settings)
        depths = self.view.block_layers.get(layer)
        if depths is None:
            return self._twin(layer, layer.name)
        names = [self._name_at(layer, depth) for depth in depths]
        twins = {name: self._twin(layer, name) for name in dict.fromkeys(names)}
        calls = [twins[name] for name in names]
        self.successors[calls[0]] = iter(calls)
        return calls[0]

    def _call(self, layer, *args, **kwargs):
        # Keras runs through the graph in order, so the n-th call of a block is its n-th depth.
        layer = next(self.successors[layer]) if layer in self.successors else layer
        return layer(*args, **kwargs)

    def _name_at(self, layer, depth):
        for part in PARTS:
            if self.view.layer(self.view.part_names(part)[depth]) is layer:
                return self.view.prefix + self.view.part_names(part, self.config)[depth]
        raise AssertionError(f"{layer.name} is no block layer")

    def _twin(self, layer, name):
        twin = layer.from_config({**layer.get_config(), "name": name})
        self.copies.append((layer, twin))
        return twin

    def _copy_weights(self, old, new):
        old_shapes = [tuple(weight.shape) for weight in old.weights]
        if old_shapes != [tuple(weight.shape) for weight in new.weights]:
            raise KerasbertError(
                f"Layer {old.name!r} holds weights that a copy does not have: "
                f"{listing(weight.path for weight in old.weights)}.\n"
                "Expected plain layers.\nMerge LoRA or undo quantisation first."
            )
        new.set_weights(old.get_weights())


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

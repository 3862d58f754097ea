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
    view = find_encoder(model)
    if view.config.family != "albert":
        raise KerasbertError(
            f"{model.name!r} holds a {view.config.family} encoder, which shares no blocks.\n"
            "Expected a model of the albert family."
        )
    layers = unshare_layers if unshare_layers is None else tuple(unshare_layers)
    config = view.config.replace(unshare=unshare, unshare_layers=layers)
    _refuse_sharing_again(view.config, config)
    copy = _Copy(view, config)
    unshared = copy.make(model)
    copy.copy_weights()
    return unshared


class _Copy:
    """One copy of one model, in which a block layer is replaced by one or more copies."""

    def __init__(self, view, config):
        self.view = view
        self.config = config
        self.blocks = view.block_layers
        self.copies = []  # pairs (layer of the model, layer of the copy)
        self.successors = {}  # from the first copy of a block layer to those of all its calls

    def make(self, model):
        """Returns the copy of `model`, which may also be a part of the whole."""
        # A new model over the same graph is not compiled, so no loss has to be copied, and
        # makes a sequential model functional.
        if isinstance(model, keras.Sequential):
            bare = keras.Model(model.inputs[0], model.outputs[0], name=model.name)
        else:
            bare = keras.Model(model.input, model.output, name=model.name)
        return keras.models.clone_model(bare, clone_function=self._clone, call_function=self._call)

    def copy_weights(self):
        """Gives every layer of the copy the weights of its model."""
        for old, new in self.copies:
            if [tuple(w.shape) for w in old.weights] != [tuple(w.shape) for w in new.weights]:
                raise KerasbertError(
                    f"Layer {old.name!r} holds weights that a copy does not have: "
                    f"{listing(weight.path for weight in old.weights)}.\n"
                    "Expected plain layers.\nMerge LoRA or undo quantisation first."
                )
            new.set_weights(old.get_weights())
            for old_part, new_part in zip(
                old._flatten_layers(), new._flatten_layers(), strict=True
            ):
                new_part.trainable = old_part.trainable

    def _clone(self, layer):
        if not isinstance(layer, keras.layers.Layer):
            return layer  # an operation such as x[:, 0]: it has no state
        if isinstance(layer, AttentionMask) and layer.label is not None:
            settings = layer.get_config()
            settings["label"] = {**layer.label, "config": self.config.to_dict()}
            copy = layer.from_config(settings)
            copy.dialects = layer.dialects
            return copy
        if isinstance(layer, keras.Sequential) or hasattr(layer, "_nodes_by_depth"):
            return self.make(layer)  # a model used as a layer
        if layer not in self.blocks:
            return self._twin(layer, layer.name)
        names = [self._name_at(layer, depth) for depth in self.blocks[layer]]
        twins = {name: self._twin(layer, name) for name in dict.fromkeys(names)}
        self.successors[twins[names[0]]] = iter([twins[name] for name in names])
        return twins[names[0]]

    def _call(self, layer, *args, **kwargs):
        # Keras runs through the graph in order, so the n-th call of a block is its n-th depth.
        # Calls beyond, of a user who puts a block on top, find any copy equal.
        layer = next(self.successors.get(layer, iter(())), layer)
        return layer(*args, **kwargs)

    def _name_at(self, layer, depth):
        part = next(
            part for part in PARTS if layer.name.endswith(self.view.part_names(part)[depth])
        )
        return self.view.prefix + self.view.part_names(part, self.config)[depth]

    def _twin(self, layer, name):
        """Returns a new layer like `layer`, or, where it cannot be made anew, the layer itself."""
        try:
            twin = layer.from_config({**layer.get_config(), "name": name})
        except (TypeError, ValueError, NotImplementedError) as error:
            if not layer.weights:
                return layer
            raise KerasbertError(
                f"Cannot copy the layer {layer.name!r}: {str(error).splitlines()[0]}\n"
                "Expected layers whose get_config() gives the arguments of their constructor.\n"
                "Give it a complete get_config(), or un-share the encoder before adding it."
            ) from error
        self.copies.append((layer, twin))
        return twin


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

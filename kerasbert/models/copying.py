"""Copies the graph of a model, with other layers in the place of some."""

import keras

from kerasbert.errors import KerasbertError, listing
from kerasbert.layers import AttentionMask


def functional(model):
    """Returns the model, a Sequential one as a functional one over the same layers."""
    if isinstance(model, keras.Sequential):
        return keras.Model(model.inputs[0], model.outputs[0], name=model.name)
    return model


class GraphCopy:
    """One copy of one model, whose layers are new and hold the same numbers.

    Subclasses say what stands in the place of a layer (`clone`) and of a call (`call`).

    Attributes:
        copies: list of pairs (layer of the model, layer of the copy).
    """

    def __init__(self):
        self.copies = []

    def make(self, model):
        """Returns the copy of `model`, which may also be a part of the whole; not compiled."""
        model = functional(model)
        # A new model over the same graph is not compiled, so no loss has to be copied.
        bare = keras.Model(model.input, model.output, name=model.name)
        return keras.models.clone_model(bare, clone_function=self._clone, call_function=self.call)

    def copy_weights(self):
        """Gives every layer of the copy the weights of its model.

        Raises:
            KerasbertError: if a layer holds weights for which its copy has no place.
        """
        for old, new in self.copies:
            self.copy_layer(old, new)

    def copy_layer(self, old, new):
        """Gives one layer of the copy the weights of its model, and freezes what is frozen."""
        if [tuple(w.shape) for w in old.weights] != [tuple(w.shape) for w in new.weights]:
            raise KerasbertError(
                f"Layer {old.name!r} holds weights that a copy does not have: "
                f"{listing(weight.path for weight in old.weights)}.\n"
                "Expected plain layers.\nMerge LoRA or undo quantisation first."
            )
        new.set_weights(old.get_weights())
        for old_part, new_part in zip(old._flatten_layers(), new._flatten_layers(), strict=True):
            new_part.trainable = old_part.trainable

    def clone(self, layer):
        """Returns what stands in the place of a layer."""
        return self.twin(layer)

    def call(self, layer, *args, **kwargs):
        """Calls what `clone` returned, as the model calls the layer."""
        return layer(*args, **kwargs)

    def twin(self, layer, **changes):
        """Returns a new layer like `layer`, or, where it cannot be made anew, the layer itself.

        Args:
            layer: a layer of the model.
            **changes: arguments of its constructor in which the new one differs.

        Raises:
            KerasbertError: if it has weights and cannot be made anew.
        """
        try:
            twin = layer.from_config({**layer.get_config(), **changes})
        except (TypeError, ValueError, NotImplementedError) as error:
            if not layer.weights:
                return layer
            raise KerasbertError(
                f"Cannot copy the layer {layer.name!r}: {str(error).splitlines()[0]}\n"
                "Expected layers whose get_config() gives the arguments of their constructor.\n"
                "Give it a complete get_config(), or change the encoder before adding it."
            ) from error
        if isinstance(layer, AttentionMask):
            twin.dialects = layer.dialects
        self.copies.append((layer, twin))
        return twin

    def _clone(self, layer):
        if not isinstance(layer, keras.layers.Layer):
            return layer  # an operation such as x[:, 0]: it has no state
        if isinstance(layer, keras.Sequential) or hasattr(layer, "_nodes_by_depth"):
            return self.make(layer)  # a model used as a layer
        return self.clone(layer)

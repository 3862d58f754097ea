"""Finds an encoder of ours inside any Keras model: as it was built, extended, or reloaded."""

from dataclasses import dataclass
from numbers import Integral

import keras

from kerasbert.config import ModelConfig
from kerasbert.depth import PARTS
from kerasbert.errors import KerasbertError, listing
from kerasbert.layers import AttentionMask

_LAYER_OF_PART = {"attention": "MultiHeadSelfAttention", "feed_forward": "FeedForward"}


@dataclass(frozen=True)
class EncoderView:
    """One encoder of ours inside a functional model.

    Attributes:
        model: the functional model whose graph the encoder is part of.
        config: the encoder's `ModelConfig`.
        prefix: what its layer names begin with.
    """

    model: keras.Model
    config: ModelConfig
    prefix: str

    def has_layer(self, name):
        """Whether the encoder has a layer called `name`, prefix not counted."""
        return any(layer.name == self.prefix + name for layer in self.model.layers)

    def layer(self, name):
        """Returns the layer called `name`, prefix not counted."""
        return self.model.get_layer(self.prefix + name)

    def part_names(self, part, config=None):
        """Returns, for every depth, the name of its "attention" or "feed_forward" layer.

        With a `config`, the names that the layers would have under that configuration.
        """
        blocks = (config or self.config).sharing.names(part)
        return [f"{block}-{_LAYER_OF_PART[part]}" for block in blocks]

    @property
    def mask_layer(self):
        """The layer that carries the label by which encoders are found."""
        return self.layer("Attention-Mask")

    @property
    def block_layers(self):
        """Dict from each layer of a block to the list of depths (indexes) it serves, in order.

        A model that was cut at some hidden state has only the first depths.
        """
        depths = {}
        for part in PARTS:
            for index, name in enumerate(self.part_names(part)):
                if self.has_layer(name):
                    depths.setdefault(self.layer(name), []).append(index)
        return {
            layer: indexes[: len(_nodes_of(self.model, layer))] for layer, indexes in depths.items()
        }

    @property
    def hidden_states(self):
        """The symbolic hidden states (batch, length, H), input of the first block first."""
        first = self.layer(self.part_names("attention")[0])
        states = [_nodes_of(self.model, first)[0].input_tensors[0]]
        nodes = {}
        for name in self.part_names("feed_forward"):
            if not self.has_layer(name):
                break
            calls = nodes.setdefault(name, iter(_nodes_of(self.model, self.layer(name))))
            node = next(calls, None)
            if node is None:
                break
            states.append(node.output_tensors[0])
        return states


def find_encoder(model):
    """Returns the `EncoderView` of the one encoder in `model`.

    Args:
        model: a functional Keras model that `build_transformer_model` made, or one that
            contains, extends or was reloaded from such a model.

    Raises:
        KerasbertError: if there is none, or more than one.
    """
    views = list(_encoders(model))
    if len(views) == 1:
        return views[0]
    if not views:
        raise KerasbertError(
            f"{_describe(model)} holds no encoder of kerasbert.\n"
            "Expected a model from build_transformer_model, or one that was built on top of it."
        )
    raise KerasbertError(
        f"{_describe(model)} holds {len(views)} encoders, with the prefixes "
        f"{listing(repr(view.prefix) for view in views)}.\n"
        "Expected exactly one.\nPass the sub-model that holds the one you mean."
    )


def hidden_state(model, k):
    """Returns the symbolic hidden state after the k-th block call, also of a shared block.

    `get_layer(name).output` cannot tell the calls of a shared layer apart; this can.

    Args:
        model: a model that holds one encoder of ours, possibly extended or reloaded.
        k: 0 for the input of the first block, 1 … L for the outputs of the blocks (L counts
            block calls: layers x inner blocks), negative to count from the end.

    Returns:
        A symbolic tensor (batch, length, hidden_size) of the model's graph.

    Raises:
        KerasbertError: if there is not exactly one encoder, or no such hidden state.

    Example:
        >>> features = keras.Model(model.inputs, hidden_state(model, -2))
    """
    view = find_encoder(model)
    states = view.hidden_states
    if isinstance(k, bool) or not isinstance(k, Integral):
        raise KerasbertError(f"k={k!r}.\nExpected an integer, the number of a block call.")
    if not -len(states) <= k < len(states):
        raise KerasbertError(
            f"k={k}, but {view.model.name!r} calls its blocks {len(states) - 1} times.\n"
            f"Expected k from {-len(states)} to {len(states) - 1}."
        )
    return states[k]


def _encoders(model):
    if not isinstance(model, keras.Model):
        raise KerasbertError(f"Got {_describe(model)}.\nExpected a Keras model.")
    for layer in model.layers:
        if isinstance(layer, AttentionMask) and layer.label is not None:
            config = ModelConfig.from_label(layer.label["config"])
            yield EncoderView(model, config, layer.label["prefix"])
        elif isinstance(layer, keras.Model):
            yield from _encoders(layer)


def _nodes_of(model, layer):
    """The calls of `layer` inside the graph of `model`, in the order of the graph."""
    # A layer may also have been called outside this model; the model lists only its own calls.
    return [
        node
        for depth in sorted(model._nodes_by_depth, reverse=True)
        for node in model._nodes_by_depth[depth]
        if node.operation is layer
    ]


def _describe(model):
    name = getattr(model, "name", None)
    return f"{type(model).__name__} {name!r}" if name else f"a {type(model).__name__}"

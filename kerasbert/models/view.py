"""Finds an encoder of ours inside any Keras model: as it was built, extended, or reloaded."""

from dataclasses import dataclass
from itertools import takewhile
from numbers import Integral

import keras

from kerasbert.config import ModelConfig
from kerasbert.errors import KerasbertError, listing
from kerasbert.layers import AttentionMask


@dataclass(frozen=True)
class EncoderView:
    """One encoder of ours inside a functional model.

    Attributes:
        model: the functional model whose graph the encoder is part of.
        config: the encoder's `ModelConfig`.
        prefix: what its layer names begin with.
        borrowed: dict from names, prefix not counted, to the full names of layers that were
            taken from another model.
        mask_layer: the layer that carries the label by which encoders are found.
        dialect_names: names of the dialects of the class that built it, if it has its own.
        dialects: these dialects; none in a model that was reloaded.
        state_makers: for each hidden state the name of what computes it, where the blocks are
            a user's own.
    """

    model: keras.Model
    config: ModelConfig
    prefix: str
    borrowed: dict
    mask_layer: AttentionMask
    dialect_names: tuple = ()
    dialects: tuple = ()
    state_makers: tuple = ()

    def full_name(self, name):
        """Returns the name in the model of the layer called `name`, prefix not counted."""
        return self.borrowed.get(name, self.prefix + name)

    def has_layer(self, name):
        """Whether the encoder has a layer called `name`, prefix not counted."""
        full_name = self.full_name(name)
        return any(layer.name == full_name for layer in self.model.layers)

    def layer(self, name):
        """Returns the layer called `name`, prefix not counted."""
        return self.model.get_layer(self.full_name(name))

    def calls(self, name):
        """Returns the calls of the layer called `name` in the graph, in order, as Keras' nodes."""
        return self.calls_of(self.layer(name))

    def calls_of(self, layer):
        """Returns the calls of a layer of the graph, as `calls` does."""
        return _nodes_of(self.model, layer)

    def part_names(self, part, config=None, stack=None):
        """Returns, for every depth, the name of the layer that serves a part of its block.

        Args:
            part: such as "attention" or "feed_forward".
            config: gives the names that the layers would have under that configuration.
            stack: "encoder" or "decoder"; default is the first that the model has.
        """
        stacks = (config or self.config).stacks
        return list(stacks[stack or next(iter(stacks))].names(part))

    @property
    def block_layers(self):
        """Dict from each layer of a block to the list of depths (indexes) it serves, in order.

        A model that was cut at some hidden state has only the first depths.
        """
        depths = {}
        for part in self._parts:
            for index, name in enumerate(self.part_names(part)):
                if self.has_layer(name):
                    depths.setdefault(self.layer(name), []).append(index)
        return {
            layer: indexes[: len(_nodes_of(self.model, layer))] for layer, indexes in depths.items()
        }

    @property
    def _parts(self):
        """The parts of a block of the first stack, in the order of their calls."""
        return list(next(iter(self.config.stacks.values())).layers)

    @property
    def condition_layers(self):
        """The layers, of a user's, that compute the condition of the norms; often none."""
        first = self.layer(self.part_names(self._parts[0])[0])
        arguments = _nodes_of(self.model, first)[0].arguments.kwargs
        tensors, layers = [arguments.get("condition")], []
        while tensors:
            tensor = tensors.pop()
            operation = None if tensor is None else tensor._keras_history.operation
            if operation is not None and operation not in layers:
                layers.append(operation)
                tensors += tensor._keras_history.operation._inbound_nodes[
                    tensor._keras_history.node_index
                ].input_tensors
        return [layer for layer in layers if isinstance(layer, keras.layers.Layer)]

    @property
    def hidden_states(self):
        """The symbolic hidden states (batch, length, H), input of the first block first."""
        if self.state_makers:
            return self._made_states
        first, last = self._parts[0], self._parts[-1]
        first_layer = self.layer(self.part_names(first)[0])
        states = [_nodes_of(self.model, first_layer)[0].input_tensors[0]]
        nodes = {}
        for name in self.part_names(last):
            if not self.has_layer(name):
                break
            calls = nodes.setdefault(name, iter(_nodes_of(self.model, self.layer(name))))
            node = next(calls, None)
            if node is None:
                break
            states.append(node.output_tensors[0])
        return states

    @property
    def _made_states(self):
        operations = {operation.name: operation for operation in self.model.operations}
        nodes = {
            name: iter(_nodes_of(self.model, operations[name]))
            for name in self.state_makers
            if name in operations
        }
        calls = (next(nodes.get(name, iter(())), None) for name in self.state_makers)
        return [node.output_tensors[0] for node in takewhile(lambda node: node, calls)]


def find_encoders(model):
    """Lists the `EncoderView` of every encoder in `model`; see `find_encoder`."""
    return list(_encoders(model))


def find_encoder(model):
    """Returns the `EncoderView` of the one encoder in `model`.

    Args:
        model: a functional Keras model that `build_transformer_model` made, or one that
            contains, extends or was reloaded from such a model.

    Raises:
        KerasbertError: if there is none, or more than one.
    """
    views = find_encoders(model)
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
            label = layer.label
            yield EncoderView(
                model,
                config,
                label["prefix"],
                label["borrowed"],
                layer,
                dialect_names=tuple(label.get("dialects", ())),
                dialects=layer.dialects,
                state_makers=tuple(label.get("states", ())),
            )
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

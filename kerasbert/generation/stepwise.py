"""Runs the graph of a model over a prompt, and then over one new token at a time.

Every layer keeps to the formulas it has in a call of the model; what differs is told here:
where a new token stands, and whom it sees.

Shapes: B rows, L length of the prompt, J new tokens a row (one for each of its slots), M tokens
in the memory, V vocabulary.
"""

import inspect
from dataclasses import dataclass

import keras
from keras import ops

from kerasbert import layers
from kerasbert.errors import ConfigError
from kerasbert.layers.tables import MergingLayer, is_nested

# Layers whose output at a token depends on that token alone.
_TOKEN_WISE = (
    keras.layers.Activation,
    keras.layers.Add,
    keras.layers.Dense,
    keras.layers.Dropout,
    keras.layers.Embedding,
    keras.layers.LayerNormalization,
    keras.layers.Multiply,
    keras.layers.Subtract,
    layers.BiasAdd,
    layers.FeedForward,
    layers.ScaleOffset,
    layers.SingleSegmentEmbedding,
    layers.ZeroPadding,
)

# Functions of Keras by the names of their operations: sums and products of tensors.
_TOKEN_WISE_FUNCTIONS = ("Add", "Subtract", "Multiply", "TrueDivide", "Divide", "Negative")


@dataclass(frozen=True)
class Step:
    """What a step is told, all of it arrays.

    Attributes:
        inputs: dict from the roles of the inputs to int arrays (B, J).
        index: int array (B, J), the places of the new tokens in their text.
        places: int array (B, M), the places of the tokens in the memory.
        visible: bool array (B, J, M), who sees whom in the memory.
    """

    inputs: dict
    index: object
    places: object
    visible: object


class StepwiseModel:
    """A model that is run over a prompt, and then over one new token at a time.

    Args:
        graph: a `DecodingGraph`.

    Raises:
        ConfigError: if it has layers of which it is not known how a single token passes them.
    """

    def __init__(self, graph):
        self.graph = graph
        self._carried = {id(node): index for index, node in enumerate(graph.carried)}
        self._crossed = {id(node): index for index, node in enumerate(graph.crossed)}
        self._tail = {id(node) for node in graph.tail}
        for node in filter(graph.grows, graph.nodes):
            self._check(node.operation)

    def _check(self, operation):
        known = any(isinstance(operation, cls) for cls in (*_TOKEN_WISE, *_IN_STEP))
        is_function = not isinstance(operation, keras.layers.Layer)
        if known or (is_function and type(operation).__name__ in _TOKEN_WISE_FUNCTIONS):
            return
        raise ConfigError(
            f"{self.graph.model.name}: it is not known how a single new token passes the layer "
            f"{operation.name!r}, a {type(operation).__name__}.\n"
            "Expected layers of kerasbert, and those of Keras that treat every token alike.\n"
            "Pass use_cache=False, which runs the whole model for every new token."
        )

    def prompt(self, inputs, fixed, last):
        """Runs the model over the prompts.

        Args:
            inputs: dict from the roles of the inputs to int tensors (B, L).
            fixed: list of the values of the other inputs.
            last: int tensor (B,), the place of the last token of each prompt.

        Returns:
            The logits (B, V), float32, and what the steps need: a list of pairs of keys and
            values (B, …, L, ·) for every carried call, a list of such pairs for every crossed
            one, and the list of the kept tensors (B, …).
        """
        graph, last = self.graph, ops.reshape(last, (-1, 1, 1))
        values = self._given(inputs) | dict(zip(map(id, graph.fixed_inputs), fixed, strict=True))
        carried, crossed, cut = [], [], {}

        def at_last(key):
            if key in graph.growing and key not in cut:
                cut[key] = _take(values[key], last)
            return cut.get(key, values.get(key))

        for node in graph.nodes:
            operation = node.operation
            if id(node) in self._tail:
                tensors = {id(t): at_last(id(t)) for t in node.input_tensors}
                arguments = _arguments(node, tensors)
                cut.update(_outputs(node, operation(**arguments)))
                continue
            arguments = _arguments(node, values)
            if id(node) in self._carried:
                outputs, memory = operation.extend(memory=None, **_cast(operation, arguments))
                carried.append(memory)
            elif id(node) in self._crossed:
                arguments = _cast(operation, arguments)
                context = arguments.pop("context")
                bias = {k: arguments.get(k) for k in ("position_bias", "p_bias")}
                crossed.append(operation.keys_and_values(context, context, **bias))
                outputs = operation.recall(memory=crossed[-1], **arguments)
            else:
                outputs = operation(**arguments)
            values.update(_outputs(node, outputs))
        logits = ops.cast(at_last(id(graph.logits))[:, 0], "float32")
        return logits, carried, crossed, [values[id(tensor)] for tensor in graph.kept]

    def step(self, step, carried, crossed, kept):
        """Runs the model over one new token for each slot.

        Args:
            step: a `Step`.
            carried: list of pairs of keys and values (B, …, M, ·).
            crossed: as `prompt` gives it.
            kept: as `prompt` gives it.

        Returns:
            The logits (B, J, V), float32, and the list of the pairs of keys and values
            (B, …, J, ·) of the new tokens.
        """
        graph = self.graph
        values = self._given(step.inputs) | dict(zip(map(id, graph.kept), kept, strict=True))
        new = []
        for node in filter(graph.grows, graph.nodes):
            operation = node.operation
            arguments = _arguments(node, values)
            if id(node) in self._carried:
                memory = carried[self._carried[id(node)]]
                outputs, pair = operation.extend(memory=memory, **_cast(operation, arguments))
                new.append(pair)
            elif id(node) in self._crossed:
                arguments = _cast(operation, arguments)
                del arguments["context"]
                outputs = operation.recall(memory=crossed[self._crossed[id(node)]], **arguments)
            else:
                handler = next((f for c, f in _IN_STEP.items() if isinstance(operation, c)), None)
                handler = handler or _call
                outputs = handler(operation, arguments, step)
            values.update(_outputs(node, outputs))
        return ops.cast(values[id(graph.logits)], "float32"), new

    def _given(self, inputs):
        return {id(self.graph.roles[role]): tensor for role, tensor in inputs.items()}


def _arguments(node, values):
    """Returns the arguments of a call by name, with the values in the place of symbols."""
    args, kwargs = node.arguments.fill_in(values)
    signature = inspect.signature(node.operation.call)
    arguments = dict(signature.bind(*args, **kwargs).arguments)
    for parameter in signature.parameters.values():
        if parameter.kind == parameter.VAR_KEYWORD:
            arguments.update(arguments.pop(parameter.name, {}))
    return arguments


def _outputs(node, outputs):
    outputs = keras.tree.flatten(outputs)
    return {id(t): value for t, value in zip(node.output_tensors, outputs, strict=True)}


def _cast(operation, arguments):
    """What Keras does before a call: floats get the type that the layer computes in."""
    # Vectors of positions stay as they are, since a half type loses what they are for.
    return {
        name: ops.cast(value, operation.compute_dtype)
        if name in ("inputs", "context", "condition") and value is not None
        else value
        for name, value in arguments.items()
    }


def _take(tensor, last):
    """Returns the entry (B, 1, …) of a tensor (B, L, …) at `last` (B, 1, 1)."""
    if len(tensor.shape) == 2:
        return ops.take_along_axis(tensor, last[:, :, 0], axis=1)
    return ops.take_along_axis(tensor, last, axis=1)


# --- the layers that treat tokens by their places ---


def _call(layer, arguments, step):
    return layer(**arguments)


def _mask(layer, arguments, step):
    """A new token sees itself, and not the new tokens of other slots."""
    rows, slots = ops.shape(step.index)[0], step.index.shape[1]
    own = ops.broadcast_to(ops.eye(slots, dtype="bool")[None], (rows, slots, slots))
    return ops.concatenate([step.visible, own], axis=-1)


def _real(layer, arguments, step):
    return ops.ones_like(step.index)


def _count(layer, arguments, step):
    return step.index + layer.pad_token_id + 1


def _merge(layer, arguments, step):
    if is_nested(arguments["inputs"]) or arguments.get("positions") is not None:
        return layer(**arguments)
    return layer(arguments["inputs"], positions=step.index)


def _distances(layer, arguments, step):
    queries, keys = arguments["queries"], arguments.get("keys")
    if is_nested(queries):
        queries, keys = queries
    if keys is None:
        places = ops.concatenate([step.places, step.index], axis=1)
    else:
        places = ops.arange(ops.shape(keys)[1], dtype="int32")[None]
    return layer.vectors_of(places[:, None] - step.index[:, :, None])


_IN_STEP = {
    layers.AttentionMask: _mask,
    layers.PaddingMask: _real,
    layers.PositionsOfTokens: _count,
    MergingLayer: _merge,
    layers.RelativePositionEmbedding: _distances,
    layers.SelfAttention: None,
    layers.ResidualGatedAttention: None,
    layers.CrossAttention: None,
}

"""What generation has to know of a functional model: which of its tensors grow with the text.

Shapes: B batch, L length, V vocabulary.
"""

import keras

from kerasbert.errors import ConfigError, listing
from kerasbert.layers import (
    AttentionMask,
    CrossAttention,
    PaddingMask,
    PositionEmbedding,
    PositionsOfTokens,
    ResidualGatedAttention,
    SelfAttention,
)

# The inputs that get longer with the text, by the end of their names; the tokens of T5 first.
_ROLES = {
    "Decoder-Input-Token": "tokens",
    "Encoder-Input-Token": None,
    "Input-Token": "tokens",
    "Input-Segment": "segments",
    "Input-Position": "positions",
    "Input-Mask": "mask",
}


class DecodingGraph:
    """The part of a model that leads to the scores of the next token.

    Args:
        model: a functional Keras model with a head that predicts the next token.

    Attributes:
        model: that model.
        logits: its symbolic scores (B, L, V), before a softmax that may follow.
        roles: dict from "tokens", "segments", "positions" or "mask" to the symbolic input.
        fixed_inputs: list of the other inputs, which stay as they are while the text grows.
        nodes: the calls that lead to `logits`, in an order in which they can be made.
        growing: ids of the symbolic tensors that have one entry a token.
        kept: list of the symbolic tensors that do not grow, but are read by those that do.
        tail: the calls behind the last attention, of which only the last token matters.
        is_unilm: whether there is a text to read before the text to write.
        pad_id: the id that stands for padding, None if there is none.
        max_positions: how many tokens a text can have, None if there is no limit.
        vocab_size: V.

    Raises:
        ConfigError: if the model is none that text can be generated with.
    """

    def __init__(self, model):
        if not hasattr(model, "_nodes_by_depth"):
            raise ConfigError(
                f"{model.name!r} is a {type(model).__name__} without a graph.\n"
                "Expected a functional Keras model, as build_transformer_model returns it."
            )
        self.model = model
        self._find_inputs()
        embedding = self._token_embedding()
        self.vocab_size = embedding.input_dim
        self.logits = self._find_logits()
        core = keras.Model(model.inputs, self.logits)
        self.nodes = [
            node
            for depth in sorted(core._nodes_by_depth, reverse=True)
            for node in core._nodes_by_depth[depth]
            if not node.is_input
        ]
        self._find_growing()
        self._find_tail()
        self._read_masks()
        self._read_positions()

    def _find_inputs(self):
        self.roles, self.fixed_inputs = {}, []
        for tensor in self.model.inputs:
            name = tensor._keras_history.operation.name
            role = next((role for end, role in _ROLES.items() if name.endswith(end)), None)
            if role is None:
                self.fixed_inputs.append(tensor)
            elif role in self.roles:
                raise ConfigError(
                    f"{self.model.name}: two inputs end alike, {name!r} is the second.\n"
                    "Expected one encoder.\nPass a model that holds a single one."
                )
            else:
                self.roles[role] = tensor
        if "tokens" not in self.roles:
            names = [tensor._keras_history.operation.name for tensor in self.model.inputs]
            raise ConfigError(
                f"{self.model.name}: the inputs are {listing(names)}.\n"
                "Expected one called Input-Token or Decoder-Input-Token, for the text to go on "
                "with.\nBuild the model with build_transformer_model."
            )

    def _token_embedding(self):
        tokens = self.roles["tokens"]
        for layer in self.model.layers:
            if isinstance(layer, keras.layers.Embedding):
                for node in layer._inbound_nodes:
                    if any(tensor is tokens for tensor in node.input_tensors[:1]):
                        return layer
        raise ConfigError(
            f"{self.model.name}: its tokens are not looked up in a keras.layers.Embedding.\n"
            "Expected a table, which tells the size of the vocabulary."
        )

    def _find_logits(self):
        outputs = [t for t in self.model.outputs if len(t.shape) == 3]
        found = [t for t in outputs if t.shape[-1] == self.vocab_size]
        made = [t for t in found if isinstance(_maker(t), keras.layers.Activation)]
        found = made or found
        if len(found) != 1:
            names = [_maker(tensor).name for tensor in self.model.outputs]
            raise ConfigError(
                f"{self.model.name}: {len(found)} of its outputs, {listing(names)}, are as wide as "
                f"the vocabulary of {self.vocab_size}.\n"
                "Expected one, the scores of the next token.\n"
                "Build the model with with_mlm=True and application='lm' or 'unilm' (a GPT or T5 "
                "has with_lm=True)."
            )
        return _before_softmax(found[0])

    def _find_growing(self):
        self.growing = {id(tensor) for tensor in self.roles.values()}
        for node in self.nodes:
            if any(id(tensor) in self.growing for tensor in node.input_tensors):
                self.growing.update(id(tensor) for tensor in node.output_tensors)
        kept = {}
        for node in filter(self.grows, self.nodes):
            kept.update({id(t): t for t in node.input_tensors if id(t) not in self.growing})
        self.kept = list(kept.values())
        self._check_conditions()

    def _check_conditions(self):
        for node in filter(self.grows, self.nodes):
            condition = node.arguments.kwargs.get("condition")
            if condition is not None and len(condition.shape) == 3:
                raise ConfigError(
                    f"{node.operation.name}: its condition has the shape {condition.shape}, one "
                    "vector a token.\n"
                    "Expected (batch, size): new tokens would have none.\n"
                    "Build the model with a layer_norm_cond for whole texts."
                )

    def grows(self, node):
        """Whether the output of a call has one entry a token."""
        return id(node.output_tensors[0]) in self.growing

    @property
    def carried(self):
        """The calls whose keys and values are kept for the tokens to come."""
        kinds = (SelfAttention, ResidualGatedAttention)
        return [n for n in self.nodes if self.grows(n) and isinstance(n.operation, kinds)]

    @property
    def crossed(self):
        """The calls that attend to a text that does not grow."""
        return [n for n in self.nodes if self.grows(n) and isinstance(n.operation, CrossAttention)]

    def _find_tail(self):
        before, mixing = set(), {id(node) for node in (*self.carried, *self.crossed)}
        for node in reversed(self.nodes):
            if id(node) in mixing or any(id(t) in before for t in node.output_tensors):
                mixing.add(id(node))
                before.update(id(tensor) for tensor in node.input_tensors)
        self.tail = [n for n in self.nodes if self.grows(n) and id(n) not in mixing]

    def _read_masks(self):
        operations = [node.operation for node in self.nodes if self.grows(node)]
        applications = {op.application for op in operations if isinstance(op, AttentionMask)}
        if not applications or "encoder" in applications:
            raise ConfigError(
                f"{self.model.name}: its tokens see those that follow (application='encoder').\n"
                "Expected a model that predicts the next token.\n"
                "Build it with application='lm' or 'unilm'; masked tokens are filled by fill_mask."
            )
        self.is_unilm = "unilm" in applications
        padding = [op for op in operations if isinstance(op, PaddingMask)]
        self.pad_id = padding[0].pad_token_id if padding else 0
        if "mask" in self.roles:
            self.pad_id = None
        self.starts_with_padding = any(op.starts_with_padding for op in padding)

    def _read_positions(self):
        limits = [self.roles["tokens"].shape[1]]
        for node in filter(self.grows, self.nodes):
            if isinstance(node.operation, PositionEmbedding):
                makers = map(_maker, node.input_tensors)
                before = [m.pad_token_id + 1 for m in makers if isinstance(m, PositionsOfTokens)]
                limits.append(node.operation.max_positions - sum(before))
        self.max_positions = min((n for n in limits if n is not None), default=None)


def _maker(tensor):
    return tensor._keras_history.operation


def _before_softmax(output):
    """Returns the tensor that a softmax is taken of, or `output` if none is."""
    operation = _maker(output)
    if isinstance(operation, keras.layers.Softmax):
        return _input_of(output)
    activation = getattr(operation, "activation", None)
    name = getattr(activation, "__name__", "linear")
    if name == "linear":
        return output
    if isinstance(operation, keras.layers.Activation) and name == "softmax":
        return _input_of(output)
    raise ConfigError(
        f"The output {operation.name!r} has the activation {name!r}.\n"
        "Expected scores of the next token, or probabilities by a softmax in a layer of its own.\n"
        "Build the model with with_mlm='linear' (with_lm='linear')."
    )


def _input_of(tensor):
    history = tensor._keras_history
    return history.operation._inbound_nodes[history.node_index].input_tensors[0]

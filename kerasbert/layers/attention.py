"""Multi-head attention.

Shapes: B batch, L length (Q of queries, K of keys), H hidden size, N heads, D head size.
"""

import keras
from keras import ops

from kerasbert.errors import ConfigError, check_integer, did_you_mean
from kerasbert.layers.composite import CompositeLayer
from kerasbert.layers.rotary import apply_rotary_position_embeddings
from kerasbert.layers.scores import (
    MASKED_SCORE,
    attention_scores,
    attention_weights,
    check_normalization,
    weighted_sum,
)

_POSITION_BIASES = (None, "rotary", "typical_relative", "t5_relative")


@keras.saving.register_keras_serializable(package="kerasbert")
class MultiHeadAttention(CompositeLayer):
    """Multi-head attention with bert4keras' arguments.

    Args:
        heads: number N of heads.
        head_size: width D of the values of a head; default is the width of the queries
            divided by N.
        out_dim: width of the output; default N * D.
        key_size: width of the queries and keys of a head; default D.
        use_bias: whether the dense layers have a bias.
        normalization: see `attention_weights`.
        attention_scale: whether scores are divided by the root of `key_size`.
        attention_dropout: dropout rate of the attention weights, from 0 to 1.
        return_attention_scores: whether to return the scores before normalisation too.
        kernel_initializer: a Keras initializer or its name.
        **kwargs: arguments of `CompositeLayer`.

    Call arguments:
        inputs: list of queries (B, Q, ·), keys (B, K, ·) and values (B, K, ·); then, if
            `a_bias`, an attention bias, (B or 1, Q or 1, K) or with an axis of heads in the
            second place: bool (False is not seen) or float (added to the scores); then, if
            `p_bias`, a position bias.
        a_bias: whether there is an attention bias.
        p_bias: None; "rotary" with sinusoidal vectors (1 or B, L, key_size);
            "typical_relative" with vectors (Q, K, D) that are added to keys and values; or
            "t5_relative" with numbers (Q, K, N) that are added to the scores.

    Returns:
        Float tensor (B, Q, out_dim), and with `return_attention_scores` also the scores
        (B, N, Q, K), float32, without the attention bias.

    Raises:
        ConfigError: if a size is not a positive integer, N does not divide the width of the
            queries where it has to, or a name is unknown.

    Example:
        >>> x = keras.ops.ones((2, 5, 32))
        >>> MultiHeadAttention(heads=4, head_size=8)([x, x, x]).shape
        TensorShape([2, 5, 32])

    Source: Vaswani et al. 2017 (arXiv:1706.03762); Shaw et al. 2018 (arXiv:1803.02155) for
    typical_relative; Su et al. 2021 (arXiv:2104.09864) for rotary; Raffel et al. 2019
    (arXiv:1910.10683) for t5_relative.
    """

    def __init__(
        self,
        heads,
        head_size=None,
        out_dim=None,
        key_size=None,
        use_bias=True,
        normalization="softmax",
        attention_scale=True,
        attention_dropout=0.0,
        return_attention_scores=False,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_integer("heads", heads, minimum=1)
        sizes = {"head_size": head_size, "out_dim": out_dim, "key_size": key_size}
        for name, size in sizes.items():
            if size is not None:
                check_integer(name, size, minimum=1)
        check_normalization(normalization)
        self.heads = heads
        self.head_size = head_size
        self.out_dim = out_dim
        self.key_size = key_size
        self.use_bias = use_bias
        self.normalization = normalization
        self.attention_scale = attention_scale
        self.attention_dropout = attention_dropout or 0.0
        self.return_attention_scores = return_attention_scores
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, input_shape):
        """Makes and builds the sub-layers for a list of shapes; the first three count."""
        nested = [shape for shape in input_shape if isinstance(shape, list | tuple)]
        if len(nested) != len(input_shape) or len(nested) < 3:
            raise ConfigError(
                f"{self.name}: inputs of the shape {input_shape}.\n"
                "Expected a list of queries, keys and values, such as [x, x, x].\n"
                "Self-attention with its residual connection is SelfAttention."
            )
        self.build_dense(*input_shape[:3])
        self.freeze_sublayers()

    def build_dense(self, query_shape, key_shape, value_shape):
        """Makes and builds the dense layers for (B, Q, ·), (B, K, ·) and (B, K, ·)."""
        size = self.head_size or self._divided(query_shape[-1])
        key_width = self.heads * (self.key_size or size)
        self._value_width = self.heads * size
        self.query = self.built_dense("query", key_width, query_shape, use_bias=self.use_bias)
        self.key = self.built_dense("key", key_width, key_shape, use_bias=self.use_bias)
        self.value = self.built_dense(
            "value", self._value_width, value_shape, use_bias=self.use_bias
        )
        self.output_dense = self.built_dense(
            "output",
            self.output_width(query_shape[-1]),
            (*query_shape[:-1], self._value_width),
            use_bias=self.use_bias,
        )
        self.dropout_of_weights = keras.layers.Dropout(
            self.attention_dropout, name="attention_dropout", dtype="float32"
        )

    def _divided(self, width):
        if width % self.heads:
            raise ConfigError(
                f"{self.name}: the input is {width} wide, not a multiple of heads={self.heads}.\n"
                "Expected every head to have the same width.\n"
                "Pass another number of heads, or head_size=."
            )
        return width // self.heads

    def output_width(self, query_width):
        """The width of the output for queries of some width."""
        return self.out_dim or self._value_width

    def call(self, inputs, mask=None, a_bias=False, p_bias=None):
        """Returns the attention of queries to keys; see the class for shapes."""
        self._check_inputs(inputs, a_bias, p_bias)
        query, key, value, *biases = inputs
        visible = mask[2] if isinstance(mask, list | tuple) and len(mask) > 2 else None
        visible = None if visible is None else ops.expand_dims(visible, axis=1)  # (B, 1, K)
        added = None
        if a_bias and keras.backend.standardize_dtype(biases[0].dtype) == "bool":
            visible = biases[0] if visible is None else _both(visible, biases[0])
        elif a_bias:
            added = biases[0]
        position_bias = biases[-1] if p_bias is not None else None
        output, scores = self.attend(query, key, value, visible, position_bias, p_bias, added)
        return (output, scores) if self.return_attention_scores else output

    def _check_inputs(self, inputs, a_bias, p_bias):
        found = len(inputs) if isinstance(inputs, list | tuple) else 1
        if found != 3 + bool(a_bias) + (p_bias is not None):
            raise ConfigError(
                f"{self.name}: number of inputs {found}, with a_bias={a_bias!r} and "
                f"p_bias={p_bias!r}.\n"
                "Expected a list of queries, keys, values, and one more for each of the two."
            )
        check_position_bias(p_bias, inputs[-1] if p_bias is not None else None)

    def attend(self, query, key, value, visible=None, position_bias=None, p_bias=None, added=None):
        """Returns the output (B, Q, ·), and the scores (B, N, Q, K) without `added`.

        Args:
            query: float tensor (B, Q, ·).
            key: float tensor (B, K, ·).
            value: float tensor (B, K, ·).
            visible: bool tensor (B, 1 or Q, K) or with an axis of heads in the second place.
            position_bias: see the class.
            p_bias: see the class.
            added: float tensor that is added to the scores, shaped as `visible`.
        """
        check_position_bias(p_bias, position_bias)
        memory = self.keys_and_values(key, value, position_bias, p_bias)
        return self.attend_to(query, [memory], visible, position_bias, p_bias, added)

    def keys_and_values(self, key, value, position_bias=None, p_bias=None, adapter=None):
        """Returns what queries attend to: keys (B, N, K, S) and values (B, N, K, D)."""
        key = self._split(self.adapted(self.key, key, adapter))
        if p_bias == "rotary":
            key = apply_rotary_position_embeddings(position_bias, key)
        value = self._split(self.adapted(self.value, value, adapter))
        return _heads_first(key), _heads_first(value)

    def attend_to(
        self,
        query,
        memories,
        visible=None,
        position_bias=None,
        p_bias=None,
        added=None,
        adapter=None,
    ):
        """Returns what `attend` does, for keys and values that are made already.

        Args:
            query: float tensor (B, Q, ·).
            memories: list of pairs as `keys_and_values` gives them; K counts the keys of all.
            visible: see `attend`.
            position_bias: see the class; with an axis (B) in front where rows differ.
            p_bias: see the class.
            added: see `attend`.
            adapter: number of the use whose adapters count, see `CompositeLayer`.
        """
        # Scaled before the product, which in float16 would sooner overflow.
        query = self._split(self.adapted(self.query, query, adapter))
        scale = query.shape[-1] ** -0.5 if self.attention_scale else 1.0
        query = query * scale
        if p_bias == "rotary":
            query = apply_rotary_position_embeddings(position_bias, query)
        query = _heads_first(query)
        scores = attention_scores(query, [keys for keys, _ in memories])  # (B, N, Q, K)
        if p_bias == "typical_relative":
            _check_vectors(position_bias, query, memories[0][1])
            scores = scores + ops.einsum(f"bnqd,{_axes(position_bias)}->bnqk", query, position_bias)
        scores = ops.cast(scores, "float32")
        if p_bias == "t5_relative":
            numbers = ops.moveaxis(ops.cast(position_bias, "float32"), -1, -3)  # (…, N, Q, K)
            scores = scores + numbers * scale
        biased = scores if added is None else scores + _finite(_with_heads(added))
        visible = None if visible is None else _with_heads(visible)
        weights = attention_weights(biased, visible, self.normalization)
        weights = ops.cast(self.dropout_of_weights(weights), self.compute_dtype)
        context = weighted_sum(weights, [values for _, values in memories])  # (B, N, Q, D)
        if p_bias == "typical_relative":
            context = context + ops.einsum(
                f"bnqk,{_axes(position_bias)}->bnqd", weights, position_bias
            )
        context = _heads_first(context)  # (B, Q, N, D)
        shape = (-1, ops.shape(context)[1], self._value_width)
        context = ops.reshape(context, shape)
        return self.adapted(self.output_dense, context, adapter), scores

    def _split(self, tensor):
        length, width = ops.shape(tensor)[1], tensor.shape[-1]
        return ops.reshape(tensor, (-1, length, self.heads, width // self.heads))

    def compute_mask(self, inputs, previous_mask=None):
        """The output has the Keras mask of the queries."""
        return previous_mask[0] if isinstance(previous_mask, list | tuple) else previous_mask

    def compute_output_spec(self, inputs, mask=None, a_bias=False, p_bias=None):
        """Returns the symbolic output for `inputs`."""
        self._check_inputs(inputs, a_bias, p_bias)
        query, key = inputs[:2]
        return self.specify(query, key, self.return_attention_scores)

    def specify(self, query, key, with_scores):
        """Returns the symbolic output for symbolic queries and keys."""
        width = self.output_width(query.shape[-1])
        output = keras.KerasTensor((*query.shape[:-1], width), dtype=self.compute_dtype)
        if not with_scores:
            return output
        shape = (query.shape[0], self.heads, query.shape[1], key.shape[1])
        return output, keras.KerasTensor(shape, dtype="float32")

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        return {
            **super().get_config(),
            "heads": self.heads,
            "head_size": self.head_size,
            "out_dim": self.out_dim,
            "key_size": self.key_size,
            "use_bias": self.use_bias,
            "normalization": self.normalization,
            "attention_scale": self.attention_scale,
            "attention_dropout": self.attention_dropout,
            "return_attention_scores": self.return_attention_scores,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


def _heads_first(tensor):
    """Swaps the axes of length and heads, either way."""
    return ops.transpose(tensor, (0, 2, 1, 3))


def _axes(vectors):
    """The axes of relative positions in an einsum, with those of the rows if they have them."""
    return "qkd" if len(vectors.shape) == 3 else "bqkd"


def _with_heads(tensor):
    """Gives (B, Q, K) an axis of heads; leaves (B, N, Q, K)."""
    if len(tensor.shape) not in (3, 4):
        raise ConfigError(
            f"An attention mask or bias has the shape {tuple(tensor.shape)}.\n"
            "Expected (batch, queries or 1, keys), or an axis of heads in the second place.\n"
            "Give a mask of keys alone, (batch, keys), an axis of queries: mask[:, None]."
        )
    return ops.expand_dims(tensor, axis=1) if len(tensor.shape) == 3 else tensor


def _finite(bias):
    """A bias in float32, no less than what hides a key; low precision makes -1e9 infinite."""
    return ops.maximum(ops.cast(bias, "float32"), MASKED_SCORE)


def _both(mask, other):
    return ops.logical_and(_with_heads(mask), _with_heads(other))


def check_position_bias(p_bias, position_bias):
    """Refuses an unknown kind of position bias, or a kind without a bias and the reverse.

    Raises:
        ConfigError: names the kind.
    """
    if p_bias not in _POSITION_BIASES:
        known = [name for name in _POSITION_BIASES if name]
        raise ConfigError(
            f"p_bias={p_bias!r}.{did_you_mean(p_bias, known)}\n"
            f"Expected None or one of: {', '.join(known)}."
        )
    if (p_bias is None) != (position_bias is None):
        given = "no position bias" if position_bias is None else "a position bias"
        raise ConfigError(
            f"p_bias={p_bias!r}, and {given} is given.\n"
            "Expected p_bias= to say of what kind the position bias is, or neither."
        )


def _check_vectors(vectors, query, value):
    """Refuses relative positions that cannot be added to both keys and values."""
    sizes = [tensor.shape[-1] for tensor in (vectors, query, value)]
    if len(set(sizes)) > 1:
        raise ConfigError(
            f"The vectors of relative positions are {sizes[0]} wide, those of a head's keys "
            f"{sizes[1]}, those of its values {sizes[2]}.\n"
            "Expected one size: typical_relative adds the same vectors to keys and values.\n"
            "Leave key_size away, and give the position layer output_dim= the size of a head."
        )

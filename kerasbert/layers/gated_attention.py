"""Attention and feed-forward layer in one.

Shapes: B batch, L length of the queries, K of the keys, H hidden size, U units, S key size.
"""

import keras
from keras import ops

from kerasbert import activations
from kerasbert.errors import ConfigError, check_integer
from kerasbert.layers.composite import CompositeLayer
from kerasbert.layers.rotary import apply_rotary_position_embeddings
from kerasbert.layers.scale_offset import ScaleOffset
from kerasbert.layers.scores import (
    attention_scores,
    attention_weights,
    check_normalization,
    weighted_sum,
)
from kerasbert.layers.tables import is_nested


@keras.saving.register_keras_serializable(package="kerasbert")
class GatedAttentionUnit(CompositeLayer):
    """Attention with one head, whose output is gated: a whole block in one layer.

    Computes `(u * A v) W`, where `u`, `v` and what queries and keys are made of come from one
    dense layer. It is the plain layer, without residual connection and normalisation.

    Args:
        units: width U of gate and values, two times H in the paper.
        key_size: size S of queries and keys, 128 in the paper.
        activation: name of the activation of the projections.
        use_bias: whether the dense layers and the scalings have a bias.
        normalization: how scores become weights, see `attention_weights`.
        self_attention: whether queries, keys and values come from one input; otherwise the
            input is the list of the three.
        attention_scale: whether scores are divided by the square root of S.
        attention_dropout: dropout rate of the attention weights, from 0 to 1.
        kernel_initializer: initializer of the dense kernels, or its name.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: float tensor (B, L, H); without `self_attention` the list of queries
            (B, L, H), keys (B, K, …) and values (B, K, …).
        attention_mask: optional bool tensor (B, 1, K) or (B, L, K); False keys are not seen.
            The Keras mask of the keys holds too, if they have one.
        position_bias: optional sinusoidal vectors (1 or B, L, S), by which queries and keys
            are rotated; K is L then.

    Returns:
        Float tensor (B, L, H).

    Raises:
        ConfigError: if a size is no positive integer, activation or normalisation is unknown,
            or `inputs` is a list where it should not be, or none where it should.

    Example:
        >>> GatedAttentionUnit(64, key_size=16)(keras.ops.ones((2, 5, 32))).shape
        TensorShape([2, 5, 32])

    Source: Hua et al. 2022 (arXiv:2202.10447); https://kexue.fm/archives/8934.
    """

    def __init__(
        self,
        units,
        key_size,
        activation="swish",
        use_bias=True,
        normalization="squared_relu",
        self_attention=True,
        attention_scale=True,
        attention_dropout=0.0,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_integer("units", units, minimum=1)
        check_integer("key_size", key_size, minimum=1)
        check_normalization(normalization)
        self.units = units
        self.key_size = key_size
        self.activation = activation
        self.use_bias = use_bias
        self.normalization = normalization
        self.self_attention = self_attention
        self.attention_scale = attention_scale
        self.attention_dropout = attention_dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self._activation_function = activations.get(activation)

    def build(self, inputs_shape, attention_mask_shape=None, position_bias_shape=None):
        """Makes and builds the sub-layers for one input (B, L, H), or for three."""
        self.build_dense(inputs_shape)
        self.freeze_sublayers()

    def build_dense(self, inputs_shape):
        """Makes and builds the dense layers and scalings."""
        self._check_inputs(inputs_shape)
        if self.self_attention:
            query_shape = inputs_shape
            self.i_dense = self._projection("i_dense", 2 * self.units + self.key_size, query_shape)
            key_shape = (*query_shape[:-1], self.key_size)
            self.q_scaleoffset = self._scaling("q_scaleoffset", key_shape)
            self.k_scaleoffset = self._scaling("k_scaleoffset", key_shape)
        else:
            query_shape, key_shape, value_shape = inputs_shape
            self.uq_dense = self._projection("uq_dense", self.units + self.key_size, query_shape)
            self.k_dense = self._projection("k_dense", self.key_size, key_shape)
            self.v_dense = self._projection("v_dense", self.units, value_shape)
        self.dropout_of_weights = keras.layers.Dropout(
            self.attention_dropout, name="attention_dropout", dtype="float32"
        )
        context_shape = (*query_shape[:-1], self.units)
        self.o_dense = self.built_dense(
            "o_dense", query_shape[-1], context_shape, use_bias=self.use_bias
        )

    def _projection(self, name, units, input_shape):
        return self.built_dense(name, units, input_shape, use_bias=self.use_bias)

    def _scaling(self, name, input_shape):
        layer = ScaleOffset(offset=self.use_bias, name=name, dtype=self.sublayer_dtype(name))
        layer.build(input_shape)
        return layer

    def call(self, inputs, attention_mask=None, position_bias=None, mask=None, inputs_mask=None):
        """Returns the gated context; see the class for shapes.

        `mask` and `inputs_mask` are the Keras mask, which Keras gives under the one name to
        calls with a single tensor and under the other to calls with several.
        """
        self._check_inputs(inputs)
        keras_mask = inputs_mask if mask is None else mask
        return self.attend(inputs, self._visible(attention_mask, keras_mask), position_bias)

    def attend(self, inputs, visible=None, position_bias=None):
        """Returns the gated context (B, L, H).

        Args:
            inputs: see the class.
            visible: bool tensor (B, 1, K) or (B, L, K), or None.
            position_bias: see the class.
        """
        return self.attend_from(inputs, None, visible, position_bias)[0]

    def attend_from(self, inputs, memory=None, visible=None, position_bias=None, adapter=None):
        """Returns what `attend` does, and the pair of keys and values of `inputs`.

        Args:
            inputs: see the class.
            memory: None, or the keys (B, M, S) and values (B, M, U) of tokens before these.
            visible: bool tensor (B, 1 or L, M + K), or None.
            position_bias: see the class.
            adapter: number of the use whose adapters count, see `CompositeLayer`.
        """
        gate, query, key, value = self._project(inputs, adapter)
        if position_bias is not None:
            query, key = apply_rotary_position_embeddings(position_bias, query, key)
        if self.attention_scale:
            # Before the product, which in float16 would sooner overflow.
            query = query * self.key_size**-0.5
        memories = [(key, value)] if memory is None else [memory, (key, value)]
        scores = attention_scores(query, [keys for keys, _ in memories])  # (B, L, M + K)
        weights = self.dropout_of_weights(attention_weights(scores, visible, self.normalization))
        weights = ops.cast(weights, self.compute_dtype)
        context = weighted_sum(weights, [values for _, values in memories])  # (B, L, U)
        outputs = self.adapted(self.o_dense, gate * context, adapter)  # (B, L, H)
        return outputs, (key, value)

    def _project(self, inputs, adapter):
        """Returns gate (B, L, U), query (B, L, S), key (B, K, S) and value (B, K, U)."""
        units = self.units
        if self.self_attention:
            inner = self._activated(self.i_dense, inputs, adapter)
            gate, value, both = ops.split(inner, [units, 2 * units], axis=-1)
            return gate, self.q_scaleoffset(both), self.k_scaleoffset(both), value
        denses = (self.uq_dense, self.k_dense, self.v_dense)
        inner, key, value = (
            self._activated(dense, tensor, adapter)
            for dense, tensor in zip(denses, inputs, strict=True)
        )
        gate, query = ops.split(inner, [units], axis=-1)
        return gate, query, key, value

    def _activated(self, dense, inputs, adapter):
        return self._activation_function(self.adapted(dense, inputs, adapter))

    def _visible(self, attention_mask, keras_mask):
        """Returns the bool mask of both, or None if there is neither."""
        if not self.self_attention and keras_mask is not None:
            keras_mask = keras_mask[1]
        if keras_mask is None:
            return attention_mask
        keras_mask = ops.cast(keras_mask, "bool")[:, None]  # (B, 1, K)
        return keras_mask if attention_mask is None else ops.logical_and(attention_mask, keras_mask)

    def _check_inputs(self, inputs):
        found = f"a list of {len(inputs)}" if is_nested(inputs) else "one tensor"
        if found != ("one tensor" if self.self_attention else "a list of 3"):
            raise ConfigError(
                f"{self.name}: self_attention={self.self_attention}, called with {found}.\n"
                "Expected one tensor with self_attention=True, otherwise the list "
                "[queries, keys, values]."
            )

    def compute_mask(self, inputs, previous_mask=None):
        """Returns the mask of the queries."""
        return previous_mask[0] if isinstance(previous_mask, list | tuple) else previous_mask

    def compute_output_shape(
        self, inputs_shape, attention_mask_shape=None, position_bias_shape=None
    ):
        """The output has the shape of the queries."""
        return tuple(inputs_shape if self.self_attention else inputs_shape[0])

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        return {
            **super().get_config(),
            "units": self.units,
            "key_size": self.key_size,
            "activation": self.activation,
            "use_bias": self.use_bias,
            "normalization": self.normalization,
            "self_attention": self.self_attention,
            "attention_scale": self.attention_scale,
            "attention_dropout": self.attention_dropout,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }

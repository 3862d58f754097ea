"""What the layers that are made of other layers have in common."""

import contextlib
import contextvars

import keras
from keras import ops

from kerasbert.layers.dense import Dense
from kerasbert.layers.low_rank import LowRankAdapter


class CompositeLayer(keras.layers.Layer):
    """A layer whose sub-layers are made in `build` and reload as they were.

    Quantisation gives single sub-layers a dtype policy of their own, and a user may freeze
    single ones; a plain Keras layer forgets both when it is saved. Here they are part of the
    configuration.

    Args:
        sublayer_dtypes: dict from the name of a sub-layer to its serialised dtype policy,
            as written by `get_config`; sub-layers without an entry follow this layer. Those
            of a sub-layer that is made of layers itself are called "norm/beta_dense".
        frozen_sublayers: names of the sub-layers that are not trainable.
        adapters: dict from the name of a dense sub-layer to {"rank", "alpha", "uses"}: it gets a
            `LowRankAdapter` for each of the uses, which are numbers that a call may choose from.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.
    """

    def __init__(self, sublayer_dtypes=None, frozen_sublayers=(), adapters=None, **kwargs):
        super().__init__(**kwargs)
        self.adapters = {name: dict(settings) for name, settings in (adapters or {}).items()}
        self.adapter_layers = {}
        self.supports_masking = True
        self._frozen_sublayers = tuple(frozen_sublayers)
        self._sublayer_dtypes = {
            name: keras.dtype_policies.deserialize(policy)
            for name, policy in (sublayer_dtypes or {}).items()
        }

    def sublayer_dtype(self, name):
        """Returns the dtype policy that the sub-layer called `name` is to be made with."""
        return self._sublayer_dtypes.get(name, self.dtype_policy)

    def freeze_sublayers(self):
        """Makes the sub-layers trainable or not, as the arguments say; called after `build`."""
        for layer in self._sublayers():
            layer.trainable = self.trainable and layer.name not in self._frozen_sublayers
            # Keras has just treated all that is inside alike.
            if layer.trainable and isinstance(layer, CompositeLayer):
                layer.freeze_sublayers()

    def state_inside(self, name):
        """Returns the arguments by which the sub-layer `name`, a composite, gets its state."""
        inside = f"{name}/"
        dtypes = {
            path.removeprefix(inside): keras.dtype_policies.serialize(policy)
            for path, policy in self._sublayer_dtypes.items()
            if path.startswith(inside)
        }
        frozen = [
            path.removeprefix(inside) for path in self._frozen_sublayers if path.startswith(inside)
        ]
        return {"sublayer_dtypes": dtypes, "frozen_sublayers": frozen}

    def built_dense(self, name, units, input_shape, kernel_initializer=None, **arguments):
        """Returns a new dense sub-layer, built for a shape.

        Its kernel starts as `self.kernel_initializer` says, unless there is another.
        """
        initializer = kernel_initializer or self.kernel_initializer
        # One initializer gives the same numbers twice, so each kernel needs one of its own.
        if isinstance(initializer, keras.initializers.Initializer):
            initializer = initializer.clone()
        layer = Dense(
            units,
            kernel_initializer=initializer,
            name=name,
            dtype=self.sublayer_dtype(name),
            **arguments,
        )
        layer.build(input_shape)
        self._build_adapters(name, units, input_shape)
        return layer

    def _build_adapters(self, name, units, input_shape):
        settings = self.adapters.get(name, {"uses": ()})
        for use in settings["uses"]:
            key = f"{name}_lora_{use}"
            layer = LowRankAdapter(
                units, settings["rank"], settings["alpha"], name=key, dtype=self.dtype_policy
            )
            layer.build(input_shape)
            self.adapter_layers[key] = layer

    def adapter_of(self, name, use=None):
        """Returns the adapter of the dense sub-layer `name` for a use of this layer, or None.

        Args:
            name: name of the sub-layer.
            use: the number of the use; None means the only one, and none of several.
        """
        uses = self.adapters.get(name, {"uses": ()})["uses"]
        if use is None and len(uses) == 1:
            use = uses[0]
        return self.adapter_layers.get(f"{name}_lora_{use}")

    def adapted(self, dense, inputs, use=None):
        """Returns what a dense sub-layer and its adapter for this use give together."""
        outputs, adapter = dense(inputs), self.adapter_of(dense.name, use)
        return outputs if adapter is None else outputs + adapter(inputs)

    def _sublayers(self):
        return self._flatten_layers(include_self=False, recursive=False)

    def get_config(self):
        """Returns the arguments that rebuild this layer, state of the sub-layers included."""
        config = super().get_config()
        if not self.built:
            differing = {
                name: keras.dtype_policies.serialize(policy)
                for name, policy in self._sublayer_dtypes.items()
            }
            frozen = self._frozen_sublayers
        else:
            differing, frozen = self._state()
        if differing:
            config["sublayer_dtypes"] = differing
        config["frozen_sublayers"] = list(frozen)
        config["adapters"] = {
            name: {**settings, "uses": list(settings["uses"])}
            for name, settings in self.adapters.items()
        }
        return config

    def _state(self):
        """The dtype policies of sub-layers that have their own, and the names of frozen ones."""
        differing, frozen = {}, []
        for layer in self._sublayers():
            if layer.dtype_policy != self.dtype_policy:
                differing[layer.name] = keras.dtype_policies.serialize(layer.dtype_policy)
            if not layer.trainable:
                frozen.append(layer.name)
            if isinstance(layer, CompositeLayer):
                dtypes, names = layer._state()
                differing.update({f"{layer.name}/{name}": dtypes[name] for name in dtypes})
                frozen += [f"{layer.name}/{name}" for name in names]
        # Freezing the whole says nothing of its parts.
        return differing, frozen if self.trainable else self._frozen_sublayers

    @property
    def output(self):
        """The output of the last call of this layer in a functional model.

        Keras returns that of the first call, so that look-ups of a shared block would
        silently give a shallow hidden state. See `kerasbert.hidden_state` for the others.
        """
        last_call = len(self._inbound_nodes) - 1
        return self._get_node_attribute_at_index(max(last_call, 0), "output_tensors", "output")


def truncated_normal(stddev):
    """Returns a new initializer, N(0, stddev^2) cut at two standard deviations (BERT's).

    Each variable needs one of its own: a Keras initializer returns the same numbers twice.
    """
    return TruncatedNormal(stddev=stddev)


# The zeros of the present block by shape and type, None outside of one. A context variable and
# not an attribute: other threads go on drawing numbers.
_BLANKS = contextvars.ContextVar("kerasbert_blanks", default=None)


@contextlib.contextmanager
def no_initial_values():
    """Within this block `truncated_normal` gives zeros, for variables that a file fills next.

    Drawing the numbers takes longer than all the rest of building and loading a model.
    """
    token = _BLANKS.set({})
    try:
        yield
    finally:
        _BLANKS.reset(token)


@keras.saving.register_keras_serializable(package="kerasbert")
class TruncatedNormal(keras.initializers.TruncatedNormal):
    """Keras' initializer of that name, which `no_initial_values` can switch off."""

    def __call__(self, shape, dtype=None):
        """Returns the initial value, a tensor of this shape."""
        blanks = _BLANKS.get()
        if blanks is None:
            return super().__call__(shape, dtype)
        if keras.backend.backend() != "tensorflow":
            return ops.zeros(shape, dtype)
        # A tensor of TensorFlow never changes: variables made from it share its memory until
        # each gets a value. A whole model of zeros would be the greater part of the peak.
        key = (tuple(shape), dtype)
        if key not in blanks:
            blanks[key] = ops.zeros(shape, dtype)
        return blanks[key]

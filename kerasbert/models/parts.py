"""How the builders of all models make and name layers, inputs and models."""

import warnings

import keras

from kerasbert.errors import ConfigError, listing
from kerasbert.layers import LayerNormalization
from kerasbert.layers.composite import truncated_normal
from kerasbert.models.borrowing import check_borrowed


class Parts:
    """What every builder has: a configuration, options, and layers by name.

    Args:
        config: a `ModelConfig`.
        options: a `BuildOptions`.
    """

    def __init__(self, config, options):
        self.config = config
        self.options = options
        self.layers = {}
        self._borrowed = {}

    @property
    def initializer(self):
        """A new initializer with the configured range, for layers a user adds."""
        return truncated_normal(self.config.initializer_range)

    @property
    def input(self):
        """The only input of the model, or the list of them."""
        return self.inputs[0] if len(self.inputs) == 1 else self.inputs

    @property
    def output(self):
        """The only output of the model, or the list of them."""
        return self.outputs[0] if len(self.outputs) == 1 else self.outputs

    def set_label(self, mask_layer):
        """Gives a mask layer the label by which encoders are found again, once all is built."""
        mask_layer.label = {
            "config": self.config.to_dict(),
            "prefix": self.options.prefix,
            "borrowed": self._borrowed,
        }
        self.warn_of_idle_layers()
        makers = [state._keras_history.operation.name for state in self.hidden_states]
        stack = next(iter(self.config.stacks.values()))
        usual = stack.names(list(stack.layers)[-1])
        if makers[1:] != [self._borrowed.get(name, self.full_name(name)) for name in usual]:
            # Blocks of a user's own, which names in the configuration do not tell.
            mask_layer.label["states"] = makers
        if self.dialects:
            mask_layer.label["dialects"] = [dialect.name for dialect in self.dialects]
            mask_layer.dialects = tuple(self.dialects)

    def warn_of_idle_layers(self):
        """Warns of blocks among `options.layers` that this model has no use for."""
        taken = {*self._borrowed, *map(self.full_name, self._borrowed)}
        idle = [n for n in self.options.layers or () if "Transformer" in n and n not in taken]
        if idle:
            warnings.warn(
                f"layers= has blocks that this model does not take, as its own have other names: "
                f"{listing(idle)}. Are they of another model=?",
                stacklevel=2,
            )

    def full_name(self, name):
        """Returns the name a layer has in the model."""
        return f"{self.options.prefix}{name}"

    def layer(self, cls, name, **arguments):
        """Returns the layer called `name`; makes it at the first request.

        A layer of that name among `options.layers` is taken instead of a new one.
        """
        if name not in self.layers:
            given = self.options.layers or {}
            borrowed = given.get(name, given.get(self.full_name(name)))
            # What has no weights is not shared: its settings are this model's own affair.
            if borrowed is None or (borrowed.built and not borrowed.weights):
                return self.new_layer(cls, name, **arguments)
            check_borrowed(borrowed, cls, name, arguments)
            self.layers[name] = borrowed
            self._borrowed[name] = borrowed.name
        return self.layers[name]

    def new_layer(self, cls, name, **arguments):
        """Makes the layer called `name`, even if another model could lend one."""
        arguments.setdefault("dtype", self.options.dtype)
        self.layers[name] = cls(name=self.full_name(name), **arguments)
        return self.layers[name]

    def dense(self, name, units, **arguments):
        """Returns a dense layer with BERT's initializer."""
        return self.layer(
            keras.layers.Dense,
            name,
            units=units,
            kernel_initializer=self.initializer,
            **arguments,
        )

    def normalize(self, name, hidden):
        """Applies a new layer normalisation of the model's kind."""
        norm = self.layer(LayerNormalization, name, **self.norm_arguments())
        if self.options.layer_norm_cond is None:
            return norm(hidden)
        return norm(hidden, condition=self.options.layer_norm_cond)

    def norm_arguments(self):
        """Returns the arguments of every `LayerNormalization` of the model."""
        arguments = {"epsilon": self.config.layer_norm_eps}
        if self.options.layer_norm_cond is not None:
            arguments.update(
                conditional=True,
                hidden_units=self.options.layer_norm_cond_hidden_size,
                hidden_activation=self.options.layer_norm_cond_hidden_act,
            )
        return arguments

    def drop(self, name, hidden):
        """Applies a dropout layer with the configured rate."""
        rate = self.config.hidden_dropout_prob
        return self.layer(keras.layers.Dropout, name, rate=rate)(hidden)

    def residual_arguments(self):
        """Returns what the halves of all blocks have in common."""
        return {
            "rate": self.config.hidden_dropout_prob,
            "norm": {"placement": self.norm_placement, **self.norm_arguments()},
            "use_bias": self.use_bias,
            "kernel_initializer": self.initializer,
        }

    @property
    def norm_placement(self):
        """Where the norms of the blocks stand, see `ResidualLayer`."""
        return "pre" if self.config.ln_type == "preln" else "post"

    def require_equal(self, key, other, why):
        """Refuses a configuration in which two sizes differ that are one in this family.

        Args:
            key: the one that may be left out.
            other: the one that it then follows.
            why: the reason, a main clause.

        Raises:
            ConfigError: names both keys and their values.
        """
        size, wanted = getattr(self.config, key), getattr(self.config, other)
        if size != wanted:
            raise ConfigError(
                f"{key}={size} differs from {other}={wanted}.\n"
                f"Expected equal sizes: {why}.\n"
                f"Pass {key}={wanted}, or leave it out everywhere."
            )

    def id_input(self, name):
        """Returns a new input of ids (B, L)."""
        # Ids are integers whatever the precision: float16 turns id 20001 into 20000.
        shape = (self.options.sequence_length,)
        return keras.Input(shape, dtype="int32", name=self.full_name(name))

    def additional_inputs(self):
        """Returns the inputs of the user's as a list."""
        given = self.options.additional_input_layers
        if given is None:
            return []
        return list(given) if isinstance(given, list | tuple) else [given]

    def make_model(self, inputs, outputs, name):
        """Returns the Keras model between two lists of symbolic tensors."""
        # A single input is not wrapped, so that model(ids) is as right as model([ids]).
        ends = [ends[0] if len(ends) == 1 else ends for ends in (inputs, outputs)]
        try:
            model = keras.Model(*ends, name=name)
        except ValueError as error:
            if self.options.layer_norm_cond is None:
                raise
            raise ConfigError(
                "The inputs that layer_norm_cond= is computed from are no inputs of the model.\n"
                "Expected them as additional_input_layers=, for example the keras.Input itself."
            ) from error
        # The model computes nothing itself, but keras.Sequential makes its input with this
        # type, and token ids do not fit into float16.
        model.dtype_policy = keras.DTypePolicy("float32")
        return model

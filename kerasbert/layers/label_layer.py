"""What the layers that score label sequences have in common, and their losses and metrics.

A bound method is lost when Keras writes a compiled model. So the losses and metrics are
objects that Keras can write; a loss names its layer, and finds it again when both are read.

Shapes: B batch, L length, K labels.
"""

import threading
import weakref

import keras
from keras import ops

from kerasbert.errors import ConfigError, check_number
from kerasbert.layers.chains import best_path, mark_padding, tokens_of


class _Restored(threading.local):
    """The layers that were last rebuilt from a configuration, by name."""

    def __init__(self):
        self.layers = weakref.WeakValueDictionary()


_RESTORED = _Restored()


class LabelLayer(keras.layers.Layer):
    """Base of the layers that score label sequences: marks padding, gives losses and metrics.

    Subclasses give the loss (B,) of each sequence, `sequence_loss(scores, labels)`, and what
    `decode` looks for the best path with, `viterbi_step()`, a `ViterbiStep`.

    Args:
        lr_multiplier: how many times faster the transitions learn than the other weights.
            They are stored divided by it.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    def __init__(self, lr_multiplier=1, **kwargs):
        super().__init__(**kwargs)
        meaning = ", by which the rate of the transitions is multiplied; 1 changes nothing"
        check_number("lr_multiplier", lr_multiplier, above=0, hint=meaning)
        self.supports_masking = True
        self.lr_multiplier = lr_multiplier

    def add_transitions(self, name, shape):
        """Creates a weight of transitions, stored divided by `lr_multiplier`."""
        initializer = keras.initializers.GlorotUniform()
        return self.add_weight(
            shape=shape,
            initializer=lambda shape, dtype: initializer(shape, dtype) / self.lr_multiplier,
            name=name,
        )

    def used(self, attribute):
        """Returns the transitions that the weight of an attribute means, in float32.

        Raises:
            ConfigError: if the layer was not called yet.
        """
        if not self.built:
            raise ConfigError(
                f"{self.name} has no transitions yet.\n"
                "Expected a layer that was called, on scores (B, L, K).\n"
                "Put it into a model first."
            )
        return self.lr_multiplier * ops.cast(getattr(self, attribute), "float32")

    def decode(self, scores, mask=None):
        """Finds the label sequences of the highest `log_likelihood`, by the Viterbi algorithm.

        Args:
            scores: float tensor (B, L, K), from this layer or unmarked.
            mask: tensor (B, L), zero at padding, in addition to what is marked in `scores`.

        Returns:
            Int32 tensor (B, L) of labels. Padding gets 0, which is also a label: use the
            mask, or the length of the text, to tell them apart.
        """
        scores, real = tokens_of(scores, mask)
        return best_path(self.viterbi_step(), scores, real)

    def call(self, inputs, mask=None):
        """Returns the scores, marked where there is no token."""
        return mark_padding(inputs, mask)

    def compute_mask(self, inputs, previous_mask=None):
        """Returns None: a loss of a whole sequence must not be multiplied by a mask (B, L)."""
        return None

    def compute_output_shape(self, input_shape):
        """The output has the shape of the input."""
        return input_shape

    @property
    def sparse_loss(self):
        """A Keras loss for labels (B, L); those below 0 are left out like padding."""
        return LabelLoss(self, "sparse")

    @property
    def dense_loss(self):
        """A Keras loss for one-hot labels (B, L, K); rows of zeros are left out like padding."""
        return LabelLoss(self, "dense")

    @property
    def sparse_accuracy(self):
        """A new Keras metric for labels (B, L); those below 0 do not count."""
        return LabelAccuracy("sparse")

    @property
    def dense_accuracy(self):
        """A new Keras metric for one-hot labels (B, L, K); rows of zeros do not count."""
        return LabelAccuracy("dense")

    def __dir__(self):
        # Keras saves what it finds in this list, but a metric made by looking is not a part.
        made = {"sparse_loss", "dense_loss", "sparse_accuracy", "dense_accuracy"}
        return [name for name in super().__dir__() if name not in made]

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        return {**super().get_config(), "lr_multiplier": self.lr_multiplier}

    @classmethod
    def from_config(cls, config):
        """Rebuilds a layer; a loss that names it and is read next finds it."""
        layer = super().from_config(config)
        _RESTORED.layers[layer.name] = layer
        return layer


def labels_and_tokens(labels, scores, mask=None):
    """Brings labels into one form.

    Args:
        labels: int tensor (B, L) or (B, L, 1), below 0 where a token is to be left out.
        scores: float tensor (B, L, K), perhaps with marked padding.
        mask: tensor (B, L), zero at padding, or None.

    Returns:
        Int32 labels (B, L), 0 at what is left out; float32 scores (B, L, K); and a bool
        tensor (B, L), True at the tokens that count.
    """
    scores, real = tokens_of(scores, mask)
    labels = ops.cast(ops.reshape(labels, ops.shape(scores)[:-1]), "int32")
    real = ops.logical_and(real, labels >= 0)
    scores = ops.where(ops.expand_dims(real, -1), scores, 0.0)
    return ops.where(real, labels, 0), scores, real


def sparse(labels, form):
    """Returns label numbers, -1 where a one-hot row is all zeros; `form` is sparse or dense."""
    if form == "dense":
        chosen = ops.cast(ops.argmax(labels, axis=-1), "int32")
        return ops.where(ops.any(labels > 0, axis=-1), chosen, -1)
    return ops.cast(labels, "int32")


@keras.saving.register_keras_serializable(package="kerasbert")
class LabelLoss(keras.losses.Loss):
    """The loss of each sequence's labels, averaged over the batch.

    Args:
        layer: a `LabelLayer`; or its name, if it cannot be found.
        labels: "sparse" for label numbers, "dense" for one-hot vectors.
        name: its name.
        reduction: as in `keras.losses.Loss`.
    """

    def __init__(self, layer, labels, name=None, reduction="sum_over_batch_size"):
        super().__init__(name or f"{labels}_loss", reduction, dtype="float32")
        self.labels = labels
        # Not as an attribute: Keras would save the layer's weights here a second time.
        self._find = lambda: layer

    @property
    def layer(self):
        """The layer whose labels are judged."""
        layer = self._find()
        if isinstance(layer, str):
            raise ConfigError(
                f"{self.name} belongs to the layer {layer!r}, but was read without it.\n"
                "Expected a model that Keras rebuilds from its configuration, layers first.\n"
                f"Compile the model again, with {self.name} of its own layer."
            )
        return layer

    def __call__(self, y_true, y_pred, sample_weight=None):
        """Returns the loss; `sample_weight` has one number per sequence, (B,) or (B, 1)."""
        shape = () if sample_weight is None else tuple(sample_weight.shape)
        if len(shape) > 2 or (len(shape) == 2 and shape[1] != 1):
            raise ConfigError(
                f"sample_weight of shape {shape} for {self.name}.\n"
                "Expected one weight per sequence, (B,): a sequence of labels has one loss.\n"
                "To leave tokens out, give them labels below 0 or rows of zeros."
            )
        return super().__call__(y_true, y_pred, sample_weight)

    def call(self, y_true, y_pred):
        """Returns the loss (B,) of each sequence."""
        if all(getattr(y.shape, "rank", 0) is not None for y in (y_true, y_pred)):
            # TensorFlow may know of no axes inside a compiled step.
            self._check_labels(tuple(y_true.shape), tuple(y_pred.shape))
        return self.layer.sequence_loss(y_pred, sparse(y_true, self.labels))

    def _check_labels(self, labels, scores):
        """Refuses labels of a shape that the form of this loss does not have."""
        dense = len(labels) == 3 and labels[-1] == scores[-1] != 1
        fits = dense if self.labels == "dense" else not dense
        lengths = {labels[1] if len(labels) > 1 else None, scores[1]} - {None}
        if not fits or len(lengths) > 1:
            wanted = "(B, L, K)" if self.labels == "dense" else "(B, L)"
            raise ConfigError(
                f"{self.name}: labels of shape {labels} for scores of shape {scores}.\n"
                f"Expected labels {wanted}, L as in the scores.\n"
                "sparse_loss is for label numbers, dense_loss for one-hot labels."
            )

    def get_config(self):
        """Returns the arguments that rebuild this loss beside its layer."""
        layer = self._find()
        name = layer if isinstance(layer, str) else layer.name
        return {**super().get_config(), "layer": name, "labels": self.labels}

    @classmethod
    def from_config(cls, config):
        """Rebuilds the loss around the layer of that name that was rebuilt last."""
        name = config["layer"]
        return cls(**{**config, "layer": _RESTORED.layers.get(name, name)})


@keras.saving.register_keras_serializable(package="kerasbert")
class LabelAccuracy(keras.metrics.Mean):
    """The share of tokens whose highest score is their label's, over all tokens of all batches.

    It does not look at transitions: Keras shows a metric no weights on JAX.

    Args:
        labels: "sparse" for label numbers, "dense" for one-hot vectors.
        name: its name.
    """

    def __init__(self, labels, name=None):
        super().__init__(name or f"{labels}_accuracy", dtype="float32")
        self.labels = labels

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Counts a batch; `sample_weight` is (B,), or broadcasts to (B, L)."""
        labels, scores, real = labels_and_tokens(sparse(y_true, self.labels), y_pred)
        hits = ops.cast(ops.argmax(scores, axis=-1) == labels, "float32")
        weight = ops.cast(real, "float32")
        if sample_weight is not None:
            sample_weight = ops.cast(sample_weight, "float32")
            if len(sample_weight.shape) == 1:
                sample_weight = ops.expand_dims(sample_weight, -1)
            weight = weight * sample_weight
        # Flat, for Keras would weigh sequences alike, not tokens.
        super().update_state(ops.reshape(hits, (-1,)), ops.reshape(weight, (-1,)))

    def get_config(self):
        """Returns the arguments that rebuild this metric."""
        return {"name": self.name, "labels": self.labels}

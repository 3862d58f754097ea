"""Graphs for pre-training, made of the layers of models that are there already.

Shapes: B batch, L length, H hidden size, M places of a row, V vocabulary.
"""

import keras
from keras import ops

from kerasbert.errors import ConfigError, listing
from kerasbert.layers import TakePlaces
from kerasbert.models.masked_head import masked_head
from kerasbert.models.view import find_encoder

# What a batch calls the inputs of an encoder.
NAMES = {
    "Input-Token": "input_ids",
    "Input-Segment": "segment_ids",
    "Input-Mask": "input_mask",
}

# A probability below it has no logarithm in float32.
_SMALLEST = 1e-37


def make_inputs(view, *others):
    """Returns a dict of the Keras inputs of a batch.

    Args:
        view: `EncoderView` of the model that reads it.
        *others: names of further inputs (B, M) of integers.
    """
    fixed = view.calls("Input-Token")[0].output_tensors[0].shape[1]
    tokens = {name: keras.Input((fixed,), dtype="int32", name=name) for name in NAMES.values()}
    return tokens | {name: keras.Input((None,), dtype="int32", name=name) for name in others}


class Tower:
    """A model with a masked-LM head, or the discriminator of ELECTRA, to be run on other inputs.

    Args:
        model: a functional model with one encoder of ours.

    Attributes:
        view: its `EncoderView`.
    """

    def __init__(self, model):
        self.view = find_encoder(model)
        known = {self.view.full_name(name) for name in NAMES}
        strange = [tensor.name for tensor in self.view.model.inputs if tensor.name not in known]
        if strange:
            raise ConfigError(
                f"{model.name!r} has inputs that no batch of pre-training gives: "
                f"{listing(strange)}.\n"
                f"Expected no others than {', '.join(NAMES)}.\n"
                "Build it without custom_position_ids, additional_input_layers and "
                "layer_norm_cond."
            )

    def masked_lm(self, inputs, places):
        """Runs the model and its heads.

        Args:
            inputs: dict of the tensors of a batch.
            places: list of int tensors (B, M). The masked-LM head is run for each of them, on
                the hidden states at these places alone.

        Returns:
            List of logits (B, M, V), one for each item of `places`; and the logits (B, 2) of
            the sentence head, None if there is none.

        Raises:
            ConfigError: if there is no masked-LM head, or the sentence head has an activation
                other than softmax and none.
        """
        first, hidden, logits = masked_head(self.view)
        seen = []

        def gather(state):
            seen.append(state)
            return self._gather(0)(state, places[0])

        ends = [logits, *self._sentence_ends()]
        found = self.run(inputs, ends, {first: gather})
        scores = found[:1]
        for number, more in enumerate(places[1:], start=1):
            states = self._gather(number)(seen[0], more)
            scores += run_again([hidden], [logits], [states])
        return scores, self._sentence_logits(found[1:])

    def replaced(self, inputs):
        """Returns the logits (B, L) of the discriminator."""
        if not self.view.has_layer("Discriminator-Activation"):
            raise ConfigError(
                f"{self.view.model.name!r}, of the {self.view.config.family} family, has no head "
                "that finds replaced tokens.\n"
                "Expected a discriminator of ELECTRA.\n"
                "Build it with model='electra' and with_discriminator=True."
            )
        node = self.view.calls("Discriminator-Activation")[0]
        return self.run(inputs, [node.input_tensors[0]])[0]

    def run(self, inputs, outputs, before=None):
        """Returns what stands for some tensors of the model on the inputs of a batch."""
        old = self.view.model.inputs
        names = {self.view.full_name(layer): name for layer, name in NAMES.items()}
        return run_again(old, outputs, [inputs[names[tensor.name]] for tensor in old], before)

    def _gather(self, number):
        name = f"{self.view.prefix}Take-Places" + (f"-{number}" if number else "")
        return TakePlaces(name=name, dtype=self.view.mask_layer.dtype_policy.name)

    def _sentence_ends(self):
        if not self.view.has_layer("NSP-Proba"):
            return []
        return [self.view.calls("NSP-Proba")[0].output_tensors[0]]

    def _sentence_logits(self, found):
        if not found:
            return None
        kind = self.view.layer("NSP-Proba").activation
        if kind is keras.activations.linear:
            return found[0]
        if kind is keras.activations.softmax:
            # Whose softmax they are again.
            return ops.log(ops.maximum(found[0], _SMALLEST))
        raise ConfigError(
            f"The sentence head of {self.view.model.name!r} has the activation {kind!r}.\n"
            "Expected softmax or none: its loss is a cross entropy.\n"
            "Build the model with with_nsp=True (or with_sop=True)."
        )


def run_again(inputs, outputs, new_inputs, before=None):
    """Runs a part of a graph on other tensors, with the same layers.

    Args:
        inputs: list of symbolic tensors.
        outputs: list of symbolic tensors that are computed from them.
        new_inputs: list of what stands in the place of the inputs.
        before: dict from layers to functions of what a layer is called with; the result takes
            its place.

    Returns:
        List of the tensors that stand for the outputs.
    """
    before = before or {}

    def call(layer, *args, **kwargs):
        if layer in before:
            args = (before[layer](args[0]), *args[1:])
        return layer(*args, **kwargs)

    # Not clone_model, which has no place for tensors that come in by `before`.
    part = keras.Model(inputs, outputs)
    found = part._run_through_graph(new_inputs, operation_fn=lambda layer: layer, call_fn=call)
    return keras.tree.flatten(found)


def named(name, tensor):
    """Returns a tensor as the output of a model that is called `name`, in float32."""
    return keras.layers.Activation("linear", name=name, dtype="float32")(tensor)

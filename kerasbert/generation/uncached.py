"""Decoding that runs the whole model for every new token, as the measure of all others.

Shapes: R rows, J slots a row, L length, V vocabulary.
"""

import keras
import numpy as np
from keras import ops

from kerasbert import compilation
from kerasbert.generation.prompts import Prompts
from kerasbert.generation.protocol import Decoding


class UncachedModel:
    """A model compiled for decoding without any memory; its layers may be of any kind.

    Args:
        graph: its `DecodingGraph`.
    """

    def __init__(self, graph):
        self.graph = graph
        self._logits = keras.Model(list(graph.model.inputs), graph.logits)
        self.forward = compilation.compiled(self._last_logits, graph.model.variables)

    def start(self, prompts, slots, max_new_tokens):
        """Returns the `Decoding` of some `Prompts`."""
        return UncachedDecoding(self, prompts)

    def _last_logits(self, inputs, fixed, last):
        """Returns the float32 logits (R, V) at `last` (R,)."""
        graph = self.graph
        values = {id(graph.roles[role]): value for role, value in inputs.items()}
        values |= dict(zip(map(id, graph.fixed_inputs), fixed, strict=True))
        given = [values[id(tensor)] for tensor in graph.model.inputs]
        logits = self._logits(given, training=False)
        logits = ops.take_along_axis(logits, ops.reshape(last, (-1, 1, 1)), axis=1)
        return ops.cast(logits[:, 0], "float32")


class UncachedDecoding(Decoding):
    """The texts of one call of `generate`.

    Args:
        model: an `UncachedModel`.
        prompts: the `Prompts`.
    """

    def __init__(self, model, prompts):
        self.model = model
        self.texts = prompts  # R texts at first, R * J later

    def first(self):
        """Returns the logits (R, V) of the token after each prompt."""
        self.slots = 1
        return self._logits()

    def step(self, rows, parents, tokens):
        """Goes one token on; see `Decoding`."""
        numbers = (rows[:, None] * self.slots + parents).ravel()
        texts, self.slots = self.texts, tokens.shape[1]
        new = {role: value for role, (value, _) in texts.continued(numbers).items()}
        new["tokens"] = tokens.ravel().astype("int32")
        grown = {
            role: [
                np.append(values[number], token)
                for number, token in zip(numbers, new[role], strict=True)
            ]
            for role, values in texts.rows.items()
        }
        self.texts = Prompts(texts.graph, grown, [value[numbers] for value in texts.fixed])
        return self._logits().reshape(*tokens.shape, -1)

    def _logits(self):
        count = len(self.texts)
        size = 1 << (count - 1).bit_length()
        inputs, fixed, lengths = self.texts.padded(np.arange(size) % count)
        logits = self.model.forward(inputs, fixed, lengths - 1)
        return compilation.to_numpy(logits)[:count]

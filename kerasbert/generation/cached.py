"""Decoding with the keys and values of all tokens so far kept.

All slots of a row, such as the beams of a search, share one memory: every new token of every
slot gets a column of its own there, and a table says which columns belong to the text of which
slot. Another order of the beams is another order of that small table; the memory stays.

Shapes: R rows, J slots a row, C columns of the memory, V vocabulary.
"""

import numpy as np

from kerasbert import compilation
from kerasbert.generation.memory import Memory, counts_of, stack, unstack
from kerasbert.generation.prompts import bucket
from kerasbert.generation.protocol import Decoding
from kerasbert.generation.stepwise import Step, StepwiseModel

# So many tokens a slot are written before there has to be room for more.
_ROOM = 64

# With room for fewer, the memory gets another size, for which the step has to be compiled.
_LEAST_ROOM = 8

# Up to so many rows, the greater part of a step is the reading of the weights.
_FEW_ROWS = 16


class CachedModel:
    """A model compiled for cached decoding.

    Args:
        graph: its `DecodingGraph`.

    Raises:
        ConfigError: see `StepwiseModel`.
    """

    def __init__(self, graph):
        self.graph = graph
        stepwise, variables = StepwiseModel(graph), graph.model.variables
        self.prompt = compilation.compiled(stepwise.prompt, variables)

        def step(stacks, inputs, index, places, visible, crossed, kept):
            step = Step(inputs, index, places, visible)
            logits, new = stepwise.step(step, unstack(stacks), crossed, kept)
            return logits, stack(new, counts_of(stacks))

        self.step = compilation.compiled_writer(step, variables)

    def start(self, prompts, slots, max_new_tokens):
        """Returns the `Decoding` of some `Prompts`, for a number of slots a row."""
        return CachedDecoding(self, prompts, slots, max_new_tokens)


class CachedDecoding(Decoding):
    """The texts of one call of `generate`.

    Args:
        model: a `CachedModel`.
        prompts: the `Prompts`.
        slots: J.
        max_new_tokens: how many tokens may follow.
    """

    def __init__(self, model, prompts, slots, max_new_tokens):
        self.model = model
        self.prompts = prompts
        self.slots = slots
        self.room = min(max_new_tokens, _ROOM)

    def first(self):
        """Returns the logits (R, V) of the token after each prompt."""
        count = len(self.prompts)
        size = self._size(count)
        rows = np.arange(size) % count
        inputs, fixed, lengths = self.prompts.padded(rows)
        logits, carried, self.crossed, self.kept = self.model.prompt(inputs, fixed, lengths - 1)
        self.at = np.arange(count)  # where each row stands in the memory
        self.index = lengths.astype("int32")  # the place of the next token of each row
        self.continued = self.prompts.continued(rows)
        self.filled = next(iter(inputs.values())).shape[1]
        self.memory = Memory(carried, self._capacity(self.filled))
        columns = np.arange(self.memory.capacity, dtype="int32")
        self.places = np.tile(columns, (size, 1))
        self.visible = self._table(self.prompts.visible(inputs))
        return compilation.to_numpy(logits)[:count]

    def step(self, rows, parents, tokens):
        """Goes one token on; see `Decoding`."""
        self.at = self.at[rows]
        visible = np.zeros((len(self.index), tokens.shape[1], self.visible.shape[2]), bool)
        visible[self.at] = np.take_along_axis(self.visible[self.at], parents[..., None], axis=1)
        self.visible = visible
        self._make_room(tokens.shape[1])
        shape = (len(self.index), tokens.shape[1])
        ids = np.zeros(shape, "int32")
        ids[self.at] = tokens
        index = np.broadcast_to(self.index[:, None], shape)
        inputs = {"tokens": ids}
        for role, (value, increment) in self.continued.items():
            inputs[role] = np.broadcast_to(value[:, None], shape)
            self.continued[role] = (value + increment, increment)
        column = np.array(self.filled, "int32")
        tables = (index, self.places, self.visible)
        logits, self.memory.stacks = self.model.step(
            self.memory.stacks, column, inputs, *tables, self.crossed, self.kept
        )
        # Waits for the step: JAX may go on reading the tables that are changed below.
        logits = compilation.to_numpy(logits)[self.at]
        columns = self.filled + np.arange(tokens.shape[1])
        self.visible[:, columns - self.filled, columns] = True
        self.places[:, columns] = index
        self.filled += tokens.shape[1]
        self.index = self.index + 1
        return logits

    def _size(self, rows):
        """The number of rows to compute for so many: few numbers, as each is compiled for."""
        return 1 << (rows - 1).bit_length()

    def _capacity(self, columns):
        return bucket(columns + self.slots * self.room)

    def _table(self, visible):
        """Widens a table (·, ·, c) of who sees whom to all columns."""
        missing = self.memory.capacity - visible.shape[2]
        return np.pad(visible, ((0, 0), (0, 0), (0, missing)))

    def _make_room(self, slots):
        """Lets go of rows that ended, and of columns that no slot sees any more."""
        size, now = self._size(len(self.at)), len(self.index)
        # To compile for another number of rows takes seconds; few rows cost little more than one.
        if size * (2 if now > _FEW_ROWS else 4) > now:
            size = now
        if size == now and self.filled + slots <= self.memory.capacity:
            return
        rows = np.resize(self.at, size)
        seen = self.visible[rows].any(axis=1)  # (size, C)
        self.filled = int(seen.sum(axis=1).max())
        # The columns that are seen, in their order, then others that fill up.
        columns = np.argsort(~seen, axis=1, kind="stable")[:, : self.filled].astype("int32")
        capacity = self.memory.capacity
        if self.filled + _LEAST_ROOM * slots > capacity:
            capacity = self._capacity(self.filled)
        self.memory.pick(rows, columns, capacity)
        self.visible = self._table(np.take_along_axis(self.visible[rows], columns[:, None], 2))
        places = np.take_along_axis(self.places[rows], columns, axis=1)
        self.places = np.pad(places, ((0, 0), (0, self.memory.capacity - self.filled)))
        self.index = self.index[rows]
        self.continued = {role: (v[rows], n) for role, (v, n) in self.continued.items()}
        self.crossed, self.kept = compilation.rows_of((self.crossed, self.kept), rows)
        self.at = np.arange(len(self.at))

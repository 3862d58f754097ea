"""The texts that are to be gone on with, in whatever form a user gives them.

Shapes: R rows, L length.
"""

import reprlib
from dataclasses import dataclass

import numpy as np

from kerasbert.errors import ConfigError, did_you_mean, listing
from kerasbert.generation.graph import DecodingGraph

_LEAST_BUCKET = 16


def bucket(length):
    """Returns the next number of the form 2^k or 3 * 2^k: few lengths to compile for."""
    power = 1 << max(int(length) - 1, _LEAST_BUCKET - 1).bit_length()
    return power * 3 // 4 if length <= power * 3 // 4 and power > _LEAST_BUCKET else power


@dataclass(frozen=True)
class Prompts:
    """Some texts without padding, and the other inputs of the model.

    Attributes:
        graph: the `DecodingGraph` of the model.
        rows: dict from the role of an input to a list of int arrays (L,), one for each text.
        fixed: list of the values of the inputs that do not grow, arrays (R, …).
    """

    graph: DecodingGraph
    rows: dict
    fixed: list

    def __len__(self):
        return len(self.rows["tokens"])

    def lengths(self):
        """Returns the lengths of the texts, an int array (R,)."""
        return np.array([len(row) for row in self.rows["tokens"]], "int32")

    def padded(self, numbers):
        """Returns the texts of these numbers as a batch.

        Returns:
            Dict from roles to int arrays (R, L), padded on the right; the list of the other
            inputs; and the lengths (R,).
        """
        lengths = self.lengths()[numbers]
        longest = int(lengths.max())
        limit = self.graph.max_positions
        size = bucket(longest) if limit is None else max(longest, min(bucket(longest), limit))
        inputs = {}
        for role, rows in self.rows.items():
            filler = self.graph.pad_id or 0 if role == "tokens" else 0
            batch = np.full((len(numbers), size), filler, "int32")
            for line, number in zip(batch, numbers, strict=True):
                line[: len(rows[number])] = rows[number]
            inputs[role] = batch
        return inputs, [value[numbers] for value in self.fixed], lengths

    def visible(self, inputs):
        """Returns what the next token sees of a padded batch, bool (R, 1, L)."""
        tokens = inputs["tokens"]
        if "mask" in inputs:
            real = inputs["mask"] != 0
        elif self.graph.pad_id is None:
            # What is behind a text is overlooked by its length.
            real = np.ones(tokens.shape, bool)
        else:
            real = tokens != self.graph.pad_id
            real[:, 0] |= self.graph.starts_with_padding
        return real[:, None]

    def continued(self, numbers):
        """Returns what the other inputs of the next token are.

        Returns:
            Dict from roles to a pair: an int array (R,), and what is added for every token.
        """
        found = {}
        for role, rows in self.rows.items():
            last = np.array([rows[number][-1] for number in numbers], "int32")
            if role == "segments":
                found[role] = (np.ones_like(last) if self.graph.is_unilm else last, 0)
            elif role == "positions":
                found[role] = (last + 1, 1)
            elif role == "mask":
                found[role] = (np.ones_like(last), 0)
        return found

    def written(self):
        """Returns, for each row, the tokens that count as text written so far."""
        tokens = self.rows["tokens"]
        if not self.graph.is_unilm:
            return tokens
        segments = self.rows["segments"]
        return [row[own != 0] for row, own in zip(tokens, segments, strict=True)]

    def check_room(self, max_new_tokens):
        """Refuses texts that would get longer than the model has positions.

        Raises:
            ConfigError: names the row and the limit.
        """
        limit = self.graph.max_positions
        if limit is None:
            return
        ends = self.lengths()
        if "positions" in self.rows:
            ends = np.array([row.max() + 1 for row in self.rows["positions"]])
        longest = int(ends.argmax())
        # The last new token is never read.
        if ends[longest] + max_new_tokens - 1 > limit:
            raise ConfigError(
                f"Row {longest} has {ends[longest]} tokens, and max_new_tokens={max_new_tokens}.\n"
                f"Expected at most {limit + 1} together: the model has {limit} positions.\n"
                f"Shorten the text, or pass max_new_tokens={max(limit + 1 - ends[longest], 0)} at "
                "most."
            )


def read_prompts(graph, inputs):
    """Reads what `generate` was given as its inputs.

    Args:
        graph: the `DecodingGraph` of the model.
        inputs: see `kerasbert.generate`.

    Returns:
        `Prompts`.

    Raises:
        ConfigError: names the input, the row and the value that will not do.
    """
    given = _by_name(graph, inputs)
    names = {role: _name(tensor) for role, tensor in graph.roles.items()}
    rows = {role: _rows(name, given.pop(name)) for role, name in names.items() if name in given}
    fixed = []
    for tensor in graph.fixed_inputs:
        if _name(tensor) not in given:
            raise ConfigError(
                f"The input {_name(tensor)!r} is missing.\n"
                f"Expected values for {listing(_name(t) for t in graph.model.inputs)}.\n"
                "Give them as a list in this order, or as a dict by these names."
            )
        fixed.append(_fixed(graph, tensor, given[_name(tensor)]))
    if "tokens" not in rows:
        if not graph.starts_with_padding:
            raise ConfigError(
                f"The input {names['tokens']!r} is missing.\nExpected the ids of each text."
            )
        rows["tokens"] = [np.zeros(1, "int32")] * len(fixed[0])
    _check_tokens(graph, names["tokens"], rows["tokens"])
    rows = _complete(graph, rows)
    _check_sizes(names, rows, dict(zip(map(_name, graph.fixed_inputs), fixed, strict=True)))
    return Prompts(graph, _stripped(graph, rows), fixed)


def _name(tensor):
    return tensor._keras_history.operation.name


def _by_name(graph, inputs):
    """Returns a dict from the names of inputs to their values."""
    names = [_name(tensor) for tensor in graph.model.inputs]
    if isinstance(inputs, dict):
        for name in inputs:
            if name not in names:
                raise ConfigError(
                    f"There is no input {name!r}.{did_you_mean(name, names)}\n"
                    f"Expected some of: {', '.join(names)}."
                )
        return dict(inputs)
    if _depth(inputs) < 3 or not isinstance(inputs, list | tuple):
        return {names[0]: inputs}
    if len(inputs) > len(names):
        raise ConfigError(
            f"Got a list of {len(inputs)} inputs.\n"
            f"Expected at most {len(names)}: {', '.join(names)}."
        )
    return dict(zip(names, inputs, strict=False))


def _depth(value):
    if isinstance(value, list | tuple):
        return 1 + max((_depth(item) for item in value[:1]), default=0)
    return np.ndim(value)


def _rows(name, value):
    """Returns a list of int arrays, one for each row."""
    if _depth(value) == 1:
        value = [value]
    if _depth(value) != 2:
        raise ConfigError(
            f"{name}: got {reprlib.repr(value)}, of {_depth(value)} nested levels.\n"
            "Expected rows of ids: a list of lists, or an array (rows, length).\n"
            "Encode texts by a tokenizer first."
        )
    rows = []
    for number, row in enumerate(value):
        array = np.asarray(row)
        if array.size and (array.dtype.kind not in "iu" or array.ndim != 1):
            raise ConfigError(
                f"{name}: row {number} holds {array.dtype} numbers of the shape {array.shape}.\n"
                "Expected integer ids.\nEncode texts by a tokenizer first."
            )
        rows.append(array.astype("int64"))
    return rows


def _fixed(graph, tensor, value):
    """Returns the value of an input that does not grow, as one array."""
    kind = np.dtype("float32") if "float" in tensor.dtype else np.dtype(tensor.dtype)
    if len(tensor.shape) != 2 or kind.kind not in "iu":
        value = np.asarray(value, kind)
        if value.ndim != len(tensor.shape):
            raise ConfigError(
                f"{_name(tensor)}: got the shape {value.shape}.\nExpected {tensor.shape}."
            )
        return value
    rows = _rows(_name(tensor), value)
    if _name(tensor).endswith("Token"):
        _check_tokens(graph, _name(tensor), rows)
        for number, row in enumerate(rows):
            if not row.any():
                raise ConfigError(
                    f"{_name(tensor)}: row {number} has no token, or only padding.\n"
                    "Expected a text to read."
                )
    size = tensor.shape[1] or bucket(max(map(len, rows)))
    batch = np.zeros((len(rows), max(size, *map(len, rows))), kind)
    for line, row in zip(batch, rows, strict=True):
        line[: len(row)] = row
    return batch


def _check_tokens(graph, name, rows):
    if not rows:
        raise ConfigError(f"{name}: there is no row.\nExpected at least one text.")
    for number, row in enumerate(rows):
        wrong = row[(row < 0) | (row >= graph.vocab_size)]
        if len(wrong):
            raise ConfigError(
                f"{name}: row {number} holds the id {wrong[0]}.\n"
                f"Expected ids from 0 to {graph.vocab_size - 1}.\n"
                "Is this the tokenizer of the model?"
            )


def _complete(graph, rows):
    """Adds what the inputs besides the tokens are by default."""
    tokens = rows["tokens"]
    defaults = {
        "segments": lambda row: np.zeros_like(row),
        "positions": lambda row: np.arange(len(row)),
        "mask": lambda row: np.ones_like(row),
    }
    if "positions" in graph.roles and "positions" not in rows:
        # They count from the first token that is real.
        rows = _stripped(graph, rows)
        tokens = rows["tokens"]
    missing = {role: make for role, make in defaults.items() if role in graph.roles}
    return {role: list(map(make, tokens)) for role, make in missing.items()} | rows


def _check_sizes(names, rows, fixed):
    tokens = rows["tokens"]
    counts = {names[role]: len(values) for role, values in rows.items()}
    counts |= {name: len(values) for name, values in fixed.items()}
    for name, count in counts.items():
        if count != len(tokens):
            raise ConfigError(
                f"{name} has {count} rows, {names['tokens']} {len(tokens)}.\n"
                "Expected one for each text."
            )
    for role, values in rows.items():
        for number, (row, own) in enumerate(zip(tokens, values, strict=True)):
            if len(row) != len(own):
                raise ConfigError(
                    f"{names[role]}: row {number} has {len(own)} entries, its text {len(row)} "
                    "tokens.\nExpected one for each token."
                )


def _stripped(graph, rows):
    """Takes the padding at both ends of every text away."""
    stripped = {role: [] for role in rows}
    for number, tokens in enumerate(rows["tokens"]):
        real = np.ones(len(tokens), bool)
        if "mask" in rows:
            real = rows["mask"][number] != 0
        elif graph.pad_id is not None:
            real = tokens != graph.pad_id
            real[:1] |= graph.starts_with_padding
        places = np.flatnonzero(real)
        if not len(places):
            raise ConfigError(
                f"Row {number} has no token, or only padding.\n"
                "Expected at least one token to go on from, such as [CLS].\n"
                "Several inputs are given as [[ids, …], [segments, …]], even for a single text."
            )
        for role in rows:
            stripped[role].append(rows[role][number][places[0] : places[-1] + 1].astype("int32"))
    return stripped

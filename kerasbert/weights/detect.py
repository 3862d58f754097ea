"""Recognises the dialect of a checkpoint from the names of its variables."""

from dataclasses import dataclass

from kerasbert.errors import ConfigError, WeightMismatchError, listing
from kerasbert.weights.dialects import DIALECTS
from kerasbert.weights.dialects.foreign import (
    FOREIGN,
    GROUPED_KERNEL,
    KERAS_MADE,
    OPTIMIZER_SLOT,
)
from kerasbert.weights.mapping import Dialect

# Absent where E == H.
_OPTIONAL = ("Embedding-Mapping/kernel", "Embedding-Mapping/bias")


@dataclass(frozen=True)
class Match:
    """A dialect found in a file.

    Attributes:
        dialect: the `Dialect`.
        prefix: what stands before every name of the file.
        places: dict from each address found to its (layer, group, inner), None where the
            address does not say.
        stacks: dict from each address found to "encoder" or "decoder".
        known: the names of the file that the dialect knows.
    """

    dialect: Dialect
    prefix: str
    places: dict
    stacks: dict
    known: frozenset

    @property
    def placed_rows(self):
        """Pairs of a row and the place before its names, the outer rows first."""
        outer = [(row, self.prefix) for row in self.dialect.top_rows]
        blocks = self.dialect.blocks
        return outer + [(row, at) for at in self.places for row in blocks[self.stacks[at]].rows]


def dialects_of(view, dialects=None):
    """Returns the dialects of a user's own that a model is to be read or written with.

    Args:
        view: `EncoderView` of the model.
        dialects: those given for this one call; None for those of the class of the model.

    Raises:
        WeightMismatchError: if the model had some, and was reloaded from a file without them.
    """
    if dialects is not None:
        return tuple(dialects)
    if view.dialect_names and not view.dialects:
        raise WeightMismatchError(
            f"{view.model.name!r} was built by a class with name tables of its own "
            f"({listing(view.dialect_names)}), which a .keras file does not hold.\n"
            "Expected them as dialects=, such as dialects=MyModel.dialects."
        )
    return view.dialects


def detect(checkpoint, family=None, own=()):
    """Finds the one dialect whose encoder names the checkpoint holds.

    Args:
        checkpoint: an opened checkpoint.
        family: the family asked for; decides where a file holds several.
        own: `Dialect`s of a user's, which take the place of the built-in ones of `family`.

    Returns:
        The `Match` that knows the most names, of `family` if the file holds one.

    Raises:
        WeightMismatchError: if no dialect fits; says what the file seems to be.
        ConfigError: if a dialect of `own` is of another family.
    """
    _check_own(own, family)
    matches = matches_in(checkpoint, own)
    asked_for = [match for match in matches if match.dialect.family == family]
    best = max(asked_for or matches, key=lambda match: _rank(checkpoint, match))
    _refuse_grouped_kernels(checkpoint, best)
    return best


def matches_in(checkpoint, own=()):
    """Lists a `Match` for every dialect whose encoder names the checkpoint holds.

    Args:
        checkpoint: an opened checkpoint.
        own: see `detect`.

    Raises:
        WeightMismatchError: if there is none; says what the file seems to be.
    """
    if any(KERAS_MADE[0].search(name) for name in checkpoint.shapes):
        raise WeightMismatchError(_foreign(checkpoint, *KERAS_MADE[1:]))
    replaced = {dialect.family for dialect in own}
    known = (*own, *(dialect for dialect in DIALECTS if dialect.family not in replaced))
    matches = [
        match
        for dialect in known
        for prefix in dialect.prefixes
        if (match := _match(checkpoint.shapes, dialect, prefix))
    ]
    if not matches:
        raise WeightMismatchError(_unrecognised(checkpoint, known))
    return matches


def best_matches(checkpoint):
    """Lists those of `matches_in` that know the most names, and of these lack the fewest."""
    matches = matches_in(checkpoint)
    highest = max(_rank(checkpoint, match) for match in matches)
    return [match for match in matches if _rank(checkpoint, match) == highest]


def _rank(checkpoint, match):
    """How many names are known, and how few variables outside of blocks are absent."""
    lacking = sum(
        not any(name in checkpoint.shapes for name in row.names(match.prefix))
        for row in match.dialect.top_rows
        if row.head is None and row.ours not in _OPTIONAL
    )
    return len(match.known), -lacking


def is_optimizer_slot(name):
    """Whether a variable is the state of an optimizer or a step counter."""
    return OPTIMIZER_SLOT.search(name) is not None


def _match(shapes, dialect, prefix):
    if not all(prefix + name in shapes for name in dialect.required):
        return None
    if any(prefix + name in shapes for name in dialect.forbidden):
        return None
    dialect = dialect.for_names(shapes)
    known = {name for row in dialect.top_rows for name in row.names(prefix)} & shapes.keys()
    places, stacks = {}, {}
    for stack, blocks in dialect.blocks.items():
        block_names = {name for row in blocks.rows for name in row.names("")}
        pattern = blocks.pattern(prefix)
        for name in shapes:
            found = pattern.fullmatch(name)
            if found and found["rest"] in block_names:
                known.add(name)
                stacks[found["address"]] = stack
                places[found["address"]] = _position(found.groupdict())
    return Match(dialect, prefix, places, stacks, frozenset(known)) if places else None


def _position(captured):
    return tuple(
        int(captured[key]) if captured.get(key) else None for key in ("layer", "group", "inner")
    )


def _check_own(own, family):
    for dialect in own:
        if not isinstance(dialect, Dialect) or dialect.family != family:
            raise ConfigError(
                f"Among the dialects of a model of the {family} family is {dialect!r:.200}.\n"
                f"Expected `Dialect`s with family={family!r}."
            )


def _unrecognised(checkpoint, known):
    names = sorted(name for name in checkpoint.shapes if not is_optimizer_slot(name))
    for pattern, kind, advice in FOREIGN:
        if any(pattern.search(name) for name in names):
            return _foreign(checkpoint, kind, advice, known)
    kind = f"no encoder that kerasbert knows; its variables are: {listing(names) or 'none'}"
    advice = "Pass the pre-trained checkpoint, with the names of the original code."
    return _foreign(checkpoint, kind, advice, known)


def _foreign(checkpoint, kind, advice, known=DIALECTS):
    wanted = "; ".join(sorted({dialect.title for dialect in known}))
    return f"{checkpoint.source} is {kind}.\nExpected one of: {wanted}.\n{advice}"


def _refuse_grouped_kernels(checkpoint, match):
    for name in sorted(match.known):
        if GROUPED_KERNEL.search(name) and len(checkpoint.shapes[name]) == 3:
            raise WeightMismatchError(
                f"{checkpoint.source} holds grouped feed-forward kernels: {name} has the shape "
                f"{checkpoint.shapes[name]}.\n"
                "Expected kernels with two axes.\n"
                "This is the experimental architecture of albert_zh's modeling_google_fast.py, "
                "for which no weights were ever published; kerasbert does not build it."
            )

"""What happened to every variable of a model and of a file, and how to say it."""

import html
from dataclasses import dataclass, field

from kerasbert.errors import listing


@dataclass
class LoadReport:
    """The account of one load: every variable of either side is in exactly one list.

    Attributes:
        source: the checkpoint.
        dialect: title of the recognised dialect.
        loaded: dict from each loaded model variable to the names it was read from.
        missing: model variables without a counterpart in the file; they keep their values.
        misshapen: model variables whose array in the file has another shape, of which
            `ignore_invalid_weights` makes no error; they keep their values.
        resized: dict from each variable that `autoresize_weights` resized to the shape in the
            file and its own.
        conditions: variables by which a condition steers the norms, of which no file knows.
        unused_heads: names of heads in the file that the model does not have.
        unused: all other names that nothing read.
        skipped_layers: names of blocks beyond the number of layers asked for.
        optimizer_slots: names of optimizer state.
        buffers: names of constants that the model computes itself, such as position ids.
        notes: sentences about decisions taken from the file.
        chosen: how model="auto" was decided; None if the model was named.
    """

    source: str
    dialect: str
    loaded: dict = field(default_factory=dict)
    missing: list = field(default_factory=list)
    misshapen: list = field(default_factory=list)
    resized: dict = field(default_factory=dict)
    conditions: list = field(default_factory=list)
    unused_heads: list = field(default_factory=list)
    unused: list = field(default_factory=list)
    skipped_layers: list = field(default_factory=list)
    optimizer_slots: list = field(default_factory=list)
    buffers: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    chosen: str | None = None

    @property
    def fan_out(self):
        """The largest number of model variables that were filled from one name."""
        uses = {}
        for names in self.loaded.values():
            for name in names:
                uses[name] = uses.get(name, 0) + 1
        return max(uses.values(), default=0)

    @property
    def read(self):
        """The names that were read."""
        return sorted({name for names in self.loaded.values() for name in names})

    def headline(self):
        """One line that says how the load went."""
        parts = [f"{len(self.loaded)} variables loaded"]
        for label, names in (
            ("missing", [*self.missing, *self.misshapen]),
            ("resized", self.resized),
            ("unused", [*self.unused_heads, *self.unused, *self.skipped_layers]),
        ):
            if names:
                parts.append(f"{len(names)} {label}")
        choice = f"; {self.chosen}" if self.chosen else ""
        return f"{self.dialect}: {', '.join(parts)} ({self.source}){choice}"

    def rows(self):
        """Pairs (what, text) for display, at most fourteen."""
        loaded = f"{len(self.loaded)} model variables from {len(self.read)} names"
        if self.fan_out > 1:
            loaded += f"; one name fills up to {self.fan_out} blocks"
        rows = [
            ("checkpoint", str(self.source)),
            ("dialect", self.dialect),
            ("model", self.chosen or ""),
            ("loaded", loaded),
            ("missing", _named(self.missing, "keep their initial values")),
            ("misshapen", _named(self.misshapen, "keep their initial values")),
            ("resized", _named(map(_change, self.resized.items()), "other widths in the file")),
            ("conditions", _named(self.conditions, "of the norms, in no file")),
            ("unused heads", _named(self.unused_heads, "not asked for")),
            ("unused", _named(self.unused, "of no use to this model")),
            ("skipped layers", _named(self.skipped_layers, "beyond num_hidden_layers")),
            ("optimizer", _counted(self.optimizer_slots, "slots skipped")),
            ("buffers", _counted(self.buffers, "constants skipped")),
            ("notes", " ".join(self.notes)),
        ]
        return [(label, text) for label, text in rows if text]

    def __str__(self):
        return "\n".join(f"{label:<15}{text}" for label, text in self.rows())

    def _repr_html_(self):
        body = "".join(
            f"<tr><th style='text-align:left'>{html.escape(label)}</th>"
            f"<td style='text-align:left'>{html.escape(text)}</td></tr>"
            for label, text in self.rows()
        )
        return f"<table>{body}</table>"


def _change(item):
    path, (old, new) = item
    return f"{path} {old} -> {new}"


def _named(names, remark):
    names = list(names)
    return f"{len(names)} ({remark}): {listing(names, limit=6)}" if names else ""


def _counted(names, remark):
    return f"{len(names)} {remark}" if names else ""

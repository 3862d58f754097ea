"""Pairs model variables with checkpoint names: rows joined on depth.

A dialect is a table of rows "our variable - their name", written once for the outer
variables and once for a block, and an address that says where the block of a depth
stands in the file. The model says which block serves which depth. Joining the two on
depth gives every edge "variable - name", for reading and for writing alike; sharing,
un-sharing and groups need no branch of their own.
"""

import re
from dataclasses import dataclass

from kerasbert.depth import depth_plan
from kerasbert.errors import WeightMismatchError


@dataclass(frozen=True)
class Row:
    """One variable: its path here, its name there.

    Attributes:
        ours: layer and variable path, such as "MLM-Dense/kernel"; in block rows the part
            and variable path, such as "attention/query/kernel".
        theirs: name in the file; in block rows relative to the address.
        dims: the shape there in symbols (V vocabulary, E embedding, H hidden, I inner, P
            positions, T segment types, W width of norm and tables, 2), such as "V E".
        head: None for the encoder itself, else "pooler", "nsp" or "mlm".
        transpose: whether the array there is our array transposed.
        vocab: whether the first axis runs over the vocabulary.
    """

    ours: str
    theirs: str
    dims: str
    head: str | None = None
    transpose: bool = False
    vocab: bool = False

    def convert(self, array):
        """Turns an array of the file into ours, or ours into the file's (its own inverse)."""
        return array.T if self.transpose else array


def dense(ours, theirs, dims, head=None):
    """The two rows of a dense layer with a kernel of shape `dims`."""
    return (
        Row(f"{ours}/kernel", f"{theirs}/kernel", dims, head),
        Row(f"{ours}/bias", f"{theirs}/bias", dims.split()[-1], head),
    )


def norm(ours, theirs, dims, head=None):
    """The two rows of a layer normalisation of width `dims`."""
    return (
        Row(f"{ours}/gamma", f"{theirs}/gamma", dims, head),
        Row(f"{ours}/beta", f"{theirs}/beta", dims, head),
    )


@dataclass(frozen=True)
class Dialect:
    """How one family of checkpoints names its variables.

    Attributes:
        name: short name, as in `save_weights_as_checkpoint(dialect=…)`.
        title: what a user would call such a file.
        family: family of the models it holds.
        embedding_order: see `ModelConfig`.
        ln_types: the norm placements that its original code can run.
        top_rows: rows outside the blocks.
        required: names that every such file has, and that tell it from its neighbours.
        address: template of the place of a block, from `layer`, `group`, `inner`.
        block_rows: rows of a block.
        scopes: beginnings of the names that belong to the encoder itself.
        prefixes: what may stand before every name.
    """

    name: str
    title: str
    family: str
    embedding_order: str
    ln_types: tuple
    top_rows: tuple
    required: tuple
    address: str
    block_rows: tuple
    scopes: tuple
    prefixes: tuple = ("", "module/")

    @property
    def uses_groups(self):
        """Whether the address tells groups of layers apart."""
        return "{group}" in self.address

    @property
    def has_layer_addresses(self):
        """Whether different layers can stand at different addresses."""
        return "{layer}" in self.address or self.uses_groups

    def address_pattern(self, prefix):
        """A regular expression for a name inside a block; captures the place and the rest."""
        pattern = re.escape(prefix + self.address)
        for key in ("layer", "group", "inner"):
            pattern = pattern.replace(re.escape(f"{{{key}}}"), rf"(?P<{key}>\d+)")
        return re.compile(rf"(?P<address>{pattern})(?P<rest>.+)", re.ASCII)

    def depths(self, config):
        """The depths with the groups as the file counts them."""
        return depth_plan(
            config.num_hidden_layers, config.inner_group_num, config.num_hidden_groups
        )


@dataclass(frozen=True)
class Edge:
    """One variable of the model and one name of the file that belong together."""

    path: str
    variable: object
    name: str
    row: Row


def edges(view, dialect, prefix, config=None):
    """Lists every pair of a model variable and a checkpoint name.

    Args:
        view: `EncoderView` of the model.
        dialect: the `Dialect` of the file.
        prefix: what stands before every name of the file.
        config: `ModelConfig` whose groups the file has; default is the model's own.

    Returns:
        A list of `Edge`s without repetitions. Variables of the model that no row knows are
        in none of them.
    """
    found = {}
    for row in dialect.top_rows:
        layer_name, _, rest = row.ours.partition("/")
        if view.has_layer(layer_name):
            _add(found, view.layer(layer_name), layer_name, rest, prefix + row.theirs, row)
    names = {part: view.part_names(part) for part in ("attention", "feed_forward")}
    for depth in dialect.depths(config or view.config):
        place = prefix + dialect.address.format(
            layer=depth.layer, group=depth.group, inner=depth.inner
        )
        for row in dialect.block_rows:
            part, _, rest = row.ours.partition("/")
            layer_name = names[part][depth.index]
            layer = _block_layer(view, layer_name)
            _add(found, layer, layer_name, rest, place + row.theirs, row)
    return list(found.values())


def relative_weights(layer):
    """Dict from the path of a weight relative to its layer to the weight.

    `Variable.path` begins with the scopes of outer models, so it does not identify a weight.
    """
    marker = f"{layer.name}/"
    return {weight.path.rpartition(marker)[2]: weight for weight in layer.weights}


def _block_layer(view, name):
    if not view.has_layer(name):
        raise WeightMismatchError(
            f"{view.model.name!r} has no layer {name!r}: it is only a part of its encoder.\n"
            "Expected a model with all blocks.\n"
            "Load or save the whole model, and cut it afterwards."
        )
    return view.layer(name)


def _add(found, layer, layer_name, rest, name, row):
    variable = relative_weights(layer).get(rest)
    if variable is not None:
        edge = Edge(f"{layer_name}/{rest}", variable, name, row)
        found.setdefault((edge.path, name), edge)

"""The parts of a name table.

A dialect is a table of rows "our variable - their name", written once for the outer
variables and once for a block, and an address that says where the block of a depth
stands in the file. `pairing.py` joins it with a model.
"""

import re
from dataclasses import dataclass, replace
from string import Formatter

from kerasbert.depth import depth_plan
from kerasbert.errors import ConfigError


@dataclass(frozen=True)
class Row:
    """One variable: its path here, its name there.

    Attributes:
        ours: layer and variable path, such as "MLM-Dense/kernel"; in block rows the part
            and variable path, such as "attention/query/kernel". A part that is neither of
            the family's is the end of a layer name: "Adapter/kernel" is that of
            "Transformer-0-Adapter".
        theirs: name in the file, or a tuple of names of which any may stand there (the first
            is written; several must hold equal values); in block rows relative to the address.
        dims: the shape there in symbols (V vocabulary, E embedding, H hidden, I inner, P
            positions, T segment types, N heads, K width of all heads, S queries and keys of a
            single head, R buckets of distances, W width of norm and tables, 2), such as "V E".
        head: None for the encoder itself, else "pooler", "nsp", "mlm", "lm", "discriminator"
            or "classifier".
        transpose: whether the array there is our array transposed.
        vocab: whether our first axis runs over the vocabulary.
        outside: whether the prefix of the file does not apply to this name.
        tied: whether the file repeats here, under a name of the head, a variable that has a
            name of its own; it is compared when the head is read, and never written.
        part: (i, n) if our variable is the i-th of n equal parts of the last axis there.
    """

    ours: str
    theirs: str | tuple
    dims: str
    head: str | None = None
    transpose: bool = False
    vocab: bool = False
    outside: bool = False
    tied: bool = False
    part: tuple | None = None

    def names(self, place):
        """The names this row may have in a file, full, the one to write first."""
        place = "" if self.outside else place
        aliases = (self.theirs,) if isinstance(self.theirs, str) else self.theirs
        return tuple(place + alias for alias in aliases)

    def choose(self, place, present):
        """The names to read among those `present`, or the one to write if that is None."""
        names = self.names(place)
        if present is None:
            return names[:1]
        return [name for name in names if name in present] or names[:1]

    def from_file(self, array):
        """Turns an array of the file into the value of our variable."""
        if self.part is not None:
            index, count = self.part
            width = array.shape[-1] // count
            array = array[..., index * width : (index + 1) * width]
        return array.T if self.transpose else array

    def to_file(self, array):
        """Turns the value of our variable into an array of the file, or into its part of one."""
        return array.T if self.transpose else array

    def shape_in_file(self, shape):
        """Returns the shape that a variable of ours has in the file."""
        shape = tuple(shape)[::-1] if self.transpose else tuple(shape)
        return shape if self.part is None else (*shape[:-1], shape[-1] * self.part[1])

    def shape_here(self, shape):
        """Returns the shape of our variable for an array of the file; undoes `shape_in_file`."""
        shape = tuple(shape)
        if self.part is not None and shape:
            shape = (*shape[:-1], shape[-1] // self.part[1])
        return shape[::-1] if self.transpose else shape


# What the symbols of `Row.dims` are called in a configuration.
KEY_OF_SYMBOL = {
    "V": "vocab_size",
    "E": "embedding_size",
    "H": "hidden_size",
    "I": "intermediate_size",
    "P": "max_position_embeddings",
    "T": "type_vocab_size",
    "N": "num_attention_heads",
    "R": "relative_attention_num_buckets",
    "S": "attention_key_size",
}


def one_stack(address, rows):
    """Makes the `blocks` of a dialect whose models have an encoder only.

    Args:
        address: see `Blocks`.
        rows: see `Blocks`.

    Returns:
        A dict with the one stack.

    Raises:
        ConfigError: if the address has a field that no depth has.

    Example:
        >>> one_stack("layer_{layer}/", norm("attention/norm", "norm", "H"))["encoder"].address
        'layer_{layer}/'
    """
    return {"encoder": Blocks(address, rows)}


def dense(ours, theirs, dims, head=None):
    """Makes the two rows of a dense layer.

    Args:
        ours: path of the layer here, such as "attention/query".
        theirs: its name there.
        dims: shape of its kernel, see `Row`.
        head: see `Row`.

    Returns:
        A tuple of two `Row`s, of kernel and bias.

    Raises:
        ConfigError: if `dims` has not two symbols.

    Example:
        >>> [row.theirs for row in dense("Pooler-Dense", "pooler", "H H", head="pooler")]
        ['pooler/kernel', 'pooler/bias']
    """
    _check_dims(ours, dims, 2)
    return (
        Row(f"{ours}/kernel", f"{theirs}/kernel", dims, head),
        Row(f"{ours}/bias", f"{theirs}/bias", dims.split()[-1], head),
    )


def norm(ours, theirs, dims, head=None):
    """Makes the two rows of a layer normalisation.

    Args:
        ours: path of the layer here.
        theirs: its name there.
        dims: its width, see `Row`.
        head: see `Row`.

    Returns:
        A tuple of two `Row`s, of gamma and beta.

    Raises:
        ConfigError: if `dims` has not one symbol.

    Example:
        >>> [row.theirs for row in norm("Embedding-Norm", "embeddings_norm", "E")]
        ['embeddings_norm/gamma', 'embeddings_norm/beta']
    """
    _check_dims(ours, dims, 1)
    return (
        Row(f"{ours}/gamma", f"{theirs}/gamma", dims, head),
        Row(f"{ours}/beta", f"{theirs}/beta", dims, head),
    )


def _check_dims(ours, dims, axes):
    if len(dims.split()) != axes:
        raise ConfigError(
            f"The row of {ours!r} has dims={dims!r}.\n"
            f"Expected {axes} symbols with spaces between, such as {' '.join('HI'[:axes])!r}."
        )


@dataclass(frozen=True)
class Blocks:
    """How a file names the variables of the blocks of an encoder or a decoder.

    Attributes:
        address: template of the place of a block, from `layer`, `group`, `inner`, each of
            which may have a format, as in "layer{layer:02d}/".
        rows: rows of a block, relative to its place.
    """

    address: str
    rows: tuple

    def __post_init__(self):
        fields = {field for _, field, _, _ in Formatter().parse(self.address) if field is not None}
        if not fields <= {"layer", "group", "inner"}:
            raise ConfigError(
                f"The address of a block is {self.address!r}.\n"
                "Expected no fields but {layer}, {group} and {inner}, such as 'block_{layer}/'."
            )

    def place(self, prefix, depth):
        """What the names of the block at a `Depth` begin with."""
        keys = {"layer": depth.layer, "group": depth.group, "inner": depth.inner}
        return prefix + self.address.format(**keys)

    def pattern(self, prefix):
        """A regular expression for a name inside a block; captures the place and the rest."""
        pattern = re.escape(prefix + self.address)
        pattern = re.sub(r"\\\{(layer|group|inner)(:\w+)?\\\}", r"(?P<\1>\\d+)", pattern)
        return re.compile(rf"(?P<address>{pattern})(?P<rest>.+)", re.ASCII)


@dataclass(frozen=True)
class Dialect:
    """How one family of checkpoints names its variables.

    Attributes:
        name: short name, as in `save_weights_as_checkpoint(dialect=…)`.
        title: what a user would call such a file.
        family: family of the models it holds.
        top_rows: rows outside the blocks.
        required: names that every such file has, and that tell it from its neighbours.
        forbidden: names that no such file has, and its neighbours have.
        blocks: dict from "encoder" and "decoder" to their `Blocks`.
        scopes: beginnings of the names that belong to the encoder itself.
        embedding_order: see `ModelConfig`.
        ln_types: the norm placements that its original code can run.
        prefixes: what may stand before the names.
        is_unshared: whether it names a block for every layer of an ALBERT.
        buffers: names without a number that the model would need, such as position ids.
        hugging_face: whether its original code is the transformers library.
        forces_projection: whether a projection exists even if E == H.
        plain_classifier: see `BuildOptions`.
        task_rows: rows of fine-tuned heads whose names contain that of a task, "{task}".
        or_else: what else than its family may be passed as `model=` for such a file.
        class_stem: what the names of its classes in transformers begin with.
    """

    name: str
    title: str
    family: str
    top_rows: tuple
    required: tuple
    blocks: dict
    scopes: tuple
    embedding_order: str = "project_last"
    ln_types: tuple = ("postln",)
    prefixes: tuple = ("", "module/")
    is_unshared: bool = False
    buffers: tuple = ()
    hugging_face: bool = False
    forces_projection: bool = False
    plain_classifier: bool = False
    task_rows: tuple = ()
    forbidden: tuple = ()
    or_else: str = ""
    class_stem: str = ""

    @property
    def argument(self):
        """What to pass to `build_transformer_model` for such a file."""
        return f"model={self.family!r}{self.or_else}"

    def for_names(self, names):
        """Returns the dialect with rows for the one task whose head is among `names`."""
        tasks = {
            found["task"]
            for row in self.task_rows
            for name in names
            if (found := re.fullmatch(row.theirs.format(task="(?P<task>[^/]+)"), name))
        }
        return self.for_task(*tasks) if len(tasks) == 1 else self

    def for_task(self, task):
        """Returns the dialect with rows for the head of `task`."""
        rows = (replace(row, theirs=row.theirs.format(task=task)) for row in self.task_rows)
        return replace(self, top_rows=(*self.top_rows, *rows))

    def depths(self, config, stack="encoder"):
        """The depths of a stack with the groups as the file counts them."""
        if stack == "decoder":
            return config.stacks[stack].sharing.depths
        return depth_plan(
            config.num_hidden_layers, config.inner_group_num, config.num_hidden_groups
        )

    def places(self, config, prefix=""):
        """What the names of every block begin with that a model of this configuration has."""
        return {
            self.blocks[stack].place(prefix, depth)
            for stack in self.blocks.keys() & config.stacks.keys()
            for depth in self.depths(config, stack)
        }

"""Pairs model variables with checkpoint names: the rows of a dialect joined on depth.

The dialect says where the block of a depth stands in the file, the model which block serves
which depth. Joining the two on depth gives every edge "variable - name", for reading and for
writing alike; sharing, un-sharing and groups need no branch of their own.
"""

from dataclasses import dataclass

from kerasbert.errors import WeightMismatchError
from kerasbert.layers.scale_offset import ConditionalLayer
from kerasbert.weights.mapping import Row

# The layer whose presence says that the model has a head.
_HEAD_LAYERS = {"mlm": "MLM-Bias", "lm": "LM-Activation"}


@dataclass(frozen=True)
class Edge:
    """One variable of the model and one name of the file that belong together."""

    path: str
    variable: object
    name: str
    row: Row


def edges(view, dialect, prefix, config=None, present=None):
    """Lists every pair of a model variable and a checkpoint name.

    Args:
        view: `EncoderView` of the model.
        dialect: the `Dialect` of the file.
        prefix: what stands before the names of the file.
        config: `ModelConfig` whose groups the file has; default is the model's own.
        present: the names in the file, when reading: they decide between aliases. None when
            writing: the first alias is meant.

    Returns:
        A list of `Edge`s without repetitions. Variables of the model that no row knows are
        in none of them.
    """
    found = {}
    for row in dialect.top_rows:
        layer_name, _, rest = row.ours.partition("/")
        if view.has_layer(layer_name) and not (row.tied and _skip_tied(row, view, prefix, present)):
            _add(found, view.layer(layer_name), layer_name, rest, row.choose(prefix, present), row)
    config = config or view.config
    for stack in view.config.stacks:
        blocks = dialect.blocks[stack]
        parts = dict.fromkeys(row.ours.partition("/")[0] for row in blocks.rows)
        names = {part: view.part_names(part, stack=stack) for part in parts}
        for depth in dialect.depths(config, stack):
            place = blocks.place(prefix, depth)
            for row in blocks.rows:
                part, _, rest = row.ours.partition("/")
                layer_name = names[part][depth.index]
                layer = _block_layer(view, layer_name)
                _add(found, layer, layer_name, rest, row.choose(place, present), row)
    return list(found.values())


def relative_weights(layer):
    """Dict from the path of a weight relative to its layer to the weight.

    `Variable.path` begins with the scopes of outer models, so it does not identify a weight.
    """
    marker = f"{layer.name}/"
    return {weight.path.rpartition(marker)[2]: weight for weight in layer.weights}


def conditional_weights(view, found):
    """Finds the weights by which a condition steers the norms of the encoder.

    They are those inside the norms, and those of the layers that compute the condition.

    Args:
        view: `EncoderView` of the model.
        found: the `Edge`s of the model.

    Returns:
        A dict from the id of each to its path: no checkpoint format has a name for them.
    """
    weights = {}
    for name in dict.fromkeys(edge.path.partition("/")[0] for edge in found):
        layer = view.layer(name)
        for part in layer._flatten_layers():
            if isinstance(part, ConditionalLayer):
                for dense_layer in (part.hidden_dense, part.beta_dense, part.gamma_dense):
                    kernels = [] if dense_layer is None else dense_layer.weights
                    weights.update({id(kernel): kernel.path for kernel in kernels})
    for layer in view.condition_layers:
        weights.update({id(weight): weight.path for weight in layer.weights})
    return weights


def _skip_tied(row, view, prefix, present):
    """A repeated variable matters only where the file has it and the model its head."""
    return (
        present is None
        or not view.has_layer(_HEAD_LAYERS[row.head])
        or not (set(row.names(prefix)) & present)
    )


def _block_layer(view, name):
    if not view.has_layer(name):
        raise WeightMismatchError(
            f"{view.model.name!r} has no layer {name!r}: it is only a part of its encoder.\n"
            "Expected a model with all blocks.\n"
            "Load or save the whole model, and cut it afterwards."
        )
    return view.layer(name)


def _add(found, layer, layer_name, rest, names, row):
    variable = relative_weights(layer).get(rest)
    if variable is None:
        return
    for name in names:
        edge = Edge(f"{layer_name}/{rest}", variable, name, row)
        found.setdefault((edge.path, name), edge)

"""What the writers of all forms have in common."""

import os
from dataclasses import dataclass

import numpy as np

from kerasbert.conventions import WITHOUT_SEGMENTS
from kerasbert.errors import CheckpointError, WeightMismatchError, listing
from kerasbert.weights.grouping import is_unshared
from kerasbert.weights.load import to_numpy
from kerasbert.weights.pairing import conditional_weights

_SEGMENTS = 2


@dataclass(frozen=True)
class Written:
    """What was written.

    Attributes:
        title: of the dialect.
        count: number of variables written.
        left_out: paths of variables that have no name there.
        own_keys: keys of the configuration that the original code does not read.
    """

    title: str
    count: int
    left_out: list
    own_keys: tuple = ()

    def summary(self, place):
        """Returns one line about what was written to `place`."""
        also = ""
        if self.left_out:
            also = f"; left out, as there is no name for them: {listing(self.left_out)}"
        if self.own_keys:
            also += f"; only kerasbert and bert4keras read {listing(self.own_keys)} in the config"
        return f"{self.title}: {self.count} variables written to {place}{also}"


def path_to_write(argument, path):
    """Returns a path as a string, with "~" expanded.

    Raises:
        CheckpointError: if it is no path; names the argument.
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise CheckpointError(f"{argument}={path!r}.\nExpected the path to write to.")
    return os.path.expanduser(os.fspath(path))


def segments_of_file(config, dialect, prefix):
    """Gives a model whose segment input was removed the table that other code insists on.

    Returns:
        The configuration, and a dict from the name of the table to its zeros, which change
        nothing; both as they were for a model that has segments or whose code has none.
    """
    if config.type_vocab_size or config.family in WITHOUT_SEGMENTS:
        return config, {}
    zeros = np.zeros((_SEGMENTS, config.norm_width), dtype="float32")
    tables = {
        row.names(prefix)[0]: zeros
        for row in dialect.top_rows
        if row.ours == "Embedding-Segment/embeddings"
    }
    return config.replace(type_vocab_size=_SEGMENTS), tables


def sharing_keys(config):
    """Returns our own keys for what no other code's configuration can say of un-sharing."""
    if config.family != "albert" or not is_unshared(config):
        return {}
    return {
        "unshare": config.unshare,
        "unshare_layers": config.unshare_layers,
        "sharing_groups": config.sharing_groups,
    }


def option_keys(config):
    """Returns our own keys, which are bert4keras' too, for options of the graph.

    Without them other code would compute something else, or refuse the shapes.
    """
    usual = config.hidden_size // config.num_attention_heads
    options = {
        "residual_attention_scores": (config.residual_attention_scores, False),
        "shared_segment_embeddings": (config.shared_segment_embeddings, False),
        "hierarchical_position": (config.hierarchical_position, None),
        "attention_head_size": (config.attention_head_size, usual),
        "attention_key_size": (config.attention_key_size, config.attention_head_size),
    }
    return {key: value for key, (value, default) in options.items() if value != default}


def refuse_inexpressible(model, dialect, *demands):
    """Refuses what the readers of a form would silently compute in another way.

    Args:
        model: the Keras model.
        dialect: the `Dialect` to write.
        *demands: triples (key of the configuration, its value, the values possible there).

    Raises:
        WeightMismatchError: names the key and what it could be.
    """
    for key, value, possible in demands:
        if value not in possible:
            raise WeightMismatchError(
                f"{model.name!r} has {key}={value!r}, which {dialect.title} cannot express.\n"
                f"Expected one of: {listing(possible)}.\nSave it with model.save instead."
            )


def refuse_other_classifier(model, view, dialect):
    """Refuses a classifier of texts with a layer more, or less, than the form knows.

    Raises:
        WeightMismatchError: says which.
    """
    expected = any(row.ours.startswith("Classifier-Dense/") for row in dialect.top_rows)
    if view.has_layer("Classifier") and expected != view.has_layer("Classifier-Dense"):
        there, here = ("a", "none") if expected else ("no", "one")
        raise WeightMismatchError(
            f"{model.name!r} cannot be written as {dialect.title}: its classifier would have "
            f"{there} dense layer before the last one there, and has {here} here.\n"
            "Expected the head of the code that the form belongs to.\n"
            "Write the encoder alone, or save the model with model.save."
        )


def variables_without_name(model, view, found):
    """Returns the paths of the variables that are not written.

    Raises:
        WeightMismatchError: if some belong to layers of the encoder, such as unmerged LoRA, or
            make a condition steer the norms.
    """
    named = {id(edge.variable) for edge in found}
    conditions = conditional_weights(view, found)
    _refuse_trained_conditions(model, conditions)
    owners = {edge.path.partition("/")[0] for edge in found}
    own = [
        weight.path
        for name in sorted(owners)
        for weight in view.layer(name).weights
        if id(weight) not in named and id(weight) not in conditions
    ]
    if own:
        raise WeightMismatchError(
            f"{model.name!r} has variables in its layers that no checkpoint format knows: "
            f"{listing(own)}.\nExpected plain kernels, biases and norms.\n"
            "Merge LoRA or undo quantisation first, or save the model with model.save; a class "
            "of your own needs `dialects` that name them."
        )
    return [weight.path for weight in model.weights if id(weight) not in named]


def _refuse_trained_conditions(model, conditions):
    """As long as the shifts are zero, the model computes the same without its condition."""
    trained = [
        weight.path
        for weight in model.weights
        if id(weight) in conditions
        and weight.path.split("/")[-2] in ("beta_dense", "gamma_dense")
        and to_numpy(weight).any()
    ]
    if trained:
        raise WeightMismatchError(
            f"{model.name!r} has layer norms that a condition steers, which no checkpoint format "
            f"can express: {listing(trained)}.\n"
            "Expected norms without a condition, or with one that is not trained yet.\n"
            "Save the model with model.save instead."
        )


def arrays_by_name(found, dialect):
    """Returns a dict from names to the arrays to write.

    Raises:
        WeightMismatchError: if two variables with different values have one name.
    """
    arrays, writers, parts = {}, {}, {}
    for edge in found:
        array = np.ascontiguousarray(edge.row.to_file(to_numpy(edge.variable)))
        if edge.row.part is not None:
            index, count = edge.row.part
            pieces = parts.setdefault(edge.name, [None] * count)
            pieces[index] = array
            continue
        if edge.name in arrays and arrays[edge.name].tobytes() != array.tobytes():
            raise WeightMismatchError(
                f"{writers[edge.name]} and {edge.path} differ, but {dialect.title} has one name "
                f"for both: {edge.name}.\nExpected equal values.\n"
                "Save the model with model.save instead."
            )
        arrays[edge.name] = array
        writers.setdefault(edge.name, edge.path)
    joined = {name: np.concatenate(pieces, axis=-1) for name, pieces in parts.items()}
    return {**arrays, **joined}

"""Rebuilds a model in an equivalent form that another kind of checkpoint can hold.

Early albert_zh projects the tokens before it adds positions and segments; Google's ALBERT
adds them before it projects. Where E == H, both are the same computation.
"""

import numpy as np

from kerasbert.errors import WeightMismatchError
from kerasbert.models.options import BuildOptions
from kerasbert.models.view import find_encoder
from kerasbert.registry import architecture_of
from kerasbert.weights.heads import heads_of
from kerasbert.weights.load import to_numpy


def fold(model):
    """Multiplies the two matrices of an early albert_zh into one table (V, H), as Google has.

    The result computes the same but for rounding; the table takes H / E times the memory.

    Raises:
        WeightMismatchError: if the model normalises first, which only albert_zh's code can run.
    """
    view = find_encoder(model)
    if view.config.ln_type != "postln":
        raise WeightMismatchError(
            f"{model.name!r} has ln_type={view.config.ln_type!r}: it normalises before each "
            "layer, which only the early code of albert_zh can run.\n"
            "Expected a post-LN model.\nConvert it to albert_zh or keras instead."
        )
    table = to_numpy(view.layer("Embedding-Token").embeddings).astype("float64")
    kernel = to_numpy(view.layer("Embedding-Mapping").kernel)
    product = (table @ kernel).astype("float32")
    changes = {"embedding_order": "project_last", "embedding_size": view.config.hidden_size}
    return _rebuilt(view, changes, {"Embedding-Token": [product]})


def unfold(model):
    """Gives a Google ALBERT with E == H the second matrix of early albert_zh, an identity.

    Raises:
        WeightMismatchError: if early albert_zh has no such model; says why.
    """
    view = find_encoder(model)
    config = view.config
    obstacles = {
        f"embedding_size={config.embedding_size} differs from hidden_size={config.hidden_size}, "
        "and early albert_zh projects before the norm, not after it": config.has_projection,
        f"sharing_groups={config.sharing_groups} blocks": config.sharing_groups > 1,
        f"inner_group_num={config.inner_group_num} blocks in a layer": config.inner_group_num > 1,
    }
    for obstacle, present in obstacles.items():
        if present:
            raise WeightMismatchError(
                f"{model.name!r} cannot take the form of early albert_zh: {obstacle}.\n"
                "Expected E == H, one group and one inner block.\n"
                "Convert it to google, huggingface or keras instead."
            )
    changes = {"embedding_order": "project_first"}
    identity = np.eye(config.hidden_size, dtype="float32")
    return _rebuilt(view, changes, {"Embedding-Mapping": [identity]})


def without_identity(model):
    """Drops the projection that transformers' ALBERT has even if E == H, if it does nothing.

    Raises:
        WeightMismatchError: if it does something, for which Google's code has no variable.
    """
    view = find_encoder(model)
    kernel, bias = map(to_numpy, view.layer("Embedding-Mapping").weights)
    if not np.array_equal(kernel, np.eye(len(kernel))) or bias.any():
        raise WeightMismatchError(
            f"{model.name!r} projects its embeddings although embedding_size equals "
            f"hidden_size={view.config.hidden_size}, as only transformers' ALBERT does.\n"
            "Expected an identity there, which could be dropped.\n"
            "Convert it to huggingface or keras instead."
        )
    return _rebuilt(view, {"forces_projection": False}, {})


def _rebuilt(view, changes, values):
    """A new model with the same heads and weights, but for some changes and values."""
    config = view.config.replace(**changes)
    options = BuildOptions(name=view.model.name, **heads_of(view))
    builder = architecture_of(config.family)(config, options)
    for name, layer in builder.layers.items():
        if layer.weights:
            layer.set_weights(values[name] if name in values else view.layer(name).get_weights())
    return builder.model

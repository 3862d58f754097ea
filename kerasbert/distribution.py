"""How the weights of a model are split over several devices."""

import re

import keras

from kerasbert.errors import ConfigError, did_you_mean, listing
from kerasbert.models.view import find_encoder
from kerasbert.optimizers import ExtendedOptimizer

# What queries, keys and values (or the wide inner layers) are made of is split by columns, so
# that each device has whole heads; what follows them by rows. Only one sum is then exchanged.
_COLUMNS = (
    r"MultiHead(Self|Cross)Attention/(query|key|value)",
    r"FeedForward/intermediate(_\d+)?",
)
_ROWS = (r"MultiHead(Self|Cross)Attention/output", r"FeedForward/output")
_GATED = (r"GatedAttentionUnit/i_dense", r"GatedAttentionUnit/o_dense")
_TABLE = r"Embedding-Token/embeddings"
_SPLITS = {"vocabulary": 0, "hidden": 1, None: None}


def layout_map(model, device_mesh, axis="model", embeddings="hidden"):
    """Returns which weights `keras.distribution.ModelParallel` splits over which devices.

    The kernels of attention and feed-forward layers are split, by heads and by inner units, and
    the table of tokens; every other weight stands on each device. Keras gives a variable its
    place when it is made, so the model is to be built again in the scope of the distribution.

    Args:
        model: a model that holds one encoder of kerasbert, as it is to be distributed.
        device_mesh: a `keras.distribution.DeviceMesh`.
        axis: the axis of the mesh over which weights are split.
        embeddings: what is split in the table of tokens: "hidden", "vocabulary", or None for a
            whole table on each device.

    Returns:
        A `keras.distribution.LayoutMap`.

    Raises:
        ConfigError: if the backend is not JAX, a name is unknown, or a size is not a multiple of
            the number of devices on the axis.

    Example:
        >>> mesh = keras.distribution.DeviceMesh((1, 1), ["batch", "model"], ["cpu:0"])
        >>> if keras.backend.backend() == "jax":
        ...     layouts = kerasbert.distribution.layout_map(model, mesh)
        ...     parallel = keras.distribution.ModelParallel(layout_map=layouts)

    Source: Shoeybi et al. 2019 (arXiv:1909.08053).
    """
    _check_backend()
    if axis not in device_mesh.axis_names:
        raise ConfigError(
            f"axis={axis!r}.{did_you_mean(axis, device_mesh.axis_names)}\n"
            f"Expected an axis of the mesh: {listing(device_mesh.axis_names)}."
        )
    if embeddings not in _SPLITS:
        raise ConfigError(
            f"embeddings={embeddings!r}.{did_you_mean(embeddings, filter(None, _SPLITS))}\n"
            "Expected 'hidden', 'vocabulary' or None."
        )
    devices = device_mesh.shape[device_mesh.axis_names.index(axis)]
    patterns = _patterns(axis, _SPLITS[embeddings])
    _check_heads(find_encoder(model).config, devices, axis)
    _check_sizes(model, patterns, devices, axis)
    layouts = keras.distribution.LayoutMap(device_mesh)
    for pattern, axes in patterns.items():
        layouts[pattern] = axes
    return layouts


def check_strategy(model):
    """Refuses to train in a way that Keras cannot under the strategy a model was made in.

    Args:
        model: a compiled Keras model.

    Returns:
        None, if it can be trained.

    Raises:
        ConfigError: if a strategy of TensorFlow with several replicas meets one of Keras' own
            optimizers that accumulates gradients, or if it spreads over several machines.

    Example:
        >>> kerasbert.distribution.check_strategy(model)
    """
    strategy = getattr(model, "distribute_strategy", None)
    name = type(strategy).__name__
    if "MultiWorker" in name or "CollectiveAllReduce" in name:
        raise ConfigError(
            f"{model.name!r} was made under a {name}.\n"
            "Expected one machine: fit of Keras 3 fails under this strategy.\n"
            "Set KERAS_BACKEND=jax, and call keras.distribution.initialize on each machine."
        )
    if getattr(strategy, "num_replicas_in_sync", 1) < 2:
        return
    optimizer = getattr(model, "optimizer", None)
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    steps = getattr(optimizer, "gradient_accumulation_steps", None)
    if steps and not isinstance(optimizer, ExtendedOptimizer):
        raise ConfigError(
            f"{model.name!r} has gradient_accumulation_steps={steps} under a {name} of "
            f"{strategy.num_replicas_in_sync} replicas.\n"
            "Expected one that updates in every step: TensorFlow cannot join the gradients of "
            "replicas inside the condition by which Keras accumulates.\n"
            "Use an optimizer of kerasbert.optimizers, which can, or a larger batch."
        )


def _check_backend():
    backend = keras.backend.backend()
    if backend != "jax":
        instead = {
            "tensorflow": "Use tf.distribute.MirroredStrategy, which puts the whole model on "
            "each device, or KERAS_BACKEND=jax.",
        }.get(backend, "Set KERAS_BACKEND=jax.")
        raise ConfigError(
            f"Weights cannot be split over devices by Keras on the backend {backend!r}.\n"
            f"Expected JAX, the only one for which keras.distribution works.\n{instead}"
        )


def _patterns(axis, table_axis):
    """Dict from what a path of a variable looks like to the mesh axis of each of its axes."""
    patterns = {}
    for name in (*_COLUMNS, _GATED[0]):
        patterns[f".*{name}/kernel"] = (None, axis)
        patterns[f".*{name}/bias"] = (axis,)
    for name in (*_ROWS, _GATED[1]):
        patterns[f".*{name}/kernel"] = (axis, None)
    if table_axis is not None:
        patterns[f".*{_TABLE}"] = (axis, None) if table_axis == 0 else (None, axis)
    return patterns


def _check_heads(config, devices, axis):
    # A gated attention unit has a single head and is split inside it.
    if config.family != "gau_alpha" and config.num_attention_heads % devices:
        _refuse("num_attention_heads", config.num_attention_heads, devices, axis)


def _check_sizes(model, patterns, devices, axis):
    for weight in model.weights:
        for pattern, axes in patterns.items():
            if re.fullmatch(pattern, weight.path):
                size = weight.shape[axes.index(axis)]
                if size % devices:
                    _refuse(f"the size {size} in {weight.path}", size, devices, axis)


def _refuse(what, size, devices, axis):
    value = f"{what}={size}" if what.isidentifier() else what
    raise ConfigError(
        f"{value} cannot be split over the {devices} devices of the axis {axis!r}.\n"
        f"Expected a multiple of {devices}.\n"
        "Use a mesh with fewer devices on this axis (more on that of the batch); a table of "
        "tokens can also be split by its other axis, see embeddings."
    )

"""Adapters in a file of their own."""

import json
import os

import keras
import numpy as np
from keras import ops

from kerasbert.adapters.lora import add_lora
from kerasbert.adapters.sites import sites_of
from kerasbert.errors import (
    CheckpointError,
    ConfigError,
    KerasbertError,
    WeightMismatchError,
    listing,
)
from kerasbert.layers import LowRankAdapter
from kerasbert.models.view import find_encoder
from kerasbert.weights.checkpoints.replacement import Replacement
from kerasbert.weights.pairing import relative_weights

_MARK = "kerasbert_lora"
_SAMPLES = 8


def save_lora(model, path, heads=False):
    """Writes the adapters of a model, and on request its heads, to a safetensors file.

    The file holds the sizes of the adapters and some numbers of each kernel they stand at, by
    which `load_lora` recognises the model they belong to.

    Args:
        model: a model from `add_lora` or `load_lora`, also reloaded or extended.
        path: the file, which gets the ending ".safetensors" if it has none.
        heads: whether everything else that is trained is written too.

    Returns:
        The path of the file.

    Raises:
        KerasbertError: if the model has no adapters.
        CheckpointError: if the file cannot be written.

    Example:
        >>> adapted = kerasbert.adapters.add_lora(model, rank=2, verbose=0)
        >>> kerasbert.adapters.save_lora(adapted, "sentiment")
        'sentiment.safetensors'
    """
    # Imported late: only those who write this form need it.
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    view = find_encoder(model)
    sites = [site for site in sites_of(view) if site.layer.adapters]
    if not sites:
        raise KerasbertError(
            f"{model.name!r} has no adapters.\nExpected a model from add_lora or load_lora.\n"
            "To save a plain model use model.save."
        )
    path = os.fspath(path)
    path = path if path.endswith(".safetensors") else f"{path}.safetensors"
    arrays = {
        f"{site.key(depth, name)}/{part}": _array(getattr(adapter, part))
        for site in sites
        for depth, name, adapter in site.adapters()
        for part in "ab"
    }
    if heads:
        arrays |= {name: _array(weight) for name, weight in _heads_of(model).items()}
    untrained = _quantised_heads(model) if heads else []
    description = {**_settings(sites), "base": _samples(sites), "untrained": untrained}
    try:
        with Replacement(os.path.dirname(os.path.abspath(path))) as files:
            new = files.aside(path)
            save_file(arrays, new, metadata={_MARK: json.dumps(description)})
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"Cannot write {path!r}: {error}.\nAn earlier file there is untouched.\n"
            "Check that the folder is writable and the disk not full."
        ) from error
    return path


def load_lora(model, path, verbose=1):
    """Gives a model the adapters of a file, and the heads if the file has them.

    Args:
        model: the model that the adapters were trained on, without adapters or with such of
            the same sizes. Heads have to be there already, under the same names.
        path: a file of `save_lora`.
        verbose: see `add_lora`.

    Returns:
        A new model as `add_lora` returns it, or `model` itself if it has adapters.

    Raises:
        CheckpointError: if the file cannot be read or is none of `save_lora`.
        WeightMismatchError: if the adapters belong to another model.
        ConfigError: if the model has adapters of other sizes.

    Example:
        >>> adapted = kerasbert.adapters.add_lora(model, rank=2, verbose=0)
        >>> path = kerasbert.adapters.save_lora(adapted, "sentiment")
        >>> again = kerasbert.adapters.load_lora(model, path, verbose=0)
    """
    description, arrays = _read(path)
    sites = sites_of(find_encoder(model))
    _check_base(path, description.pop("base"), sites)
    untrained = set(description.pop("untrained"))
    if not any(site.layer.adapters for site in sites):
        model = add_lora(model, verbose=verbose, **description)
        sites = sites_of(find_encoder(model))
    else:
        own = _settings([site for site in sites if site.layer.adapters])
        if own != description:
            raise ConfigError(
                f"{model.name!r} has adapters of other sizes than {os.fspath(path)!r}: {own}.\n"
                f"Expected {description}.\nPass the model without adapters."
            )
    weights = {
        f"{site.key(depth, name)}/{part}": getattr(adapter, part)
        for site in sites
        for depth, name, adapter in site.adapters()
        for part in "ab"
    }
    if any(name.startswith("heads/") for name in arrays):
        heads = _heads_of(model).items()
        weights |= {name: weight for name, weight in heads if name not in untrained}
    _check_names(path, arrays, weights)
    for name, weight in weights.items():
        weight.assign(arrays[name])
    return model


def _read(path):
    from safetensors import SafetensorError, safe_open

    path = os.fspath(path)
    try:
        with safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {}).get(_MARK)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"Cannot read {path!r}: {error}.\nExpected a file of save_lora."
        ) from error
    if text is None:
        raise CheckpointError(
            f"{path!r} holds no adapters of kerasbert.\nExpected a file of save_lora.\n"
            "Weights of whole models are loaded with load_weights_from_checkpoint."
        )
    return json.loads(text), arrays


def _array(weight):
    return np.ascontiguousarray(ops.convert_to_numpy(ops.cast(weight.value, "float32")))


def _heads_of(model):
    """Dict from the name in a file to every trained weight that is no adapter's."""
    adapters = {
        id(weight)
        for layer in model._flatten_layers()
        if isinstance(layer, LowRankAdapter)
        for weight in layer.weights
    }
    trained = {id(weight) for weight in model.trainable_weights} - adapters
    return {
        f"heads/{layer.name}/{path}": weight
        for layer in _layers_of(model)
        for path, weight in relative_weights(layer).items()
        if id(weight) in trained
    }


def _quantised_heads(model):
    """The names that quantised kernels outside of adapters would have: they are not trained."""
    return [
        f"heads/{layer.name}/{path}"
        for layer in _layers_of(model)
        if getattr(layer, "quantization_mode", None) and hasattr(layer, "_kernel")
        for path, weight in relative_weights(layer).items()
        if weight is layer._kernel
    ]


def _layers_of(model):
    """The layers of the graph, those of inner models included."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from _layers_of(layer)
        else:
            yield layer


def _settings(sites):
    """The arguments of `add_lora` by which these adapters were made."""
    sizes = next(iter(sites[0].layer.adapters.values()))
    names = {
        target
        for site in sites
        for target, names in site.targets.items()
        if set(names) & set(site.layer.adapters)
    }
    depths = {depth for site in sites for depth, _, _ in site.adapters()}
    return {
        "rank": sizes["rank"],
        "alpha": sizes["alpha"],
        "targets": sorted(names),
        "layers": sorted(depths),
    }


def _samples(sites):
    """Some numbers of every kernel with an adapter, and whether they are exact."""
    return {
        site.key(depth, name): _sample(site.dense(name))
        for site in sites
        for depth, name, _ in site.adapters()
    }


def _sample(dense):
    kernel = _array(dense._kernel)
    exact = dense.quantization_mode is None and dense._kernel.dtype == "float32"
    if dense.quantization_mode is not None:
        kernel = kernel / _array(dense.kernel_scale)
    places = np.linspace(0, kernel.size - 1, _SAMPLES).astype("int64")
    return {
        "shape": list(kernel.shape),
        "exact": exact,
        "largest": float(np.abs(kernel).max()),
        "numbers": [float(number) for number in kernel.ravel()[places]],
    }


def _check_base(path, base, sites):
    """Refuses a model with other kernels; those of low precision may differ by rounding."""
    found = {
        site.key(depth, name): (site, name)
        for site in sites
        for depth in site.depths
        for names in site.targets.values()
        for name in names
    }
    own = {}
    for key, wanted in base.items():
        if key not in found:
            _refuse(path, f"it has adapters at {key}, where this model has no dense layer")
        site, name = found[key]
        own[key] = _sample(site.dense(name))
        shapes = [sample["shape"] for sample in (own[key], wanted)]
        if shapes[0] != shapes[1]:
            _refuse(path, f"the kernel at {key} is {shapes[0]}, there it was {shapes[1]}")
    for key, wanted in base.items():
        exact = own[key]["exact"] and wanted["exact"]
        tolerance = 0.0 if exact else 0.02 * wanted["largest"]
        if not np.allclose(own[key]["numbers"], wanted["numbers"], rtol=0, atol=tolerance):
            _refuse(path, f"the kernel at {key} holds other numbers")


def _refuse(path, reason):
    raise WeightMismatchError(
        f"The adapters in {os.fspath(path)!r} belong to another model: {reason}.\n"
        "Expected the model that they were trained on.\n"
        "Build it from the same checkpoint with the same arguments."
    )


def _check_names(path, arrays, weights):
    in_file = {(name, tuple(array.shape)) for name, array in arrays.items()}
    in_model = {(name, tuple(weight.shape)) for name, weight in weights.items()}
    if in_file != in_model:
        names = sorted({name for name, _ in in_file ^ in_model})
        raise WeightMismatchError(
            f"{os.fspath(path)!r} and the model differ in {listing(names)}.\n"
            "Expected the same adapters and, where the file has heads, the same trained layers.\n"
            "Build the heads as they were before loading."
        )

"""Checks the layers that a model takes from another one."""

from collections.abc import Mapping
from numbers import Real

from kerasbert.errors import ConfigError

# What makes no difference to the numbers, or is the lender's own affair.
_FREE = ("name", "dtype", "trainable")

_ADVICE = "Pass the layers of a builder made with the same configuration."


def check_borrowed(layer, cls, name, arguments):
    """Refuses a layer of another class or with other sizes than a model would make itself.

    Args:
        layer: the layer that was given.
        cls: the class wanted.
        name: its name, prefix not counted.
        arguments: the arguments with which a new layer would be made.

    Raises:
        ConfigError: names the argument and both values.
    """
    if not isinstance(layer, cls):
        raise ConfigError(
            f"layers= has a {type(layer).__name__} called {name!r}.\n"
            f"Expected a {cls.__name__}.\n{_ADVICE}"
        )
    _compare(name, arguments, layer.get_config())


def check_widths(layers):
    """Refuses layers that were built for inputs of another width than this graph gives them.

    Keras itself may notice only when it computes.

    Args:
        layers: dict from the name of each borrowed layer to the layer, called by now.

    Raises:
        ConfigError: names the first such layer and both widths.
    """
    for name, layer in layers.items():
        shapes = layer.get_build_config() or {}
        shape = shapes.get("input_shape") or next(iter(shapes.get("shapes_dict", {}).values()), ())
        built = shape[-1] if shape else None
        given = layer._inbound_nodes[-1].input_tensors[0].shape[-1]
        if isinstance(built, int) and isinstance(given, int) and built != given:
            raise ConfigError(
                f"layers= has a layer {name!r} for inputs of width {built}.\n"
                f"Expected width {given}, as the configuration of this model says.\n{_ADVICE}"
            )


def _compare(name, wanted, found):
    for key, value in wanted.items():
        if key in _FREE or key not in found:
            continue
        if isinstance(value, Mapping) and isinstance(found[key], Mapping):
            _compare(name, value, found[key])
        # Functions and initializers are not compared: a configuration writes them differently.
        elif all(isinstance(x, Real | str | None) for x in (value, found[key])):
            _refuse_difference(name, key, value, found[key])


def _refuse_difference(name, key, wanted, found):
    if wanted != found:
        raise ConfigError(
            f"layers= has a layer {name!r} with {key}={found!r}.\n"
            f"Expected {key}={wanted!r}, as the configuration of this model says.\n{_ADVICE}"
        )

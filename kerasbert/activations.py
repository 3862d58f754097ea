"""Activation functions by name, with the two forms of GELU kept apart.

Two functions go by the name "gelu". Google's BERT and ALBERT code uses the tanh
approximation, ELECTRA and Hugging Face's "gelu" the exact form with the error
function; they differ by up to 4.7e-4 per activation. Which one a file means is
decided once, when its configuration is read (`ModelConfig`); layers only ever see
the unambiguous names `gelu_tanh` and `gelu_erf`.
"""

import keras
from keras import ops

from kerasbert.errors import ConfigError, did_you_mean


@keras.saving.register_keras_serializable(package="kerasbert")
def gelu_tanh(x):
    """GELU in the tanh approximation, `0.5x(1 + tanh(sqrt(2/pi)(x + 0.044715x^3)))`.

    Source: Hendrycks and Gimpel 2016 (arXiv:1606.08415); google-research/bert `modeling.py`.

    Example:
        >>> float(gelu_tanh(keras.ops.array(1.0)))
        0.8411...
    """
    return ops.gelu(x, approximate=True)


@keras.saving.register_keras_serializable(package="kerasbert")
def gelu_erf(x):
    """GELU in its exact form, `x * Phi(x)`.

    Source: Hendrycks and Gimpel 2016 (arXiv:1606.08415); google-research/electra `modeling.py`.

    Example:
        >>> float(gelu_erf(keras.ops.array(1.0)))
        0.8413...
    """
    return ops.gelu(x, approximate=False)


_FUNCTIONS = {
    "gelu_tanh": gelu_tanh,
    "gelu_erf": gelu_erf,
    "relu": keras.activations.relu,
    "tanh": keras.activations.tanh,
    "linear": keras.activations.linear,
    "swish": keras.activations.silu,
    "sigmoid": keras.activations.sigmoid,
    "softmax": keras.activations.softmax,
}

# Other spellings of the same functions, as found in published configurations.
_ALIASES = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_approximate": "gelu_tanh",
    "gelu_python": "gelu_erf",
    "silu": "swish",
    "none": "linear",
    "": "linear",
}


def canonical_name(name, gelu):
    """Turns an activation name of a configuration into one of our unambiguous names.

    Args:
        name: a name such as "gelu", "gelu_new" or "relu"; upper case is accepted, as in
            Google's code.
        gelu: what plain "gelu" stands for in the file at hand, "gelu_tanh" or "gelu_erf".

    Returns:
        A name that `get` knows.

    Raises:
        ConfigError: if the name is unknown; lists the known ones.

    Example:
        >>> canonical_name("gelu", gelu="gelu_erf")
        'gelu_erf'
    """
    if not isinstance(name, str):
        raise ConfigError(
            f"hidden_act is {name!r}, a {type(name).__name__}.\n"
            f"Expected the name of an activation: {', '.join(_known_names())}."
        )
    lowered = name.lower()
    resolved = gelu if lowered == "gelu" else _ALIASES.get(lowered, lowered)
    if resolved not in _FUNCTIONS:
        raise ConfigError(
            f"Unknown activation {name!r}.{did_you_mean(lowered, _known_names())}\n"
            f"Known are: {', '.join(_known_names())}."
        )
    return resolved


def get(name):
    """Returns the function of a canonical activation name; passes callables through.

    Args:
        name: a name that `canonical_name` returns, or a function of one tensor.

    Returns:
        A function of one tensor.

    Raises:
        ConfigError: if the name is unknown or ambiguous ("gelu").

    Example:
        >>> get("gelu_erf").__name__
        'gelu_erf'
    """
    if callable(name):
        return name
    if isinstance(name, str) and name.lower() == "gelu":
        raise ConfigError(
            'The activation "gelu" is ambiguous here.\n'
            'Expected "gelu_tanh" (Google BERT and ALBERT) or "gelu_erf" (Hugging Face, ELECTRA).'
        )
    return _FUNCTIONS[canonical_name(name, gelu="gelu_tanh")]


def _known_names():
    return sorted({"gelu", *_FUNCTIONS, *_ALIASES} - {""})

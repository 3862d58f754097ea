"""New optimizer classes from old ones and extensions."""

import keras

from kerasbert.errors import ConfigError
from kerasbert.optimizers.extended import ExtendedOptimizer
from kerasbert.optimizers.recipes import made_class


def extend(base, *extensions, name=None):
    """Returns a class that adds extensions to an optimizer class.

    With no extension at all the class still takes `multipliers` and
    `exclude_from_weight_decay`, see `ExtendedOptimizer`. Optimizers of such a class are saved
    with models and come back without a call of `extend` before.

    Args:
        base: an optimizer class: of Keras, of this package or made by `extend`.
        *extensions: `LayerAdaptation`, `Lookahead`, `Lazy`, `Averaging`; the first is the
            outermost: it sees the updates that the others have changed.
        name: of the class; default is made of the names of its parts.

    Returns:
        A subclass of `base`.

    Raises:
        ConfigError: if `base` is no optimizer class, or an extension is none.

    Example:
        >>> LionWithLookahead = extend(keras.optimizers.Lion, Lookahead)
        >>> optimizer = LionWithLookahead(1e-5, multipliers={"^Embedding-": 0.1})
    """
    if not isinstance(base, type) or not issubclass(base, keras.optimizers.Optimizer):
        raise ConfigError(
            f"extend: {base!r} is no optimizer class.\n"
            "Expected a class such as keras.optimizers.Adam, not an optimizer made of it."
        )
    for extension in extensions:
        if not isinstance(extension, type) or not issubclass(extension, ExtendedOptimizer):
            raise ConfigError(
                f"extend: {extension!r} is no extension.\n"
                "Expected classes such as kerasbert.optimizers.Lookahead."
            )
        if issubclass(base, extension):
            raise ConfigError(
                f"extend: {base.__name__} has {extension.__name__} already.\n"
                "Expected each extension once."
            )
    name = name or "".join(part.__name__ for part in (*extensions, base))
    if not issubclass(base, ExtendedOptimizer):
        extensions = extensions or (ExtendedOptimizer,)
    return made_class(base, extensions, name)

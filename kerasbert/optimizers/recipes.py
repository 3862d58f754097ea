"""How a class that was made of others at run time comes back from a file."""

import keras

# By the names that recipes have for them; each module that defines an extension adds its own.
EXTENSIONS = {}


def extension(cls):
    """Registers an extension under its class' name, for recipes."""
    EXTENSIONS[cls.__name__] = cls
    return cls


def recipe_of(base, extensions, name):
    """Returns what `rebuilt` needs, in words that JSON can hold.

    Args:
        base: the class that is extended; may itself have been made this way.
        extensions: list of extensions, the outermost first.
        name: of the class.
    """
    return {
        "name": name,
        "extensions": [extension.__name__ for extension in extensions],
        "base": getattr(base, "recipe", None) or keras.saving.get_registered_name(base),
    }


def rebuilt(recipe):
    """Returns the class of a recipe."""
    base = recipe["base"]
    if isinstance(base, dict):
        found = rebuilt(base)
    else:
        found = keras.saving.get_registered_object(base) or getattr(keras.optimizers, base)
    return made_class(found, [EXTENSIONS[name] for name in recipe["extensions"]], recipe["name"])


def made_class(base, extensions, name):
    """Returns the class called `name` that has the extensions before `base`.

    The same arguments give the same class, so that what was reloaded is an instance of it.
    """
    recipe = recipe_of(base, extensions, name)
    key = (base, *extensions, name)
    if key not in _MADE:
        made = type(name, (*extensions, base), {"recipe": recipe, "__doc__": base.__doc__})
        made.__module__ = __name__
        keras.saving.register_keras_serializable(package="kerasbert", name="Extended")(made)
        _MADE[key] = made
    return _MADE[key]


_MADE = {}

"""Compiled functions, and memory that is written in place, on each of Keras' backends."""

import functools
from threading import RLock

import keras
import numpy as np
from keras import ops

_BACKEND = keras.backend.backend()

# Two threads shall not compile the same.
_MAKING = RLock()


def made_for(model, kind):
    """Returns `kind(model)`, which is kept with the model until its variables are others.

    Args:
        model: a Keras model.
        kind: a class, or a function of the module, that takes a model.
    """
    # A quantised model has other variables, one with LoRA more of them.
    state = [(variable.path, variable.dtype, id(variable)) for variable in model.variables]
    with _MAKING:
        # An attribute that Keras knew of would be a part of the saved model.
        made = model.__dict__.setdefault("_kerasbert_made", {})
        if made.get(kind, (None,))[0] != state:
            made[kind] = (state, kind(model))
        return made[kind][1]


def compiled(function, variables):
    """Returns `function`, compiled once for the shapes of its arguments.

    Args:
        function: takes and returns nests of tensors.
        variables: the Keras variables that it reads. Their values may change between calls.

    Returns:
        A function of the same arguments, which may be numpy arrays.
    """
    if _BACKEND == "tensorflow":
        return _compiled_by_tensorflow(function)
    if _BACKEND == "jax":
        return _compiled_by_jax(function, variables)
    return _without_gradients(function)


def _compiled_by_tensorflow(function):
    import tensorflow as tf

    made = {}

    def call(*args):
        # One function for all shapes would be warned of as "retracing".
        shapes = _shapes(args)
        with _MAKING:
            if shapes not in made:
                made[shapes] = tf.function(function, jit_compile=True, autograph=False)
        return made[shapes](*args)

    return call


def _shapes(nest):
    return tuple(tuple(tensor.shape) for tensor in keras.tree.flatten(nest))


def _compiled_by_jax(function, variables):
    import jax

    # A variable that is read from outside would become a constant.
    @jax.jit
    def stateless(values, args):
        with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
            return function(*args)

    return lambda *args: stateless([variable.value for variable in variables], args)


def _without_gradients(function):
    import torch

    @functools.wraps(function)
    def call(*args):
        with torch.no_grad():
            return function(*keras.tree.map_structure(_as_tensor, args))

    return call


def _as_tensor(value):
    return ops.convert_to_tensor(value) if isinstance(value, np.ndarray) else value


def to_numpy(tensor):
    """Returns a numpy array of a tensor."""
    return ops.convert_to_numpy(tensor)


def rows_of(nest, rows):
    """Returns a nest of tensors (B, …) with some of their rows, an int array (R,)."""
    return keras.tree.map_structure(lambda tensor: ops.take(tensor, rows, axis=0), nest)


class Memory:
    """Keys and values of the tokens so far, in arrays with room for more.

    The tokens stand on the last axis but one.

    Args:
        parts: list of pairs of float tensors (B, …, M, ·).
        capacity: for how many tokens there is room, at least M.

    Attributes:
        parts: the list of the pairs (B, …, capacity, ·); zeros where nothing is written.
        capacity: see there.
    """

    def __init__(self, parts, capacity):
        self.capacity = capacity
        self.parts = [tuple(_writable(_extended(x, capacity)) for x in pair) for pair in parts]

    def write(self, new, column):
        """Writes a list of pairs (B, …, J, ·) from `column` on."""
        self.parts = _write(self.parts, new, np.array(column, "int32"))

    def pick(self, rows, columns, capacity):
        """Keeps some rows and tokens.

        Args:
            rows: int array (R,).
            columns: int array (R, m), the tokens to keep of each of these rows.
            capacity: for how many tokens there is to be room then.
        """
        parts = [tuple(_picked(x, rows, columns) for x in pair) for pair in self.parts]
        self.__init__(parts, capacity)


def _extended(tensor, capacity):
    missing = capacity - tensor.shape[-2]
    widths = [(0, 0)] * len(tensor.shape)
    widths[-2] = (0, missing)
    return ops.pad(tensor, widths) if missing else tensor


def _picked(tensor, rows, columns):
    tensor = ops.take(ops.convert_to_tensor(tensor), rows, axis=0)
    between = (1,) * (len(tensor.shape) - 3)
    index = ops.reshape(columns, (len(rows), *between, columns.shape[1], 1))
    return ops.take_along_axis(tensor, index, axis=-2)


def _writable(tensor):
    """Returns what can be written to without copying all of it."""
    if _BACKEND != "tensorflow":
        return tensor
    import tensorflow as tf

    variable = tf.Variable(tensor, trainable=False)
    # In the scope of a strategy it is a variable for every replica.
    return variable.values[0] if isinstance(variable, tf.distribute.DistributedValues) else variable


def _write(parts, new, column):
    return _writer(_shapes((parts, new)))(parts, new, column)


@functools.lru_cache
def _writer(shapes):
    """Returns the function that writes to arrays of these shapes."""
    if _BACKEND == "tensorflow":
        import tensorflow as tf

        # Not a part of the compiled step: XLA would return, so copy, the whole memory.
        write = tf.function(_write_slices, autograph=False)
        return lambda parts, *args: write(parts, *args) or parts
    if _BACKEND == "jax":
        import jax

        return jax.jit(_updated, donate_argnums=0)
    return lambda parts, *args: _write_slices(parts, *args) or parts


def _write_slices(parts, new, column):
    for variables, tensors in zip(parts, new, strict=True):
        for variable, tensor in zip(variables, tensors, strict=True):
            place = (..., slice(column, column + tensor.shape[-2]), slice(None))
            if hasattr(variable, "assign"):
                variable[place].assign(tensor)
            else:
                variable[place] = tensor


def _updated(parts, new, column):
    """The form of `_write_slices` for arrays that cannot change."""

    def updated(array, tensor):
        starts = [0] * len(array.shape)
        starts[-2] = column
        return ops.slice_update(array, starts, tensor)

    return keras.tree.map_structure(updated, parts, new)

"""Compiled functions, and arrays that are written in place, on each of Keras' backends."""

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


def compiled_writer(function, variables):
    """Returns `function`, compiled, which writes what it computes into arrays.

    Args:
        function: takes a nest of arrays that `writable` returned, and other nests; returns a
            nest, and a nest of tensors to be written, see `write`.
        variables: see `compiled`.

    Returns:
        A function of the arrays, the column to write to, and the other nests. It returns the
        first nest and the arrays; those that were given are not to be used any more.
    """
    if _BACKEND == "tensorflow":
        return _compiled_by_tensorflow(function, writes=True)
    return writes_afterwards(compiled(function, variables))


def writes_afterwards(function):
    """The form of `compiled_writer` in which computing and writing are two calls."""

    def call(arrays, column, *args):
        result, new = function(arrays, *args)
        return result, write(arrays, new, column)

    return call


def _compiled_by_tensorflow(function, writes=False):
    import tensorflow as tf

    made = {}

    # TensorFlow's own way to find what was traced for some arguments takes milliseconds, as
    # long as a step of a small model.
    def call(*args):
        flat = [x if tf.is_tensor(x) else tf.constant(x) for x in keras.tree.flatten(args)]
        key = tuple((tuple(tensor.shape), tensor.dtype) for tensor in flat)
        if key not in made:
            with _MAKING:
                if key not in made:
                    # Without the tensors, which would be kept as long as the function is.
                    structure = keras.tree.map_structure(lambda _: 0, args)
                    made[key] = _traced(function, writes, structure, flat)
        result = made[key](*flat)
        return (result, args[0]) if writes else result

    return call


def _traced(function, writes, structure, flat):
    """Returns the TensorFlow function for tensors like `flat`, in nests like `structure`."""
    import tensorflow as tf

    compiled = jit(function)

    def call(*flat):
        args = keras.tree.pack_sequence_as(structure, flat)
        if not writes:
            return compiled(*args)
        arrays, column, *others = args
        result, new = compiled(arrays, *others)
        # Not a part of what XLA compiles: it would return, so copy, the whole memory.
        _assign_slices(arrays, new, column)
        return result

    return tf.function(call, autograph=False).get_concrete_function(*flat)


def jit(function):
    """Returns a TensorFlow function that XLA compiles."""
    import tensorflow as tf

    return tf.function(function, jit_compile=True, autograph=False)


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


def writable(tensor):
    """Returns what `write` can write to, without copying all of it where that can be avoided."""
    if _BACKEND != "tensorflow":
        return tensor
    import tensorflow as tf

    variable = tf.Variable(tensor, trainable=False)
    # In the scope of a strategy it is a variable for every replica.
    return variable.values[0] if isinstance(variable, tf.distribute.DistributedValues) else variable


def write(arrays, new, column):
    """Writes tensors into arrays that `writable` returned, from a place of their last axis but one.

    Args:
        arrays: nest of arrays (…, C, ·).
        new: nest of tensors (…, J, ·).
        column: the place, int.

    Returns:
        The nest of the arrays; those that were given are not to be used any more.
    """
    shapes = tuple(tuple(tensor.shape) for tensor in keras.tree.flatten((arrays, new)))
    return _writer(shapes)(arrays, new, np.array(column, "int32"))


@functools.lru_cache
def _writer(shapes):
    """Returns the function that writes to arrays of these shapes."""
    if _BACKEND == "tensorflow":
        import tensorflow as tf

        assign = tf.function(_assign_slices, autograph=False)
        return lambda arrays, *args: assign(arrays, *args) or arrays
    if _BACKEND == "jax":
        import jax

        return jax.jit(_updated, donate_argnums=0)
    return _set_slices


def _assign_slices(variables, new, column):
    import tensorflow as tf

    for variable, tensor in zip(*map(keras.tree.flatten, (variables, new)), strict=True):
        begin = tf.stack([0] * (len(tensor.shape) - 2) + [column, 0])
        # The same by variable[...].assign takes three times as long.
        tf.raw_ops.ResourceStridedSliceAssign(
            ref=variable.handle,
            begin=begin,
            end=begin + tensor.shape,
            strides=tf.ones_like(begin),
            value=tensor,
        )


def _set_slices(arrays, new, column):
    for array, tensor in zip(*map(keras.tree.flatten, (arrays, new)), strict=True):
        array[..., column : column + tensor.shape[-2], :] = tensor
    return arrays


def _updated(arrays, new, column):
    """The form of `_set_slices` for arrays that cannot change."""

    def updated(array, tensor):
        starts = [0] * len(array.shape)
        starts[-2] = column
        return ops.slice_update(array, starts, tensor)

    return keras.tree.map_structure(updated, arrays, new)

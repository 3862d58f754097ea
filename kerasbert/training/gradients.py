"""The gradient of a function by its argument, for which Keras has no function of its own."""

import keras

_BACKEND = keras.backend.backend()


def gradient(function, at, *, differentiable=False):
    """Returns the gradient of `function` at a point.

    Args:
        function: takes a list of tensors and returns a scalar.
        at: list of float tensors.
        differentiable: whether the gradient is going to be differentiated itself.

    Returns:
        List of tensors like `at`.
    """
    if _BACKEND == "tensorflow":
        return _by_tensorflow(function, at)
    if _BACKEND == "jax":
        import jax

        return jax.grad(function)(at)
    return _by_torch(function, at, differentiable)


def _by_tensorflow(function, at):
    import tensorflow as tf

    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(at)
        value = function(at)
    return tape.gradient(value, at, unconnected_gradients="zero")


def _by_torch(function, at, differentiable):
    import torch

    with torch.enable_grad():
        at = [tensor.detach().requires_grad_() for tensor in at]
        return list(torch.autograd.grad(function(at), at, create_graph=differentiable))


def needs_every_value():
    """Whether a variable that a new `StatelessScope` does not name has no value inside it.

    JAX hands a step the values of the variables, which stand in the scope around it.
    """
    return _BACKEND == "jax"

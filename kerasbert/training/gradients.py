"""Gradients by an argument, and random numbers drawn again: Keras has no functions for them."""

from contextlib import contextmanager

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


def random_state():
    """Returns the state of the random numbers that no Keras variable holds, or None.

    On torch, Keras' dropout without a seed draws from torch's own.
    """
    if _BACKEND != "torch":
        return None
    import torch

    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return torch.get_rng_state(), cuda


@contextmanager
def random_numbers_apart(state=None):
    """Within this block other random numbers are drawn, without a trace outside of it.

    Args:
        state: one of `random_state`, from which they are drawn; None means the present one.
    """
    if _BACKEND != "torch":
        yield
        return
    import torch

    with torch.random.fork_rng():
        set_random_state(state)
        yield


def set_random_state(state):
    """Sets what `random_state` returned."""
    if state is None:
        return
    import torch

    torch.set_rng_state(state[0])
    if state[1]:
        torch.cuda.set_rng_state_all(state[1])

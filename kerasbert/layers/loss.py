"""A layer that is a loss."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="kerasbert")
class Loss(keras.layers.Layer):
    """Adds a loss of its inputs to the model, and passes the inputs on.

    For losses that need more than a target and an output: labels are inputs of the model, and
    it is compiled with an optimizer alone and fitted without `y`. A subclass says what the
    loss is, in `compute_loss`, and is registered with Keras to be saved.

    Args:
        output_axis: which of several inputs is passed on: an index, a list of them, or None
            for all.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: a tensor, or a list of tensors. Their types are kept, whatever the policy.
        mask: optional Keras masks, like the inputs.

    Returns:
        The inputs that `output_axis` names, with their Keras masks.

    Raises:
        NotImplementedError: if the class has no `compute_loss` of its own.

    Example:
        >>> class SquaredError(Loss):
        ...     def compute_loss(self, inputs, mask=None):
        ...         target, output = inputs
        ...         return keras.ops.square(target - output)
        >>> layer = SquaredError(output_axis=1)
        >>> output = layer([keras.ops.array([[3.0]]), keras.ops.array([[1.0]])])
        >>> float(layer.losses[0])
        4.0
    """

    def __init__(self, output_axis=None, **kwargs):
        # Targets are often ints that half precision would round.
        super().__init__(autocast=False, **kwargs)
        self.supports_masking = True
        self.output_axis = output_axis

    def compute_loss(self, inputs, mask=None):
        """Returns the loss, a scalar or a tensor of which the mean is taken.

        Args:
            inputs: what the layer is called with.
            mask: None, or Keras masks like the inputs, None for inputs without one.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say what its loss is.")

    def call(self, inputs, mask=None):
        """Returns the chosen inputs."""
        self.add_loss(ops.mean(self.compute_loss(inputs, mask)))
        return self._chosen(inputs)

    def compute_mask(self, inputs, previous_mask=None):
        """The chosen inputs keep their masks."""
        return None if previous_mask is None else self._chosen(previous_mask)

    def _chosen(self, values):
        if self.output_axis is None:
            return values
        if isinstance(self.output_axis, list | tuple):
            return [values[index] for index in self.output_axis]
        return values[self.output_axis]

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        return {**super().get_config(), "output_axis": self.output_axis}

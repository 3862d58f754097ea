"""What models with two towers have in common: targets that only their forward pass can make."""

import keras


class CompletedModel(keras.Model):
    """A functional model whose losses need more targets than a batch brings.

    A subclass makes them in `completed`, from the batch and from outputs of the model. All
    else, losses, metrics and their weights, is as Keras has it.
    """

    def completed(self, x, y, y_pred, sample_weight):
        """Returns the targets, outputs and weights that losses and metrics are computed from.

        Args:
            x: dict of inputs.
            y: dict of targets of the batch.
            y_pred: dict of outputs.
            sample_weight: dict of weights of the batch, or None.

        Returns:
            Three dicts with the same names.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say what its targets are.")

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """Returns the loss that the model was compiled with."""
        y, y_pred, sample_weight = self.completed(x, y, y_pred, sample_weight)
        return super().compute_loss(x, y, y_pred, sample_weight, training)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Returns the metrics that the model was compiled with."""
        y, y_pred, sample_weight = self.completed(x, y, y_pred, sample_weight)
        return super().compute_metrics(x, y, y_pred, sample_weight)

"""What a builder can do with checkpoints, as in bert4keras."""


class Checkpoints:
    """The methods of `Encoder` that read and write the weights of its model."""

    def variable_mapping(self):
        """Returns a dict from the path of each variable to its names in a checkpoint.

        The names are those of the file that `save_weights_as_checkpoint` writes, or where the
        family has no original TF1 code, `save_pretrained`.
        """
        return _weights().variable_mapping(self.model)

    def load_weights_from_checkpoint(self, checkpoint, **options):
        """Does what `kerasbert.load_weights_from_checkpoint` does to the model."""
        return _weights().load_weights_from_checkpoint(self.model, checkpoint, **options)

    def save_weights_as_checkpoint(self, filename, **options):
        """Does what `kerasbert.save_weights_as_checkpoint` does with the model."""
        return _weights().save_weights_as_checkpoint(self.model, filename, **options)


def _weights():
    # Weights know models and not the other way round, but here for the convenience of users.
    import kerasbert.weights as weights

    return weights

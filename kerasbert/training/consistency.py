"""Training that makes two passes over the same text agree.

Shapes: B batch, L length, E width of the token table, C classes.
"""

import keras
from keras import ops

from kerasbert.errors import ConfigError, check_number
from kerasbert.training.gradients import gradient
from kerasbert.training.regularized import RegularizedModel
from kerasbert.training.shifts import of_length


def _log_probabilities(outputs, from_logits):
    """Logarithms of distributions (…, C or 2) from outputs (…, C or 1)."""
    outputs = ops.cast(outputs, "float32")
    single = outputs.shape[-1] == 1
    if from_logits:
        if single:
            outputs = ops.concatenate([ops.zeros_like(outputs), outputs], axis=-1)
        return ops.log_softmax(outputs)
    if single:
        outputs = ops.concatenate([1.0 - outputs, outputs], axis=-1)
    return ops.log(ops.clip(outputs, 1e-7, 1.0))


def divergence(one, other, from_logits):
    """Returns the mean KL divergence of distributions, summed over the outputs of a model.

    Args:
        one: nest of tensors (B, …, C); C = 1 is the chance of one of two classes.
        other: nest like it.
        from_logits: whether they are logits and not probabilities.
    """
    total = 0.0
    for p, q in zip(keras.tree.flatten(one), keras.tree.flatten(other), strict=True):
        p, q = _log_probabilities(p, from_logits), _log_probabilities(q, from_logits)
        total += ops.mean(ops.sum(ops.exp(p) * (p - q), axis=-1))
    return total


@keras.saving.register_keras_serializable(package="kerasbert")
class VirtualAdversarial(RegularizedModel):
    """Trains predictions to stay as they are under the worst small shift of the token vectors.

    Needs no labels for that: the shift, of length `epsilon` for an example, is the one that
    changes the predicted distribution most, found by one step from a random shift of length
    `xi`. The loss grows by `alpha` x the divergence that it causes. Texts without a label take
    part with any label and `sample_weight` 0; compile with a loss of
    `reduction="mean_with_sample_weight"`, so that they do not count in its mean.

    Works on every backend, for models whose outputs are distributions. One step costs about
    2.5 plain ones.

    Args:
        model: functional model with one encoder of ours. It is trained too: the layers are
            the same.
        epsilon: length of the shift; 0 is plain training.
        alpha: weight of the divergence.
        xi: length of the random shift. The paper's 1e-6 is lost in the rounding of float32
            already.
        from_logits: whether the outputs are logits and not probabilities.

    Raises:
        ConfigError: for numbers out of range, or an encoder hidden in a sub-model.
        KerasbertError: if there is not exactly one encoder.

    Example:
        >>> from kerasbert.training import VirtualAdversarial
        >>> labels = keras.layers.Dense(2, "softmax")(hidden_state(model, -1)[:, 0])
        >>> trained = VirtualAdversarial(keras.Model(model.inputs, labels), epsilon=1.0)
        >>> loss = keras.losses.SparseCategoricalCrossentropy(reduction="mean_with_sample_weight")
        >>> trained.compile(AdamW(1e-4), loss)

    Source: Miyato et al. 2017 (arXiv:1704.03976), algorithm 1.
    """

    def __init__(self, model, epsilon=1.0, alpha=1.0, xi=0.1, from_logits=False):
        for name, value in {"epsilon": epsilon, "alpha": alpha, "xi": xi}.items():
            check_number(name, value, least=0)
        super().__init__(model)
        self.epsilon = float(epsilon)
        self.alpha = float(alpha)
        self.xi = float(xi)
        self.from_logits = bool(from_logits)
        self.seeds = keras.random.SeedGenerator()

    def training_loss(self, step):
        """Returns the plain loss and the divergence under the worst shift."""
        target = keras.tree.map_structure(ops.stop_gradient, step.outputs)

        def changed(shifts):
            return divergence(target, step.again(shifts)[1], self.from_logits)

        zeros, real = step.zeros()
        noise = [
            keras.random.normal(ops.shape(zero), dtype="float32", seed=self.seeds) * ones
            for zero, ones in zip(zeros, real, strict=True)
        ]
        found = gradient(changed, of_length(noise, self.xi))
        shifts = [ops.stop_gradient(shift) for shift in of_length(found, self.epsilon)]
        return step.loss + self.alpha * changed(shifts)


@keras.saving.register_keras_serializable(package="kerasbert")
class RDrop(RegularizedModel):
    """Trains two passes with different dropout to agree.

    The loss is the mean of both passes' plain losses plus `alpha / 4` x the sum of the
    divergences in both directions: half of the paper's, so that `alpha=0` is a plain loss.

    Works on every backend, for models whose outputs are distributions. One step costs two
    plain ones.

    Args:
        model: functional model with one encoder of ours, with dropout. It is trained too:
            the layers are the same.
        alpha: weight of the divergence.
        from_logits: whether the outputs are logits and not probabilities.

    Raises:
        ConfigError: for a number out of range, an encoder hidden in a sub-model, or a model
            without dropout, whose two passes are the same.
        KerasbertError: if there is not exactly one encoder.

    Example:
        >>> from kerasbert.training import RDrop
        >>> first = keras.layers.Dropout(0.1)(hidden_state(model, -1)[:, 0])
        >>> labels = keras.layers.Dense(2, "softmax")(first)
        >>> trained = RDrop(keras.Model(model.inputs, labels), alpha=4.0)
        >>> trained.compile(AdamW(1e-4), "sparse_categorical_crossentropy")

    Source: Liang et al. 2021 (arXiv:2106.14448), equation 4.
    """

    def __init__(self, model, alpha=4.0, from_logits=False):
        check_number("alpha", alpha, least=0)
        super().__init__(model)
        self.alpha = float(alpha)
        self.from_logits = bool(from_logits)
        if not any("seed_generator" in variable.path for variable in self.non_trainable_variables):
            raise ConfigError(
                f"{model.name!r} has no dropout, so two passes over a text are the same.\n"
                "Expected dropout in the model, as R-Drop compares passes that differ by it.\n"
                "Build it with hidden_dropout_prob=0.1, or put keras.layers.Dropout(0.1) before "
                "your last layer."
            )

    def training_loss(self, step):
        """Returns the mean loss of two passes and their divergence."""
        loss, outputs = step.again(new_dropout=True)
        both = divergence(step.outputs, outputs, self.from_logits)
        both += divergence(outputs, step.outputs, self.from_logits)
        return 0.5 * (step.loss + loss) + 0.25 * self.alpha * both

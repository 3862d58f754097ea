"""Training that makes a model steady against small changes of its token vectors.

Shapes: B batch, L length, E width of the token table.
"""

import keras
from keras import ops

from kerasbert.errors import check_number
from kerasbert.training.gradients import gradient
from kerasbert.training.regularized import RegularizedModel
from kerasbert.training.shifts import of_length, squares

# A power of two, so exact: it keeps small gradients from vanishing in float16.
_SCALE = 128.0


def _sum_of_examples(step, shifts):
    """The loss (times a constant) as a sum, not a mean, over the batch."""
    return step.again(shifts)[0] * (_SCALE * ops.cast(ops.shape(shifts[0])[0], "float32"))


@keras.saving.register_keras_serializable(package="kerasbert")
class FGM(RegularizedModel):
    """Trains with the worst small shift of the token vectors as well (fast gradient method).

    The vectors of an example, (L, E), are shifted by `epsilon * g / |g|`, where g is the
    gradient of the loss by them. The step minimises `(1 - share)` x the plain loss plus
    `share` x the loss of the shifted ones, with the same dropout. Metrics are of the first.

    Works on every backend. One step costs about 2.5 plain ones.

    Args:
        model: functional model with one encoder of ours. It is trained too: the layers are
            the same.
        epsilon: length of the shift; 0 is plain training.
        share: of the shifted loss, from 0 to 1. With 1 the update is that of bert4keras'
            examples, which shift the table by one vector for the whole batch.

    Raises:
        ConfigError: for numbers out of range, or an encoder hidden in a sub-model.
        KerasbertError: if there is not exactly one encoder.

    Example:
        >>> from kerasbert.training import FGM
        >>> labels = keras.layers.Dense(2, "softmax")(hidden_state(model, -1)[:, 0])
        >>> trained = FGM(keras.Model(model.inputs, labels), epsilon=0.5)
        >>> trained.compile(AdamW(1e-4), "sparse_categorical_crossentropy")
        >>> trained.save("plain.keras")

    Source: Miyato et al. 2016 (arXiv:1605.07725), with the two terms' mean for their sum;
    bert4keras examples/task_iflytek_adversarial_training.py.
    """

    def __init__(self, model, epsilon=0.5, share=0.5):
        check_number("epsilon", epsilon, least=0)
        check_number("share", share, least=0, most=1)
        super().__init__(model)
        self.epsilon = float(epsilon)
        self.share = float(share)

    def training_loss(self, step):
        """Returns the mean of the plain and the shifted loss."""
        if not self.epsilon:
            return step.loss  # to the last bit, which a mean of two equal losses is not
        zeros, _ = step.zeros()
        found = gradient(lambda shifts: _sum_of_examples(step, shifts), zeros)
        shifts = [ops.stop_gradient(shift) for shift in of_length(found, self.epsilon)]
        shifted = step.again(shifts)[0]
        if self.share == 1.0:
            return shifted
        return (1.0 - self.share) * step.loss + self.share * shifted


@keras.saving.register_keras_serializable(package="kerasbert")
class GradientPenalty(RegularizedModel):
    """Trains with a penalty on the gradient of the loss by the token vectors.

    The loss grows by `epsilon / 2` x the mean over the examples of the squared norm of that
    gradient.

    Works on every backend. One step costs about 3 plain ones, and their memory.

    Args:
        model: functional model with one encoder of ours. It is trained too: the layers are
            the same.
        epsilon: weight of the penalty; 0 is plain training. bert4keras' examples take the
            gradient of a batch's mean: its epsilon / batch size is the same here.

    Raises:
        ConfigError: for numbers out of range, or an encoder hidden in a sub-model.
        KerasbertError: if there is not exactly one encoder.

    Example:
        >>> from kerasbert.training import GradientPenalty
        >>> labels = keras.layers.Dense(2, "softmax")(hidden_state(model, -1)[:, 0])
        >>> trained = GradientPenalty(keras.Model(model.inputs, labels), epsilon=0.1)
        >>> trained.compile(AdamW(1e-4), "sparse_categorical_crossentropy")

    Source: bert4keras examples/task_iflytek_gradient_penalty.py; Gulrajani et al. 2017
    (arXiv:1704.00028) for penalties on the norm of a gradient.
    """

    def __init__(self, model, epsilon=1.0):
        check_number("epsilon", epsilon, least=0)
        super().__init__(model)
        self.epsilon = float(epsilon)

    def training_loss(self, step):
        """Returns the plain loss and the penalty."""
        zeros, _ = step.zeros()
        found = gradient(lambda shifts: _sum_of_examples(step, shifts), zeros, differentiable=True)
        found = [one / _SCALE for one in found]
        return step.loss + 0.5 * self.epsilon * ops.mean(squares(found))

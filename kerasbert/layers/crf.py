"""Conditional random field: a label depends on the labels beside it.

Shapes: B batch, L length, K labels.
"""

import keras
from keras import ops

from kerasbert.layers.chains import ViterbiStep, log_partition, path_score
from kerasbert.layers.label_layer import LabelLayer, labels_and_tokens


@keras.saving.register_keras_serializable(package="kerasbert")
class ConditionalRandomField(LabelLayer):
    """A linear-chain conditional random field on top of the scores of each token's labels.

    The score of a label sequence is the sum of its labels' scores and of `trans[i, j]` for
    every label i with a label j behind it; there are no scores for the start and the end.
    The layer itself only marks padding in the scores, so a model may end with it:

        scores = ConditionalRandomField(name="crf")(keras.layers.Dense(num_labels)(hidden))
        model = keras.Model(encoder.inputs, scores)
        crf = model.get_layer("crf")
        model.compile("adam", loss=crf.sparse_loss, metrics=[crf.sparse_accuracy])
        labels = crf.decode(model.predict(inputs))

    Padding needs no care: it is known from the Keras mask of the input and then from the
    marks in the output, whatever labels stand there. Where no mask arrives, or to leave out
    single tokens, labels below 0 (rows of zeros for the dense forms) do the same for losses
    and metrics. Padding may be anywhere; the tokens around it count as neighbours. A label
    of K or above makes the loss NaN.

    `sparse_loss` and `dense_loss` are Keras losses: the negative log-likelihood of each
    sequence, averaged over the batch. `sparse_accuracy` and `dense_accuracy` are Keras
    metrics: the share of tokens whose own highest score is right. They cost nothing, but take
    no transitions into account; `decode` does. All are saved and loaded with a compiled model.

    Args:
        lr_multiplier: how many times faster the transitions learn than the other weights,
            under an optimizer whose steps do not grow with the gradient, such as Adam. They
            are stored divided by it; `trans` gives what is used.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: float tensor (B, L, K).
        mask: tensor (B, L), zero at padding; Keras passes on that of `inputs`.

    Returns:
        Float tensor (B, L, K): the inputs, with all numbers at -65504 where there is
        padding. It has no Keras mask. A token's scores below -32752 are raised to that.

    Raises:
        ConfigError: if `lr_multiplier` is not a positive number.

    Source: Lafferty, McCallum and Pereira 2001 (Conditional Random Fields); the loss as in
    Lample et al. 2016 (arXiv:1603.01360), without its start and end labels, as in bert4keras.

    Example:
        >>> crf = ConditionalRandomField()
        >>> scores = crf(keras.ops.array([[[9.0, 0.0], [0.0, 9.0], [0.0, 9.0]]]))
        >>> crf.decode(scores).numpy().tolist()
        [[0, 1, 1]]
    """

    def build(self, input_shape):
        """Creates the transitions (K, K)."""
        self._trans = self.add_transitions("trans", (input_shape[-1], input_shape[-1]))

    @property
    def trans(self):
        """The transitions, float32 (K, K): from the label in the row to that in the column."""
        return self.used("_trans")

    def log_likelihood(self, scores, labels, mask=None):
        """Tells how likely given labels are.

        Args:
            scores: float tensor (B, L, K), from this layer or unmarked.
            labels: int tensor (B, L); tokens with a label below 0 are left out.
            mask: tensor (B, L), zero at padding, in addition to what is marked in `scores`.

        Returns:
            Float32 tensor (B,): the logarithm of the probability of each sequence's labels,
            0 for a sequence without any token.
        """
        labels, scores, real = labels_and_tokens(labels, scores, mask)
        trans = self.trans
        return path_score(scores, trans, labels, real) - log_partition(scores, trans, real)

    def sequence_loss(self, scores, labels):
        """Returns the negative log-likelihood (B,) of each sequence; see `log_likelihood`."""
        return -self.log_likelihood(scores, labels)

    def viterbi_step(self):
        """Returns what the transitions and a token add to the score of a label sequence."""
        trans = self.trans
        return ViterbiStep(
            trans.shape[0],
            first=lambda here: here,
            pair=lambda before, here: trans + ops.expand_dims(here, 1),
            last=ops.zeros_like,
        )

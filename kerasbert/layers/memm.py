"""Maximum entropy Markov model: faster to train than a conditional random field.

Shapes: B batch, L length, K labels, D hidden_dim.
"""

import keras
from keras import ops

from kerasbert.errors import check_integer
from kerasbert.layers.chains import ViterbiStep, label_before, pick, rows
from kerasbert.layers.label_layer import LabelLayer, labels_and_tokens


@keras.saving.register_keras_serializable(package="kerasbert")
class MaximumEntropyMarkovModel(LabelLayer):
    """Labels that are predicted one after the other, in both directions.

    Forwards, the label of a token is drawn from the softmax of half the sum of its scores
    and of the row of `trans` for the label before it; the first token's from the softmax of
    its scores. Backwards, it is the column for the label behind it, and the last token's
    scores. Nothing is summed over all label sequences, so training needs no loop. Use,
    padding and arguments are those of `ConditionalRandomField`.

    `sparse_loss` and `dense_loss` are Keras losses: the mean over a sequence's tokens of the
    negative log-probability, over both directions, averaged over the batch.
    `sparse_accuracy` and `dense_accuracy` are Keras metrics: the share of tokens whose own
    highest score is right (not, as in bert4keras, beside their true neighbours, which a text
    does not tell). All are saved and loaded with a compiled model.

    Args:
        lr_multiplier: as in `ConditionalRandomField`.
        hidden_dim: if given, the transitions are the product of two matrices (K, D) of this
            width, which saves weights where there are many labels.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: float tensor (B, L, K).
        mask: tensor (B, L), zero at padding; Keras passes on that of `inputs`.

    Returns:
        Float tensor (B, L, K): the inputs, with all numbers at -65504 where there is
        padding. It has no Keras mask. A token's scores below -32752 are raised to that.

    Raises:
        ConfigError: if `lr_multiplier` is not a positive number, or `hidden_dim` neither
            None nor a positive integer.

    Source: McCallum, Freitag and Pereira 2000 (Maximum Entropy Markov Models); both
    directions and the factors as in bert4keras, https://kexue.fm/archives/7213.

    Example:
        >>> memm = MaximumEntropyMarkovModel()
        >>> scores = memm(keras.ops.array([[[9.0, 0.0], [0.0, 9.0], [0.0, 9.0]]]))
        >>> memm.decode(scores).numpy().tolist()
        [[0, 1, 1]]
    """

    def __init__(self, lr_multiplier=1, hidden_dim=None, **kwargs):
        super().__init__(lr_multiplier, **kwargs)
        if hidden_dim is not None:
            check_integer("hidden_dim", hidden_dim, minimum=1)
        self.hidden_dim = hidden_dim

    def build(self, input_shape):
        """Creates the transitions (K, K), or their factors (K, D)."""
        labels = input_shape[-1]
        if self.hidden_dim is None:
            self._trans = self.add_transitions("trans", (labels, labels))
        else:
            self._l_trans = self.add_transitions("l_trans", (labels, self.hidden_dim))
            self._r_trans = self.add_transitions("r_trans", (labels, self.hidden_dim))

    @property
    def trans(self):
        """The transitions, float32 (K, K): from the label in the row to that in the column."""
        if self.hidden_dim is None:
            return self.used("_trans")
        return ops.matmul(self.l_trans, ops.transpose(self.r_trans))

    @property
    def l_trans(self):
        """The factor (K, D) for the label before, where there is a `hidden_dim`."""
        return self.used("_l_trans")

    @property
    def r_trans(self):
        """The factor (K, D) for the label behind, where there is a `hidden_dim`."""
        return self.used("_r_trans")

    def log_likelihood(self, scores, labels, mask=None):
        """Tells how likely given labels are.

        Args:
            scores: float tensor (B, L, K), from this layer or unmarked.
            labels: int tensor (B, L); tokens with a label below 0 are left out.
            mask: tensor (B, L), zero at padding, in addition to what is marked in `scores`.

        Returns:
            Float32 tensor (B,): the mean of both directions' logarithms of the probability
            of each sequence's labels, 0 for a sequence without any token.
        """
        return ops.sum(self._token_log_likelihood(*labels_and_tokens(labels, scores, mask)), 1)

    def sequence_loss(self, scores, labels):
        """Returns the negative log-likelihood (B,), divided by the number of tokens."""
        labels, scores, real = labels_and_tokens(labels, scores)
        tokens = ops.sum(ops.cast(real, "float32"), axis=1)
        total = ops.sum(self._token_log_likelihood(labels, scores, real), axis=1)
        return -total / ops.maximum(tokens, 1.0)

    def viterbi_step(self):
        """Returns what the transitions and a token add to the score of a label sequence."""
        trans = self.trans

        def pair(before, here):
            forward = ops.log_softmax((ops.expand_dims(here, 1) + trans) / 2, axis=2)
            backward = ops.log_softmax((ops.expand_dims(before, 2) + trans) / 2, axis=1)
            return (forward + backward) / 2

        def end(scores):
            return ops.log_softmax(scores, axis=-1) / 2

        return ViterbiStep(trans.shape[0], end, pair, end)

    def _token_log_likelihood(self, labels, scores, real):
        """Returns the mean (B, L) of both directions' log-probabilities, 0 at padding."""
        found = [
            pick(ops.log_softmax(logits, axis=-1), labels)
            for logits in self._directions(scores, labels, real)
        ]
        return ops.where(real, sum(found) / 2, 0.0)

    def _directions(self, scores, labels, real):
        """Returns the logits (B, L, K) forwards and backwards, beside the true labels."""
        if self.hidden_dim is None:
            trans = self.trans
            tables = (trans, None), (ops.transpose(trans), None)
        else:
            tables = (self.l_trans, self.r_trans), (self.r_trans, self.l_trans)
        before, has_before = label_before(labels, real)
        behind, has_behind = label_before(ops.flip(labels, axis=1), ops.flip(real, axis=1))
        sides = (before, has_before), (ops.flip(behind, axis=1), ops.flip(has_behind, axis=1))
        logits = []
        for (table, factor), (neighbour, there) in zip(tables, sides, strict=True):
            history = rows(table, neighbour)
            if factor is not None:
                history = ops.matmul(history, ops.transpose(factor))
            there = ops.expand_dims(there, -1)
            logits.append(ops.where(there, (scores + history) / 2, scores))
        return logits

    def get_config(self):
        """Returns the arguments that rebuild this layer."""
        return {**super().get_config(), "hidden_dim": self.hidden_dim}

"""ELECTRA: a generator that replaces tokens and a discriminator that finds them, as one model.

Shapes: B batch, L length, M masked places of a row, V vocabulary.
"""

import keras
from keras import ops

from kerasbert.layers import PutPlaces, SampleTokens
from kerasbert.layers.places import put
from kerasbert.pretraining.completed import CompletedModel
from kerasbert.pretraining.graph import Tower, make_inputs, named
from kerasbert.pretraining.objectives import check_vocabularies


@keras.saving.register_keras_serializable(package="kerasbert")
class ElectraModel(CompletedModel):
    """What `electra_model` returns."""

    def completed(self, x, y, y_pred, sample_weight):
        """Adds for each real token whether it was replaced by another one."""
        ids, places = x["input_ids"], x["masked_lm_positions"]
        right, sampled = y["masked_lm"], y_pred["sampled"]
        other = ops.not_equal(ops.cast(right, "int32"), ops.cast(sampled, "int32"))
        labels = put(ops.zeros_like(ids), places, ops.cast(other, "int32"))  # (B, L)
        weights = (sample_weight or {}).get("masked_lm")
        if weights is None:
            weights = ops.cast(ops.greater(places, 0), "float32")
        # The losses of Keras take the mean over the last axis.
        replaced = ops.expand_dims(y_pred["replaced"], -1)
        labels = ops.expand_dims(ops.cast(labels, "float32"), -1)
        return (
            {"masked_lm": right, "replaced": labels},
            {"masked_lm": y_pred["masked_lm"], "replaced": replaced},
            {"masked_lm": weights, "replaced": ops.cast(x["input_mask"], "float32")},
        )


class _Replaced(keras.metrics.Mean):
    """A share of tokens, by labels (…, 1) and logits (…, 1) of having been replaced."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        labels = ops.squeeze(ops.convert_to_tensor(y_true), -1) > 0
        found = ops.squeeze(ops.convert_to_tensor(y_pred), -1) > 0
        counted = self.counted(labels)
        if sample_weight is not None:
            counted = counted * ops.cast(sample_weight, "float32")
        right = ops.cast(ops.equal(labels, found), "float32")
        super().update_state(right, sample_weight=counted)


@keras.saving.register_keras_serializable(package="kerasbert")
class ReplacedAccuracy(_Replaced):
    """The share of tokens of which it was said rightly whether they were replaced.

    Args:
        name: of the metric.
        **kwargs: further arguments of `keras.metrics.Mean`.

    Example:
        >>> metric = ReplacedAccuracy()
        >>> metric.update_state([[1], [1], [0], [0]], [[0.7], [-0.2], [-0.3], [-0.9]])
        >>> float(metric.result())
        0.75
    """

    def counted(self, labels):
        """Returns weights by labels: all count."""
        return ops.ones_like(labels, dtype="float32")


@keras.saving.register_keras_serializable(package="kerasbert")
class ReplacedFound(_Replaced):
    """Of the tokens that were replaced, the share that was found.

    Args:
        name: of the metric.
        **kwargs: further arguments of `keras.metrics.Mean`.

    Example:
        >>> metric = ReplacedFound()
        >>> metric.update_state([[1], [1], [0], [0]], [[0.7], [-0.2], [-0.3], [-0.9]])
        >>> float(metric.result())
        0.5
    """

    def counted(self, labels):
        """Returns weights by labels: only replaced tokens count."""
        return ops.cast(labels, "float32")


def electra_model(discriminator, generator, *, temperature=1.0, seed=None, name=None):
    """Returns a model for `fit` that trains a generator and a discriminator together.

    The generator predicts the masked tokens; one token for each is drawn from what it says and
    put in the place of the mask; the discriminator says of every token whether it is another
    one than in the text. Where the right one was drawn, it counts as not replaced. The loss,
    by `compile_objectives`, is the generator's cross entropy and 50 times the discriminator's
    over the real tokens. No gradient passes through the drawing; embeddings that both share
    learn from both.

    Args:
        discriminator: built with `model="electra"` and `with_discriminator=True`.
        generator: such as `electra_towers` or `small_generator` make it.
        temperature: of the drawing.
        seed: of the drawing; None for a new one each time.
        name: of the Keras model.

    Returns:
        A `keras.Model`. Inputs, a dict: `input_ids`, `input_mask`, `segment_ids`, each (B, L),
        and `masked_lm_positions` (B, M); all masked places are filled, whatever stands there.
        Outputs, a dict: the logits `masked_lm` (B, M, V) and `replaced` (B, L), and the ids
        `sampled` (B, M).

    Raises:
        ConfigError: if a model lacks its head, or both have not the same vocabulary.

    Example:
        >>> from kerasbert.pretraining import electra_model, electra_towers
        >>> sizes = dict(vocab_size=100, embedding_size=16, hidden_size=32, num_hidden_layers=2,
        ...              num_attention_heads=4, intermediate_size=64, hidden_act="gelu")
        >>> trained = electra_model(*electra_towers(sizes))
        >>> sorted(trained.output)
        ['masked_lm', 'replaced', 'sampled']

    Source: Clark et al. 2020 (arXiv:2003.10555); google-research/electra `run_pretraining.py`.
    """
    small, large = Tower(generator), Tower(discriminator)
    check_vocabularies(small.view, large.view)
    inputs = make_inputs(large.view, "masked_lm_positions")
    places = inputs["masked_lm_positions"]
    (logits,), _ = small.masked_lm(inputs, [places])
    sampled = SampleTokens(temperature, seed, name="sampled")(logits)
    tokens = PutPlaces(name="Replace-Tokens")(inputs["input_ids"], places, sampled)
    replaced = large.replaced({**inputs, "input_ids": tokens})
    outputs = {
        "masked_lm": named("masked_lm", logits),
        "replaced": named("replaced", replaced),
        "sampled": sampled,
    }
    return ElectraModel(inputs, outputs, name=name)

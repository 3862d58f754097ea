"""The models that are trained: masked LM, with sentence pairs, word order, and proposed masks.

Shapes: B batch, L length, M masked places of a row, K places where the order was changed,
V vocabulary.
"""

import keras
from keras import ops

from kerasbert.errors import ConfigError
from kerasbert.layers import KeepHardest, PutPlaces
from kerasbert.pretraining.completed import CompletedModel
from kerasbert.pretraining.graph import Tower, make_inputs, named


def masked_lm_model(model, *, word_order=False, name=None):
    """Returns a model for `fit` that learns masked tokens, and the order of sentences.

    It has the layers of `model`, so that one is trained with it. The head is run at the masked
    places alone: with 15 % of the tokens masked its product with the vocabulary is done for a
    seventh of them. With a sentence head (`with_nsp=True` or `with_sop=True`) it learns that
    too; what the labels mean, next sentence or right order, the data decides. A model that was
    built with `application="lm"` or `"unilm"` is trained in the same way, with places where the
    next token is to be predicted.

    Args:
        model: a model of `build_transformer_model` with `with_mlm=True`, random or from a
        XX
        word_order: whether there are places, `word_order_positions`, where the order of the
            tokens was changed, and the right tokens are to be predicted; see `shuffle_words`.
        name: of the Keras model.

    Returns:
        A `keras.Model`. Inputs, a dict: `input_ids`, `input_mask`, `segment_ids`, each (B, L),
        and `masked_lm_positions` (B, M). Outputs, a dict of float32 logits: `masked_lm`
        (B, M, V), `next_sentence` (B, 2) if there is such a head, and `word_order` (B, K, V).
        `input_mask` counts if `model` was built with `with_mask_input=True`; otherwise padding
        is where the token is.

    Raises:
        ConfigError: if the model has no masked-LM head, or has inputs that the batches do not
            give.
        KerasbertError: if there is not exactly one encoder.

    Example:
        >>> from kerasbert.pretraining import compile_objectives, masked_lm_model
        >>> trained = compile_objectives(masked_lm_model(masked_lm), LAMB(1e-3))
        >>> list(trained.output)
        ['masked_lm']

    Source: Devlin et al. 2018 (arXiv:1810.04805); Lan et al. 2019 (arXiv:1909.11942) for the
    order of sentences; Wang et al. 2019 (arXiv:1908.04577), StructBERT, for that of words.
    """
    tower = Tower(model)
    places = ["masked_lm_positions", *(["word_order_positions"] if word_order else [])]
    inputs = make_inputs(tower.view, *places)
    logits, sentence = tower.masked_lm(inputs, [inputs[place] for place in places])
    outputs = {"masked_lm": named("masked_lm", logits[0])}
    if sentence is not None:
        outputs["next_sentence"] = named("next_sentence", sentence)
    if word_order:
        outputs["word_order"] = named("word_order", logits[1])
    return keras.Model(inputs, outputs, name=name)


@keras.saving.register_keras_serializable(package="kerasbert")
class MaskProposalModel(CompletedModel):
    """What `mask_proposal_model` returns."""

    def completed(self, x, y, y_pred, sample_weight):
        """Counts the masked LM at the chosen places, and the small model at all of them."""
        kept, weights = y_pred["kept"], x["masked_lm_weights"]
        y = {**y, "proposal": y["masked_lm"]}
        own = {"masked_lm": kept, "proposal": ops.cast(weights, "float32")}
        outputs = {name: value for name, value in y_pred.items() if name != "kept"}
        if "next_sentence" in y:
            given = (sample_weight or {}).get("next_sentence")
            ones = ops.ones_like(y["next_sentence"], dtype="float32")
            own["next_sentence"] = ones if given is None else given
        return y, outputs, own


def mask_proposal_model(model, generator, *, share=0.5, temperature=1.0, seed=None, name=None):
    """Returns a model for `fit` in which a small model chooses the masks of a large one.

    The masks of a batch are proposals, so there should be more of them than usual. The small
    model predicts all of them; where its cross entropy is high, masks are kept for the large
    model the likelier, and the other tokens are given back to it. Both learn by masked LM, each
    by its own: no gradient passes from the large one to the small one.

    Args:
        model: the model to train, built with `with_mlm=True`.
        generator: the small one, such as of `small_generator`.
        share: how many of the proposals are kept, as a share.
        temperature: the greater, the less hardness matters.
        seed: of the choice; None for a new one each time.
        name: of the Keras model.

    Returns:
        A `keras.Model` as of `masked_lm_model`, with the further inputs `masked_lm_ids` and
        `masked_lm_weights` (B, M) and outputs `proposal` (B, M, V), the logits of the small
        model, and `kept` (B, M), 1 where a mask was kept. `train_steps` feeds it from the same
        batches.

    Raises:
        ConfigError: as `masked_lm_model`; if an argument is out of range, or the two models
            have not the same vocabulary.

    Example:
        >>> from kerasbert.pretraining import mask_proposal_model, small_generator
        >>> trained = mask_proposal_model(masked_lm, small_generator(masked_lm, 0.5))
        >>> sorted(trained.output)
        ['kept', 'masked_lm', 'proposal']

    Source: Clark et al. 2020 (arXiv:2003.10555) for the two models; here the large one keeps
    its masked LM instead of becoming a discriminator.
    """
    small, large = Tower(generator), Tower(model)
    check_vocabularies(small.view, large.view)
    inputs = make_inputs(large.view, "masked_lm_positions", "masked_lm_ids")
    weights = keras.Input((None,), dtype="float32", name="masked_lm_weights")
    inputs["masked_lm_weights"] = weights
    places, ids = inputs["masked_lm_positions"], inputs["masked_lm_ids"]
    (proposal,), _ = small.masked_lm(inputs, [places])
    choice = KeepHardest(share, temperature, seed, name="Keep-Hardest")
    kept = choice(proposal, ids=ids, weights=weights)
    given_back = ops.cast(ops.equal(kept, 0), "float32") * weights
    tokens = PutPlaces(name="Give-Back")(inputs["input_ids"], places, ids, where=given_back)
    (logits,), sentence = large.masked_lm({**inputs, "input_ids": tokens}, [places])
    outputs = {"masked_lm": logits, "proposal": proposal, "kept": kept}
    if sentence is not None:
        outputs["next_sentence"] = sentence
    outputs = {output: named(output, tensor) for output, tensor in outputs.items()}
    return MaskProposalModel(inputs, outputs, name=name)


def check_vocabularies(small, large):
    """Refuses two towers that do not read the same tokens.

    Args:
        small: `EncoderView` of one.
        large: `EncoderView` of the other.

    Raises:
        ConfigError: says both sizes; or if both have layers of the same names.
    """
    sizes = small.config.vocab_size, large.config.vocab_size
    if sizes[0] != sizes[1]:
        raise ConfigError(
            f"The generator has vocab_size={sizes[0]}, the other model {sizes[1]}.\n"
            "Expected two models that read the same tokens.\n"
            "Make the generator with kerasbert.pretraining.small_generator(model)."
        )
    if small.prefix == large.prefix:
        raise ConfigError(
            f"The layers of both models have names with the prefix {small.prefix!r}.\n"
            "Expected two prefixes, as both are put into one model.\n"
            "Make the generator with small_generator(model), or build it with prefix='Generator-'."
        )

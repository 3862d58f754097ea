"""The small model that stands beside a large one: ELECTRA's generator, or what proposes masks."""

import warnings

from kerasbert.errors import ConfigError, check_integer, check_number
from kerasbert.factory import build_transformer_model
from kerasbert.models.view import find_encoder
from kerasbert.weights.checkpoints import open_checkpoint
from kerasbert.weights.detect import matches_in
from kerasbert.weights.dialects import ELECTRA_GENERATOR_UNTIED

# Of an ELECTRA; the generator's other layers have names of their own.
_EMBEDDINGS = ("Embedding-Token", "Embedding-Segment", "Embedding-Position", "Embedding-Norm")
_PREFIX = "Generator-"

# As in Google's code, where all heads are so wide.
_HEAD_SIZE = 64

# Families whose embeddings are those of ELECTRA: tables of the width E, their sum normalised.
_ALIKE = ("bert", "albert", "electra")


def small_generator(model, size=0.25, *, layers=None, tied=True, checkpoint=None):
    """Returns a small BERT with a masked-LM head that goes with a larger model.

    Its width is a share of the larger one's; it has as many layers, heads 64 wide, an inner
    width four times its own, and the larger model's embeddings, by default as the same
    variables.

    Args:
        model: model of `build_transformer_model` that it is to stand beside.
        size: its width as a share; ELECTRA's are from 1/4 to 1/2.
        layers: how many layers it has; default as many as the model.
        tied: whether tables and norm of the embeddings are the model's own; otherwise they are
            as wide as the small model.
        checkpoint: a checkpoint that holds a generator of this size; default random numbers.

    Returns:
        A `keras.Model` of the family "electra_generator". All layers of its own have names
        that begin with "Generator-".

    Raises:
        ConfigError: if an argument is out of range, or the embeddings of `model` cannot be
            shared, as those of brightmart's early ALBERTs and of models without positions.
        WeightMismatchError: if the checkpoint does not fit.

    Example:
        >>> from kerasbert.pretraining import small_generator
        >>> generator = small_generator(masked_lm, size=0.5)
        >>> table = generator.get_layer("Embedding-Token").embeddings
        >>> table is masked_lm.get_layer("Embedding-Token").embeddings
        True

    Source: Clark et al. 2020 (arXiv:2003.10555); google-research/electra `pretrain/
    pretrain_helpers.py` for the sizes.
    """
    view = find_encoder(model)
    check_number("size", size, above=0, most=1)
    if layers is not None:
        check_integer("layers", layers, minimum=1)
    if tied:
        _check_alike(view)
    config = view.config
    widths = _widths(max(round(config.hidden_size * size), 1))
    values = {
        "vocab_size": config.vocab_size,
        "hidden_act": "gelu",
        "num_hidden_layers": layers or config.num_hidden_layers,
        **widths,
        "embedding_size": config.embedding_size if tied else widths["hidden_size"],
        "max_position_embeddings": config.max_position_embeddings,
        "type_vocab_size": config.type_vocab_size,
        "hidden_dropout_prob": config.hidden_dropout_prob,
        "attention_probs_dropout_prob": config.attention_probs_dropout_prob,
        "initializer_range": config.initializer_range,
        "hierarchical_position": config.hierarchical_position,
    }
    shared = {name: view.layer(name) for name in _EMBEDDINGS if tied and view.has_layer(name)}
    return build_transformer_model(
        values,
        checkpoint,
        model="electra_generator",
        with_mlm=True,
        with_mask_input=view.has_layer("Input-Mask"),
        sequence_length=view.calls("Input-Token")[0].output_tensors[0].shape[1],
        dtype=view.mask_layer.dtype_policy.name,
        layers=shared or None,
        prefix=_PREFIX,
        verbose=0,
    )


def electra_towers(
    config=None,
    checkpoint=None,
    *,
    generator_size=0.25,
    generator_layers=None,
    tied=True,
    verbose=1,
    **options,
):
    """Returns the two models of an ELECTRA, random or from a checkpoint that holds both.

    Args:
        config: of the discriminator, see `build_transformer_model`.
        checkpoint: a pre-training checkpoint, which is continued. If there is no generator in
            it, as in some that are published, that one starts at random, with a warning.
        generator_size: see `small_generator`. Google's small ELECTRA has 1 as released (1/4 in
            the paper), its base 1/3, its large 1/4; files do not tell it otherwise than by
            shapes.
        generator_layers: how many layers the generator has; default as many.
        tied: whether both have the same embeddings.
        verbose: 0 prints nothing, 1 a line for each model that is loaded.
        **options: further ones of `build_transformer_model`, for the discriminator.

    Returns:
        The discriminator, with the head that finds replaced tokens, and the generator.

    Raises:
        ConfigError: see `build_transformer_model` and `small_generator`; or if the generator
            in the checkpoint has embeddings of its own and `tied` is True.
        CheckpointError: if the checkpoint cannot be read.
        WeightMismatchError: if it does not fit.

    Example:
        >>> from kerasbert.pretraining import electra_towers
        >>> sizes = dict(vocab_size=100, embedding_size=16, hidden_size=32, num_hidden_layers=2,
        ...              num_attention_heads=4, intermediate_size=64, hidden_act="gelu")
        >>> discriminator, generator = electra_towers(sizes, generator_size=0.5)
        >>> generator.get_layer("Generator-MLM-Dense").units
        16

    Source: Clark et al. 2020 (arXiv:2003.10555); google-research/electra.
    """
    options = {"with_discriminator": True, "verbose": verbose, **options}
    discriminator = build_transformer_model(config, checkpoint, model="electra", **options)
    generator = small_generator(
        discriminator,
        generator_size,
        layers=generator_layers,
        tied=tied,
        checkpoint=_generator_in(checkpoint, tied),
    )
    return discriminator, generator


def _widths(hidden):
    """The width of the small model and what follows from it."""
    heads = max(1, hidden // _HEAD_SIZE)
    while hidden % heads:
        heads -= 1
    return {
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
    }


def _check_alike(view):
    if view.config.family in _ALIKE and not view.config.projects_first:
        return
    raise ConfigError(
        f"The embeddings of {view.model.name!r} ({view.config.family}) are no sum of tables of "
        "tokens, positions and segments, normalised before any projection.\n"
        f"Expected a model of one of the families: {', '.join(_ALIKE)}.\n"
        "Pass tied=False: the generator gets embeddings of its own."
    )


def _generator_in(checkpoint, tied):
    """Returns the checkpoint if it holds a generator, else None."""
    if checkpoint is None:
        return None
    opened = open_checkpoint(checkpoint)
    found = [m.dialect for m in matches_in(opened) if m.dialect.family == "electra_generator"]
    if not found:
        warnings.warn(
            f"{opened.source} holds no generator: it starts from random numbers.", stacklevel=3
        )
        return None
    if tied and ELECTRA_GENERATOR_UNTIED in found:
        raise ConfigError(
            f"The generator in {opened.source} has embeddings of its own.\n"
            "Expected those of the discriminator, as tied=True.\n"
            "Pass tied=False."
        )
    return checkpoint

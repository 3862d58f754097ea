"""`build_transformer_model`: from a config and a checkpoint to a Keras model."""

import contextlib
import warnings

from kerasbert.config import check_switch
from kerasbert.config_file import read_config
from kerasbert.folders import locate
from kerasbert.layers.composite import no_initial_values
from kerasbert.registry import AUTO, find_architecture
from kerasbert.request import Request, check_names, either, sizes_given
from kerasbert.weights import complaints
from kerasbert.weights.audit import refuse_contradictions
from kerasbert.weights.checkpoints import open_checkpoint
from kerasbert.weights.detect import detect
from kerasbert.weights.loader import Loader
from kerasbert.weights.sizes import infer_config
from kerasbert.weights.vocabulary import VocabularySelection


def build_transformer_model(
    config=None,
    checkpoint=None,
    model=AUTO,
    application="encoder",
    return_keras_model=True,
    *,
    config_path=None,
    checkpoint_path=None,
    **options,
):
    """Builds a Transformer as a functional Keras model and loads a checkpoint into it.

    Args:
        config: path of a config file, a dict, or a folder that holds config and checkpoint.
            None takes the only one beside the checkpoint, or else reads the sizes from the
            shapes in the checkpoint and warns of what no shape shows.
        checkpoint: prefix of a TensorFlow checkpoint, its `.index` or `.data-…` file, a
            safetensors or PyTorch file or its index of shards, a folder that holds one of
            these, an unpacked TF-Hub module, or a dict from names to arrays. Without it the
            weights are random.
        model: "auto" (config and checkpoint decide; the printed line says how), "bert",
            "roberta", "albert" (one block per group, called at several depths),
            "albert_unshared" (a block per depth, initialised from the shared one), "electra"
            (the discriminator), "electra_generator", "distilbert", "nezha", "roformer",
            "roformer_v2", "gau_alpha", "gpt", "gpt2", "gpt2_ml", "t5" or "t5.1.0", "t5.1.1",
            "mt5.1.1" (each of the last four also with "_encoder" or "_decoder"), or a subclass
            of `kerasbert.models.Encoder`.
        application: "encoder"; "lm" (each token sees those before it); or "unilm" (a text of
            segment 0 to read, one of segment 1 to write). The last two have the masked-LM
            head, which then predicts the next token.
        return_keras_model: False returns the builder, with `.model .inputs .outputs .layers
            .config .hidden_states .initializer .variable_mapping()
            .load_weights_from_checkpoint(…) .save_weights_as_checkpoint(…)`.
        config_path: bert4keras' name of `config`.
        checkpoint_path: bert4keras' name of `checkpoint`.
        **options: keys of the config file, which they override (also as `dropout_rate`,
            `attention_dropout_rate`, `max_position`, `segment_vocab_size`; 0 removes the
            segment input), and:
            with_pool: adds the pooled output (B, H); True for tanh, or an activation.
            with_nsp, with_sop: adds next-sentence or sentence-order probabilities (B, 2);
                True for softmax, or an activation such as "linear".
            with_mlm: adds masked-LM probabilities (B, L, V); True for softmax, or an activation.
            with_discriminator: adds ELECTRA's probabilities (B, L) that a token was replaced;
                True for sigmoid, or an activation.
            with_lm: whether a GPT or T5 gives the probabilities (B, L, V) of the next token;
                default True; an activation such as "linear", or False for the hidden state.
            final_activation: what True means there, default "softmax".
            with_classifier: adds a fine-tuned head: True or "sequence" (B, C), "token"
                (B, L, C), or "span" (start and end, each (B, L)).
            num_labels: C; default is what checkpoint or config say.
            classifier_activation: default "softmax"; "linear" for logits.
            classifier_dropout: dropout rate before the last layer, default 0.1.
            hidden_states: True adds, as last output, the list of the L + 1 hidden states.
            with_mask_input: True adds a last input (B, L), non-zero at real tokens; without it
                padding is where the token id is 0 (RoBERTa: 1).
            unshare: "attention", "feed_forward" or "all": what every layer of an ALBERT gets
                of its own.
            unshare_layers: the layers that do; default all.
            keep_tokens: ids to keep, in their new order.
            compound_tokens: tokens to append, each as ids to average.
            sequence_length: fixed input length; default free.
            name: name of the Keras model.
            prefix: what all layer names begin with.
            dtype: dtype policy, such as "mixed_float16".
            custom_position_ids: True adds an input (B, L) of positions, after the segments.
            additional_input_layers: inputs of your own, the last ones of the model.
            layer_norm_cond: symbolic tensor (B, C) or (B, L, C) that steers all layer norms,
                such as one of these inputs; the effect starts at zero. It may pass through a
                dense layer: layer_norm_cond_hidden_size, layer_norm_cond_hidden_act.
            layers: layers to share, by name, such as the `layers` of another builder.
            autoresize_weights: True resizes what is of another hidden_size, embedding_size or
                intermediate_size in the checkpoint, see `kerasbert.weights.orthogonally_resize`;
                the number of heads should stay as it is.
            ignore_invalid_weights: True lets variables keep their initial values, with a
                warning, that the checkpoint lacks or has in another shape.
            strict: False accepts heads that the checkpoint lacks, and starts them fresh.
            verbose: 0 prints nothing, 1 one line, 2 the load report.

    Returns:
        A `keras.Model`. Its inputs are int32 tensors `Input-Token`, `Input-Segment`,
        (`Input-Mask`), each (B, L). Its output is the last hidden state (B, L, H), or the head
        that was asked for, or a list of heads.

    Raises:
        ConfigError: for unknown arguments and configurations that are incomplete,
            contradictory or not supported.
        CheckpointError: if the checkpoint cannot be found or read.
        WeightMismatchError: if checkpoint and configuration do not belong together.

    Example:
        >>> model = build_transformer_model(
        ...     "albert_config.json", "albert_model.ckpt", model="albert_unshared")
        Google ALBERT: ... variables loaded, ... unused (albert_model.ckpt)
    """
    config = either("config", config, config_path)
    checkpoint = either("checkpoint", checkpoint, checkpoint_path)
    check_names(options)
    check_switch("return_keras_model", return_keras_model)
    found, checkpoint = locate(config, checkpoint)
    beside = (f"The config beside it was taken: {found}.",) if found and config is None else ()
    config = found
    values, source = read_config(config)
    checkpoint = None if checkpoint is None else open_checkpoint(checkpoint)
    architecture, chosen = find_architecture(model, values, checkpoint, options)
    match = checkpoint and _match(checkpoint, architecture)
    if checkpoint and config is None:
        values, source = _inferred(checkpoint, match, options)
    request = Request.from_arguments(architecture, values, options, source, application)
    if checkpoint:
        request = request.adapted_to(checkpoint, match)
        _audit(request, checkpoint)

    vocabulary = VocabularySelection(**request.vocabulary)
    model_config = request.model_config(vocabulary)
    with _initial_values(architecture, checkpoint, request.load):
        builder = architecture(model_config, request.build_options(model_config))
    if checkpoint:
        loader = Loader(
            builder.model,
            checkpoint,
            match,
            strict=request.load["strict"],
            vocabulary=vocabulary,
            asked_for=request.asked_for,
            notes=(*beside, *request.notes),
            chosen=chosen,
            autoresize=request.load["autoresize_weights"],
            ignore_invalid=request.load["ignore_invalid_weights"],
        )
        loader.plan()
        loader.run(request.load["verbose"], try_first=False)
    elif chosen and request.load["verbose"]:
        print(f"{chosen}; without a checkpoint the weights are random")
    return builder.model if return_keras_model else builder


def _initial_values(architecture, checkpoint, load):
    """Where the loader is going to fill every variable or raise, none needs a value before."""
    # Not in a class of the user's: it may make layers that are no part of the model.
    own = architecture.__module__.startswith("kerasbert.")
    all_or_nothing = load["strict"] and not load["ignore_invalid_weights"]
    filled = checkpoint is not None and all_or_nothing and own
    return no_initial_values() if filled else contextlib.nullcontext()


def _match(checkpoint, architecture):
    match = detect(checkpoint, architecture.family, architecture.dialects or ())
    complaints.check_family(architecture.family, match, checkpoint.source)
    return match


def _inferred(checkpoint, match, options):
    values, assumed = infer_config(checkpoint, match, sizes_given(options))
    if assumed:
        warnings.warn(
            f"No config was given, so sizes were read from {checkpoint.source}. What no shape "
            f"shows was assumed: {'; '.join(assumed)}. Pass a config, or these as keyword "
            "arguments, to be sure.",
            stacklevel=3,
        )
    return values, f"the shapes in {checkpoint.source}"


def _audit(request, checkpoint):
    # Cutting layers, positions or segments off may be asked for; the loader sees to the rest.
    cuts = {"num_hidden_layers", "max_position_embeddings", "type_vocab_size"}
    allowed = cuts & request.asked_for
    if "keep_tokens" in request.vocabulary:
        allowed |= {"vocab_size"}  # the selection has words of its own for that
    if request.load["autoresize_weights"]:
        allowed |= {"hidden_size", "embedding_size", "intermediate_size"}
    if request.load["ignore_invalid_weights"]:
        allowed |= request.config.keys() | {
            "embedding_size"
        }  # the loader refuses what would be another model
    doubts = refuse_contradictions(
        request.config, checkpoint, request.match, request.source, allowed
    )
    for finding in doubts:
        warnings.warn(f"{request.source}: {finding}.", stacklevel=3)

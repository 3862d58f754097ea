"""`build_transformer_model`: from a config and a checkpoint to a Keras model."""

from kerasbert.config_file import read_config
from kerasbert.errors import ConfigError, did_you_mean
from kerasbert.models.albert import ALBERT, ALBERTUnshared
from kerasbert.models.bert import BERT
from kerasbert.models.electra import ELECTRA, ELECTRAGenerator
from kerasbert.models.encoder import Encoder
from kerasbert.models.roberta import DistilBERT, RoBERTa
from kerasbert.request import Request, either, locate
from kerasbert.weights.checkpoints import open_checkpoint
from kerasbert.weights.detect import detect
from kerasbert.weights.load import Loader
from kerasbert.weights.vocabulary import VocabularySelection

# The models by their names. RoBERTa-wwm and its like are BERTs that were trained longer; a
# config of Hugging Face's says which is meant, see `_architecture`.
MODELS = {
    "bert": BERT,
    "roberta": BERT,
    "albert": ALBERT,
    "albert_unshared": ALBERTUnshared,
    "electra": ELECTRA,
    "electra_generator": ELECTRAGenerator,
    "distilbert": DistilBERT,
}


def build_transformer_model(
    config=None,
    checkpoint=None,
    model="bert",
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
        checkpoint: prefix of a TensorFlow checkpoint, its `.index` or `.data-…` file, a folder
            that holds one, an unpacked TF-Hub module, or a dict from names to arrays. Without
            it the weights are random.
        model: "bert", "roberta", "albert" (one block per group, called at several depths),
            "albert_unshared" (a block per depth, initialised from the shared one), or a
            subclass of `kerasbert.models.Encoder`.
        application: "encoder".
        return_keras_model: False returns the builder, with `.model .inputs .outputs .layers
            .config .hidden_states`.
        config_path: bert4keras' name of `config`.
        checkpoint_path: bert4keras' name of `checkpoint`.
        **options: keys of the config file, which they override (also as `dropout_rate`,
            `attention_dropout_rate`, `max_position`, `segment_vocab_size`; 0 removes the
            segment input), and:
            with_pool: adds the pooled output (B, H); True for tanh, or an activation.
            with_nsp, with_sop: adds next-sentence or sentence-order probabilities (B, 2);
                True for softmax, or an activation such as "linear".
            with_mlm: adds masked-LM probabilities (B, L, V); True for softmax, or an activation.
            hidden_states: True adds, as last output, the list of the L + 1 hidden states.
            with_mask_input: True adds a third input (B, L), non-zero at real tokens; without
                it padding is where the token id is 0.
            unshare: "attention", "feed_forward" or "all": what every layer of an ALBERT gets
                of its own.
            unshare_layers: the layers that do; default all.
            keep_tokens: ids to keep, in their new order.
            compound_tokens: tokens to append, each as ids to average.
            sequence_length: fixed input length; default free.
            name: name of the Keras model.
            prefix: what all layer names begin with.
            dtype: dtype policy, such as "mixed_float16".
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
    _check_application(application)
    config = either("config", config, config_path)
    checkpoint = either("checkpoint", checkpoint, checkpoint_path)
    config, checkpoint = locate(config, checkpoint)

    values, source = read_config(config)
    architecture = _architecture(model, values)
    request = Request.from_arguments(architecture, values, options, source)
    if checkpoint is not None:
        checkpoint = open_checkpoint(checkpoint)
        request = request.adapted_to(checkpoint, detect(checkpoint, architecture.family))

    vocabulary = VocabularySelection(**request.vocabulary)
    model_config = request.model_config(vocabulary)
    builder = architecture(model_config, request.build_options(model_config))
    if checkpoint is not None:
        loader = Loader(
            builder.model,
            checkpoint,
            request.match,
            strict=request.load["strict"],
            vocabulary=vocabulary,
            asked_for=request.asked_for,
            notes=request.notes,
        )
        loader.plan()
        loader.run(request.load["verbose"], try_first=False)
    return builder.model if return_keras_model else builder


def _architecture(model, values):
    if model == "roberta" and values.get("model_type") == "roberta":
        return RoBERTa
    if isinstance(model, type) and issubclass(model, Encoder) and model.family:
        return model
    if isinstance(model, str) and model in MODELS:
        return MODELS[model]
    raise ConfigError(
        f"Unknown model={model!r}.{did_you_mean(model, MODELS)}\n"
        f"Expected one of: {', '.join(MODELS)}; or a subclass of kerasbert.models.Encoder."
    )


def _check_application(application):
    if application != "encoder":
        raise ConfigError(f"application={application!r} is not supported.\nExpected 'encoder'.")

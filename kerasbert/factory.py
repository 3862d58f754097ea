"""`build_transformer_model`: from a config and a checkpoint to a Keras model."""

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path

import keras

from kerasbert.config import (
    ALIASES,
    ModelConfig,
    config_style,
    read_config,
    resolve_aliases,
    unknown_argument,
)
from kerasbert.errors import ConfigError, WeightMismatchError, did_you_mean, listing
from kerasbert.models.albert import ALBERT, ALBERTUnshared
from kerasbert.models.bert import BERT
from kerasbert.models.encoder import BuildOptions, Encoder
from kerasbert.weights import complaints
from kerasbert.weights.checkpoints import open_checkpoint
from kerasbert.weights.checkpoints.location import checkpoints_in
from kerasbert.weights.detect import Match, detect
from kerasbert.weights.load import Loader
from kerasbert.weights.vocabulary import VocabularySelection

# The models by their names. RoBERTa-wwm and its like are BERTs that were trained longer.
MODELS = {
    "bert": BERT,
    "roberta": BERT,
    "albert": ALBERT,
    "albert_unshared": ALBERTUnshared,
}

_CONFIG_KEYS = {field.name for field in dataclasses.fields(ModelConfig)} - {"family"} | set(ALIASES)
_BUILD_KEYS = {field.name for field in dataclasses.fields(BuildOptions)} | {"with_sop"}
_LOAD_KEYS = {"keep_tokens", "compound_tokens", "strict", "verbose"}
_KNOWN_KEYS = _CONFIG_KEYS | _BUILD_KEYS | _LOAD_KEYS


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
    """
    architecture = _architecture(model)
    _check_application(application)
    config, checkpoint = _locate(
        _either("config", config, config_path), _either("checkpoint", checkpoint, checkpoint_path)
    )
    values, source = read_config(config)
    request = _Request.from_arguments(architecture, values, options, source)
    if checkpoint is not None:
        opened = open_checkpoint(checkpoint)
        request = request.adapted_to(opened, detect(opened))
    vocabulary = VocabularySelection(**request.vocabulary)
    model_config = request.model_config(vocabulary)
    builder = architecture(model_config, request.build_options())
    if checkpoint is not None:
        loader = Loader(
            builder.model,
            opened,
            request.match,
            strict=request.load.get("strict", True),
            vocabulary=vocabulary,
            fewer_layers="num_hidden_layers" in options,
            notes=request.notes,
        )
        loader.plan()
        loader.run(request.load.get("verbose", 1), keep_backup=False)
    return builder.model if return_keras_model else builder


@dataclass(frozen=True)
class _Request:
    """What was asked for, sorted by who reads it."""

    architecture: type
    source: str
    config: dict
    build: dict
    load: dict
    vocabulary: dict
    match: Match | None = None
    notes: tuple = ()

    @classmethod
    def from_arguments(cls, architecture, values, options, source):
        for name in options:
            if name not in _KNOWN_KEYS:
                raise unknown_argument(name, _KNOWN_KEYS)
        given = {name: value for name, value in options.items() if value is not None}
        merged = {**resolve_aliases(values), **resolve_aliases(given)}
        _check_unsharing(architecture, given)
        return cls(
            architecture=architecture,
            source=source,
            config={key: value for key, value in merged.items() if key not in _BUILD_KEYS | _LOAD_KEYS},
            build=_one_sentence_head({key: merged[key] for key in _BUILD_KEYS & merged.keys()}),
            load={key: merged[key] for key in ("strict", "verbose") if key in merged},
            vocabulary={
                key: merged[key] for key in ("keep_tokens", "compound_tokens") if key in merged
            },
        )

    def adapted_to(self, checkpoint, match):
        """Takes from the file what only the file can say; refuses a file of another kind."""
        complaints.check_family(self.architecture.family, match, checkpoint.source)
        style, dialect = config_style(self.config), match.dialect
        early = dialect.embedding_order == "project_first"
        if dialect.family == "albert" and style not in (None, "albert_zh" if early else "google_albert"):
            raise WeightMismatchError(
                f"{self.source} is in the style of {_STYLES[style]}, but {checkpoint.source} is "
                f"a checkpoint of {dialect.title}.\nExpected config and checkpoint of one release.\n"
                "The two architectures differ; pass the config file from the checkpoint's archive."
            )
        config, notes = {**self.config, "embedding_order": dialect.embedding_order}, []
        table = checkpoint.shapes[match.prefix + dialect.required[0]]
        if dialect.family == "albert" and config.get("embedding_size") is None and len(table) == 2:
            config["embedding_size"] = table[1]
            notes.append(f"embedding_size={table[1]} was taken from the file.")
        return dataclasses.replace(self, config=config, match=match, notes=tuple(notes))

    def model_config(self, vocabulary):
        config = ModelConfig.from_dict(self.config, self.architecture.family, self.source)
        return config.replace(vocab_size=vocabulary.size(config.vocab_size))

    def build_options(self):
        options = BuildOptions(**self.build)
        for key, kind in (("with_mask_input", bool), ("hidden_states", bool), ("prefix", str)):
            if not isinstance(getattr(options, key), kind):
                raise ConfigError(f"{key}={getattr(options, key)!r}.\nExpected a {kind.__name__}.")
        for key in ("name", "prefix"):
            if "/" in (getattr(options, key) or ""):
                raise ConfigError(f"{key}={getattr(options, key)!r}.\nExpected no '/': Keras forbids it in names.")
        length, limit = options.sequence_length, self.config.get("max_position_embeddings", 512)
        if length is not None and not (type(length) is int and 1 <= length <= limit):
            raise ConfigError(
                f"sequence_length={length!r}.\nExpected an integer from 1 to "
                f"max_position_embeddings={limit}, or None for any length."
            )
        if options.dtype is not None:
            try:
                keras.dtype_policies.get(options.dtype)
            except (ValueError, TypeError) as error:
                raise ConfigError(
                    f"dtype={options.dtype!r}.\nExpected a Keras dtype policy such as 'float32' "
                    "or 'mixed_float16'."
                ) from error
        return options


_STYLES = {"albert_zh": "the early albert_zh (it has ln_type)", "google_albert": "Google's ALBERT (it has groups)"}


def _architecture(model):
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
        raise ConfigError(
            f"application={application!r} is not supported.\nExpected 'encoder'."
        )


def _either(name, value, alias):
    if value is not None and alias is not None:
        raise ConfigError(
            f"Both {name}= and {name}_path= were given.\n"
            f"Expected one of them: they mean the same.\nDrop {name}_path=."
        )
    return alias if value is None else value


def _locate(config, checkpoint):
    """Resolves a folder that was passed as config, and maybe as checkpoint at once."""
    if not isinstance(config, str | os.PathLike):
        return config, checkpoint
    folder = Path(os.path.expanduser(os.fspath(config)))
    if not folder.is_dir():
        return config, checkpoint
    found = [path for path in sorted(folder.glob("*.json")) if _is_config(path)]
    if len(found) != 1:
        raise ConfigError(
            f"The folder {folder} holds {len(found)} config files"
            f"{': ' + listing(path.name for path in found) if found else ''}.\n"
            "Expected one JSON file with hidden_size.\nPass the path of the config file itself."
        )
    if checkpoint is None and (checkpoints_in(folder) or checkpoints_in(folder / "variables")):
        checkpoint = folder
    return found[0], checkpoint


def _is_config(path):
    try:
        values = json.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError):
        return False
    return isinstance(values, dict) and "hidden_size" in values


def _one_sentence_head(build):
    sop = build.pop("with_sop", False)
    if sop and build.get("with_nsp") and build["with_nsp"] != sop:
        raise ConfigError(
            f"with_nsp={build['with_nsp']!r} and with_sop={sop!r} contradict each other.\n"
            "Expected one of them: they name the same head."
        )
    return {**build, "with_nsp": build.get("with_nsp") or sop}


def _check_unsharing(architecture, given):
    allowed = {"unshare", "unshare_layers"} & given.keys()
    if allowed and architecture.family != "albert":
        raise ConfigError(
            f"{sorted(allowed)[0]}= was given for a model of the {architecture.family} family.\n"
            "Expected model='albert': only its blocks are shared."
        )
    if allowed - {"unshare"} or given.get("unshare", "all") != "all":
        if issubclass(architecture, ALBERTUnshared):
            raise ConfigError(
                f"model='albert_unshared' contradicts {sorted(allowed)[-1]}=: it un-shares every "
                "layer as a whole.\nExpected model='albert' for finer un-sharing."
            )

"""Sorts the arguments of `build_transformer_model` by who reads them, and checks them."""

import dataclasses
import warnings
from dataclasses import dataclass

from kerasbert.arguments import (
    check_application,
    check_depth,
    check_dtype,
    check_keys_of_other_families,
    check_length,
    check_positions_and_segments,
    check_unsharing,
)
from kerasbert.config import ModelConfig
from kerasbert.config_file import ALIASES, config_style, resolve_aliases
from kerasbert.conventions import canonical_activation
from kerasbert.errors import ConfigError, WeightMismatchError, check_number, did_you_mean
from kerasbert.models.options import (
    BuildOptions,
    check_condition,
    check_head,
    refuse_language_model,
)
from kerasbert.weights.detect import Match
from kerasbert.weights.sizes import sizes_in
from kerasbert.weights.t5 import head_of_t5

_CONFIG_KEYS = {field.name for field in dataclasses.fields(ModelConfig)} - {
    "family",
    "forces_projection",
    "stacks_built",
    "layout",
} | set(ALIASES)
_BUILD_KEYS = {field.name for field in dataclasses.fields(BuildOptions)} | {"with_sop"}
_BUILD_KEYS -= {"plain_classifier", "application"}
_LOAD_DEFAULTS = {
    "strict": True,
    "verbose": 1,
    "autoresize_weights": False,
    "ignore_invalid_weights": False,
}
_VOCABULARY_KEYS = {"keep_tokens", "compound_tokens"}
_OPTIONS = _BUILD_KEYS | _LOAD_DEFAULTS.keys() | _VOCABULARY_KEYS
# What may stand in the config file too, as in bert4keras. Not dtype: there it tells of the file.
_FILE_OPTIONS = {
    "with_pool",
    "with_nsp",
    "with_sop",
    "with_mlm",
    "num_labels",
    "custom_position_ids",
} | _VOCABULARY_KEYS

# What files of other styles may leave out, and shapes show.
_FROM_FILE = ("max_position_embeddings", "type_vocab_size", "attention_key_size")

_KINDS = {
    "with_mask_input": bool,
    "hidden_states": bool,
    "custom_position_ids": bool,
    "prefix": str,
}

_STYLES = {
    "albert_zh": "the early albert_zh (it has ln_type)",
    "google_albert": "Google's ALBERT (it has groups)",
}


@dataclass(frozen=True)
class Request:
    """What was asked for, sorted by who reads it.

    Attributes:
        architecture: subclass of `Encoder`.
        source: what to call the configuration in errors.
        config: keys of the configuration, keyword arguments already merged in.
        build: arguments of `BuildOptions`.
        load: `strict`, `verbose`, `autoresize_weights` and `ignore_invalid_weights`.
        vocabulary: arguments of `VocabularySelection`.
        asked_for: the keys of `config` that came as keyword arguments.
        match: the dialect of the checkpoint, once known.
        notes: sentences about what was taken from the checkpoint.
    """

    architecture: type
    source: str
    config: dict
    build: dict
    load: dict
    vocabulary: dict
    asked_for: frozenset = frozenset()
    match: Match | None = None
    notes: tuple = ()

    @classmethod
    def from_arguments(cls, architecture, values, options, source, application="encoder"):
        """Merges the keys of a config file with keyword arguments, which win.

        None means "not given", in either place.

        Raises:
            ConfigError: for arguments that contradict each other.
        """
        given = {name: value for name, value in options.items() if value is not None}
        check_unsharing(architecture, given)
        check_keys_of_other_families(architecture, resolve_aliases(given))
        refuse_language_model(given, architecture)
        from_file = {
            key: value
            for key, value in resolve_aliases(values).items()
            if value is not None and (key not in _OPTIONS or key in _FILE_OPTIONS)
        }
        check_depth(from_file, given)
        merged = {**from_file, **resolve_aliases(given)}
        _fix_activation(merged, from_file, architecture)
        if _CONFIG_KEYS & given.keys():
            source = f"{source} or the keyword arguments"
        return cls(
            architecture=architecture,
            source=source,
            config={key: value for key, value in merged.items() if key not in _OPTIONS},
            build=_for_application(
                architecture,
                application,
                _one_sentence_head({key: merged[key] for key in _BUILD_KEYS & merged.keys()}),
            ),
            load=_checked_load(
                {key: merged.get(key, _LOAD_DEFAULTS[key]) for key in _LOAD_DEFAULTS}
            ),
            vocabulary={key: merged[key] for key in _VOCABULARY_KEYS & merged.keys()},
            asked_for=frozenset(resolve_aliases(given)),
        )

    def adapted_to(self, checkpoint, match):
        """Takes from the file what only the file can say.

        Raises:
            WeightMismatchError: if the file is of another release than the configuration.
        """
        dialect, config, notes = match.dialect, dict(self.config), []
        if dialect.family == "albert":
            self._check_style(dialect, checkpoint.source)
            config["embedding_order"] = dialect.embedding_order
            config["forces_projection"] = dialect.forces_projection
        if dialect.family == "t5":
            config.update(head_of_t5(checkpoint, match, config))
        sizes = sizes_in(checkpoint, match)
        factorised = dialect.family == "albert" and config.get("hidden_size") is not None
        for key in (*_FROM_FILE, "embedding_size") if factorised else _FROM_FILE:
            if key in sizes and config.get(key) is None:
                config[key] = sizes[key].value
                notes.append(f"{key}={sizes[key].value} was taken from the file.")
        if "embedding_size" in config.keys() - self.config.keys():
            warnings.warn(
                f"{self.source} has no embedding_size; {config['embedding_size']} was taken from "
                f"{checkpoint.source}. Is it the config of this ALBERT? No shape shows whether "
                f"its num_hidden_layers={config.get('num_hidden_layers')} is right.",
                stacklevel=3,
            )
        build = {**self.build, "plain_classifier": dialect.plain_classifier}
        for row in dialect.top_rows:
            names = [name for name in row.names(match.prefix) if name in checkpoint.shapes]
            if row.ours in ("Classifier/bias", "Token-Classifier/bias") and names:
                build.setdefault("num_labels", checkpoint.shapes[names[0]][0])
        return dataclasses.replace(
            self, config=config, build=build, match=match, notes=tuple(notes)
        )

    def _check_style(self, dialect, checkpoint_source):
        style = config_style(self.config)
        early = dialect.embedding_order == "project_first"
        same_width = self.config.get("embedding_size") == self.config.get("hidden_size")
        if style == "albert_zh" and same_width:
            return  # folded into Google's form, where such files keep their early config
        if style not in (None, "albert_zh" if early else "google_albert"):
            raise WeightMismatchError(
                f"{self.source} is in the style of {_STYLES[style]}, but {checkpoint_source} is a "
                f"checkpoint of {dialect.title}.\n"
                "Expected config and checkpoint of one release; the two architectures differ.\n"
                "Pass the config file from the archive of the checkpoint."
            )

    def model_config(self, vocabulary):
        """Returns the `ModelConfig`, with the vocabulary size that `vocabulary` leaves."""
        values = {**self.architecture.config_defaults, **self.config}
        config = ModelConfig.from_dict(values, self.architecture.family, self.source)
        return config.replace(vocab_size=vocabulary.size(config.vocab_size))

    def build_options(self, config):
        """Returns the `BuildOptions`, checked."""
        labels = self.config.get("id2label")
        build = {"num_labels": len(labels) if isinstance(labels, dict) else None, **self.build}
        options = BuildOptions(**build)
        for key, kind in _KINDS.items():
            if not isinstance(getattr(options, key), kind):
                raise ConfigError(f"{key}={getattr(options, key)!r}.\nExpected a {kind.__name__}.")
        for key in ("name", "prefix"):
            value = getattr(options, key)
            if value is not None and (not isinstance(value, str) or "/" in value):
                raise ConfigError(
                    f"{key}={value!r}.\nExpected a string without '/': Keras forbids it in names."
                )
        check_condition(options)
        check_number("classifier_dropout", options.classifier_dropout, least=0, below=1)
        check_length(options.sequence_length, config)
        check_positions_and_segments(
            config, options, {key: self.config.get(key) for key in self.asked_for}
        )
        check_dtype(options.dtype)
        return options


def check_names(options, known=_CONFIG_KEYS | _OPTIONS):
    """Refuses keyword arguments that nothing reads.

    Raises:
        ConfigError: names the argument, and the one that may be meant.
    """
    for name in options:
        if name not in known:
            raise ConfigError(
                f"Unknown argument {name!r}.{did_you_mean(name, known)}\n"
                f"Expected one of: {', '.join(sorted(known))}."
            )


def check_overrides(overrides):
    """Returns a dict of keys of the configuration, empty for None.

    Raises:
        ConfigError: if it is no dict, or a key is unknown.
    """
    if not isinstance(overrides, dict | None):
        raise ConfigError(f"overrides={overrides!r}.\nExpected a dict of keys of the config.")
    check_names(overrides or {}, _CONFIG_KEYS)
    return overrides or {}


def sizes_given(options):
    """Returns the keyword arguments that are keys of the configuration, under BERT's names."""
    return resolve_aliases(
        {key: value for key, value in options.items() if key in _CONFIG_KEYS and value is not None}
    )


def either(name, value, alias):
    """Returns the value of an argument that also has bert4keras' name, `{name}_path`.

    Raises:
        ConfigError: if both were given.
    """
    if value is not None and alias is not None:
        raise ConfigError(
            f"Both {name}= and {name}_path= were given.\n"
            f"Expected one of them: they mean the same.\nDrop {name}_path=."
        )
    return alias if value is None else value


def _checked_load(load):
    for key, default in _LOAD_DEFAULTS.items():
        kind = type(default)
        if not isinstance(load[key], kind):
            raise ConfigError(f"{key}={load[key]!r}.\nExpected a value of type {kind.__name__}.")
    return load


def _fix_activation(merged, from_file, architecture):
    """Resolves "gelu" by what the file is before a keyword makes it look like another's."""
    if "layer_norm_eps" in merged.keys() - from_file.keys() and merged.get("hidden_act"):
        merged["hidden_act"] = canonical_activation(
            merged["hidden_act"], from_file, architecture.family
        )


def _one_sentence_head(build):
    sop = build.pop("with_sop", False)
    nsp = build.pop("with_nsp", False)
    check_head("with_sop", sop)
    if sop and nsp and nsp != sop:
        raise ConfigError(
            f"with_nsp={nsp!r} and with_sop={sop!r} contradict each other.\n"
            "Expected one of them: they name the same head."
        )
    return {**build, "with_nsp": nsp or sop}


def _for_application(architecture, application, build):
    """Adds the head that an application asks for."""
    check_application(architecture, application)
    if application != "encoder" and "with_mlm" in architecture.supported_heads:
        build["with_mlm"] = build.get("with_mlm") or True
    return {**build, "application": application}

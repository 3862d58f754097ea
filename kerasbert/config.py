"""Model configuration: one frozen object for the whole family, checked once.

What depends on where a configuration came from is decided here: which GELU "gelu" means,
and where normalisation and the embedding projection stand.
"""

import dataclasses
import json
import os
from dataclasses import dataclass
from numbers import Real

import numpy as np

from kerasbert import activations
from kerasbert.depth import BlockSharing, depth_plan
from kerasbert.errors import ConfigError, check_integer, listing

# bert4keras' names for keys of the configuration file.
ALIASES = {
    "dropout_rate": "hidden_dropout_prob",
    "attention_dropout_rate": "attention_probs_dropout_prob",
    "max_position": "max_position_embeddings",
    "segment_vocab_size": "type_vocab_size",
}

# Only files written by the transformers library have these; there "gelu" is the erf form.
_HUGGING_FACE_KEYS = {"architectures", "layer_norm_eps", "model_type", "transformers_version"}

# Keys we do not act on, with the only values for which that is correct.
_NEUTRAL_VALUES = {
    "position_embedding_type": (None, "absolute"),
    "is_decoder": (None, False),
    "add_cross_attention": (None, False),
    "pruned_heads": (None, {}),
    "attention_head_size": (None,),
    "attention_key_size": (None,),
    "residual_attention_scores": (None, False),
    "shared_segment_embeddings": (None, False),
    "hierarchical_position": (None, False),
    "custom_position_ids": (None, False),
}

_CHOICES = {
    "ln_type": ("postln", "preln"),
    "embedding_order": ("project_last", "project_first"),
}

_COUNTS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "embedding_size",
    "max_position_embeddings",
    "num_hidden_groups",
    "inner_group_num",
    "sharing_groups",
)
_SEQUENCES = (list, range, np.ndarray)
_RATES = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "initializer_range",
    "layer_norm_eps",
)
_REQUIRED = (*_COUNTS[:5], "hidden_act")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes and conventions of one encoder, with the words of BERT's config files.

    Build it with `from_dict`, which also reads bert4keras' names and knows the defaults
    of each family.

    Attributes:
        family: "bert" or "albert".
        hidden_act: an unambiguous activation name (`gelu_tanh`, `gelu_erf`, `relu`, …).
        embedding_size: width E of the token table; differs from H where a projection follows.
        embedding_order: "project_last" (Google: sum, norm, projection) or "project_first"
            (brightmart's early albert_zh: projection, sum, norm).
        ln_type: "postln" or "preln".
        num_hidden_groups: groups of layers that the names of the checkpoint tell apart.
        sharing_groups: groups of layers that share a block before any un-sharing. Equal to
            `num_hidden_groups` but in the configuration of an un-shared checkpoint, whose
            names have a group for every layer.
        unshare, unshare_layers: which parts of which layers have a copy of their own.

    Raises:
        ConfigError: on values that are missing, of the wrong type or contradictory.

    Example:
        >>> sizes = dict(vocab_size=100, hidden_size=32, num_hidden_layers=2,
        ...              num_attention_heads=4, intermediate_size=64, hidden_act="gelu")
        >>> ModelConfig.from_dict(sizes, family="bert").hidden_act
        'gelu_tanh'
    """

    family: str
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    hidden_act: str
    embedding_size: int
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    ln_type: str = "postln"
    embedding_order: str = "project_last"
    num_hidden_groups: int = 1
    inner_group_num: int = 1
    sharing_groups: int = 1
    unshare: str | None = None
    unshare_layers: tuple | None = None

    def __post_init__(self):
        for key in _COUNTS:
            check_integer(key, getattr(self, key), minimum=1)
        check_integer("type_vocab_size", self.type_vocab_size, minimum=0)
        for key in _RATES:
            _check_real(key, getattr(self, key), low=0.0, high=1.0, low_allowed="dropout" in key)
        if self.hidden_size % self.num_attention_heads:
            raise ConfigError(
                f"hidden_size={self.hidden_size} is not a multiple of "
                f"num_attention_heads={self.num_attention_heads}.\n"
                "Expected every head to have the same width.\n"
                "Check both values against the config file that belongs to the checkpoint."
            )
        for key, choices in _CHOICES.items():
            if getattr(self, key) not in choices:
                raise ConfigError(
                    f"{key}={getattr(self, key)!r}.\nExpected one of: {', '.join(choices)}."
                )
        self.sharing  # noqa: B018 - checks unshare and unshare_layers
        self._use_plain_numbers()

    def _use_plain_numbers(self):
        """Turns numpy's numbers into Python's, which Keras and JSON insist on."""
        for key in (*_COUNTS, "type_vocab_size"):
            object.__setattr__(self, key, int(getattr(self, key)))
        for key in _RATES:
            object.__setattr__(self, key, float(getattr(self, key)))
        if self.unshare_layers is not None:
            object.__setattr__(self, "unshare_layers", tuple(map(int, self.unshare_layers)))

    @classmethod
    def from_dict(cls, values, family, source="the configuration"):
        """Builds a configuration from the keys of a config file and bert4keras' arguments.

        Args:
            values: dict of keys; unknown ones are ignored unless they would change the maths.
            family: "bert" or "albert".
            source: what to call `values` in errors, such as a path.

        Returns:
            A `ModelConfig`.

        Raises:
            ConfigError: if a key is missing, contradictory or cannot be honoured.
        """
        values = resolve_aliases(values)
        found = listing(sorted(map(str, values.keys() - {"embedding_order"})))
        missing = [key for key in _REQUIRED if values.get(key) is None]
        if missing:
            raise ConfigError(
                f"Missing in {source}: {', '.join(missing)}.\n"
                f"Found the keys: {found or 'none'}.\n"
                "Pass the config file that belongs to the checkpoint, or give the values "
                "as keyword arguments."
            )
        _refuse_unsupported(values, family, source)
        known = {field.name for field in dataclasses.fields(cls)}
        fields = {key: value for key, value in values.items() if key in known}
        fields.update(_family_defaults(values, family))
        try:
            return cls(**fields)
        except ConfigError as error:
            raise ConfigError(f"{error}\nFound in {source}.") from error

    @property
    def depths(self):
        """The calls of a block in order, each with its layer, inner position and group."""
        return depth_plan(self.num_hidden_layers, self.inner_group_num, self.sharing_groups)

    @property
    def sharing(self):
        """`BlockSharing`: which block serves which depth."""
        if self.family == "bert":
            return BlockSharing(self.depths, unshare="all")
        return BlockSharing(self.depths, self.unshare, self.unshare_layers)

    @property
    def projects_first(self):
        """Whether tokens are projected to H before positions and segments are added."""
        return self.embedding_order == "project_first"

    @property
    def has_projection(self):
        """Whether a projection E -> H exists; the early albert_zh keeps it even if E == H."""
        return self.projects_first or self.embedding_size != self.hidden_size

    @property
    def norm_width(self):
        """Width of the embedding norm, of the position and segment tables and the MLM norm."""
        return self.hidden_size if self.projects_first else self.embedding_size

    def replace(self, **changes):
        """Returns a checked copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def to_dict(self):
        """Returns the fields as JSON-serialisable values; `from_label` reads them back."""
        values = dataclasses.asdict(self)
        if self.unshare_layers is not None:
            values["unshare_layers"] = list(self.unshare_layers)
        return values

    @classmethod
    def from_label(cls, values):
        """The inverse of `to_dict`."""
        values = dict(values)
        if values["unshare_layers"] is not None:
            values["unshare_layers"] = tuple(values["unshare_layers"])
        return cls(**values)


def read_config(config):
    """Reads a configuration given as a path, a dict or None.

    Args:
        config: path of a JSON file, a mapping, or None for no keys at all.

    Returns:
        A new dict and a text that names its source, for errors.

    Raises:
        ConfigError: if the file is absent, is not JSON or holds no JSON object.
    """
    if config is None:
        return {}, "the arguments (no config was given)"
    if isinstance(config, dict):
        return dict(config), "the config dict"
    if not isinstance(config, str | os.PathLike):
        raise ConfigError(
            f"config is {config!r}, a {type(config).__name__}.\n"
            "Expected the path of a config file, a dict, or a folder with config and checkpoint."
        )
    path = os.path.expanduser(os.fspath(config))
    try:
        with open(path, encoding="utf-8-sig") as file:
            values = json.load(file)
    except FileNotFoundError as error:
        swapped = os.path.exists(f"{path}.index")
        hint = "\nIt is a checkpoint: are config and checkpoint swapped?" if swapped else ""
        raise ConfigError(
            f"No such config file: {path}.\nExpected a JSON file such as bert_config.json.{hint}"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"Cannot read the config file {path}: {error}.\n"
            "Expected a JSON file such as bert_config.json."
        ) from error
    if not isinstance(values, dict):
        raise ConfigError(
            f"The config file {path} holds a JSON {type(values).__name__}.\n"
            "Expected an object with keys such as hidden_size."
        )
    return values, f"the config file {path}"


def resolve_aliases(values):
    """Returns a copy of `values` in which bert4keras' names are replaced by BERT's.

    The alias wins over the file's own key: users add it to override the file.
    """
    resolved = {key: value for key, value in values.items() if key not in ALIASES}
    resolved.update({ALIASES[key]: value for key, value in values.items() if key in ALIASES})
    return resolved


def config_style(values):
    """Names the release whose config files have these keys: "albert_zh", "google_albert" or None.

    Only the early albert_zh has `ln_type`, only Google's ALBERT has groups.
    """
    grouped = "num_hidden_groups" in values or "inner_group_num" in values
    if values.get("ln_type") is not None:
        return None if grouped else "albert_zh"
    return "google_albert" if grouped else None


def _family_defaults(values, family):
    """The fields whose default or meaning depends on the family and the origin of the file."""
    origin_is_hugging_face = bool(_HUGGING_FACE_KEYS & values.keys())
    groups = _or_default(values.get("num_hidden_groups"), 1)
    layers = values.get("unshare_layers")
    unset = {
        "family": family,
        "hidden_act": activations.canonical_name(
            values["hidden_act"], gelu="gelu_erf" if origin_is_hugging_face else "gelu_tanh"
        ),
        "embedding_size": _or_default(values.get("embedding_size"), values["hidden_size"]),
        "ln_type": _or_default(values.get("ln_type"), "postln"),
        "num_hidden_groups": groups,
        "inner_group_num": _or_default(values.get("inner_group_num"), 1),
        "sharing_groups": _or_default(values.get("sharing_groups"), groups),
        "unshare_layers": tuple(layers) if isinstance(layers, _SEQUENCES) else layers,
    }
    for key in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        unset[key] = _or_default(values.get(key), 0.0)
    if config_style(values) == "albert_zh" and family == "albert":
        unset["embedding_order"] = values.get("embedding_order", "project_first")
    return unset


def _or_default(value, default):
    return default if value is None else value


def _refuse_unsupported(values, family, source):
    model_type = values.get("model_type")
    if isinstance(model_type, str) and model_type != family:
        raise ConfigError(
            f"{source} says model_type={model_type!r}, but model= asks for the {family} family.\n"
            f"Expected a configuration of the {family} family.\n"
            f"Pass another model=, or the config file that belongs to the checkpoint."
        )
    for key, neutral in _NEUTRAL_VALUES.items():
        if key in values and values[key] not in neutral:
            raise ConfigError(
                f"{source} says {key}={values[key]!r}, which kerasbert does not support.\n"
                f"Expected no {key}, or {neutral[-1]!r}: any other value changes the model."
            )


def _check_real(key, value, low, high, low_allowed):
    fine = not isinstance(value, bool) and isinstance(value, Real)
    if not fine or not (low < value < high or (low_allowed and value == low)):
        bound = "at least" if low_allowed else "above"
        raise ConfigError(
            f"{key}={value!r} (of type {type(value).__name__}).\n"
            f"Expected a number {bound} {low:g} and below {high:g}."
        )

"""Says what a file holds without building a model from it."""

import math
import os
from dataclasses import dataclass, field

from kerasbert.config import ModelConfig
from kerasbert.config_file import read_config
from kerasbert.errors import ConfigError, listing
from kerasbert.folders import config_of
from kerasbert.registry import AUTO, find_architecture, name_of
from kerasbert.request import check_overrides, sizes_given
from kerasbert.weights.audit import audit
from kerasbert.weights.checkpoints import open_checkpoint
from kerasbert.weights.complaints import check_family
from kerasbert.weights.detect import detect, is_optimizer_slot, matches_in
from kerasbert.weights.heads import heads_in
from kerasbert.weights.sizes import infer_config, sizes_in

_SHOWN = (
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "attention_key_size",
    "num_hidden_groups",
    "inner_group_num",
    "max_position_embeddings",
    "type_vocab_size",
    "hidden_act",
    "ln_type",
)

# Shown where they are not as in every published model.
_OPTIONS = (
    "attention_head_size",
    "attention_key_size",
    "hierarchical_position",
    "residual_attention_scores",
    "shared_segment_embeddings",
)

_NEVER_IN_SHAPES = ("num_hidden_layers", "num_attention_heads")


@dataclass
class Inspection:
    """What a checkpoint holds.

    Attributes:
        source: the checkpoint.
        config: path of its config file, or None.
        family: family of the model.
        model: what to pass as `model=`, a name or a class.
        dialect: title of the dialect.
        sizes: dict from keys of the configuration to values.
        parameters: number of parameters of the encoder, as stored.
        unshared: the same if every layer had its own; None if sharing or depth are unknown.
        heads: dict from each head in the file to its number of parameters.
        optimizer_slots: number of variables that are the state of an optimizer.
        others: names that belong to none of these.
        findings: points in which config and file disagree, and what had to be assumed.
        line: Python code that loads the model with its heads.
    """

    source: str
    config: str | None
    family: str
    model: str | type
    dialect: str
    sizes: dict
    parameters: int
    unshared: int | None
    heads: dict
    optimizer_slots: int
    others: list
    findings: list = field(default_factory=list)
    line: str = ""

    def rows(self):
        """Pairs (what, text) for display."""
        heads = ", ".join(f"{head} ({count:,})" for head, count in self.heads.items())
        unshared = f"; un-shared {self.unshared:,}" if self.unshared else ""
        rows = [
            ("checkpoint", self.source),
            ("config", self.config or "none beside it"),
            ("family", f"{self.family} ({self.dialect})"),
            ("sizes", ", ".join(f"{key}={value}" for key, value in self.sizes.items())),
            ("parameters", f"{self.parameters:,}{unshared}"),
            ("heads", heads or "none"),
            ("optimizer", f"{self.optimizer_slots} slots" if self.optimizer_slots else "no slots"),
            ("others", listing(self.others, limit=6)),
            *(("note", str(finding)) for finding in self.findings),
            ("load", self.line),
        ]
        return [(label, text) for label, text in rows if text]

    def __str__(self):
        return "\n".join(f"{label:<12}{text}" for label, text in self.rows())


def inspect_checkpoint(path, config=None, model=AUTO, overrides=None):
    """Says what a checkpoint holds; reads names and shapes only.

    Args:
        path: see `checkpoint` of `build_transformer_model`.
        config: its config file; default is the only one in its folder.
        model: see `build_transformer_model`.
        overrides: dict of keys of the configuration, such as `{"num_hidden_layers": 12}`.

    Returns:
        An `Inspection`; print it.

    Raises:
        CheckpointError: if there is no checkpoint, or none that is known.
        ConfigError: if the config cannot be read.

    Example:
        >>> print(inspect_checkpoint("albert_model.ckpt", "albert_config.json"))
        checkpoint  albert_model.ckpt
        config      albert_config.json
        family      albert (Google ALBERT)
        ...
    """
    checkpoint = open_checkpoint(path)
    config = config_of(path) if config is None else config
    values, _ = read_config(config)
    overrides = sizes_given(check_overrides(overrides))
    values.update(overrides)
    architecture, _ = find_architecture(model, values, checkpoint)
    match = detect(checkpoint, architecture.family, architecture.dialects)
    check_family(architecture.family, match, checkpoint.source)
    full, findings = _configuration(values, checkpoint, match, config, overrides)
    known = _known_rows(checkpoint, match)
    heads = heads_in(checkpoint, match, values)
    name = name_of(architecture) if model == AUTO else model
    return Inspection(
        source=checkpoint.source,
        config=None if config is None else str(config),
        family=architecture.family,
        model=name,
        dialect=match.dialect.title,
        sizes=_shown(full, architecture.family),
        parameters=sum(_count(checkpoint, n) for n, row in known.items() if row.head is None),
        unshared=_unshared(checkpoint, match, known, full),
        heads=_parameters_of_heads(checkpoint, known),
        optimizer_slots=sum(map(is_optimizer_slot, checkpoint.shapes)),
        others=_others(checkpoint, match, known),
        findings=findings,
        line=_line(config, _as_given(path, config, checkpoint), name, heads, overrides, full),
    )


def _as_given(path, config, checkpoint):
    """A path that loads what was looked at: a folder with several configs does not."""
    several = config is None and isinstance(path, str | os.PathLike) and os.path.isdir(path)
    return checkpoint.source if several else path


def _configuration(values, checkpoint, match, config, overrides):
    """The keys of the configuration, and what is to be said of them."""
    full, findings = _described(values, checkpoint, match, config, overrides)
    if match.dialect.family == "electra":
        others = {found.dialect.family for found in matches_in(checkpoint)}
        if "electra_generator" in others and not match.dialect.hugging_face:
            findings = [*findings, "the generator is in the file too: model='electra_generator'"]
    return full, findings


def _described(values, checkpoint, match, config, overrides):
    if config is not None:
        full = ModelConfig.from_dict(values, match.dialect.family).to_dict()
        return full, audit(values, checkpoint, match)
    try:
        full, assumed = infer_config(checkpoint, match, overrides)
    except ConfigError as error:
        shown = {key: size.value for key, size in sizes_in(checkpoint, match).items()}
        return {**shown, **overrides}, [error.args[0].replace("\n", " ")]
    return full, [f"assumed: {text}" for text in assumed]


def _known_rows(checkpoint, match):
    """Dict from each name of the file that the dialect knows to its row, aliases once."""
    known = {}
    for row, place in match.placed_rows:
        for name in row.choose(place, checkpoint.shapes.keys())[:1]:
            if name in checkpoint.shapes and not row.tied:
                known.setdefault(name, row)
    return known


def _count(checkpoint, name):
    return math.prod(checkpoint.shapes[name])


def _parameters_of_heads(checkpoint, known):
    heads = {}
    for name, row in known.items():
        if row.head is not None:
            heads[row.head] = heads.get(row.head, 0) + _count(checkpoint, name)
    return heads


def _unshared(checkpoint, match, known, full):
    """The parameters of the encoder if every layer of an ALBERT had a block of its own."""
    if match.dialect.family != "albert" or not full.get("num_hidden_layers"):
        return None
    encoder = [name for name, row in known.items() if row.head is None]
    blocks = {
        place: sum(_count(checkpoint, name) for name in encoder if name.startswith(place))
        for place in match.places
    }
    outer = sum(_count(checkpoint, name) for name in encoder) - sum(blocks.values())
    # The blocks of a model have equal sizes, so any of them counts for all.
    depths = full["num_hidden_layers"] * full.get("inner_group_num", 1)
    return outer + max(blocks.values()) * depths


def _others(checkpoint, match, known):
    aliases = {n for row in match.dialect.top_rows for n in row.names(match.prefix)}
    buffers = match.dialect.buffers
    return [
        name
        for name in sorted(checkpoint.shapes.keys() - known.keys() - match.known - aliases)
        if not is_optimizer_slot(name) and not (buffers and name.endswith(buffers))
    ]


def _shown(full, family):
    hidden = () if family == "albert" else ("num_hidden_groups", "inner_group_num")
    if family != "gau_alpha":
        hidden = (*hidden, "attention_key_size")  # it follows from the others
    if full.get("embedding_order") != "project_first":
        hidden = (*hidden, "ln_type")  # they are all post-LN
    shown = {key: full[key] for key in _SHOWN if full.get(key) is not None and key not in hidden}
    usual = full["hidden_size"] // (full.get("num_attention_heads") or 1)
    defaults = {"attention_head_size": usual, "attention_key_size": full.get("attention_head_size")}
    options = {k: full[k] for k in _OPTIONS if full.get(k) not in (None, False, defaults.get(k))}
    return {**shown, **options}


def _line(config, path, model, heads, overrides, full):
    model = model.__name__ if isinstance(model, type) else repr(model)
    arguments = [repr(None if config is None else str(config)), repr(str(path)), f"model={model}"]
    arguments += [f"{key}={value!r}" for key, value in {**heads, **overrides}.items()]
    # "..." stands for what only the user can know.
    arguments += [f"{key}=..." for key in _NEVER_IN_SHAPES if full.get(key) is None]
    return f"build_transformer_model({', '.join(arguments)})"

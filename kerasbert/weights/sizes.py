"""What the shapes in a checkpoint say of the configuration, and what they cannot say."""

from dataclasses import dataclass

from kerasbert.conventions import native_gelu
from kerasbert.errors import ConfigError
from kerasbert.weights.mapping import KEY_OF_SYMBOL

_PASS = (
    "Pass {key}= as a keyword argument (on the shell --set {key}=…), or the config file that "
    "belongs to the checkpoint."
)

# Published ALBERTs of one shared block, whose depth no shape shows: H to L.
_ALBERT_LAYERS = {312: 4, 384: 6, 768: 12, 1024: 24, 2048: 24, 4096: 12}

# Widths of the tiny and small Chinese models of brightmart's, whose heads are not 64 wide.
SMALL_CHINESE = (312, 384)

CHINESE_VOCABULARY = 21128

_OWN_ACTIVATIONS = {"roformer_v2": "relu", "gau_alpha": "swish"}

# What the places of the blocks count: their stack, the column of a place, the key.
_COUNTED = (
    ("encoder", 0, "num_hidden_layers"),
    ("encoder", 1, "num_hidden_groups"),
    ("encoder", 2, "inner_group_num"),
    ("decoder", 0, "num_decoder_layers"),
)


@dataclass(frozen=True)
class Size:
    """A number that a checkpoint shows, and where.

    Attributes:
        value: the number.
        evidence: the name and shape, or the place, that shows it.
    """

    value: int
    evidence: str


def sizes_in(checkpoint, match):
    """Reads sizes from shapes and from the places of the blocks.

    Args:
        checkpoint: an opened checkpoint.
        match: what `detect` found in it.

    Returns:
        A dict from keys of the configuration to `Size`s. Keys that nothing shows are absent,
        such as the number of heads, and that of layers where one block serves them all.
    """
    sizes = {}
    for name, row in _known_names(checkpoint, match):
        shape, symbols = checkpoint.shapes[name], _symbols(row, match)
        if len(shape) != len(symbols):
            continue  # the loader will say so
        for symbol, length in zip(symbols, shape, strict=True):
            key = {**KEY_OF_SYMBOL, "K": "heads_width"}.get(symbol)
            if key is not None:
                sizes.setdefault(key, Size(length, f"{name} is {shape}"))
    if "num_attention_heads" in sizes and "heads_width" in sizes:
        width, heads = sizes.pop("heads_width"), sizes["num_attention_heads"].value
        sizes["attention_head_size"] = Size(width.value // heads, width.evidence)
    for stack, column, key in _COUNTED:
        numbers = {
            place[column]: address
            for address, place in match.places.items()
            if place[column] is not None and match.stacks[address] == stack
        }
        if numbers:
            sizes[key] = Size(max(numbers) + 1, f"the last is {numbers[max(numbers)]}")
    return sizes


def infer_config(checkpoint, match, given):
    """Makes a configuration from a checkpoint alone.

    Args:
        checkpoint: an opened checkpoint.
        match: what `detect` found in it.
        given: the keys that are known otherwise.

    Returns:
        A dict of keys of a configuration, and a list of texts on what is assumed in it.

    Raises:
        ConfigError: if a key is neither given nor shown nor ruled by the family.
    """
    values = {key: size.value for key, size in sizes_in(checkpoint, match).items()}
    values.setdefault("type_vocab_size", 0)
    values.update(given)
    _check_shown(values, checkpoint.source, match)
    assumed = _conventions(values, match, given)
    if "num_hidden_layers" not in values:
        values["num_hidden_layers"] = _layers(values, checkpoint.source)
        assumed.append(
            f"num_hidden_layers={values['num_hidden_layers']} (as published with "
            f"hidden_size={values['hidden_size']})"
        )
    for key, rule in _RULES.items():
        if key not in values:
            values[key], why = rule(values, match.dialect)
            if values[key] is None:
                raise ConfigError(
                    f"{key} is not visible in the shapes of {checkpoint.source}: {why}.\n"
                    f"Expected a size for which the rule is known.\n{_PASS.format(key=key)}"
                )
            assumed.append(f"{key}={values[key]!r} ({why})")
    return values, assumed


def _known_names(checkpoint, match):
    """Pairs of a name of the encoder in the file and its row."""
    for row, place in match.placed_rows:
        if row.head is None:
            yield from ((name, row) for name in row.names(place) if name in checkpoint.shapes)


def _symbols(row, match):
    wide = "H" if match.dialect.embedding_order == "project_first" else "E"
    return row.dims.replace("W", wide).split()


def _check_shown(values, source, match):
    rows = [row for row, _ in match.placed_rows if row.head is None]
    shown = {symbol for row in rows for symbol in _symbols(row, match)}
    for symbol, key in KEY_OF_SYMBOL.items():
        if symbol in shown and key not in values:
            raise ConfigError(
                f"{key} is not visible in {source}: the variables that would show it are "
                "missing or have an unexpected number of axes.\n"
                f"Expected an undamaged checkpoint.\n{_PASS.format(key=key)}"
            )


def _conventions(values, match, given):
    """Adds what is a matter of the release; returns texts on what is assumed."""
    dialect = match.dialect
    if dialect.family == "t5":
        # The names of the variables show whether there is a gate.
        gated = any("wi_0" in name for name in match.known)
        values.setdefault("hidden_act", ["gelu_new", "linear"] if gated else "relu")
    if dialect.family == "roberta":
        values.setdefault("layer_norm_eps", 1e-5)
    if dialect.family == "gpt2" and dialect.hugging_face and "pad_token_id" not in given:
        values["pad_token_id"] = -1  # as configurations from there, which name none
    if dialect.embedding_order == "project_first" and "ln_type" not in given:
        values["ln_type"] = "postln"
        return ["ln_type='postln' (no other weights were published)"]
    return []


def _layers(values, source):
    published = _ALBERT_LAYERS.get(values.get("hidden_size"))
    single = values.get("num_hidden_groups", 1) == values.get("inner_group_num", 1) == 1
    if published is None or not single:
        raise ConfigError(
            f"num_hidden_layers is not visible in the shapes of {source}: blocks serve "
            "several layers.\n"
            f"Expected one block of a published size (hidden_size one of: "
            f"{', '.join(map(str, _ALBERT_LAYERS))}).\n{_PASS.format(key='num_hidden_layers')}"
        )
    return published


def _heads(values, dialect):
    """The number of heads, or None, and the reason."""
    width = values["hidden_size"]
    if dialect.family == "gau_alpha":
        return 1, "as gated attention has"
    if dialect.family == "electra_generator" and width < 64:
        return 1, "as ELECTRA's code gives narrow generators"
    if dialect.family == "albert" and width in SMALL_CHINESE:
        return 12, "as the tiny and small Chinese ALBERTs have"
    if dialect.family == "albert" and width == 2048:
        return None, "ALBERT xlarge was published with 16 and with 32 heads"
    if dialect.family == "gpt2" and width == 2560:
        return 32, "as CPM has"
    if width in SMALL_CHINESE:
        return None, f"models with hidden_size={width} have 6 or 12 heads"
    if width % 64:
        return None, f"hidden_size={width} is no multiple of the usual 64 for each head"
    return width // 64, "64 wide each"


def _activation(values, dialect):
    if dialect.hugging_face and dialect.family == "albert":
        return "gelu_tanh", "transformers' default for ALBERT"
    if dialect.family == "gpt2":
        return "gelu_tanh", "the family's own"
    if dialect.hugging_face:
        return "gelu_erf", "the family's own"
    if dialect.family in _OWN_ACTIVATIONS:
        return _OWN_ACTIVATIONS[dialect.family], "as published"
    chinese = values["vocab_size"] == CHINESE_VOCABULARY
    google_albert = dialect.family == "albert" and dialect.embedding_order == "project_last"
    if google_albert and chinese and values["hidden_size"] not in SMALL_CHINESE:
        return "relu", "as Google's Chinese ALBERTs have"
    return native_gelu(dialect.family), "the family's own"


def _dropout(values, dialect):
    if dialect.family == "albert":
        return 0.0, "as most ALBERTs have"
    return 0.1, "the family's own"


_RULES = {
    "num_attention_heads": _heads,
    "hidden_act": _activation,
    "hidden_dropout_prob": _dropout,
    "attention_probs_dropout_prob": _dropout,
}

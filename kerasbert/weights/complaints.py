"""Refuses checkpoints that do not fit a model, in the words of the configuration."""

from kerasbert.errors import WeightMismatchError, listing
from kerasbert.weights.detect import best_matches
from kerasbert.weights.heads import CLASSIFIER_LAYERS, owner_of
from kerasbert.weights.mapping import KEY_OF_SYMBOL
from kerasbert.weights.resize import why_not

_OPTION_OF_HEAD = {
    "pooler": "with_pool",
    "nsp": "with_nsp (with_sop)",
    "mlm": "with_mlm",
    "lm": "with_lm",
    "discriminator": "with_discriminator",
    "classifier": "with_classifier",
}


def check_family(family, match, source):
    """Refuses a file of another family."""
    dialect = match.dialect
    if dialect.family != family:
        raise WeightMismatchError(
            f"{source} is a checkpoint of {dialect.title}, but model= asks for the {family} "
            "family.\n"
            f"Expected a checkpoint of the {family} family.\n"
            f"Pass {dialect.argument}, with the config file that belongs to it."
        )


def check_architecture(config, match, source):
    """Refuses a file whose embedding order or norm placement is not the model's."""
    dialect = match.dialect
    if dialect.embedding_order != config.embedding_order:
        raise WeightMismatchError(
            f"{source} is a checkpoint of {dialect.title} "
            f"(embedding_order={dialect.embedding_order!r}), but the model was "
            f"built with embedding_order={config.embedding_order!r}.\n"
            "Expected the architecture of the early albert_zh and of Google's ALBERT not to be "
            "mixed.\nPass the checkpoint to build_transformer_model, which decides by the file."
        )
    if config.ln_type not in dialect.ln_types:
        raise WeightMismatchError(
            f"The configuration says ln_type={config.ln_type!r}, but {source} is a "
            f"{dialect.title} checkpoint.\nExpected ln_type to be one of: "
            f"{', '.join(dialect.ln_types)}, which is all that its original code can run.\n"
            "Pass the config file that belongs to the checkpoint."
        )


def foreign_places(config, match, places, source):
    """Refuses blocks of the file at which the configuration never arrives."""
    positions = [match.places[place] for place in match.places]
    claims = []
    for key, column, value in (
        ("num_hidden_layers", 0, config.num_hidden_layers),
        ("num_hidden_groups", 1, config.num_hidden_groups),
        ("inner_group_num", 2, config.inner_group_num),
    ):
        numbers = [position[column] for position in positions if position[column] is not None]
        if numbers and max(numbers) + 1 > value:
            claims.append(f"{key}={value}, the file has {max(numbers) + 1}")
    raise WeightMismatchError(
        f"{source} holds blocks that the model never calls: {listing(places)}.\n"
        f"The configuration says {'; '.join(claims) or 'otherwise'}.\n"
        "Expected every block of the file to have its place in the model.\n"
        "Pass the config file that belongs to the checkpoint"
        + (
            ", or num_hidden_layers= as a keyword to use fewer layers on purpose."
            if "num_hidden_layers" in str(claims)
            else "."
        )
    )


def unread_encoder_variables(match, names, source):
    """Refuses variables of the encoder that the model has no use for: they change its output."""
    raise WeightMismatchError(
        f"{source} holds {len(names)} variables of the encoder that the model does not have: "
        f"{listing(names)}.\n"
        f"Expected the variables of a {match.dialect.title} model with this configuration.\n"
        "Pass the config file that belongs to the checkpoint, or strict=False to do without them."
    )


def check_missing(loader, absent, strangers):
    """Refuses model variables that the file cannot fill."""
    match, source = loader.match, loader.checkpoint.source
    encoder = sorted({edge.name for edge in absent if edge.row.head is None})
    if loader.ignore_invalid:
        _check_tables(loader, absent)
        encoder, absent = [], []
    if encoder:
        raise WeightMismatchError(
            f"{source} lacks {len(encoder)} variables of the encoder: {listing(encoder)}.\n"
            f"Expected all variables that the configuration of this {match.dialect.title} model "
            f"asks for.\n{_advice_on_missing(loader)}"
        )
    if not loader.strict:
        return
    for head, option in _OPTION_OF_HEAD.items():
        if head == "pooler" and loader.view.has_layer("NSP-Proba"):
            option = "with_nsp (with_sop)"  # it stands on the pooler
        names = sorted({edge.name for edge in absent if edge.row.head == head})
        if names:
            raise WeightMismatchError(
                f"{source} has no {head} head, which {option} asks for: it lacks "
                f"{listing(names)}.\nExpected a checkpoint with this head.\n"
                f"Leave {option} out, or pass strict=False to start with a fresh head."
            )
    prefix = loader.view.prefix
    fresh = [path for path in strangers if owner_of(path, prefix) in CLASSIFIER_LAYERS]
    if fresh:
        raise WeightMismatchError(
            f"{source} has no classifier head of this kind, or several of them: nothing fills "
            f"{listing(fresh)}.\nExpected what with_classifier= asks for.\n"
            "Leave with_classifier out, or pass strict=False to start with a fresh head."
        )
    if strangers:
        raise WeightMismatchError(
            f"{source} cannot fill {len(strangers)} variables of layers of your own: "
            f"{listing(strangers)}.\nExpected every model variable to be in the file.\n"
            "Pass strict=False to leave these as they are, or load before adding the layers."
        )


def _advice_on_missing(loader):
    likelier = [match.dialect for match in best_matches(loader.checkpoint)]
    if all(dialect.family != loader.match.dialect.family for dialect in likelier):
        title, models = likelier[0].title, likelier[0].argument
        return f"By its names it may be a checkpoint of {title}: then pass {models}."
    return (
        "Check num_hidden_layers, num_hidden_groups, inner_group_num and embedding_size: is the "
        "config the one of this checkpoint?"
    )


def _check_tables(loader, absent):
    """Refuses a file without a table of the model: that tells another architecture."""
    names = sorted({edge.name for edge in absent if edge.row.dims.split()[0] in ("V", "P")})
    names = [name for name in names if name not in _names_of_heads(loader)]
    if names:
        raise WeightMismatchError(
            f"{loader.checkpoint.source} has no {listing(names)}, even with "
            "ignore_invalid_weights=True.\n"
            "Expected the tables of tokens and positions: a file without one is of another "
            f"architecture than this {loader.match.dialect.title} model.\n"
            "Pass another model=, or the checkpoint of this model."
        )


def _names_of_heads(loader):
    rows = loader.match.dialect.top_rows
    return {n for row in rows if row.head for n in row.names(loader.match.prefix)}


def check_blocks(loader):
    """Refuses a file that fills no block: tolerance is not for another model."""
    rows = {row.ours for blocks in loader.match.dialect.blocks.values() for row in blocks.rows}
    if not any(edge.row.ours in rows for edge in loader.edges):
        raise WeightMismatchError(
            f"{loader.checkpoint.source} fits no variable of the blocks, even with "
            "ignore_invalid_weights=True.\n"
            f"Expected a checkpoint of this {loader.match.dialect.title} model, a few variables "
            "of which may be missing.\n"
            "Pass the config file that belongs to the checkpoint, or leave the checkpoint out."
        )


def misshapen(loader, wrong):
    """Refuses arrays of another shape; says which key of the configuration they contradict.

    Args:
        loader: the `Loader`.
        wrong: list of the `Edge`s at fault.
    """
    seen = {edge.name: edge for edge in reversed(wrong)}
    lines = []
    for name, edge in list(seen.items())[::-1]:
        expected = edge.row.shape_in_file(edge.variable.shape)
        found = tuple(loader.checkpoint.shapes[name])
        reason = why_not(edge.row, edge.row.shape_here(found), edge.variable.shape)
        why = f" (not resized: {reason})" if loader.autoresize and reason else ""
        lines.append(f"{name} is {found} in the file, {expected} in the model{why}")
    raise WeightMismatchError(
        f"{loader.checkpoint.source} does not fit the model: {'; '.join(lines[:4])}"
        + (f"; and {len(lines) - 4} more" if len(lines) > 4 else "")
        + f".\nExpected equal shapes.\n{_likely_cause(loader, seen.values())}"
    )


def _likely_cause(loader, wrong):
    """Translates misshapen arrays into the keys of the configuration they contradict."""
    config = loader.view.config
    claims = {}
    for edge in wrong:
        symbols = edge.row.dims.replace("W", "H" if config.projects_first else "E").split()
        shape = loader.checkpoint.shapes[edge.name]
        for symbol, length in zip(symbols, shape, strict=False):
            if symbol == "E" and config.embedding_size == config.hidden_size:
                symbol = "H"  # where no key tells them apart
            key = KEY_OF_SYMBOL.get(symbol)
            if key and getattr(config, key) != length:
                claims.setdefault(key, length)
    widths = _head_sizes(config, loader.checkpoint, wrong)
    if widths and not any(edge.row.ours.endswith("/norm/gamma") for edge in wrong):
        claims = widths  # H itself is right
    text = "; ".join(
        f"{key} is {getattr(config, key)} in the configuration, {length} in the file"
        for key, length in claims.items()
    )
    too_small = any(getattr(config, key) < length for key, length in claims.items())
    advice = advice_on(list(claims), too_small)
    return f"{text}. {advice}" if text else advice


def _head_sizes(config, checkpoint, wrong):
    """The head sizes that the biases of queries, keys and values show, where they differ."""
    sizes = {"query": "attention_key_size", "value": "attention_head_size"}
    found = {}
    for edge in wrong:
        part, _, rest = edge.row.ours.partition("/")
        name, _, variable = rest.partition("/")
        if part == "attention" and variable == "bias" and name in sizes:
            length = checkpoint.shapes[edge.name][-1]
            if length % config.num_attention_heads == 0:
                found[sizes[name]] = length // config.num_attention_heads
    return found


def advice_on(keys, is_too_small):
    """Returns what to do about a configuration that contradicts a file.

    Args:
        keys: list of the keys at fault.
        is_too_small: whether the first of them says less than the file has.
    """
    if keys == ["vocab_size"] and is_too_small:
        return (
            "Is keep_tokens missing? Pass it to build_transformer_model together with the "
            "checkpoint and the config of the whole vocabulary."
        )
    advice = "Pass the config file that belongs to the checkpoint, or another model="
    if keys == ["num_hidden_layers"] and is_too_small:
        return f"{advice}, or num_hidden_layers= as a keyword to use fewer layers on purpose."
    return f"{advice}."


# Their attention reads positions off the single numbers of a head, which resizing repeats.
_POSITIONS_IN_HEADS = ("nezha", "roformer", "roformer_v2", "gau_alpha")


def check_resizable(loader):
    """Refuses to resize models that would compute something else afterwards."""
    family = loader.view.config.family
    if family in _POSITIONS_IN_HEADS:
        raise WeightMismatchError(
            f"autoresize_weights=True, but models of the {family} family cannot be resized: "
            f"{listing(loader.report.resized)} would change their meaning.\n"
            "Expected the widths of the checkpoint: each number of a head has a position vector "
            "of its own.\nPass the config file that belongs to the checkpoint."
        )

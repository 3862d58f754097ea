"""Which heads a checkpoint holds, as arguments of `build_transformer_model`."""

CLASSIFIER_LAYERS = ("Classifier", "Token-Classifier", "Span-Classifier", "Classifier-Dense")

HEAD_LAYERS = (
    "Pooler-Dense",
    "NSP-Proba",
    "MLM-Dense",
    "MLM-Norm",
    "MLM-Bias",
    "Output-Mapping",
    "Discriminator-Dense",
    "Discriminator-Prediction",
    *CLASSIFIER_LAYERS,
)


def owner_of(path, prefix):
    """Returns the name of the layer that owns a variable, the encoder's prefix left out."""
    return path.rpartition("/")[0].rpartition("/")[2].removeprefix(prefix)


def heads_in(checkpoint, match, values):
    """Returns the arguments with which every complete head of a checkpoint is loaded.

    Args:
        checkpoint: an opened checkpoint.
        match: what `detect` found in it.
        values: keys of the configuration; its `architectures` tell a classifier of texts from
            one of tokens, which Hugging Face names alike.

    Returns:
        A dict such as `{"with_nsp": True, "with_mlm": True}`.
    """
    present, incomplete = set(), set()
    for row in match.dialect.top_rows:
        if row.head is None or row.tied:
            continue
        found = any(name in checkpoint.shapes for name in row.names(match.prefix))
        (present if found else incomplete).add(row.ours.partition("/")[0])
    return _options(present - incomplete, values, match.dialect.family)


def heads_of(view):
    """Returns the arguments with which a model with the heads of another is built.

    Args:
        view: `EncoderView` of the model.

    Returns:
        As `heads_in` does, and `num_labels` where the model has a classifier.
    """
    present = {layer for layer in HEAD_LAYERS if view.has_layer(layer)}
    heads = _options(present, {}, view.config.family)
    for layer in ("Classifier", "Token-Classifier"):
        if layer in present:
            heads["num_labels"] = view.layer(layer).units
    return heads


def _options(present, values, family):
    heads = {}
    if "Pooler-Dense" in present:
        heads["with_nsp" if "NSP-Proba" in present else "with_pool"] = True
    if {"MLM-Dense", "MLM-Norm", "MLM-Bias"} <= present or "Output-Mapping" in present:
        heads["with_mlm"] = True
    if {"Discriminator-Dense", "Discriminator-Prediction"} <= present:
        heads["with_discriminator"] = True
    kind = _classifier(present, values, family)
    return {**heads, "with_classifier": kind} if kind else heads


def _classifier(present, values, family):
    if "Span-Classifier" in present:
        return "span"
    text, token = "Classifier" in present, "Token-Classifier" in present
    if text and token:
        classes = str(values.get("architectures") or "")
        on_pooler = family in ("bert", "albert", "nezha")
        text = "TokenClassification" not in classes and (not on_pooler or "Pooler-Dense" in present)
    if text:
        return "sequence"
    return "token" if token else None

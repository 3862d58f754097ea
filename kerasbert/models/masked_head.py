"""Where the masked-LM head of a model begins and ends, whatever its family calls its layers."""

from kerasbert.errors import ConfigError

# The last layer of the head, and what may be its first, by the families that have them.
_ENDS = ("MLM-Activation", "Output-MLM-Activation")
_STARTS = ("MLM-Dense", "Output-Mapping", "Output-MLM-Dropout")


def masked_head(view):
    """Returns the first layer of the masked-LM head, its input and its logits.

    Args:
        view: `EncoderView` of a model.

    Returns:
        The layer, the symbolic hidden state (B, L, H) that it is called with, and the logits
        (B, L, V) before the activation, which may be any: softmax, none, a user's function.

    Raises:
        ConfigError: if the model has no such head.
    """
    if not any(view.has_layer(name) for name in _ENDS):
        raise ConfigError(
            f"The model {view.model.name!r}, of the {view.config.family} family, has no masked-LM "
            "head.\n"
            "Expected one: it predicts the token behind a [MASK].\n"
            "Build the model with with_mlm=True, or use generate for one that predicts the next "
            "token."
        )
    start = next(name for name in _STARTS if view.has_layer(name))
    end = next(name for name in _ENDS if view.has_layer(name))
    hidden = view.calls(start)[0].input_tensors[0]
    return view.layer(start), hidden, view.calls(end)[0].input_tensors[0]


def check_predicts_masks(view):
    """Refuses a model that does not predict masked tokens.

    Args:
        view: `EncoderView` of the model.

    Raises:
        ConfigError: if it has no such head, or one that predicts the next token.
    """
    masked_head(view)
    application = view.mask_layer.application
    if application != "encoder":
        raise ConfigError(
            f"The model {view.model.name!r} was built with application={application!r}.\n"
            "Expected 'encoder': with another its head predicts the next token, not a masked one.\n"
            "Build it without application=, or use generate."
        )

"""What a user may ask to be built around the blocks."""

from dataclasses import dataclass

import keras

from kerasbert.errors import ConfigError, did_you_mean

CLASSIFIERS = ("sequence", "token", "span")


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """The arguments of `build_transformer_model` that shape the graph.

    Attributes:
        application: "encoder", "lm" or "unilm", see `AttentionMask`.
        layers: layers of another model, by name, to use instead of new ones.
        additional_input_layers: Keras inputs of the user's, to be inputs of the model too.
        layer_norm_cond: symbolic float tensor (B, C) or (B, L, C) that conditions the norms.
        layer_norm_cond_hidden_size: width of a dense layer between condition and norms.
        layer_norm_cond_hidden_act: its activation.
        plain_classifier: whether the classifier of whole texts sees the first token as it is,
            without the dense layer that the family otherwise has there; the checkpoint decides.
    """

    with_pool: object = False
    with_nsp: object = False
    with_mlm: object = False
    with_discriminator: object = False
    with_classifier: object = False
    num_labels: int | None = None
    classifier_activation: object = "softmax"
    classifier_dropout: float = 0.1
    plain_classifier: bool = False
    with_lm: object = True
    final_activation: object = "softmax"
    application: str = "encoder"
    custom_position_ids: bool = False
    layer_norm_cond: object = None
    layer_norm_cond_hidden_size: int | None = None
    layer_norm_cond_hidden_act: object = "linear"
    additional_input_layers: object = None
    layers: dict | None = None
    with_mask_input: bool = False
    hidden_states: bool = False
    sequence_length: int | None = None
    name: str | None = None
    prefix: str = ""
    dtype: object = None

    @property
    def classifier(self):
        """The kind of classifier: one of `CLASSIFIERS`, or None.

        Raises:
            ConfigError: if `with_classifier` is neither a bool nor a known kind.
        """
        kind = "sequence" if self.with_classifier is True else self.with_classifier
        if kind is False:
            return None
        if kind not in CLASSIFIERS:
            raise ConfigError(
                f"with_classifier={kind!r}.{did_you_mean(kind, CLASSIFIERS)}\n"
                f"Expected True, False or one of: {', '.join(CLASSIFIERS)}."
            )
        return kind


def refuse_language_model(given, architecture):
    """Refuses the options of a head that predicts the next token where there is none.

    Args:
        given: the options that were given; the head is on by default, where there is one.
        architecture: subclass of `Encoder`.

    Raises:
        ConfigError: names the option and the head that the family has.
    """
    if "with_lm" in architecture.supported_heads:
        return
    for option in ("with_lm", "final_activation"):
        if given.get(option):
            advice = "Pass model='gpt', model='gpt2' or model='gpt2_ml' for such a head"
            if "with_mlm" in architecture.supported_heads:
                advice += "; application='lm' makes that of with_mlm predict the next token"
            raise ConfigError(
                f"{option}={given[option]!r}, but models of the {architecture.family} family have "
                "no head of their own that predicts the next token.\n"
                f"Expected one of: {', '.join(architecture.supported_heads) or 'no head'}.\n"
                f"{advice}."
            )


def check_condition(options):
    """Refuses tensors and layers of the user's that no graph can be made of.

    Raises:
        ConfigError: names the option and the value.
    """
    condition = options.layer_norm_cond
    if condition is None:
        for key in ("layer_norm_cond_hidden_size", "layer_norm_cond_hidden_act"):
            if getattr(options, key) != getattr(BuildOptions, key):
                raise ConfigError(
                    f"{key}={getattr(options, key)!r}, but there is no layer_norm_cond.\n"
                    "Expected the condition too, a tensor (B, C) or (B, L, C)."
                )
    elif not isinstance(condition, keras.KerasTensor) or len(condition.shape) not in (2, 3):
        raise ConfigError(
            f"layer_norm_cond={condition!r}.\n"
            "Expected a symbolic tensor (B, C) or (B, L, C), such as keras.Input((C,))."
        )
    given = options.additional_input_layers
    given = given if isinstance(given, list | tuple) else [] if given is None else [given]
    if not all(isinstance(tensor, keras.KerasTensor) for tensor in given):
        raise ConfigError(
            f"additional_input_layers={options.additional_input_layers!r}.\n"
            "Expected a keras.Input, or a list of them."
        )
    if not isinstance(options.layers, dict | None):
        raise ConfigError(
            f"layers is a {type(options.layers).__name__}.\n"
            "Expected a dict from names to Keras layers, such as the layers of a builder."
        )


def check_head(option, value):
    """Refuses what cannot be the value of an option that switches a head on.

    Raises:
        ConfigError: names the option and the value.
    """
    if not isinstance(value, bool | str) and not callable(value):
        raise ConfigError(
            f"{option}={value!r}.\nExpected True, False, the name of an activation such as "
            "'linear', or a function."
        )

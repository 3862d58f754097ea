"""Refuses arguments of `build_transformer_model` that contradict each other or mean nothing."""

from numbers import Integral

import keras

from kerasbert.conventions import READERS, WITHOUT_SEGMENTS
from kerasbert.errors import ConfigError, check_integer, did_you_mean
from kerasbert.layers.masking import APPLICATIONS
from kerasbert.models.albert import ALBERTUnshared


def check_unsharing(architecture, given):
    """Refuses un-sharing where nothing is shared, or twice over.

    Raises:
        ConfigError: names the argument.
    """
    finer = sorted({"unshare", "unshare_layers"} & given.keys())
    if finer and architecture.family != "albert":
        raise ConfigError(
            f"{finer[0]}= was given for a model of the {architecture.family} family.\n"
            "Expected model='albert': only its blocks are shared."
        )
    partly = "unshare_layers" in given or given.get("unshare", "all") != "all"
    if partly and issubclass(architecture, ALBERTUnshared):
        raise ConfigError(
            f"model='albert_unshared' contradicts {finer[-1]}=: it un-shares every layer as a "
            "whole.\nExpected model='albert' for finer un-sharing."
        )


def check_depth(from_file, given):
    """Refuses to change the depth of grouped layers: the groups are counted from it.

    Raises:
        ConfigError: names both depths.
    """
    file_layers = from_file.get("num_hidden_layers")
    layers = given.get("num_hidden_layers", file_layers)
    groups = given.get("num_hidden_groups", from_file.get("num_hidden_groups", 1))
    if file_layers is not None and layers != file_layers and groups != 1:
        raise ConfigError(
            f"num_hidden_layers={layers!r} was given for a configuration with {file_layers} layers "
            f"in num_hidden_groups={groups!r}.\n"
            "Expected the depth to stay as it is: another one would send layers to other groups.\n"
            "Build the whole model and take kerasbert.hidden_state(model, k)."
        )


def check_length(length, config):
    """Refuses an input length that the model cannot have.

    Raises:
        ConfigError: names the length and the limit.
    """
    limit = config.position_limit
    if length is None:
        return
    if limit is None:
        check_integer("sequence_length", length, minimum=1)
    elif not (_is_integer(length) and 1 <= length <= limit):
        raise ConfigError(
            f"sequence_length={length!r}.\nExpected an integer from 1 to {limit} "
            f"(max_position_embeddings={config.max_position_embeddings}), or None for any length."
        )


def _is_integer(value):
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_dtype(dtype):
    """Refuses what is no floating dtype policy.

    Raises:
        ConfigError: names the value.
    """
    if dtype is None:
        return
    cause = None
    try:
        policy = keras.dtype_policies.get(dtype)
        if all(map(keras.backend.is_float_dtype, (policy.compute_dtype, policy.variable_dtype))):
            return
    except (ValueError, TypeError) as error:
        cause = error
    raise ConfigError(
        f"dtype={dtype!r}.\nExpected a floating Keras dtype policy such as 'float32' or "
        "'mixed_float16'."
    ) from cause


def check_application(architecture, application):
    """Refuses an application that is unknown, or that the architecture cannot have.

    Raises:
        ConfigError: says what the architecture lacks.
    """
    if application not in APPLICATIONS:
        raise ConfigError(
            f"application={application!r}.{did_you_mean(application, APPLICATIONS)}\n"
            f"Expected one of: {', '.join(APPLICATIONS)}."
        )
    if application not in architecture.applications:
        lacking = "masked-LM head to predict tokens with"
        if "lm" in architecture.applications:
            lacking = "segments to tell two texts apart"
        raise ConfigError(
            f"application={application!r} is not supported by the {architecture.family} family: "
            f"it has no {lacking}.\n"
            f"Expected one of: {', '.join(architecture.applications)}."
        )


def check_positions_and_segments(config, options, asked_for):
    """Refuses options about positions and segments where the model has none to act on.

    Args:
        config: `ModelConfig` of the model.
        options: its `BuildOptions`.
        asked_for: keys of the configuration that came as keyword arguments.

    Raises:
        ConfigError: names the option and what the family lacks.
    """
    without_segments = config.family in WITHOUT_SEGMENTS
    inputs = ("custom_position_ids", "with_mask_input") if config.family == "t5" else ()
    wrong = {
        "hierarchical_position": config.hierarchical_position and config.position_limit is None,
        "shared_segment_embeddings": config.shared_segment_embeddings and without_segments,
        "segment_vocab_size": without_segments and asked_for.get("type_vocab_size"),
        **{key: getattr(options, key) for key in inputs},
    }
    for key, is_wrong in wrong.items():
        if is_wrong:
            lacking = "segments" if "segment" in key else "position table"
            lacking = "such input" if key in inputs else lacking
            raise ConfigError(
                f"{key} was given for a model of the {config.family} family, which has no "
                f"{lacking}.\nExpected it to be left out: it could not change anything."
            )


def check_keys_of_other_families(architecture, given):
    """Refuses keys of the configuration that the family does not read.

    Raises:
        ConfigError: names the key and the families that do.
    """
    for key in given:
        readers = READERS.get(key, (architecture.family,))
        if architecture.family not in readers:
            raise ConfigError(
                f"{key}={given[key]!r} was given for a model of the {architecture.family} family, "
                "which does not read it.\n"
                f"Expected a model of the family {' or '.join(readers)}.\nLeave {key} out."
            )

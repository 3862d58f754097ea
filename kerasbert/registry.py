"""The models by their names, and which of them `model="auto"` means."""

from kerasbert.conventions import FAMILY_OF_MODEL_TYPE
from kerasbert.errors import ConfigError, WeightMismatchError, did_you_mean, listing
from kerasbert.models.albert import ALBERT, ALBERTUnshared
from kerasbert.models.bert import BERT
from kerasbert.models.electra import ELECTRA, ELECTRAGenerator
from kerasbert.models.encoder import Encoder
from kerasbert.models.gau import GAUAlpha
from kerasbert.models.gpt import GPT, GPT2, GPT2ML
from kerasbert.models.nezha import NEZHA
from kerasbert.models.roberta import DistilBERT, RoBERTa
from kerasbert.models.roformer import RoFormer, RoFormerV2
from kerasbert.models.t5 import (
    MT5,
    T5,
    T5V11,
    MT5Decoder,
    MT5Encoder,
    T5Decoder,
    T5Encoder,
    T5V11Decoder,
    T5V11Encoder,
)
from kerasbert.weights.audit import audit
from kerasbert.weights.detect import best_matches, detect, matches_in

AUTO = "auto"

# RoBERTa-wwm and its like are BERTs that were trained longer; config or file say which
# RoBERTa is meant, see `find_architecture`.
MODELS = {
    "bert": BERT,
    "roberta": BERT,
    "albert": ALBERT,
    "albert_unshared": ALBERTUnshared,
    "electra": ELECTRA,
    "electra_generator": ELECTRAGenerator,
    "distilbert": DistilBERT,
    "gpt": GPT,
    "gpt2": GPT2,
    "gpt2_ml": GPT2ML,
    "t5": T5,
    "t5_encoder": T5Encoder,
    "t5_decoder": T5Decoder,
    "t5.1.0": T5,
    "t5.1.0_encoder": T5Encoder,
    "t5.1.0_decoder": T5Decoder,
    "t5.1.1": T5V11,
    "t5.1.1_encoder": T5V11Encoder,
    "t5.1.1_decoder": T5V11Decoder,
    "mt5": MT5,
    "mt5_encoder": MT5Encoder,
    "mt5_decoder": MT5Decoder,
    "mt5.1.1": MT5,
    "mt5.1.1_encoder": MT5Encoder,
    "mt5.1.1_decoder": MT5Decoder,
    "nezha": NEZHA,
    "roformer": RoFormer,
    "roformer_v2": RoFormerV2,
    "gau_alpha": GAUAlpha,
}
_OF_FAMILY = {**MODELS, "roberta": RoBERTa}

# Keys that only the configurations of one family have.
_TELLING_KEYS = {
    "num_hidden_groups": "albert",
    "inner_group_num": "albert",
    "ln_type": "albert",
    "n_layers": "distilbert",
    "use_relative_position": "nezha",
    "max_relative_position": "nezha",
    "n_embd": "gpt2",
}


def find_architecture(model, values, checkpoint=None, options=()):
    """Returns the architecture that `model` names.

    Args:
        model: name of a model, "auto", or a subclass of `Encoder`.
        values: keys of the configuration.
        checkpoint: an opened checkpoint, or None.
        options: dict of keyword arguments: the heads asked for decide between the two towers
            of an ELECTRA checkpoint.

    Returns:
        The subclass of `Encoder`, and a text about the choice, None if it was named.

    Raises:
        ConfigError: if there is no such model, or nothing tells the family.
        WeightMismatchError: if configuration and checkpoint tell different families.
    """
    if isinstance(model, type) and issubclass(model, Encoder) and model.family:
        return model, None
    if model == AUTO:
        family, reason = _family(values, checkpoint, options)
        name = family
        if checkpoint is not None and _is_unshared_albert(family, values, checkpoint, options):
            name = "albert_unshared"
        elif checkpoint is not None and family == "t5":
            name = _part_of_t5(checkpoint)
        return _OF_FAMILY[name], f"model={name!r} was chosen {reason}"
    if not isinstance(model, str) or model not in MODELS:
        raise ConfigError(
            f"Unknown model={model!r}.{did_you_mean(model, MODELS)}\n"
            f"Expected one of: {AUTO}, {', '.join(MODELS)}; or a subclass of "
            "kerasbert.models.Encoder."
        )
    if model == "roberta" and _is_original_roberta(values, checkpoint):
        return RoBERTa, None
    return MODELS[model], None


def name_of(architecture):
    """Returns what to pass as `model=` for an architecture."""
    return "albert_unshared" if architecture is ALBERTUnshared else architecture.family


def architecture_of(family):
    """Returns the architecture for a `ModelConfig` of `family`."""
    return _OF_FAMILY[family]


def _is_original_roberta(values, checkpoint):
    if isinstance(values.get("model_type"), str):
        return values["model_type"] == "roberta"
    return checkpoint is not None and "roberta" in _best_families(checkpoint)


def _family(values, checkpoint, options):
    """The family that config and checkpoint agree on, and what told it."""
    told = _told_by_config(values)
    if checkpoint is None:
        return _without_checkpoint(values, told)
    families = _best_families(checkpoint)
    if _has_both_towers(checkpoint):
        families = [_tower(values, checkpoint, options)]
    if told is not None:
        families = _confirmed(told, families, checkpoint)
    if len(families) > 1:
        families = [f for f in _told_by_keys(values) if f in families][:1] or families
    if len(families) > 1:
        raise ConfigError(
            f"{checkpoint.source} may hold a model of the families: {', '.join(families)}.\n"
            "Expected a config with model_type, or names that only one family has.\n"
            f"Pass model=, one of: {', '.join(map(repr, families))}."
        )
    return families[0], "by the names in the checkpoint"


def _told_by_config(values):
    """The families that the configuration names, None if it names none."""
    kind = values.get("model_type")
    if not isinstance(kind, str):
        return None
    kind = FAMILY_OF_MODEL_TYPE.get(kind, kind)
    if kind not in _OF_FAMILY:
        raise ConfigError(
            f"The configuration says model_type={kind!r}.{did_you_mean(kind, _OF_FAMILY)}\n"
            f"Expected one of: {', '.join(_OF_FAMILY)}.\n"
            "Pass model= if it has the architecture of one of these all the same."
        )
    if kind != "electra":
        return [kind]
    classes = values.get("architectures") or ()
    return ["electra_generator"] if "ElectraForMaskedLM" in classes else ["electra"]


def _without_checkpoint(values, told):
    if told is not None:
        return told[0], "by model_type of the configuration"
    for family, key in _told_by_keys(values).items():
        return family, f"by {key} of the configuration"
    embedding_size = values.get("embedding_size")
    if embedding_size is not None and embedding_size != values.get("hidden_size"):
        raise ConfigError(
            f"embedding_size={embedding_size!r} differs from "
            f"hidden_size={values.get('hidden_size')!r}, which ALBERT and ELECTRA have in common.\n"
            "Expected model=, a checkpoint, or a key such as num_hidden_groups.\n"
            "Pass model='albert', model='electra' or model='electra_generator'."
        )
    return "bert", "as the configuration hints at no other family"


def _told_by_keys(values):
    """Dict from the families that have a key of their own in the configuration to that key."""
    told = {}
    for key, family in _TELLING_KEYS.items():
        # Of a switch, only "on" tells something.
        if values.get(key) is not None and values[key] is not False:
            told.setdefault(family, key)
    return told


def _best_families(checkpoint):
    """The families that know the most names of a file, the generator only if alone."""
    matches = best_matches(checkpoint)
    families = list(dict.fromkeys(match.dialect.family for match in matches))
    if "electra" in families and "electra_generator" in families:
        families.remove("electra_generator")
    if {"bert", "roberta"} <= set(families):
        # RoBERTa has one segment; BERT two, or none where they were cut off.
        families.remove("bert" if _has_one_segment(checkpoint, matches[0]) else "roberta")
    return families


def _has_one_segment(checkpoint, match):
    return any(
        checkpoint.shapes.get(name, (0,))[:1] == (1,)
        for row in match.dialect.top_rows
        if row.dims.startswith("T ")
        for name in row.names(match.prefix)
    )


def _has_both_towers(checkpoint):
    """Whether the file is a pre-training checkpoint of ELECTRA, as Google's code writes it."""
    original = {m.dialect.family for m in matches_in(checkpoint) if not m.dialect.hugging_face}
    return {"electra", "electra_generator"} <= original


def _tower(values, checkpoint, options):
    """The tower with the head that was asked for, or else the one that fits the config."""
    asked_for = dict(options)
    if asked_for.get("with_discriminator") or asked_for.get("with_classifier"):
        return "electra"
    if asked_for.get("with_mlm"):
        return "electra_generator"
    towers = ("electra", "electra_generator")
    return min(towers, key=lambda tower: len(audit(values, checkpoint, detect(checkpoint, tower))))


def _is_unshared_albert(family, values, checkpoint, options):
    """Whether the file has a block for every layer, of which only its names tell."""
    told = {"unshare", "unshare_layers"} & ({*values} | {*options})
    return family == "albert" and not told and detect(checkpoint, family).dialect.is_unshared


def _part_of_t5(checkpoint):
    """The whole model, or the only part that a file holds."""
    stacks = set(detect(checkpoint, "t5").stacks.values())
    return f"t5_{stacks.pop()}" if len(stacks) == 1 else "t5"


def _confirmed(told, families, checkpoint):
    found = [match.dialect.family for match in matches_in(checkpoint)]
    if told[0] in found:
        return told
    raise WeightMismatchError(
        f"The configuration says that the model is of the {told[0]} family, but "
        f"{checkpoint.source} holds one of: {listing(families)}.\n"
        "Expected config and checkpoint of one model.\n"
        "Pass the config file that belongs to the checkpoint."
    )

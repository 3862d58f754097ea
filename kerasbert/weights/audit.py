"""Compares a configuration with a checkpoint, point by point."""

from dataclasses import dataclass

from kerasbert.config_file import config_style, resolve_aliases
from kerasbert.errors import WeightMismatchError
from kerasbert.weights.complaints import advice_on
from kerasbert.weights.sizes import CHINESE_VOCABULARY, SMALL_CHINESE, sizes_in

_ENGLISH_VOCABULARY = 30000


@dataclass(frozen=True)
class Finding:
    """One point in which a configuration and a checkpoint do not agree.

    Attributes:
        key: key of the configuration.
        text: what each of them says.
        certain: whether shapes prove it; otherwise it is what is known of the release.
        is_too_small: whether the configuration says less than the file has.
    """

    key: str
    text: str
    certain: bool
    is_too_small: bool = False

    def __str__(self):
        return self.text


def audit(values, checkpoint, match):
    """Lists the points in which a configuration contradicts a checkpoint.

    Args:
        values: dict of keys of the configuration.
        checkpoint: an opened checkpoint.
        match: what `detect` found in it.

    Returns:
        A list of `Finding`s, the certain ones first.
    """
    values = resolve_aliases(values)
    if match.dialect.family == "distilbert":
        values = {**values, "type_vocab_size": 0}
    certain = [
        finding
        for key, size in sizes_in(checkpoint, match).items()
        if (finding := _contradiction(key, size, values))
    ]
    doubts = (_activation(values, match.dialect), _heads(values, match.dialect))
    return certain + [finding for finding in doubts if finding]


def refuse_contradictions(values, checkpoint, match, source, allowed):
    """Refuses a configuration that shapes prove wrong, before any model is built from it.

    Args:
        values: see `audit`.
        checkpoint: see `audit`.
        match: see `audit`.
        source: what to call the configuration.
        allowed: keys that may differ, because the difference was asked for.

    Returns:
        The findings that prove nothing.

    Raises:
        WeightMismatchError: names every point.
    """
    findings = audit(values, checkpoint, match)
    certain = [f for f in findings if f.certain and f.key not in allowed]
    if not certain:
        return [finding for finding in findings if not finding.certain]
    raise WeightMismatchError(
        f"{source} contradicts {checkpoint.source}: {'; '.join(map(str, certain))}.\n"
        f"Expected the configuration of this {match.dialect.title} checkpoint.\n"
        f"{advice_on([finding.key for finding in certain], certain[0].is_too_small)}"
    )


def _contradiction(key, size, values):
    said = values.get(key)
    if key == "embedding_size" and said is None:
        said = values.get("hidden_size")
        if said is not None and said != size.value:
            text = f"embedding_size is not in the configuration, {size.value} in the file"
            return Finding(key, f"{text} ({size.evidence})", certain=True)
    if said is None or said == size.value:
        return None
    # Google's arithmetic may leave the last groups out.
    if key in ("num_hidden_groups", "inner_group_num") and size.value < _number(said):
        return None
    text = f"{key} is {said!r} in the configuration, {size.value} in the file ({size.evidence})"
    return Finding(key, text, certain=True, is_too_small=_number(said) < size.value)


def _number(value):
    return value if isinstance(value, int) else 0


def _activation(values, dialect):
    google = dialect.family == "albert" and not dialect.hugging_face
    if not google or config_style(values) == "albert_zh":
        return None
    if values.get("vocab_size") != CHINESE_VOCABULARY or values.get("hidden_act") is None:
        return None
    small = values.get("hidden_size") in SMALL_CHINESE
    is_relu = values["hidden_act"] == "relu"
    if is_relu != small:
        return None
    whose, usual = ("brightmart's", "gelu") if small else ("Google's Chinese", "relu")
    text = (
        f"hidden_act is {values['hidden_act']!r} in the configuration; {whose} ALBERTs of this "
        f"size were trained with {usual}"
    )
    return Finding("hidden_act", text, certain=False)


def _heads(values, dialect):
    if dialect.family != "albert" or values.get("vocab_size") != _ENGLISH_VOCABULARY:
        return None
    heads = values.get("num_attention_heads")
    second_version = not values.get("hidden_dropout_prob")
    if values.get("hidden_size") != 2048 or heads not in (16, 32):
        return None
    if heads == 16 and not second_version:
        return None
    text = (
        f"num_attention_heads is {heads} in the configuration; ALBERT xlarge v2 was published "
        "with 16 and with 32, which no shape can decide: compare the results of both"
    )
    return Finding("num_attention_heads", text, certain=False)

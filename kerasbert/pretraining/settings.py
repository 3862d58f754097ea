"""The settings of records for pre-training."""

from dataclasses import dataclass, fields

from kerasbert.errors import ConfigError, check_integer, check_number, did_you_mean
from kerasbert.pretraining.masking import Masking, next_token_targets
from kerasbert.pretraining.segments import OBJECTIVES

# [CLS] a [SEP] b [SEP], with room to draw a shorter length from.
_SHORTEST = 8


@dataclass(frozen=True)
class RecordSettings:
    """How rows are made of documents, and what is to be predicted in them.

    Args:
        max_length: tokens of a row, special ones included; shorter rows are padded.
        objective: "sop" for two segments in right or wrong order (a single sentence gets a
            second segment of another document, label 1, as in Google's code); "nsp" for a second
            segment that follows or is of another document; "none" for one segment of whole
            sentences; "lm" for such rows, every next token to be predicted; "unilm" for two
            segments that follow each other, the tokens of the second to be predicted.
        masking: a `Masking`, or the name of one, see `Masking.of`; None for "ngram". With "lm"
            and "unilm" nothing is masked, the model must not see what follows.
        short_seq_prob: how many of the documents are cut into rows of a shorter length, drawn
            for each.
        dupe_factor: how many times each document is cut and masked anew.
        skip_single_sentences: whether "sop" leaves out a single sentence that fills a row, or is
            all of a document, rather than pairing it with another document.
        seed: of everything that is drawn.

    Raises:
        ConfigError: for values out of range, and masking where there is none.

    Example:
        >>> RecordSettings(max_length=64, objective="nsp", masking="bert").max_predictions
        20

    Source: google-research/bert and google-research/albert, create_pretraining_data.py.
    """

    max_length: int = 128
    objective: str = "sop"
    masking: Masking | str | None = None
    short_seq_prob: float = 0.1
    dupe_factor: int = 10
    skip_single_sentences: bool = False
    seed: int = 12345

    def __post_init__(self):
        check_integer("max_length", self.max_length, minimum=_SHORTEST)
        check_integer("dupe_factor", self.dupe_factor, minimum=1)
        check_integer("seed", self.seed, minimum=0)
        check_number("short_seq_prob", self.short_seq_prob, least=0, most=1)
        if self.objective not in OBJECTIVES:
            raise ConfigError(
                f"objective={self.objective!r}.{did_you_mean(self.objective, OBJECTIVES)}\n"
                f"Expected one of: {', '.join(OBJECTIVES)}."
            )
        if self.skip_single_sentences and self.objective != "sop":
            raise ConfigError(
                f"skip_single_sentences was given for objective={self.objective!r}.\n"
                "Expected it with 'sop' only: elsewhere single sentences make rows as others do."
            )
        if not self.predicts_next:
            masking = "ngram" if self.masking is None else self.masking
            object.__setattr__(self, "masking", Masking.of(masking))
        elif self.masking is not None:
            raise ConfigError(
                f"masking={self.masking!r} was given for objective={self.objective!r}.\n"
                "Expected none: every next token is predicted, and nothing is masked."
            )

    @property
    def predicts_next(self):
        """Whether the next tokens are predicted, and not masked ones."""
        return self.objective in ("lm", "unilm")

    @property
    def max_predictions(self):
        """M, how many places a record has for what is to be predicted."""
        return self.max_length - 1 if self.predicts_next else self.masking.max_predictions

    def with_targets(self, rows, table, rng):
        """Returns rows with what is to be predicted.

        Args:
            rows: dict of arrays, see `make_rows`.
            table: the `TokenTable` of the tokenizer.
            rng: numpy's random generator.
        """
        if self.predicts_next:
            return next_token_targets(rows, second_only=self.objective == "unilm")
        return self.masking.apply(rows, table, rng)

    def description(self):
        """Returns the settings as a flat dict for JSON."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        masking = found.pop("masking")
        parts = masking.description() if masking else {}
        return found | {f"masking.{name}": value for name, value in parts.items()}

"""Small random models that write text, a line for each kind.

A new kind is a new line in ``WRITERS``. Every test of ``test_generate`` runs for each of them.
"""

import functools
import zlib
from dataclasses import dataclass, field

import keras
import numpy as np
import pytest

from kerasbert import build_transformer_model

VOCABULARY = 60
START = 0  # what the decoder of a T5 begins with
POSITIONS = 64
#: So many of the 60 tokens end a text that few texts have the same length.
ENDS = (3, 11, 17, 23, 29, 31, 41)
CONDITION = 4
GAIN = 2.0

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": POSITIONS,
    "type_vocab_size": 2,
}
NARROW = {"embedding_size": 16}
GROUPS = {"num_hidden_groups": 2, "inner_group_num": 2}
#: Scores that are handed on more than once.
DEEP = {"num_hidden_layers": 3}
EARLY = {**NARROW, "ln_type": "preln", "embedding_order": "project_first"}
GATED = {"hidden_act": "swish", "num_attention_heads": 1, "attention_key_size": 8}
#: Few buckets and a short reach, so that texts of 24 tokens get to the end of both.
T5_SIZES = {
    "max_position_embeddings": ...,
    "type_vocab_size": ...,
    "hidden_act": ["gelu", "linear"],
    "attention_head_size": 6,
    "num_hidden_layers": 1,
    "num_decoder_layers": 2,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12,
}
NO_SEGMENTS = {"type_vocab_size": ...}


@dataclass(frozen=True, eq=False)
class Writer:
    """One kind of model."""

    name: str
    model: str
    """What is passed as ``model=``."""
    kind: str = "lm"
    """Who sees whom: "lm", "unilm" or "t5"."""
    sizes: dict = field(default_factory=dict)
    """Keys of the configuration that differ; the value ``...`` takes a key away."""
    options: dict = field(default_factory=dict)
    """Further arguments of the factory."""
    inputs: tuple = ("tokens", "segments")
    """What the model reads, in order: also "positions", "mask" and "condition"."""
    logits: bool = False
    """Whether the model gives logits and not probabilities."""
    output: int | None = None
    """Which of several outputs is that of the language model."""
    padding: int | None = 0
    """The id of padding, which is never written; None where there is none."""

    def __str__(self):
        return self.name

    def build(self, seed=None, **options):
        """A new model of this kind; without a seed its weights are those of ``made``."""
        seed = SEEDS.get(self.name, 0) if seed is None else seed
        sizes = {key: v for key, v in (SIZES | self.sizes).items() if v is not ...}
        options = {**self.options, **options}
        if self.kind != "t5":
            options["application"] = self.kind
        if "condition" in self.inputs:
            condition = keras.Input((CONDITION,), name="Condition")
            options |= {"layer_norm_cond": condition, "additional_input_layers": condition}
        model = build_transformer_model(sizes, model=self.model, verbose=0, **options)
        return fill(model, [seed, zlib.crc32(self.name.encode())])

    @functools.cache  # noqa: B019 - the table lives as long as the tests
    def made(self):
        """The model that tests share: none may change it."""
        return self.build()

    def row(self, prompt, new=(), segments=None, condition=0):
        """The model's inputs for one unpadded text, by the rule of each kind.

        Args:
            prompt: Token ids to read.
            new: Token ids written so far.
            segments: Segment ids of the prompt, all 0 if None.
            condition: Which of the vectors of ``conditions`` goes with the row.
        """
        if self.kind == "t5":
            return [np.array([prompt], "int32"), np.array([[START, *new]], "int32")]
        ids = [*prompt, *new]
        given = [0] * len(prompt) if segments is None else list(segments)
        later = 1 if self.kind == "unilm" else given[-1]
        parts = {
            "tokens": ids,
            "segments": [*given, *[later] * len(new)],
            "positions": range(len(ids)),
            "mask": [1] * len(ids),
        }
        parts = {key: np.array([values], "int32") for key, values in parts.items()}
        parts["condition"] = conditions(condition + 1)[condition:]
        return [parts[name] for name in self.inputs]

    def given(self, prompts, segments=None):
        """What is handed to ``generate`` for these prompts."""
        if "condition" not in self.inputs:
            return prompts if segments is None else [prompts, segments]
        return {
            "Input-Token": prompts,
            "Input-Segment": segments or [[0] * len(prompt) for prompt in prompts],
            "Condition": conditions(len(prompts)),
        }


def conditions(rows):
    """A vector for each row to steer the layer norms with."""
    return np.random.default_rng(5).normal(0, 1, (rows, CONDITION)).astype("float32")


def _lm(name, model, **changes):
    return Writer(name, model, "lm", **changes)


def _unilm(name, model, **changes):
    return Writer(name, model, "unilm", **changes)


TOKENS = ("tokens",)
WITH_POSITIONS = ("tokens", "segments", "positions")
WITH_MASK = ("tokens", "segments", "mask")
WITH_BOTH = ("tokens", "segments", "positions", "mask")
RESIDUAL = {"residual_attention_scores": True}
LINEAR = {"options": {"with_mlm": "linear"}, "logits": True}

WRITERS = (
    _lm("bert_lm", "bert"),
    _unilm("bert_unilm", "bert", **LINEAR),
    _lm("bert_without_segments", "bert", sizes={"type_vocab_size": 0}, inputs=TOKENS),
    _lm("bert_positions_lm", "bert", options={"custom_position_ids": True}, inputs=WITH_POSITIONS),
    _unilm(
        "bert_mask_unilm",
        "bert",
        options={"with_mask_input": True},
        inputs=WITH_MASK,
        padding=None,
    ),
    _unilm(
        "bert_positions_mask_unilm",
        "bert",
        options={"custom_position_ids": True, "with_mask_input": True},
        inputs=WITH_BOTH,
        padding=None,
    ),
    _unilm("bert_residual_unilm", "bert", sizes=DEEP, options=RESIDUAL),
    _lm("bert_residual_lm", "bert", sizes=DEEP, options={**RESIDUAL, "prefix": "Own-"}),
    _unilm("bert_condition_unilm", "bert", inputs=("tokens", "segments", "condition")),
    _unilm(
        "bert_hierarchical_unilm",
        "bert",
        sizes={"max_position_embeddings": 8},
        options={"hierarchical_position": 0.3},
    ),
    _unilm("bert_shared_segments_unilm", "bert", options={"shared_segment_embeddings": True}),
    _lm("bert_narrow_keys_lm", "bert", sizes={"attention_key_size": 5, "attention_head_size": 9}),
    _unilm("simbert", "bert", options={"with_pool": "linear"}, output=1),
    _lm("albert_lm", "albert", sizes=NARROW, **LINEAR),
    _unilm("albert_unilm", "albert", sizes=NARROW),
    _unilm("albert_unshared_unilm", "albert_unshared", sizes=NARROW),
    _lm("albert_unshared_lm", "albert_unshared", sizes=NARROW),
    _unilm("albert_groups_unilm", "albert", sizes={**NARROW, **GROUPS}),
    _lm("albert_groups_lm", "albert", sizes={**NARROW, **GROUPS}),
    _unilm("albert_half_unshared", "albert", sizes=NARROW, options={"unshare": "attention"}),
    _unilm("albert_residual", "albert", sizes={**NARROW, **DEEP}, options=RESIDUAL),
    _lm("albert_early_preln_lm", "albert", sizes=EARLY),
    _lm(
        "roberta_lm",
        "roberta",
        sizes={"model_type": "roberta", "pad_token_id": 1, "type_vocab_size": 1},
        inputs=TOKENS,
        padding=1,
    ),
    _lm("distilbert_lm", "distilbert", sizes={"type_vocab_size": 0}, inputs=TOKENS),
    _unilm("electra_generator_unilm", "electra_generator", sizes=NARROW),
    _lm("nezha_lm", "nezha", sizes={"max_relative_position": 6}),
    _unilm("nezha_unilm", "nezha", sizes={"max_relative_position": 6}),
    _lm("roformer_lm", "roformer"),
    _unilm("roformer_unilm", "roformer", sizes=NARROW),
    _unilm(
        "roformer_positions_unilm",
        "roformer",
        options={"custom_position_ids": True},
        inputs=WITH_POSITIONS,
    ),
    _unilm("roformer_v2_unilm", "roformer_v2", sizes={"hidden_act": "relu"}),
    _lm("roformer_v2_lm", "roformer_v2", sizes={"hidden_act": "relu", **NARROW}, **LINEAR),
    _lm("gau_alpha_lm", "gau_alpha", sizes=GATED),
    _unilm("gau_alpha_unilm", "gau_alpha", sizes={**GATED, **NARROW}),
    _lm("gpt", "gpt"),
    _unilm("gpt_unilm", "gpt"),
    _lm("gpt2", "gpt2", sizes=NO_SEGMENTS, inputs=TOKENS),
    _lm(
        "gpt2_mask",
        "gpt2",
        sizes={**NO_SEGMENTS, "pad_token_id": -1},
        options={"with_mask_input": True, "custom_position_ids": True, "with_lm": "linear"},
        inputs=("tokens", "positions", "mask"),
        padding=None,
        logits=True,
    ),
    _lm("gpt2_ml", "gpt2_ml", sizes=NO_SEGMENTS, inputs=TOKENS),
    Writer("t5", "t5.1.0", "t5", sizes={**T5_SIZES, "hidden_act": "relu"}),
    Writer("t5.1.1", "t5.1.1", "t5", sizes=T5_SIZES, options={"with_lm": "linear"}, logits=True),
    Writer("mt5", "mt5", "t5", sizes=T5_SIZES),
    Writer(
        "t5_cross_bias",
        "t5.1.1",
        "t5",
        sizes=T5_SIZES,
        options={"cross_position_bias": True, **RESIDUAL},
    ),
)
NAMES = tuple(writer.name for writer in WRITERS)
#: Seeds of weights with which texts neither are all alike nor end at once; 0 for the others.
SEEDS = {
    "bert_lm": 3,
    "bert_unilm": 1,
    "bert_without_segments": 1,
    "bert_positions_lm": 5,
    "bert_mask_unilm": 3,
    "bert_positions_mask_unilm": 3,
    "bert_residual_unilm": 5,
    "bert_residual_lm": 2,
    "bert_condition_unilm": 10,
    "bert_hierarchical_unilm": 1,
    "bert_shared_segments_unilm": 3,
    "bert_narrow_keys_lm": 10,
    "simbert": 1,
    "albert_lm": 10,
    "albert_unilm": 5,
    "albert_unshared_unilm": 1,
    "albert_unshared_lm": 1,
    "albert_groups_lm": 3,
    "albert_half_unshared": 5,
    "albert_residual": 11,
    "roberta_lm": 9,
    "distilbert_lm": 9,
    "electra_generator_unilm": 7,
    "nezha_lm": 2,
    "nezha_unilm": 10,
    "roformer_lm": 7,
    "roformer_unilm": 3,
    "roformer_v2_unilm": 2,
    "roformer_v2_lm": 1,
    "gau_alpha_lm": 3,
    "gau_alpha_unilm": 1,
    "gpt": 5,
    "gpt_unilm": 1,
    "gpt2": 1,
    "gpt2_mask": 1,
    "gpt2_ml": 8,
    "t5": 5,
    "t5.1.1": 1,
    "mt5": 1,
    "t5_cross_bias": 6,
}
#: The kinds that stand for all where a test takes long.
FEW = ("albert_unilm", "t5")


def writer(name):
    """The line of the table with this name."""
    return WRITERS[NAMES.index(name)]


each = pytest.mark.parametrize("one", WRITERS, ids=str)
#: For the default run: of each way to treat positions, padding and blocks one.
MAIN = (
    "bert_residual_unilm",
    "bert_positions_mask_unilm",
    "bert_condition_unilm",
    "albert_groups_unilm",
    "roberta_lm",
    "nezha_unilm",
    "roformer_positions_unilm",
    "gau_alpha_unilm",
    "t5_cross_bias",
    FEW[0],
)
#: Those of them that other backends try too.
ELSEWHERE = ("nezha_unilm", "gau_alpha_unilm", "t5_cross_bias", FEW[0])


def _marks(name):
    if name not in MAIN:
        return pytest.mark.slow
    return pytest.mark.backends if name in ELSEWHERE else ()


main_and_slow = pytest.mark.parametrize(
    "one", [pytest.param(w, marks=_marks(w.name)) for w in WRITERS], ids=str
)
#: One kind by default, the other too with more time.
FEW_NAMES = (FEW[0], *(pytest.param(name, marks=pytest.mark.slow) for name in FEW[1:]))
few = pytest.mark.parametrize(
    "one",
    [pytest.param(writer(n), marks=() if n == FEW[0] else pytest.mark.slow) for n in FEW],
    ids=str,
)


def fill(model, seed=0):
    """Random weights, large enough that a text depends on every token before it."""
    rng = np.random.default_rng(seed)
    for weight in sorted(model.weights, key=lambda weight: weight.path):
        shape, last = tuple(weight.shape), weight.path.rpartition("/")[2]
        if last in ("gamma", "scale"):
            values = rng.normal(1.0, 0.2, shape)
        elif len(shape) < 2:
            values = rng.normal(0.0, 0.02, shape)
        elif "embedding" in last:
            values = rng.normal(0.0, 0.8 if "Token" in weight.path else 0.3, shape)
        elif weight.path.endswith(("gamma_dense/kernel", "beta_dense/kernel")):
            values = rng.normal(0.0, 0.1, shape)
        else:
            values = rng.normal(0.0, GAIN / np.sqrt(shape[0]), shape)
        weight.assign(values)
    return model


def random_prompts(count, seed=0, longest=24, low=1):
    """Prompts of mixed length; none has an id that is padding somewhere (0 and 1)."""
    rng = np.random.default_rng([seed, 3])
    lengths = rng.integers(low, longest + 1, count)
    return [rng.integers(2, VOCABULARY, n).tolist() for n in lengths]

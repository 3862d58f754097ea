"""Ids that `keep_tokens` and `compound_tokens` cannot mean."""

import pytest

from fixtures import make_arrays, tiny_config
from harness import refused
from kerasbert import build_transformer_model
from kerasbert.errors import ConfigError

CONFIG = tiny_config("google_bert", num_hidden_layers=1)
ARRAYS = make_arrays("google_bert", CONFIG, 1)
NAN = float("nan")


def build(arrays=ARRAYS, config=CONFIG, **options):
    return build_transformer_model(config, arrays, verbose=0, **options)


@pytest.mark.parametrize(
    ("keep", "facts"),
    [
        ([0, 5, 100], ("keep_tokens", 100)),
        ([5, 0, 7], ("keep_tokens", 5, "[PAD]")),
        ([0, -1], ("keep_tokens", -1)),
        ([], ("keep_tokens", "[]")),
        ([0, 1.0], ("keep_tokens", 1.0)),
        ([0, True], ("keep_tokens", True)),
        ("0 5", ("keep_tokens", "0 5")),
        (5, ("keep_tokens", 5)),
    ],
)
@pytest.mark.parametrize("with_file", [True, False])
def test_wrong_keep_tokens(keep, facts, with_file):
    with refused(ConfigError, *facts):
        build_transformer_model(
            CONFIG,
            ARRAYS if with_file else None,
            keep_tokens=keep,
        )


def test_keep_tokens_twice():
    kept = [0, 50, 7, 3]
    arrays = dict(ARRAYS)
    for name in ("bert/embeddings/word_embeddings", "cls/predictions/output_bias"):
        arrays[name] = arrays[name][kept]
    for vocab_size in (4, 100):
        with refused(ConfigError, "keep_tokens", 50, "4 rows", "already"):
            config = {**CONFIG, "vocab_size": vocab_size}
            build(arrays, config, keep_tokens=kept)


@pytest.mark.parametrize(
    "compound",
    [
        [[100]],
        [[-1]],
        [[]],
        [5],
        5,
        "ab",
        [([1, 2], [1.0])],
        [([1, 2], 3)],
        [([1, 2], [1.0, -1.0])],
        [([1], [NAN])],
        [([1, 2], ["a", "b"])],
        [[1, 2.5]],
        [None],
    ],
    ids=str,
)
def test_wrong_compound_tokens(compound):
    with refused(ConfigError, "compound_tokens"):
        build(compound_tokens=compound)


def test_compound_tokens_count_rows_after_keep_tokens():
    assert build(keep_tokens=[0, 9, 8], compound_tokens=[[2]]).count_params()
    with refused(ConfigError, "compound_tokens", 3, "3 rows"):
        build(keep_tokens=[0, 9, 8], compound_tokens=[[3]])


@pytest.mark.parametrize(
    ("kept", "fact"),
    [({0, 7, 3}, "list"), ([0, 7, 3, 7], "7 more than once"), (frozenset([0]), "list")],
)
def test_tokens_without_order_or_twice(kept, fact):
    with refused(ConfigError, "keep_tokens", fact):
        build(ARRAYS, CONFIG, keep_tokens=kept)

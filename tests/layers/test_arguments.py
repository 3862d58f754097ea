"""Arguments that no layer can mean."""

import numpy as np
import pytest

from harness import refused
from kerasbert.errors import ConfigError
from kerasbert.layers import (
    ConditionalRandomField,
    Embedding,
    MaximumEntropyMarkovModel,
    MultiHeadAttention,
    PositionEmbedding,
    ResidualFeedForward,
    SelfAttention,
)

H, INNER = 32, 64


@pytest.mark.parametrize("heads", [3, 0, -4, 64, 2.0, "4", None])
def test_wrong_number_of_heads(heads):
    with refused(ConfigError, "heads", repr(heads)):
        SelfAttention(heads).build((None, None, H))


@pytest.mark.parametrize("value", [0, -1, "64", None, 6.5])
def test_wrong_units(value):
    # Keras' own sentence will do where it names argument and value.
    with pytest.raises(ValueError, match=f"units.*{value}"):
        ResidualFeedForward(value, "relu").build((None, None, H))


@pytest.mark.parametrize("value", [-0.1, 1.5])
def test_wrong_rates(value):
    with pytest.raises(ValueError, match=f"rate.*{value}"):
        ResidualFeedForward(INNER, "relu", rate=value).build((None, None, H))
    with pytest.raises(ValueError, match=f"rate.*{value}"):
        SelfAttention(4, attention_dropout=value).build((None, None, H))


def test_wrong_activation():
    with refused(ConfigError, "gelu_tanh", "gelu_erf"):
        ResidualFeedForward(INNER, "gelu")
    with refused(ConfigError, "'relo'", "relu"):
        ResidualFeedForward(INNER, "relo")
    with refused(ConfigError, "7"):
        ResidualFeedForward(INNER, 7)


def test_wrong_mode():
    with pytest.raises(ValueError, match=r"mode='bag'"):
        Embedding(20, H)(np.array([[3]]), mode="bag")


def test_more_positions_than_the_table_has():
    with refused(ConfigError, "9", "8", "max_position_embeddings", "maxlen"):
        PositionEmbedding(8)(np.zeros((1, 9, H), "float32"))


@pytest.mark.parametrize("rows", [0, -3, "8"])
def test_wrong_number_of_positions(rows):
    with pytest.raises(ValueError, match=str(rows)):
        PositionEmbedding(rows).build((None, None, H))


def test_inputs_that_are_no_list():
    x = np.zeros((2, 3, 8), "float32")
    for inputs in (x, [x, x]):
        with refused(ConfigError, "queries, keys and values"):
            MultiHeadAttention(2, 4)(inputs)


@pytest.mark.parametrize(
    "layer",
    [
        ConditionalRandomField(),
        MaximumEntropyMarkovModel(),
        MaximumEntropyMarkovModel(hidden_dim=2),
    ],
    ids=["crf", "memm", "memm of factors"],
)
def test_labels_before_the_first_call(layer):
    scores = np.zeros((2, 5, 3), "float32")
    for use in (layer.decode, lambda scores: layer.log_likelihood(scores, scores[..., 0])):
        with refused(ConfigError, "no transitions yet"):
            use(scores)


@pytest.mark.parametrize(
    ("form", "shape"),
    [("sparse", (2, 4)), ("sparse", (2, 5, 3)), ("dense", (2, 5)), ("dense", (2, 5, 4))],
)
def test_labels_of_another_form(form, shape):
    crf = ConditionalRandomField()
    scores = crf(np.zeros((2, 5, 3), "float32"))
    with refused(ConfigError, shape, "sparse_loss", "dense_loss"):
        getattr(crf, f"{form}_loss")(np.zeros(shape, "int32"), scores)

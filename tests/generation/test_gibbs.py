"""Gibbs sampling: against the exact limit of the chain, over all texts of a small vocabulary."""

from itertools import product

import numpy as np
import pytest
from masked_models import SPECIAL, TOKENS, make_model, make_tokenizer, probabilities

from kerasbert.errors import ConfigError, TokenizerError
from kerasbert.generation import gibbs_sample

LETTERS = ["甲", "乙", "丙"]
SMALL = SPECIAL + LETTERS
FIRST = len(SPECIAL)
CHAINS = 2000


@pytest.fixture(scope="module")
def small():
    """A model whose tokens depend on each other, and the tokenizer of three letters."""
    model = make_model(vocab_size=len(SMALL), deviation=0.6, seed=4)
    return model, make_tokenizer(SMALL)


def conditionals(model, texts, place, temperature=1.0, keep=None):
    """p(letter at the place | the rest) for each text: array (T, letters), by the whole model."""
    head, mask, tail = (SMALL.index(t) for t in ("[CLS]", "[MASK]", "[SEP]"))
    rows = np.array([[head, *(FIRST + np.array(text)), tail] for text in texts])
    rows[:, 1 + place] = mask
    found = probabilities(model, rows, np.zeros_like(rows))[:, 1 + place, FIRST:]
    found = found.astype("float64") ** (1 / temperature)
    if keep is not None:
        found[found < np.sort(found, axis=-1)[:, -keep][:, None]] = 0
    return found / found.sum(axis=-1, keepdims=True)


def kernel(model, length, place, **options):
    """Transition matrix over all texts of a step at one place."""
    texts = list(product(range(len(LETTERS)), repeat=length))
    number = {text: i for i, text in enumerate(texts)}
    chances = conditionals(model, texts, place, **options)
    matrix = np.zeros((len(texts), len(texts)))
    for text, row, chance in zip(texts, matrix, chances, strict=True):
        for letter, share in enumerate(chance):
            row[number[(*text[:place], letter, *text[place + 1 :])]] += share
    return matrix


def limit_of(matrix):
    """The stationary distribution of a transition matrix."""
    found = np.linalg.matrix_power(matrix, 4096)[0]
    np.testing.assert_allclose(found @ matrix, found, atol=1e-12)
    return found


def counts(samples, length):
    numbers = np.array([sample.ids for sample in samples]) - FIRST
    assert numbers.min() >= 0, "a special token was drawn"
    numbers = numbers @ (len(LETTERS) ** np.arange(length)[::-1])
    return np.bincount(numbers, minlength=len(LETTERS) ** length)


def assert_drawn_from(found, expected):
    """Chi-square, of which one run in 10,000 is larger, and total variation."""
    share, enough = found / found.sum(), expected * found.sum() >= 5
    assert not found[expected == 0].any()
    pooled = [*found[enough], found[~enough].sum()]
    wanted = [*expected[enough], expected[~enough].sum()]
    pairs = [(f, w * found.sum()) for f, w in zip(pooled, wanted, strict=True) if w > 0]
    degrees = len(pairs) - 1
    chi = sum((f - w) ** 2 / w for f, w in pairs)
    # Wilson and Hilferty's approximation of the quantile.
    bound = degrees * (1 - 2 / (9 * degrees) + 3.72 * np.sqrt(2 / (9 * degrees))) ** 3
    assert chi < bound
    assert np.abs(share - expected).sum() / 2 < np.sqrt(len(found) / found.sum())


@pytest.mark.parametrize("length", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("order", ["random", "left-to-right"])
def test_the_chain_has_the_limit_of_its_transition_matrix(order, length, small):
    kernels = [kernel(small[0], length, place) for place in range(length)]
    matrix = np.mean(kernels, axis=0)
    if order == "left-to-right":
        matrix = np.linalg.multi_dot(kernels)
    expected = limit_of(matrix)
    assert expected.max() > 2 / len(expected), "a limit that is no uniform distribution"
    found = gibbs_sample(
        *small,
        length=length,
        steps=8 * length,
        order=order,
        num_samples=CHAINS,
        batch_size=CHAINS,
        seed=1,
    )
    assert_drawn_from(counts(found, length), expected)


@pytest.mark.parametrize(("temperature", "top_k"), [(0.5, None), (2.0, 2)])
def test_temperature_and_top_k_change_the_limit(temperature, top_k, small):
    options = {"temperature": temperature, "keep": top_k}
    matrix = np.mean([kernel(small[0], 2, place, **options) for place in range(2)], axis=0)
    start = np.full(len(matrix), 1 / len(matrix))
    # With top_k the chain may have more limits than one; from masks it reaches this.
    found = gibbs_sample(
        *small,
        length=2,
        steps=20,
        num_samples=CHAINS,
        batch_size=CHAINS,
        seed=2,
        temperature=temperature,
        top_k=top_k,
    )
    assert_drawn_from(counts(found, 2), start @ np.linalg.matrix_power(matrix, 400))


@pytest.mark.backends
def test_a_prompt_stays_and_conditions_the_rest(small):
    head = SMALL.index("乙") - FIRST
    expected = conditionals(small[0], [(head, 0)], 1)[0]
    found = gibbs_sample(
        *small, "乙[MASK]", 1, fixed="text", num_samples=CHAINS, batch_size=CHAINS, seed=3
    )
    assert {sample.tokens[0] for sample in found} == {"乙"}
    assert_drawn_from(np.bincount([s.ids[1] - FIRST for s in found], minlength=3), expected)
    numbered = gibbs_sample(*small, "乙甲", 1, fixed=[0], num_samples=9, seed=3)
    again = gibbs_sample(*small, "乙[MASK]", 1, fixed="text", num_samples=9, seed=3)
    assert numbered == again


def test_argmax_after(small):
    first = {gibbs_sample(*small, length=3, steps=40, argmax_after=10, seed=s)[0] for s in range(2)}
    for sample in first:
        text = [tuple(np.array(sample.ids) - FIRST)]
        for place in range(3):
            assert text[0][place] == conditionals(small[0], text, place)[0].argmax()
    greedy = [
        gibbs_sample(*small, length=3, steps=9, order="left-to-right", argmax_after=0, seed=s)
        for s in range(3)
    ]
    assert greedy[0] == greedy[1] == greedy[2]


def test_seed_order_and_top_p(small):
    def run(**options):
        return gibbs_sample(*small, length=3, steps=6, num_samples=20, **options)

    assert run(seed=5) == run(seed=5) != run(seed=6)
    greedy = run(seed=5, order="left-to-right", argmax_after=0)
    # The fewest tokens with so small a share are the best one alone.
    assert run(seed=7, order="left-to-right", top_p=1e-6) == greedy
    assert run(seed=7, order="left-to-right", top_k=1) == greedy


def test_special_tokens_are_never_drawn():
    model = make_model()
    bias = np.zeros(len(TOKENS))
    bias[: len(SPECIAL)] = 50
    model.get_layer("MLM-Bias").bias.assign(bias)
    found = gibbs_sample(model, make_tokenizer(), length=5, steps=20, num_samples=8, seed=0)
    drawn = {token for sample in found for token in sample.tokens} - {"[MASK]"}
    assert drawn and not drawn & set(SPECIAL)
    assert all(len(sample.ids) == 5 for sample in found)
    assert all(set(s.text) - set("[MASK] ") for s in found)


def test_a_text_without_masks_changes_everywhere():
    found = gibbs_sample(make_model(), make_tokenizer(), "今天天气", 60, num_samples=6, seed=1)
    changed = np.array([s.tokens for s in found]) != np.array(list("今天天气"))
    assert changed.any(axis=0).all()
    assert found[0].text != "今天天气"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "Expected one of them"),
        ({"text": "甲", "length": 3}, "Expected one of them"),
        ({"length": 0}, "length=0"),
        ({"length": 23}, "25 tokens"),
        ({"text": "甲" * 23}, "25 tokens"),
        ({"text": ""}, "no token of the text may change"),
        ({"text": "甲乙", "fixed": "text"}, "no token of the text may change"),
        ({"text": "甲乙", "fixed": [0, 1]}, "no token of the text may change"),
        ({"text": "甲乙", "fixed": [2]}, "from 0 to 1"),
        ({"text": "甲乙", "fixed": [-1]}, "fixed=-1"),
        ({"text": "甲乙", "fixed": 1}, r"pass \[1\]"),
        ({"text": "甲乙", "fixed": "txet"}, "Did you mean 'text'"),
        ({"length": 2, "fixed": "text"}, "together with a text"),
        ({"length": 2, "steps": 0}, "steps=0"),
        ({"length": 2, "num_samples": 0}, "num_samples=0"),
        ({"length": 2, "batch_size": 0}, "batch_size=0"),
        ({"length": 2, "argmax_after": -1}, "argmax_after=-1"),
        ({"length": 2, "order": "randon"}, "Did you mean 'random'"),
        ({"length": 2, "temperature": 0}, "temperature=0"),
        ({"length": 2, "top_k": 0}, "top_k=0"),
        ({"length": 2, "top_p": 1.5}, "top_p=1.5"),
        ({"length": 2, "seed": "a"}, "seed='a'"),
    ],
)
def test_refusals(arguments, words, small):
    with pytest.raises(ConfigError, match=words):
        gibbs_sample(*small, **{"steps": 1, **arguments})


def test_refusals_of_kinds(small):
    with pytest.raises(TokenizerError, match="text is 3"):
        gibbs_sample(*small, 3, 1)
    with pytest.raises(ConfigError, match="application='lm'"):
        gibbs_sample(make_model(application="lm"), make_tokenizer(), "甲", 1)

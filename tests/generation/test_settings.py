"""The arguments of a search: what is refused, and what is made of the rest."""

import numpy as np
import pytest

from kerasbert.errors import ConfigError
from kerasbert.generation.settings import SearchSettings

NAN, INFINITE = float("nan"), float("inf")
WRONG = [
    ({"method": "beem"}, "Did you mean 'beam'"),
    ({"method": None}, "method=None"),
    ({"beam_size": 4}, "Expected method='beam'"),
    ({"method": "sample", "beam_size": 4}, "Expected method='beam'"),
    ({"length_penalty": 1.0}, "Expected method='beam'"),
    ({"length_penalty": NAN}, "length_penalty=nan"),
    ({"method": "beam", "length_penalty": INFINITE}, "finite number"),
    ({"method": "beam", "length_penalty": None}, "finite number"),
    ({"method": "beam", "length_penalty": "1"}, "of type str"),
    ({"method": "beam", "beam_size": 0}, "beam_size=0"),
    ({"method": "beam", "beam_size": 2.0}, "of type float"),
    ({"method": "beam", "beam_size": 2, "num_return": 3}, "Take beam_size=3"),
    ({"method": "beam", "num_return": 5}, "beam_size=4"),
    ({"method": "beam", "seed": 1}, "Expected method='sample'"),
    ({"method": "beam", "top_k": 3}, "Expected method='sample'"),
    ({"top_p": 0.9}, "Expected method='sample'"),
    ({"temperature": 0.5}, "Expected method='sample'"),
    ({"seed": 0}, "Expected method='sample'"),
    ({"num_return": 2}, "a single text"),
    ({"num_return": 0}, "num_return=0"),
    ({"method": "sample", "temperature": 0}, "temperature=0"),
    ({"method": "sample", "temperature": -1.0}, "above 0"),
    ({"method": "sample", "temperature": True}, "of type bool"),
    ({"method": "sample", "temperature": NAN}, "finite number"),
    ({"method": "sample", "top_p": 0.0}, "at most 1"),
    ({"method": "sample", "top_p": 1.1}, "at most 1"),
    ({"method": "sample", "top_p": NAN}, "top_p=nan"),
    ({"method": "sample", "top_k": 0}, "top_k=0"),
    ({"method": "sample", "top_k": True}, "of type bool"),
    ({"method": "sample", "seed": -1}, "seed=-1"),
    ({"method": "sample", "seed": 1.5}, "seed=1.5"),
    ({"repetition_penalty": 0.0}, "above 0"),
    ({"repetition_penalty": -1.2}, "above 0"),
    ({"repetition_penalty": INFINITE}, "finite number"),
    ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size=-1"),
    ({"no_repeat_ngram_size": None}, "no_repeat_ngram_size=None"),
    ({"min_length": -1, "end_id": 1}, "min_length=-1"),
    ({"min_length": 9, "end_id": 1}, "more than max_new_tokens=8"),
    ({"min_length": 2}, "without end_id"),
    ({"max_new_tokens": 0}, "max_new_tokens=0"),
    ({"max_new_tokens": True}, "of type bool"),
    ({"end_id": -1}, "end_id=-1"),
    ({"end_id": True}, "end_id=True"),
    ({"end_id": 1.0}, "end_id=1.0"),
    ({"end_id": "[SEP]"}, r"tokenizer\.token_to_id"),
    ({"end_id": []}, "Expected a token id"),
    ({"end_id": [3, -2]}, "holds -2"),
    ({"end_id": [3, False]}, "holds False"),
    ({"end_id": [[3]]}, "end_id="),
    ({"allowed_tokens": [1, 2]}, "cannot be called"),
]


@pytest.mark.parametrize(("given", "message"), WRONG, ids=[str(given) for given, _ in WRONG])
def test_what_is_refused(given, message):
    with pytest.raises(ConfigError, match=message) as caught:
        SearchSettings(**{"max_new_tokens": 8, **given})
    assert "Expected" in str(caught.value)


@pytest.mark.parametrize(
    ("end_id", "ends"),
    [(None, ()), (3, (3,)), (np.int32(3), (3,)), ([5, 3, 5], (3, 5)), ({4}, (4,))]
    + [(np.array([7, 2]), (2, 7)), (range(2), (0, 1)), (iter([1]), (1,))],
)
def test_end_tokens(end_id, ends):
    assert SearchSettings(5, end_id=end_id).end_ids == ends


def test_end_tokens_have_to_be_in_the_vocabulary():
    settings = SearchSettings(5, end_id=[2, 9])
    settings.check_vocabulary(10)
    with pytest.raises(ConfigError, match="end_id=9 for a model that predicts 9 tokens"):
        settings.check_vocabulary(9)


def test_number_of_slots():
    assert SearchSettings(5).slots == 1
    assert SearchSettings(5, "beam").slots == 4
    assert SearchSettings(5, "beam", beam_size=7, num_return=2).slots == 7
    assert SearchSettings(5, "sample", num_return=3).slots == 3


def test_values_that_change_nothing_are_welcome_everywhere():
    nothing = {"temperature": 1, "length_penalty": 0, "top_k": None, "seed": None}
    for method in ("greedy", "beam", "sample"):
        SearchSettings(5, method, min_length=0, **nothing)
    SearchSettings(5, "sample", top_p=1, top_k=10**6, temperature=np.float32(0.5), seed=0)

"""Words whose order was changed: which, how, and that it is learnt."""

import keras
import numpy as np
import pytest
from batches_of_masks import (
    CLS,
    MASK,
    QUICK,
    SEP,
    batch,
    built,
    cross_entropy,
    masked_mean,
    steps_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import refused, to_numpy
from kerasbert.errors import ConfigError
from kerasbert.pretraining import (
    compile_objectives,
    masked_lm_model,
    shuffle_words,
    shuffled_batches,
)

SPECIAL = [CLS, SEP, MASK]


def shuffled(data, seed=0, **options):
    return shuffle_words(data, np.random.default_rng(seed), special_ids=SPECIAL, **options)


@given(
    seed=st.integers(0, 1000),
    length=st.integers(8, 40),
    share=st.sampled_from([0.05, 0.2, 0.6, 1.0]),
    size=st.integers(2, 4),
)
@settings(max_examples=60)
def test_what_holds_for_every_batch(seed, length, share, size):
    x, y, w = batch(seed, rows=3, length=length, places=2)
    copies = [{name: value.copy() for name, value in part.items()} for part in (x, y, w)]
    new, target, weights = shuffled((x, y, w), seed, share=share, size=size)
    for part, copy in zip((x, y, w), copies, strict=True):
        for name, value in copy.items():
            np.testing.assert_array_equal(part[name], value)
    places, real = new["word_order_positions"], weights["word_order"] > 0
    assert places.shape == target["word_order"].shape == real.shape
    assert places.shape[1] == max(round(share * length / size), 1) * size
    for row in range(3):
        chosen = places[row][real[row]]
        assert len(set(chosen)) == len(chosen) and len(chosen) % size == 0
        units = chosen.reshape(-1, size)
        assert (np.diff(units, axis=1) == 1).all()
        segments = x["segment_ids"][row][units]
        assert (segments == segments[:, :1]).all()
        text = x["input_ids"][row]
        assert not np.isin(text[chosen], [0, *SPECIAL]).any()
        masked = x["masked_lm_positions"][row][w["masked_lm"][row] > 0]
        assert not set(masked) & set(chosen)
        # Put back, it is the text; and each unit has its own tokens in another order.
        assert (target["word_order"][row][real[row]] == text[chosen]).all()
        again = new["input_ids"][row].copy()
        again[chosen] = target["word_order"][row][real[row]]
        np.testing.assert_array_equal(again, text)
        for unit in units:
            assert sorted(new["input_ids"][row][unit]) == sorted(text[unit])
            if len(set(text[unit])) == size:
                assert (new["input_ids"][row][unit] != text[unit]).any()
    assert not places[~real].any() and not target["word_order"][~real].any()


def test_the_share_and_the_orders_are_as_asked_for():
    x, y, w = batch(0, rows=400, length=128, places=3)
    new, _, weights = shuffled((x, y, w))
    moved = weights["word_order"].sum(1)
    wanted = 3 * np.maximum(np.rint(0.05 * x["input_mask"].sum(1) / 3), 1)
    assert (moved == wanted).mean() > 0.9 and (moved <= wanted).all()
    starts = new["word_order_positions"][:, ::3][weights["word_order"][:, ::3] > 0]
    assert np.histogram(starts, 4, (0, 128))[0].min() > 10
    first = x["input_ids"][0]
    assert (new["input_ids"][0] != first).sum() in (4, 5, 6)


def test_a_batch_is_shuffled_alike_whichever_was_the_first():
    data = [batch(seed) for seed in range(4)]
    whole = list(shuffled_batches(data, special_ids=SPECIAL, seed=5))
    later = list(shuffled_batches(data[2:], special_ids=SPECIAL, seed=5, start=2))
    for one, other in zip(whole[2:], later, strict=True):
        for a, b in zip(one, other, strict=True):
            for name in a:
                np.testing.assert_array_equal(a[name], b[name])
    assert (whole[0][0]["input_ids"] != data[0][0]["input_ids"]).any()


@pytest.mark.backends
def test_its_loss_is_that_of_the_same_head():
    model = masked_lm_model(built(), word_order=True)
    compile_objectives(model, keras.optimizers.SGD(0.1), **QUICK)
    data = x, y, w = shuffled(batch(1, length=14), share=0.4)
    out = {name: to_numpy(value) for name, value in model(x).items()}
    logs = model.test_on_batch(*data, return_dict=True)
    expected = masked_mean(cross_entropy(out["word_order"], y["word_order"]), w["word_order"])
    np.testing.assert_allclose(float(logs["word_order_loss"]), expected, atol=1e-4)
    plain = masked_lm_model(built())
    at_them = {**x, "masked_lm_positions": x["word_order_positions"]}
    at_them.pop("word_order_positions")
    np.testing.assert_allclose(to_numpy(plain(at_them)["masked_lm"]), out["word_order"], atol=1e-5)
    model.reset_metrics()
    first = steps_of(model, data)[0]
    steps_of(model, data, 2)
    model.reset_metrics()
    last = model.test_on_batch(*data, return_dict=True)
    assert float(last["word_order_loss"]) < float(first["word_order_loss"])


def test_refusals():
    data = batch()
    for options, fact in (({"share": 0}, "share=0"), ({"size": 1}, "size=1")):
        with refused(ConfigError, fact):
            shuffled(data, **options)
    with refused(ConfigError, "10 tokens", "at least 11"):
        shuffled(data, size=11)

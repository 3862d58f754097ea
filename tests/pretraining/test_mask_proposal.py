"""A small model proposes the masks of a large one."""

import keras
import numpy as np
import pytest
from batches_of_masks import (
    MASK,
    QUICK,
    batch,
    built,
    cross_entropy,
    masked_mean,
    steps_of,
)

from fixtures import read_checkpoint
from harness import refused, saved_and_loaded, to_numpy
from kerasbert.errors import ConfigError
from kerasbert.pretraining import (
    compile_objectives,
    for_model,
    mask_proposal_model,
    save_towers,
    small_generator,
)

BATCH = batch(places=4, length=14)


def proposing(rate=0.5, share=0.5, loss_weights=None, **options):
    model = built(**options)
    keras.utils.set_random_seed(4)
    generator = small_generator(model, 0.5, layers=1)
    proposal = mask_proposal_model(model, generator, share=share, seed=3)
    compile_objectives(proposal, keras.optimizers.SGD(rate), loss_weights=loss_weights, **QUICK)
    return proposal


def fitted(model):
    (data,) = for_model(model, [BATCH])
    return data


@pytest.mark.backends
def test_tokens_whose_mask_is_not_kept_are_given_back():
    model = proposing()
    x, _, w = fitted(model)
    look = keras.Model(model.input, [model.get_layer("Give-Back").output, model.output["kept"]])
    counts = w["masked_lm"].sum(1)
    for _ in range(5):
        tokens, kept = (to_numpy(value) for value in look(x))
        assert not kept[w["masked_lm"] == 0].any()
        np.testing.assert_array_equal(kept.sum(1), np.maximum(np.rint(counts / 2), 1))
        text = x["input_ids"].copy()
        for row, column in zip(*np.nonzero((w["masked_lm"] > 0) & (kept == 0)), strict=True):
            text[row, x["masked_lm_positions"][row, column]] = x["masked_lm_ids"][row, column]
        np.testing.assert_array_equal(tokens, text)
        assert (tokens == MASK).sum() == kept.sum()


@pytest.mark.backends
def test_losses_are_those_of_plain_numpy():
    model = proposing()
    x, y, w = fitted(model)
    seeds = model.get_layer("Keep-Hardest").seed_generator.state
    start = np.array(keras.ops.convert_to_numpy(seeds.value))
    out = {name: to_numpy(value) for name, value in model(x).items()}
    seeds.assign(start)
    logs = model.test_on_batch(x, y, w, return_dict=True)
    small = masked_mean(cross_entropy(out["proposal"], y["masked_lm"]), w["masked_lm"])
    large = masked_mean(cross_entropy(out["masked_lm"], y["masked_lm"]), out["kept"])
    sentence = cross_entropy(out["next_sentence"], y["next_sentence"]).mean()
    np.testing.assert_allclose(float(logs["proposal_loss"]), small, atol=1e-4)
    np.testing.assert_allclose(float(logs["masked_lm_loss"]), large, atol=1e-4)
    np.testing.assert_allclose(float(logs["loss"]), small + large + sentence, atol=3e-4)


def test_the_small_model_learns_by_its_own_loss_alone():
    model = proposing(loss_weights={"proposal": 0.0})
    before = {w.path: to_numpy(w) for w in model.trainable_weights}
    steps_of(model, fitted(model))
    moved = {w.path: np.abs(to_numpy(w) - before[w.path]).max() for w in model.trainable_weights}
    own = {path for path in moved if path.startswith("Generator-")}
    assert len(own) > 15 and not any(moved[path] for path in own)
    assert moved["Embedding-Token/embeddings"] > 0


def test_only_the_large_model_is_written_in_the_form_of_google(tmp_path):
    model = proposing()
    names = set(read_checkpoint(save_towers(model, tmp_path / "model.ckpt")["checkpoint"]))
    assert "cls/predictions/output_bias" in names
    assert not any("generator" in name for name in names)
    again = saved_and_loaded(model, tmp_path)
    assert [w.path for w in again.weights] == [w.path for w in model.weights]


def test_it_learns():
    model = proposing(rate=0.05)
    data = fitted(model)
    first = steps_of(model, data)[0]
    steps_of(model, data, 3)
    model.reset_metrics()
    last = model.test_on_batch(*data, return_dict=True)
    for name in ("proposal_loss", "masked_lm_loss"):
        assert float(last[name]) < float(first[name])


def test_refusals():
    model = built()
    generator = small_generator(model, 0.5)
    with refused(ConfigError, "share=0"):
        mask_proposal_model(model, generator, share=0)
    with refused(ConfigError, "prefix"):
        mask_proposal_model(model, model)
    with refused(ConfigError, "with_mlm=True"):
        mask_proposal_model(built(with_mlm=False), generator)

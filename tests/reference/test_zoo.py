"""The references of ``zoo``: what must hold of them whatever the numbers are."""

import numpy as np
import pytest

from fixtures import random_batch
from reference.zoo import run
from reference.zoo_t5 import LAYOUTS
from reference.zoo_weights import FAMILIES, NARROW_TABLES, zoo_arrays, zoo_config, zoo_shapes

CAUSAL = ("gpt", "gpt2", "gpt2_ml")
NARROW = [(family, {"embedding_size": 12}) for family in NARROW_TABLES]
CASES = [(family, {}) for family in FAMILIES] + NARROW
each_case = pytest.mark.parametrize(
    ("family", "sizes"), CASES, ids=[f"{f}-narrow" if s else f for f, s in CASES]
)


def inputs_for(family, batch=3, length=9, seed=0):
    """Ids and segments; for T5 the decoder's ids, which begin with 0, in their place."""
    rng = np.random.default_rng(seed)
    ids, segments = random_batch(rng, 60, batch, length)
    if family in LAYOUTS:
        segments, _ = random_batch(rng, 60, batch, 7)
        segments[:, 0] = 0
    return ids, segments


def states_of(out):
    """Every hidden state and every head that has positions: {name: [B, S, ...]}."""
    found = {}
    for name, value in out.items():
        if isinstance(value, list):
            found |= {f"{name}_{i}": state for i, state in enumerate(value)}
        elif value.ndim == 3:
            found[name] = value
    return found


def model_for(family, sizes=None, **options):
    config = zoo_config(family, **(sizes or {}))
    return config, zoo_arrays(family, config, **options)


# ---- every family ------------------------------------------------------------------------------


@each_case
def test_shapes_and_heads(family, sizes):
    config, arrays = model_for(family, sizes)
    ids, second = inputs_for(family)
    out = run(family, arrays, config, ids, second)
    for name, value in states_of(out).items():
        length = 7 if name.startswith(("decoder", "lm")) and family in LAYOUTS else 9
        wide = name in ("mlm", "mlm_logits", "lm", "lm_logits")
        assert value.shape == (3, length, 60 if wide else 24), name
        assert value.dtype == np.float64, name
    head = "lm" if "lm" in out else "mlm"
    np.testing.assert_allclose(out[head].sum(-1), 1.0)
    assert np.ptp(out[f"{head}_logits"]) < 30  # soft enough to show small mistakes


@each_case
def test_every_variable_plays_a_part(family, sizes):
    config, arrays = model_for(family, sizes | {"num_hidden_layers": 2})
    ids, second = inputs_for(family, batch=1)
    before = run(family, arrays, config, ids, second)
    rng = np.random.default_rng(1)
    for name, value in arrays.items():
        noise = 0.3 * rng.standard_normal(value.shape)
        after = run(family, arrays | {name: value + noise}, config, ids, second)
        heads = [key for key in before if not isinstance(before[key], list)]
        moved = max(np.abs(after[key] - before[key]).max() for key in heads)
        is_key_bias = name.endswith(("key/bias", "key_layer/bias"))
        # A softmax cancels a key's bias, unless positions turn it.
        assert (moved > 1e-6) != (is_key_bias and family != "roformer"), name


@each_case
def test_batch_and_padding_do_not_matter(family, sizes):
    config, arrays = model_for(family, sizes)
    ids, second = inputs_for(family)
    together = states_of(run(family, arrays, config, ids, second))
    for row in range(3):
        real = int((ids[row] != 0).sum())
        cut = second[[row]] if family in LAYOUTS else second[[row], :real]
        alone = run(family, arrays, config, ids[[row], :real], cut)
        for name, value in states_of(alone).items():
            part = together[name][row, : value.shape[1]]
            np.testing.assert_allclose(part, value[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("family", CAUSAL)
def test_no_token_sees_a_later_one(family):
    config, arrays = model_for(family)
    ids, segments = inputs_for(family)
    assert_causal(lambda i: states_of(run(family, arrays, config, i, segments)), ids)


def assert_causal(call, ids, at=5):
    changed = ids.copy()
    changed[:, at] = ids[:, at] % 59 + 1
    before, after = call(ids), call(changed)
    for name in before:
        np.testing.assert_array_equal(before[name][:, :at], after[name][:, :at])
    last = next(name for name in before if name.endswith("logits"))
    assert np.abs(before[last][0, at:] - after[last][0, at:]).max(-1).min() > 1e-6


def test_wrong_families_and_sizes_are_refused():
    with pytest.raises(ValueError, match="families"):
        zoo_config("bart")
    with pytest.raises(ValueError, match="as wide"):
        zoo_shapes("gpt", zoo_config("gpt", embedding_size=12))

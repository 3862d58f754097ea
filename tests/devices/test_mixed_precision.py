"""Every family under low precisions: padded rows, steps of training, integer ids."""

import keras
import numpy as np
import pytest

from devices.models import KINDS, batch, build, classifier, outputs
from harness import STEP_BY_STEP, WITHOUT_XLA, default_and_slow

POLICIES = ("mixed_float16", "mixed_bfloat16", "float16", "bfloat16")
# Every policy for one kind, and for every kind one of them in turn.
PAIRS = [("albert", policy) for policy in POLICIES]
PAIRS += [(k, POLICIES[n % 4]) for n, k in enumerate(KINDS) if k != "albert"]


@pytest.mark.parametrize(("kind", "policy"), default_and_slow(PAIRS, [("albert", "mixed_float16")]))
def test_numbers_of_a_policy_set_globally_and_for_a_model(kind, policy):
    exact = build(kind)
    inputs = batch(exact)
    expected = outputs(exact, inputs)
    values = exact.get_weights()
    found = []
    for globally in (True, False):
        if globally:
            keras.config.set_dtype_policy(policy)
        try:
            model = build(kind, **({} if globally else {"dtype": policy}))
        finally:
            keras.config.set_dtype_policy("float32")
        model.set_weights(values)
        assert {tensor.dtype for tensor in model.inputs} == {"int32"}
        found.append(outputs(model, inputs))
    tolerance = 0.16 if policy.endswith("bfloat16") else 0.02
    for both in zip(*found, expected, strict=True):
        largest = max(1.0, np.abs(both[-1]).max())
        for one in both[:-1]:
            assert np.isfinite(one).all()
            assert np.abs(one - both[-1]).max() <= tolerance * largest


@pytest.mark.parametrize(("kind", "policy"), default_and_slow(PAIRS, [("albert", "mixed_float16")]))
def test_steps_of_training(kind, policy, request):
    """Rows with no, some and nothing but padding; the loss stays finite and gets smaller."""
    # Groups have layers that share a block.
    fewer = {} if "groups" in kind else {"num_hidden_layers": 1}
    model = classifier(build(kind, dtype=policy, **fewer))
    optimizer = keras.optimizers.Adam(1e-3, epsilon=1e-4 if policy == "float16" else 1e-7)
    scaled = policy == "mixed_float16"
    optimizer = keras.optimizers.LossScaleOptimizer(optimizer) if scaled else optimizer
    # By default half of the steps, without tracing them.
    slow = request.node.get_closest_marker("slow")
    model.compile(optimizer, "mse", **(WITHOUT_XLA if slow else STEP_BY_STEP))
    inputs, target = batch(model), np.random.default_rng(1).normal(size=(4, 3))
    losses = [float(model.train_on_batch(inputs, target)) for _ in range(20 if slow else 10)]
    assert np.isfinite(losses).all() and losses[-1] < losses[0]
    assert all(np.isfinite(np.asarray(w, "float32")).all() for w in model.get_weights())
    if scaled:
        assert float(optimizer.dynamic_scale) > 1

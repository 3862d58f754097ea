"""Every update of the original programs, recorded from their own code: rates, clipping, decay.

``meta.json`` says what each case was run with. A row of an array holds all variables one after
the other: row 0 before the first step, then 12 rows of gradients, then 12 of results.
"""

import json

import keras
import numpy as np
import pytest

from fixtures import DATA
from kerasbert.optimizers import LAMB, AdamW, WarmupDecay

META = json.loads((DATA / "optimizer" / "meta.json").read_text("utf-8"))
GOLDEN = dict(np.load(DATA / "optimizer" / "golden.npz"))
#: Those of which all steps stand in the repository, the very numbers of `shared`.
FULL = [case for case in META if "shapes" in META[case]]
# The names that the originals leave out.
EXCLUDED = ["LayerNorm", "layer_norm", "bias"]


def schedule_of(case):
    meta = META[case]
    warmup = meta.get("num_warmup_steps", meta.get("warmup_steps", 0))
    if "warmup_proportion" in meta:
        warmup = max(warmup, round(meta["num_train_steps"] * meta["warmup_proportion"]))
    return WarmupDecay(
        meta["init_lr"],
        meta["num_train_steps"],
        warmup,
        power=meta.get("poly_power", 1.0),
        warmup="multiplies" if case.startswith("electra") else "replaces",
        start_warmup_step=meta.get("start_warmup_step", 0),
    )


def optimizer_of(case):
    arguments = {"exclude_from_weight_decay": EXCLUDED}
    if case == "albert_zh_lamb":
        arguments["exclude_from_layer_adaptation"] = []
    if case == "electra_adamw_layerwise":
        power, layers = META[case]["layerwise_lr_decay_power"], META[case]["n_transformer_layers"]
        depths = {"/embeddings/": 0, "/embeddings_project/": 0, "task_specific/": layers + 2}
        depths |= {f"encoder/layer_{i}/": i + 1 for i in range(layers)}
        arguments["multipliers"] = {k: power ** (layers + 2 - d) for k, d in depths.items()}
    return (LAMB if "lamb" in case else AdamW)(schedule_of(case), **arguments)


def make_variable(name, value):
    scope, _, last = name.rpartition("/")
    if not scope:
        return keras.Variable(value, name=last)
    with keras.name_scope(scope.replace("/", "__")):
        variable = keras.Variable(value, name=last)
    variable._path = name  # Keras' scopes allow no "/"
    return variable


def difference(case, shapes, init, grads, params):
    """The largest difference from the recorded values after any step."""
    variables = [make_variable(n, v) for n, v in zip(shapes, init, strict=True)]
    optimizer, worst = optimizer_of(case), 0.0
    for gradient, wanted in zip(grads, params, strict=True):
        optimizer.apply([keras.ops.convert_to_tensor(g) for g in gradient], variables)
        for variable, value in zip(variables, wanted, strict=True):
            got = keras.ops.convert_to_numpy(variable)
            worst = max(worst, float(np.abs(got - value).max()))
    return worst


@pytest.mark.backends
@pytest.mark.parametrize("case", FULL)
def test_every_step_is_the_originals(case):
    shapes = META[case]["shapes"]
    ends = np.cumsum([np.prod(shape) for shape in shapes.values()])[:-1]
    rows = [
        [part.reshape(shape) for part, shape in zip(parts, shapes.values(), strict=True)]
        for parts in (np.split(row, ends) for row in GOLDEN[case])
    ]
    assert difference(case, list(shapes), rows[0], rows[1:13], rows[13:]) < 1e-6


@pytest.mark.parametrize("case", [case for case in META if case not in FULL])
def test_every_step_is_the_originals_in_further_recordings(case, shared_dir):
    file = np.load(shared_dir / "golden" / "optimizer" / f"{case}.npz")
    names = [name[5:] for name in file.files if name.startswith("init/")]
    init, grads, params = ([file[f"{k}/{n}"] for n in names] for k in ("init", "grad", "param"))
    steps = [[list(values) for values in zip(*kind, strict=True)] for kind in (grads, params)]
    assert difference(case, names, init, *steps) < 1e-6


@pytest.mark.backends
@pytest.mark.parametrize("case", [case for case in META if f"rate_{case}" in GOLDEN])
def test_rates(case):
    schedule = schedule_of(case)
    rates = [float(schedule(step)) for step in range(12)]
    np.testing.assert_allclose(rates, GOLDEN[f"rate_{case}"], rtol=1e-5, atol=1e-8)

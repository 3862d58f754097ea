"""Low-rank adapters: no change at first, one for each use, trained alone, merged."""

import subprocess
import sys

import keras
import numpy as np
import pytest

from devices.models import KINDS, batch, build, classifier, difference, outputs
from harness import STEP_BY_STEP, default_and_slow, refused, silent, to_numpy
from kerasbert import (
    build_transformer_model,
    hidden_state,
    save_weights_as_checkpoint,
    unshare,
)
from kerasbert.adapters import add_lora, merge_lora
from kerasbert.adapters.sites import sites_of
from kerasbert.errors import ConfigError, KerasbertError, WeightMismatchError
from kerasbert.layers import GlobalPointer, LowRankAdapter
from kerasbert.models.view import find_encoder

ALL = ("query", "key", "value", "attention_output", "intermediate", "feed_forward_output")
QUICK = ("albert", "gau_alpha")
each_kind = pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=() if k in QUICK else pytest.mark.slow) for k in KINDS]
)


def adapters_of(model):
    """{(layer, dense, depth): adapter}"""
    return {
        (site.layer.name, name, depth): adapter
        for site in sites_of(find_encoder(model))
        for depth, name, adapter in site.adapters()
    }


def stir(model, seed=3):
    """Gives all adapters numbers, as training would."""
    rng = np.random.default_rng(seed)
    for adapter in adapters_of(model).values():
        for weight in adapter.weights:
            weight.assign(rng.normal(0, 0.2, weight.shape))
    return model


def targets_of(kind):
    return ("i_dense", "o_dense") if kind == "gau_alpha" else ALL


@each_kind
def test_every_family(kind, tmp_path):
    model = build(kind)
    inputs = batch(model)
    lora = silent(add_lora, model, 2, targets=targets_of(kind), train_heads=False, verbose=0)
    before = outputs(model, inputs)
    assert difference(outputs(lora, inputs), before) == 0
    names = {weight.path.rpartition("/")[2] for weight in lora.trainable_weights}
    assert names == {"lora_a", "lora_b"}
    assert len(lora.trainable_weights) == 2 * len(adapters_of(lora))
    stir(lora)
    found = outputs(lora, inputs)
    assert difference(found, before) > 0.02
    merged = silent(merge_lora, lora)
    assert difference(outputs(merged, inputs), found) < 2e-5
    assert not adapters_of(merged)
    assert difference(outputs(model, inputs), before) == 0, "the model itself is left alone"
    silent(lora.save, tmp_path / "model.keras")
    again = silent(keras.models.load_model, tmp_path / "model.keras")
    assert difference(outputs(again, inputs), found) == 0
    assert [w.path for w in again.trainable_weights] == [w.path for w in lora.trainable_weights]


@pytest.mark.backends
@pytest.mark.parametrize("kind", default_and_slow(["albert", "albert groups"], ["albert"]))
def test_each_use_of_a_shared_block_has_its_own(kind):
    """Against an un-shared model whose kernels are filled by hand, in float64."""
    model = build(kind)
    inputs = batch(model)
    lora = stir(add_lora(model, 3, alpha=6, targets=ALL, verbose=0))
    by_hand = unshare(model)
    for site in sites_of(find_encoder(lora)):
        for depth, name, adapter in site.adapters():
            own = find_encoder(by_hand).part_names(site.part)[depth]
            dense = {part.name: part for part in by_hand.get_layer(own)._flatten_layers()}[name]
            a, b = (to_numpy(w).astype("float64") for w in (adapter.a, adapter.b))
            dense.kernel.assign(to_numpy(dense.kernel) + 6 / 3 * a @ b)
    assert difference(outputs(lora, inputs), outputs(by_hand, inputs)) < 1e-5
    merged = merge_lora(lora)
    for one, other in zip(merged.weights, by_hand.weights, strict=True):
        assert one.path == other.path
        np.testing.assert_allclose(to_numpy(one), to_numpy(other), atol=1e-6)


def test_an_adapter_works_at_its_depth_only():
    model = build("albert", hidden_states=True, num_hidden_layers=3)
    lora = add_lora(model, 2, layers=[1], verbose=0)
    assert {depth for _, _, depth in adapters_of(lora)} == {1}
    states = keras.Model(lora.inputs, [hidden_state(lora, k) for k in range(4)])
    before = outputs(states, batch(model))
    stir(lora)
    after = outputs(states, batch(model))
    changed = [np.abs(a - b).max() > 0 for a, b in zip(after, before, strict=True)]
    assert changed == [False, False, True, True]
    # Merging un-shares the part with adapters alone.
    merged = merge_lora(lora)
    names = [layer.name for layer in merged.layers]
    assert sum(name.endswith("SelfAttention") for name in names) == 3
    assert sum(name.endswith("FeedForward") for name in names) == 1


def test_merging_what_is_partly_unshared():
    model = unshare(build("albert"), "feed_forward", [0])
    lora = stir(add_lora(model, 2, verbose=0))
    merged = merge_lora(lora)
    inputs = batch(model)
    assert difference(outputs(merged, inputs), outputs(lora, inputs)) < 1e-5
    wider = unshare(lora)
    assert difference(outputs(wider, inputs), outputs(lora, inputs)) < 1e-6


@pytest.mark.backends
def test_training_moves_adapters_and_the_head_alone(capsys):
    model = classifier(build("albert", with_mlm=False, with_nsp=False))
    lora = add_lora(model, 2, targets="value")
    line = capsys.readouterr().out
    trained = 2 * 2 * 2 * 32 + 3 * 33
    total = f"{lora.count_params():,}"
    for fact in ("rank 2", "value of 2 layers", f"{trained:,} of {total}", "Compile"):
        assert fact in line, line
    assert not lora.compiled
    inputs = batch(model)
    before = {w.path: to_numpy(w) for w in lora.weights}
    lora.compile(keras.optimizers.SGD(0.01), "mse", **STEP_BY_STEP)
    target = np.random.default_rng(0).normal(size=(4, 3))
    losses = [float(lora.train_on_batch(inputs, target)) for _ in range(3)]
    assert losses[-1] < losses[0]
    moved = {w.path for w in lora.weights if np.abs(to_numpy(w) - before[w.path]).max() > 0}
    assert moved == {w.path for w in lora.trainable_weights}
    assert {path.rpartition("/")[2] for path in moved} == {"lora_a", "lora_b", "kernel", "bias"}
    assert all(weight.trainable for weight in merge_lora(lora).weights)


RELOAD = """
import sys, keras, kerasbert, numpy as np
model = keras.models.load_model(sys.argv[1])
data = dict(np.load(sys.argv[2]))
inputs = [data["ids"], data["segments"]]
np.save(sys.argv[3], model(inputs))
model.fit(inputs, data["target"], epochs=1, verbose=0, shuffle=False)
np.save(sys.argv[4], model(inputs))
print([w.path for w in model.trainable_weights] == list(data["trained"]))
"""


@pytest.mark.slow
def test_training_goes_on_in_another_process(tmp_path):
    """One epoch, saved, loaded, another: as two epochs, the optimizer's state included."""
    model = classifier(build("albert"))
    lora = add_lora(model, 2, verbose=0)
    inputs = batch(model)
    target = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
    lora.compile(keras.optimizers.Adam(0.01), "mse", **STEP_BY_STEP)
    fit = {"epochs": 1, "verbose": 0, "shuffle": False}
    lora.fit(inputs, target, **fit)
    expected = [outputs(lora, inputs)[0]]
    paths = [tmp_path / name for name in ("model.keras", "data.npz", "one.npy", "two.npy")]
    silent(lora.save, paths[0])
    trained = [w.path for w in lora.trainable_weights]
    np.savez(paths[1], ids=inputs[0], segments=inputs[1], target=target, trained=trained)
    lora.fit(inputs, target, **fit)
    expected.append(outputs(lora, inputs)[0])
    done = subprocess.run(
        [sys.executable, "-c", RELOAD, *map(str, paths)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "True", done.stderr[-500:]
    np.testing.assert_array_equal(np.load(paths[2]), expected[0])
    np.testing.assert_allclose(np.load(paths[3]), expected[1], atol=1e-6)


# A siamese model is nested too.
FORMS = ("nested", "siamese", "sequential", "pointer")


@pytest.mark.parametrize("form", default_and_slow(FORMS, FORMS[1:]))
def test_whatever_stands_on_top(form):
    encoder = build("albert", with_mlm=False, with_nsp=False, with_pool=form != "pointer")
    twice = [keras.Input((None,), dtype="int32", name=f"i{n}") for n in range(4)]
    if form == "nested":
        model = keras.Model(twice[:2], keras.layers.Dense(2)(encoder(twice[:2])))
    elif form == "siamese":
        both = keras.layers.Subtract()([encoder(twice[:2]), encoder(twice[2:])])
        model = keras.Model(twice, both)
    elif form == "pointer":
        model = keras.Model(encoder.inputs, GlobalPointer(2, 4)(encoder.output))
    else:
        encoder = build("albert", with_mlm=False, with_nsp=False, segment_vocab_size=0)
        model = keras.Sequential([encoder, keras.layers.Dense(2)])
    inputs = batch(encoder)
    inputs = [*inputs, *batch(encoder, seed=1)] if form == "siamese" else inputs
    expected = outputs(model, inputs)
    lora = add_lora(model, 2, verbose=0)
    assert difference(outputs(lora, inputs), expected) == 0
    stir(lora)
    found = outputs(lora, inputs)
    assert difference(found, expected) > 1e-3
    assert difference(outputs(merge_lora(lora), inputs), found) < 1e-4
    heads = [w for w in lora.trainable_weights if "lora" not in w.path]
    assert len(heads) == {"nested": 4, "siamese": 2, "sequential": 2, "pointer": 2}[form]


def test_low_precision():
    exact = stir(add_lora(build("albert"), 2, verbose=0))
    inputs = batch(exact)
    expected = outputs(exact, inputs)
    for dtype, tolerance in (("mixed_float16", 0.03), ("bfloat16", 0.2)):
        lora = stir(add_lora(build("albert", dtype=dtype), 2, verbose=0))
        adapters = adapters_of(lora).values()
        assert {weight.dtype for adapter in adapters for weight in adapter.weights} == {"float32"}
        found = outputs(lora, inputs)
        assert all(np.isfinite(x).all() for x in found)
        assert difference(found, expected) < tolerance


def test_a_checkpoint_can_hold_them_after_merging_only(tmp_path):
    lora = stir(add_lora(build("bert"), 2, verbose=0))
    with refused(WeightMismatchError, "query_lora_0", "Merge LoRA"):
        save_weights_as_checkpoint(lora, tmp_path / "model.ckpt")
    merged = merge_lora(lora)
    save_weights_as_checkpoint(merged, tmp_path / "model.ckpt")
    config = {**KINDS["bert"][1]}
    again = build_transformer_model(
        config, tmp_path / "model.ckpt", with_mlm="linear", with_nsp="linear", verbose=0
    )
    inputs = batch(merged)
    assert difference(outputs(again, inputs), outputs(merged, inputs)) < 1e-6


# ---- refusals --------------------------------------------------------------------------------


def test_wrong_arguments():
    model = build("bert")
    with refused(ConfigError, "'querry'", "Did you mean 'query'?", "feed_forward_output"):
        add_lora(model, targets=("querry",))
    with refused(ConfigError, "targets=()", "query"):
        add_lora(model, targets=())
    for layers in ([2], [-1], [True], ["0"]):
        with refused(ConfigError, "layers has", "from 0 to 1"):
            add_lora(model, layers=layers)
    with refused(ConfigError, "layers is empty"):
        add_lora(model, layers=[])
    for rank in (0, 2.0, True):
        with refused(ConfigError, f"rank={rank!r}"):
            add_lora(model, rank=rank)
    for alpha in (0, -1, "2", float("nan")):
        with refused(ConfigError, f"alpha={alpha!r}", "above 0"):
            add_lora(model, alpha=alpha)
    with refused(ConfigError, "'query'", "i_dense, o_dense"):
        add_lora(build("gau_alpha"))


def test_wrong_models():
    model = build("bert")
    lora = add_lora(model, verbose=0)
    with refused(KerasbertError, "adapters already", "merge_lora"):
        add_lora(lora)
    with refused(KerasbertError, "no adapters", "add_lora"):
        merge_lora(model)
    plain = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    with refused(KerasbertError, "no encoder of kerasbert"):
        add_lora(plain)
    shared = build("albert", with_nsp=False, with_mlm=False)
    block = shared.get_layer("Transformer-FeedForward")
    with refused(KerasbertError, "serves 2 layers", "1 times more", "Add LoRA first"):
        add_lora(keras.Model(shared.inputs, block(shared.output)))


def test_the_layer_alone():
    layer = LowRankAdapter(4, rank=2, alpha=3)
    x = np.random.default_rng(0).normal(size=(2, 5, 6)).astype("float32")
    assert not to_numpy(layer(x)).any()
    layer.b.assign(np.random.default_rng(1).normal(size=(2, 4)))
    np.testing.assert_allclose(to_numpy(layer(x)), x @ to_numpy(layer.product()), atol=1e-5)

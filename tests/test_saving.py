"""Models saved by Keras: reloaded in a new process, cloned, quantised, exported."""

import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import kerasbert
from fixtures import make_arrays, random_batch, tiny_config
from harness import silent, to_numpy
from kerasbert import build_transformer_model, hidden_state, unshare

# name: (kind of the arrays, changes of the config)
KINDS = {
    "bert": ("google_bert", {}),
    "albert": ("google_albert", {}),
    "groups": ("google_albert", {"num_hidden_groups": 2, "inner_group_num": 2}),
    "early": ("albert_zh", {"hidden_act": "relu"}),
    "preln": ("albert_zh", {"ln_type": "preln"}),
    "early_unshared": ("albert_zh_unshared", {}),
}
MLM = {"with_mlm": "linear"}
ALL = {"with_nsp": True, "with_mlm": True, "hidden_states": True}


def build(kind="albert", model=None, seed=1, **options):
    dialect, changes = KINDS[kind]
    config = tiny_config(dialect, num_hidden_layers=2, **changes)
    model = model or {"bert": "bert", "early_unshared": "albert_unshared"}.get(kind, "albert")
    arrays = make_arrays(dialect, config, seed)
    return build_transformer_model(config, arrays, model, verbose=0, **options)


def batch_for(model, seed=0):
    """Ids and segments for every encoder of a model; a mask input gets holes."""
    rng = np.random.default_rng(seed)
    arrays = list(random_batch(rng, 100, 3, 9)) * 2
    if any("Mask" in tensor.name for tensor in model.inputs):
        arrays[2] = np.array([[1, 1, 0, 1, 0, 1, 0, 0, 1]] * 3, "int32")
    return arrays[: len(model.inputs)]


def outputs(model, batch=None):
    batch = batch_for(model) if batch is None else batch
    return [to_numpy(output) for output in keras.tree.flatten(model(batch))]


def close(found, expected, atol=1e-6):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=atol, rtol=0)


# ---- a new process ---------------------------------------------------------------------------


def frozen():
    model = build("bert", with_pool=True)
    for name in ("Embedding-Token", "Transformer-0-MultiHeadSelfAttention", "Pooler-Dense"):
        model.get_layer(name).trainable = False
    return model


def frozen_sublayers():
    model = build("bert")
    model.get_layer("Transformer-0-FeedForward").norm.trainable = False
    model.get_layer("Transformer-1-MultiHeadSelfAttention").query.trainable = False
    return model


def extended_and_trained():
    encoder = build("albert", dropout_rate=0.1, with_pool=True)
    scores = keras.layers.Dense(3, activation="softmax")(keras.layers.Dropout(0.1)(encoder.output))
    model = keras.Model(encoder.inputs, scores)
    loss = "sparse_categorical_crossentropy"
    model.compile(keras.optimizers.AdamW(1e-3), loss, metrics=["accuracy"], run_eagerly=True)
    model.train_on_batch(batch_for(model), np.array([0, 1, 2]))
    return model


def two_encoders():
    one, other = build("bert", prefix="one-"), build("early", prefix="other-")
    joined = keras.layers.Concatenate()([one.output, other.output])
    return keras.Model([*one.inputs, *other.inputs], joined)


def siamese():
    encoder = build("albert", with_pool=True)
    inputs = [keras.Input((None,), dtype="int32", name=f"i{n}") for n in range(4)]
    return keras.Model(inputs, keras.layers.Subtract()([encoder(inputs[:2]), encoder(inputs[2:])]))


def tied(nested=False):
    """A head of the user's that multiplies by the token table."""
    encoder = build("albert")
    inputs = [keras.Input((None,), dtype="int32", name=f"i{n}") for n in range(2)]
    hidden = encoder(inputs) if nested else encoder.output
    narrow = keras.layers.Dense(16, name="narrow")(hidden)
    logits = encoder.get_layer("Embedding-Token")(narrow, mode="dense")
    return keras.Model(inputs if nested else encoder.inputs, logits)


def sequential():
    encoder = build("albert", segment_vocab_size=0, with_pool=True)
    return keras.Sequential([encoder, keras.layers.Dense(2)])


def with_lora(kind, *names):
    model = build(kind, **MLM)
    for name in names:
        layer, _, part = name.partition(".")
        dense = model.get_layer(layer)
        dense = getattr(dense, part) if part else dense
        dense.enable_lora(2)
        for weight in dense.trainable_weights:
            weight.assign(weight + 0.1)
    return model


def quantised(kind, **options):
    model = build(kind, **options)
    model.quantize("int8")
    return model


# Those that run by default: each has something in its file that the others have not.
FORMS = {
    "groups": lambda: build("groups", with_pool=True, hidden_states=True),
    "early": lambda: build("early", with_mask_input=True, **ALL),
    "unshare()d": lambda: unshare(build("groups", **ALL), "feed_forward"),
    "mixed": lambda: build("albert", dtype="mixed_float16", **ALL),
    "prefix": lambda: build(
        "early", prefix="my-", name="mine", sequence_length=9, segment_vocab_size=0, **MLM
    ),
    "frozen sub-layers": frozen_sublayers,
    "trained": extended_and_trained,
    "two encoders": two_encoders,
    "tied": tied,
    "sequential": sequential,
    "lora in a block": lambda: with_lora(
        "albert", "Transformer-MultiHeadSelfAttention.query", "Transformer-FeedForward.output_dense"
    ),
    "int8": lambda: quantised("albert", **ALL),
}
OTHER_FORMS = {
    "bert": lambda: build("bert", **ALL),
    "albert": lambda: build("albert", dropout_rate=0.1, **ALL),
    "groups, unshared": lambda: build("groups", "albert_unshared", **MLM),
    "preln": lambda: build("preln", with_sop="linear", **MLM),
    "early, unshared": lambda: build("early_unshared", **ALL),
    "partly unshared": lambda: build("early", unshare="attention", unshare_layers=[1], **MLM),
    "bfloat16": lambda: build("preln", dtype="bfloat16", **MLM),
    "frozen": frozen,
    "siamese": siamese,
    "lora outside": lambda: with_lora("early", "MLM-Dense", "Embedding-Token", "Embedding-Mapping"),
}

SCRIPT = """
import json, sys, traceback
import numpy as np
import kerasbert
from keras.saving import load_model
from keras import ops, tree

results = {}
for path in sys.argv[1:]:
    try:
        model = load_model(path)
        with np.load(path + ".npz") as batch:
            found = model([batch[key] for key in sorted(batch)])
        np.savez(path + ".out.npz", *[
            ops.convert_to_numpy(ops.cast(array, "float32")) for array in tree.flatten(found)])
        results[path] = {
            "trainable": [
                "/".join(weight.path.split("/")[-2:]) for weight in model.trainable_weights],
            "dtypes": [weight.dtype for weight in model.weights],
            "policies": [layer.dtype_policy.name for layer in model.layers],
            "inputs": [[tensor.name, tensor.dtype, list(tensor.shape)] for tensor in model.inputs],
            "outputs": [tensor.dtype for tensor in model.outputs],
        }
    except Exception:
        results[path] = {"error": traceback.format_exc()}
print("RESULTS" + json.dumps(results))
"""


def loaded_elsewhere(forms, folder):
    """Forms saved here and loaded by one new process: {name: (path, model, its account)}."""
    made = {}
    for n, (name, make) in enumerate(forms.items()):
        model, path = make(), str(folder / f"{n}.keras")
        model.save(path)
        np.savez(f"{path}.npz", *batch_for(model))
        made[name] = (path, model)
    root = str(Path(kerasbert.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *(path for path, _ in made.values())],
        env={**os.environ, "PYTHONPATH": root, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "RESULTS" in done.stdout, done.stderr
    results = json.loads(done.stdout.rpartition("RESULTS")[2])
    return {name: (path, model, results[path]) for name, (path, model) in made.items()}


@pytest.fixture(scope="module")
def reloaded(tmp_path_factory):
    return loaded_elsewhere(FORMS, tmp_path_factory.mktemp("saved"))


@pytest.fixture(scope="module")
def others_reloaded(tmp_path_factory):
    return loaded_elsewhere(OTHER_FORMS, tmp_path_factory.mktemp("others"))


def tail(path):
    """A path without the scopes of outer models, which a reload may change."""
    return "/".join(path.split("/")[-2:])


@pytest.mark.parametrize("name", list(FORMS))
def test_in_a_new_process(name, reloaded):
    check_account(name, *reloaded[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", list(OTHER_FORMS))
def test_others_in_a_new_process(name, others_reloaded):
    check_account(name, *others_reloaded[name])


def check_account(name, path, model, account):
    """What the other process found is what was saved."""
    assert "error" not in account, account["error"]
    with np.load(f"{path}.out.npz") as npz:
        found = [npz[key] for key in sorted(npz, key=lambda key: int(key[4:]))]
    close(found, outputs(model))
    if "lora" not in name:  # Keras merges low-rank updates when it saves
        assert account["dtypes"] == [weight.dtype for weight in model.weights]
        assert account["trainable"] == [tail(weight.path) for weight in model.trainable_weights]
    assert account["policies"] == [layer.dtype_policy.name for layer in model.layers]
    inputs = [[x.name, x.dtype, list(x.shape)] for x in model.inputs]
    if name == "sequential":  # Keras names its input anew
        inputs[0][0] = account["inputs"][0][0]
    assert account["inputs"] == inputs
    assert account["outputs"] == [tensor.dtype for tensor in model.outputs]


# ---- in this process -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["groups", "preln"])
def test_saved_and_loaded(kind, tmp_path):
    model = build(kind, **ALL)
    silent(model.save, tmp_path / "model.keras")
    again = silent(keras.models.load_model, tmp_path / "model.keras")
    close(outputs(again), outputs(model))
    assert again.count_params() == model.count_params()
    model.save_weights(tmp_path / "model.weights.h5")
    other = build(kind, seed=2, **ALL)
    other.load_weights(tmp_path / "model.weights.h5")
    for one, loaded in zip(model.weights, other.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(loaded), to_numpy(one))


@pytest.mark.parametrize("kind", ["groups", "early"])
def test_clone(kind):
    model = build(kind, prefix="my-", **ALL)
    clone = silent(keras.models.clone_model, model)
    assert [weight.path for weight in clone.weights] == [weight.path for weight in model.weights]
    clone.set_weights(model.get_weights())
    close(outputs(clone), outputs(model))
    state = keras.Model(clone.inputs, hidden_state(clone, 1))
    close(outputs(state), [outputs(model)[3]])
    if kind == "groups":
        close(outputs(unshare(clone)), outputs(model))


def test_blocks_stay_shared_after_a_reload(tmp_path):
    encoder = build("albert")
    model = keras.Model(encoder.inputs, keras.layers.Dense(2)(encoder.output[:, 0]))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    again.compile("sgd", "mse", run_eagerly=True)
    model.compile("sgd", "mse", run_eagerly=True)
    for one in (model, again):
        one.train_on_batch(batch_for(one), np.ones((3, 2), "float32"))
    assert len(again.weights) == len(model.weights)
    close(outputs(again), outputs(model), 1e-5)


def test_int8_is_close_to_float(reloaded):
    close(outputs(reloaded["int8"][1])[1:2], outputs(build("albert", **ALL))[1:2], 0.01)
    close(outputs(reloaded["int8"][1])[2:], outputs(build("albert", **ALL))[2:], 0.1)


def test_nested_and_tied(tmp_path):
    """Keras cannot reload a layer that is used inside and outside of a sub-model.

    It has to say so, and not give back two tables that were one; `tied` above is the way.
    """
    model = tied(nested=True)
    model.save(tmp_path / "model.keras")
    with pytest.raises(ValueError, match="Embedding-Token"):
        keras.models.load_model(tmp_path / "model.keras")
    before = outputs(model)
    model.save_weights(tmp_path / "model.weights.h5")
    for weight in model.weights:
        weight.assign(weight + 1.0)
    model.load_weights(tmp_path / "model.weights.h5")
    close(outputs(model), before)


def test_frozen_layers_do_not_move_after_a_reload(tmp_path):
    model = frozen()
    model.save(tmp_path / "model.keras")
    for again in (
        keras.models.load_model(tmp_path / "model.keras"),
        keras.models.clone_model(model),
    ):
        names = [layer.name for layer in model.layers if not layer.trainable]
        before = [again.get_layer(name).get_weights() for name in names]
        again.compile(keras.optimizers.SGD(1.0), "mse", run_eagerly=True)
        again.train_on_batch(batch_for(again), np.ones((3, 32), "float32"))
        for name, old in zip(names, before, strict=True):
            close(again.get_layer(name).get_weights(), old, 0)


# ---- serving ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("early", {"with_mask_input": True, "with_pool": True}),
        pytest.param("groups", MLM, marks=pytest.mark.slow),
        pytest.param("bert", {}, marks=pytest.mark.slow),
    ],
)
def test_saved_model_for_serving(kind, options, tmp_path):
    import tensorflow as tf

    model = build(kind, **options)
    model.compile(keras.optimizers.AdamW(keras.optimizers.schedules.CosineDecay(0.1, 9)), "mse")
    model.export(tmp_path / "served", verbose=False)
    served = tf.saved_model.load(tmp_path / "served")
    signature = served.signatures["serving_default"].structured_input_signature[1]
    assert {x.dtype for x in signature.values()} == {tf.int32}
    assert {tuple(x.shape) for x in signature.values()} == {(None, None)}
    names = ["Input-Token", "Input-Segment", "Input-Mask"][: len(model.inputs)]
    assert sorted(x.name for x in signature.values()) == sorted(names)
    for rows, length in ((1, 5), (3, 31)):
        batch = list(random_batch(np.random.default_rng(5), 100, rows, length))
        batch = [*batch, (batch[0] > 0).astype("int32")][: len(names)]
        expected = outputs(model, batch)
        close([to_numpy(served.serve(batch))], expected, 1e-5)
        fed = {name: tf.constant(array) for name, array in zip(names, batch, strict=True)}
        arguments = {key: fed[x.name] for key, x in signature.items()}
        (by_name,) = served.signatures["serving_default"](**arguments).values()
        close([by_name.numpy()], expected, 1e-5)

"""Padding: invisible to real tokens, to the layers behind, and harmless at any precision."""

import keras
import numpy as np
import pytest

from fixtures import make_arrays, random_batch, tiny_config
from harness import default_and_slow, to_numpy
from kerasbert import build_transformer_model
from reference.forward import forward

V, H = 100, 32

# name: (kind of the arrays, model=, changes of the config)
KINDS = {
    "bert": ("google_bert", "bert", {}),
    "albert": ("google_albert", "albert", {"num_hidden_groups": 2, "inner_group_num": 2}),
    "albert_unshared": ("google_albert", "albert_unshared", {"hidden_act": "relu"}),
    "albert_zh": ("albert_zh", "albert", {}),
    "albert_zh_preln": ("albert_zh", "albert", {"ln_type": "preln"}),
    "albert_zh_unshared": ("albert_zh_unshared", "albert_unshared", {}),
}
# Blocks of one's own have no masks of their own. Of every kind test_golden compares three masks.
SHARED = ("bert", "albert", "albert_zh", "albert_zh_preln")


def arrays_of(kind, scale_attention=1.0):
    dialect, _, changes = KINDS[kind]
    config = tiny_config(dialect, num_hidden_layers=2, **changes)
    arrays = make_arrays(dialect, config, seed=7)
    for name in arrays:
        if "/query/kernel" in name or "/key/kernel" in name:
            arrays[name] = arrays[name] * np.float32(scale_attention)
    return config, arrays


def build(kind, scale_attention=1.0, **options):
    config, arrays = arrays_of(kind, scale_attention)
    return build_transformer_model(config, arrays, KINDS[kind][1], verbose=0, **options)


def outputs(model, *arrays):
    return [to_numpy(output) for output in keras.tree.flatten(model(list(arrays)))]


def close(found, expected, atol):
    np.testing.assert_allclose(found, expected, atol=atol, rtol=0)


@pytest.fixture(autouse=True)
def _float32_again():
    yield
    keras.config.set_dtype_policy("float32")


@pytest.fixture
def batch():
    """Four rows of 9, real tokens at the beginning; the second has 9 and the last has none."""
    ids, segments = random_batch(np.random.default_rng(3), V, 4, 9)
    ids[0, 5:], ids[3] = 0, 0
    ids[1] = np.arange(1, 10)
    segments[:] = np.arange(9) % 2
    return ids, segments


# ---- which positions see which ---------------------------------------------------------------


@pytest.mark.parametrize("kind", SHARED)
def test_the_length_of_the_padding_changes_nothing(kind, batch):
    model = build(kind, with_pool=True, with_mlm="linear", hidden_states=True)
    config, arrays = arrays_of(kind)
    ids, segments = batch[0][1:2], batch[1][1:2]
    recorded = forward(arrays, config, ids, segments)
    depth = len([name for name in recorded if name.startswith("layer_")])
    expected = [recorded["pooled_output"], recorded["mlm_logits"], recorded["embedding_output"]]
    expected += [recorded[f"layer_{i}"] for i in range(depth)]
    for more in (0, 1, 20):
        padded = (np.pad(array, ((0, 0), (0, more))) for array in (ids, segments))
        found = outputs(model, *padded)
        assert len(found) == len(expected)
        for i, (array, real) in enumerate(zip(found, expected, strict=True)):
            close(array if i == 0 else array[:, :9], real, 1e-5)


@pytest.mark.parametrize(
    "kind", ["bert", "albert_zh_preln", pytest.param("albert_zh", marks=pytest.mark.backends)]
)
def test_masks_of_every_form(kind, batch):
    """Without a mask input id 0 is padding wherever it stands; with one, only the mask counts."""
    config, arrays = arrays_of(kind)
    ids, segments = batch
    ids[1, 4], ids[2, 0] = 0, 0
    real = (ids > 0).astype("int32")
    seen = np.where(real.any(1, keepdims=True), real, 1)  # nothing to see: everything is seen
    expected = forward(arrays, config, ids, segments, seen)
    found = outputs(build(kind, with_pool=True, hidden_states=True), ids, segments)
    close(found[0], expected["pooled_output"], 1e-5)
    close(found[-1], expected["sequence_output"], 1e-5)

    masked = build(kind, with_mask_input=True, with_mlm="linear", hidden_states=True)
    mask = np.array([[1, 0, 1, 1, 0, 0, 1, 1, 0], [1] * 9, [0] * 8 + [1], [0] * 9], "int32")
    expected = forward(arrays, config, ids, segments, np.where(mask.any(1)[:, None], mask, 1))
    found = outputs(masked, ids, segments, mask)
    close(found[0], expected["mlm_logits"], 1e-5)
    close(found[-1], expected["sequence_output"], 1e-5)
    if kind == "bert":
        for other in (mask.astype(bool), mask.astype("float64"), 5 * mask):
            np.testing.assert_array_equal(outputs(masked, ids, segments, other)[-1], found[-1])


@pytest.mark.parametrize(
    ("kind", "scale"),
    [("albert_zh", 1.0), ("albert_zh_preln", 1.0), ("bert", 300.0), ("albert", 300.0)],
)
def test_what_stands_under_the_mask_never_leaks(kind, scale, batch):
    """Also with scores of 10^4 to 10^6, for which the original's -10000 is not enough."""
    model = build(kind, scale, with_mask_input=True, with_pool=True, hidden_states=True)
    ids, segments = (array[:3] for array in batch)
    mask = np.array([[1, 1, 0, 1, 1, 0, 0, 0, 0], [1] * 5 + [0] * 4, [1] + [0] * 8], "int32")
    others = np.where(mask, ids, np.random.default_rng(5).integers(0, V, ids.shape))
    turned = np.where(mask, segments, 1 - segments)
    pooled, *states = outputs(
        model, *map(np.concatenate, [(ids, others), (segments, turned), (mask, mask)])
    )
    assert np.isfinite(states[-1]).all()
    assert np.abs(states[-1][:3] - states[-1][3:])[mask == 0].max() > 0.01
    close(pooled[3:], pooled[:3], 1e-6)
    for state in states:
        close(state[3:][mask == 1], state[:3][mask == 1], 1e-6)


# ---- the Keras mask --------------------------------------------------------------------------


def with_layers_behind(encoder, nested):
    inputs = encoder.inputs
    hidden = encoder(inputs) if nested else encoder.output
    mean = keras.layers.GlobalAveragePooling1D()(hidden)
    last = keras.layers.LSTM(5, kernel_initializer="ones")(hidden)
    return keras.Model(inputs, [mean, last])


@pytest.mark.parametrize(
    ("kind", "nested"),
    default_and_slow(
        [("albert", True), ("albert", False), ("bert", False), ("albert_zh_preln", False)],
        [("albert", True), ("bert", False), ("albert_zh_preln", False)],
    ),
)
def test_the_mask_reaches_layers_behind(kind, nested, batch, tmp_path):
    encoder = build(kind)
    model = with_layers_behind(encoder, nested)
    ids, segments = (array[:3] for array in batch)
    hidden = outputs(encoder, ids, segments)[0]
    real = (ids > 0)[..., None]
    mean, last = outputs(model, ids, segments)
    close(mean, (hidden * real).sum(1) / real.sum(1), 1e-5)
    alone = outputs(model, ids[:1, :5], segments[:1, :5])
    close(mean[:1], alone[0], 1e-5)
    close(last[:1], alone[1], 1e-5)
    if kind == "albert":
        model.save(tmp_path / "model.keras")
        again = keras.models.load_model(tmp_path / "model.keras")
        for old, new in zip((mean, last), outputs(again, ids, segments), strict=True):
            close(new, old, 1e-6)


def test_the_mask_input_reaches_layers_behind(batch):
    encoder = build("albert_zh", with_mask_input=True)
    model = with_layers_behind(encoder, nested=False)
    ids, segments = batch
    mask = np.array([[1, 0, 1, 1, 0, 0, 0, 0, 1]] * 4, "int32")
    hidden = outputs(encoder, ids, segments, mask)[0]
    close(outputs(model, ids, segments, mask)[0], hidden[:, mask[0] == 1].mean(1), 1e-5)


@pytest.mark.backends
def test_one_input_in_a_sequential_model(batch):
    encoder = build_transformer_model(
        tiny_config("google_albert", num_hidden_layers=2), model="albert", segment_vocab_size=0
    )
    model = keras.Sequential([encoder, keras.layers.GlobalAveragePooling1D()])
    ids = batch[0][:3]
    hidden, real = to_numpy(encoder(ids)), (ids > 0)[..., None]
    close(to_numpy(model(ids)), (hidden * real).sum(1) / real.sum(1), 1e-5)


@pytest.mark.parametrize("kind", ["bert", "albert_zh"])
def test_the_loss_of_a_masked_lm_leaves_padding_out(kind, batch):
    model = build(kind, with_mlm=True)
    ids, segments = (array[:3] for array in batch)
    labels = np.random.default_rng(1).integers(0, V, ids.shape)
    model.compile(loss="sparse_categorical_crossentropy", run_eagerly=True)
    losses = [
        model.evaluate([ids, segments], np.where(ids > 0, labels, other), verbose=0)
        for other in (1, 50)
    ]
    probabilities = np.take_along_axis(outputs(model, ids, segments)[0], labels[..., None], -1)
    expected = -np.log(np.clip(probabilities, 1e-7, 1))[ids > 0].mean()
    close(losses, [expected] * 2, 1e-4)


def test_pooled_output_carries_no_mask_of_tokens(batch):
    pooled = build("bert", with_pool=True)
    model = keras.Model(pooled.inputs, keras.layers.Softmax()(pooled.output))
    assert outputs(model, *batch)[0].shape == (4, H)


# ---- precision -------------------------------------------------------------------------------

# Float16 rounds to 2^-11 of a number, here 4e-3 of the largest (about 8), some ten times
# in a row; bfloat16 is eight times as coarse.
POLICIES = {"mixed_float16": 2e-2, "float16": 2e-2, "mixed_bfloat16": 0.16, "bfloat16": 0.16}


@pytest.mark.parametrize(
    ("kind", "policy", "globally"),
    [
        pytest.param("albert", "mixed_float16", False, marks=pytest.mark.backends),
        ("albert_zh", "mixed_float16", True),
        ("bert", "float16", False),
        ("albert_zh_preln", "mixed_bfloat16", True),
        ("albert_unshared", "bfloat16", False),
    ],
)
def test_low_precision(kind, policy, globally, batch):
    """Rows with no, some and nothing but padding: finite, and near the exact ones."""
    heads = {"with_nsp": True, "with_mlm": "linear", "hidden_states": True}
    exact = outputs(build(kind, **heads), *batch)
    if globally:
        keras.config.set_dtype_policy(policy)
        model = build(kind, **heads)
    else:
        model = build(kind, dtype=policy, **heads)
    parts = keras.dtype_policies.get(policy)
    kinds = {weight.dtype for weight in model.weights}
    # Heads compute in float32 whatever the policy, so under a pure one their weights differ.
    assert kinds == {"float32"} if policy.startswith("mixed") else parts.variable_dtype in kinds
    sentence, words, states = model.output
    assert sentence.dtype == words.dtype == "float32"
    assert {state.dtype for state in states} == {parts.compute_dtype}
    assert {tensor.dtype for tensor in model.inputs} == {"int32"}
    for low, full in zip(outputs(model, *batch), exact, strict=True):
        assert np.isfinite(low).all()
        close(low, full, POLICIES[policy])


@pytest.mark.parametrize(
    ("policy", "globally"),
    [("mixed_float16", True), ("mixed_bfloat16", False), ("float16", False)],
)
def test_id_20001_is_row_20001(policy, globally):
    if globally:
        keras.config.set_dtype_policy(policy)
    config = tiny_config("google_albert", vocab_size=21128, num_hidden_layers=1)
    model = build_transformer_model(config, model="albert", dtype=None if globally else policy)
    table = np.random.default_rng(0).normal(size=(21128, 16)).astype("float32")
    model.get_layer("Embedding-Token").set_weights([table])
    rows = keras.Model(model.inputs, model.get_layer("Embedding-Token").output)
    ids = np.array([[20001, 20000, 19968, 2049, 1]])
    for kind in ("int32", "int64", "float32", "float64"):
        arrays = [ids.astype(kind), np.zeros_like(ids).astype(kind)]
        np.testing.assert_allclose(to_numpy(rows(arrays)), table[ids], rtol=2**-8)
    compiled = rows.predict([ids.astype("float64"), np.zeros(ids.shape)], verbose=0)
    np.testing.assert_allclose(compiled.astype("float32"), table[ids], rtol=2**-8)


def test_ids_in_a_sequential_model():
    keras.config.set_dtype_policy("mixed_float16")
    config = tiny_config("google_albert", vocab_size=21128, num_hidden_layers=1)
    encoder = build_transformer_model(config, model="albert", segment_vocab_size=0)
    ids = np.array([[20001, 7, 8], [20000, 7, 8]])
    found = to_numpy(keras.Sequential([encoder, keras.layers.Dense(2)])(ids))
    assert np.abs(found[0] - found[1]).max() > 0.01


def test_a_checkpoint_loses_nothing_under_a_mixed_policy():
    _, arrays = arrays_of("bert")
    model = build("bert", dtype="mixed_float16")
    for weight, full in zip(model.weights, build("bert").weights, strict=True):
        np.testing.assert_array_equal(to_numpy(weight), to_numpy(full))
    found = to_numpy(model.get_layer("Embedding-Token").embeddings)
    np.testing.assert_array_equal(found, arrays["bert/embeddings/word_embeddings"])

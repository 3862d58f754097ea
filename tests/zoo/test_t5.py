"""T5 in its three layouts: numbers, parts, names, training, refusals."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from fixtures import write_checkpoint
from harness import STEP_BY_STEP, default_and_slow, refused, to_numpy
from kerasbert import (
    build_transformer_model,
    hidden_state,
    inspect_checkpoint,
    load_weights_from_checkpoint,
    model_report,
    save_weights_as_checkpoint,
)
from kerasbert.errors import ConfigError, WeightMismatchError
from kerasbert.weights.checkpoints import open_checkpoint
from reference.zoo import run
from reference.zoo_weights import zoo_arrays, zoo_config

LAYOUTS = ("t5.1.0", "t5.1.1", "mt5.1.1")
each = pytest.mark.parametrize("layout", default_and_slow(LAYOUTS, ["t5.1.1"]))

READ = np.array([[5, 6, 7, 8, 0, 0], [3, 4, 0, 0, 0, 0], [9, 8, 7, 6, 5, 4]], "int32")
WRITE = np.array([[0, 4, 5, 0], [0, 7, 0, 0], [0, 3, 9, 8]], "int32")
BATCH = [READ, WRITE]


def sample(layout, seed=3, **sizes):
    config = zoo_config(layout, **{"num_hidden_layers": 2, **sizes})
    return config, zoo_arrays(layout, config, seed=seed)


def build(config, arrays=None, model="auto", **options):
    return build_transformer_model(config, arrays, model=model, verbose=0, **options)


def outputs(model, batch=BATCH):
    found = model(batch)
    return [to_numpy(x) for x in keras.tree.flatten(found)]


def assert_close(found, expected, real=None):
    found, expected = np.asarray(found), np.asarray(expected)
    if real is not None:
        found, expected = found[real], expected[real]
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)


# ---- numbers ---------------------------------------------------------------------------------


@pytest.mark.backends
@each
def test_every_state_and_the_probabilities(layout):
    config, arrays = sample(layout)
    expected = run(layout, arrays, config, READ, WRITE)
    model = build(config, arrays, layout, hidden_states=True)
    found, encoder, decoder = (list(x) if isinstance(x, list) else x for x in model(BATCH))
    assert_close(to_numpy(found), expected["lm"])
    assert len(encoder) == len(decoder) == 3
    for state, other in zip(encoder, expected["encoder_states"], strict=True):
        assert_close(to_numpy(state), other, READ != 0)
    for state, other in zip(decoder, expected["decoder_states"], strict=True):
        assert_close(to_numpy(state), other)
    logits = build(config, arrays, layout, with_lm="linear")
    assert_close(to_numpy(logits(BATCH)), expected["lm_logits"])


@each
@given(
    heads=st.sampled_from([1, 3]),
    width=st.sampled_from([3, 8]),
    head_size=st.sampled_from([1, 5]),
    layers=st.integers(1, 3),
    buckets=st.sampled_from([4, 9, 32]),
    lengths=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    seed=st.integers(0, 99),
)
@settings(max_examples=3)
def test_any_sizes(layout, heads, width, head_size, layers, buckets, lengths, seed):
    config, arrays = sample(
        layout,
        seed,
        num_attention_heads=heads,
        hidden_size=heads * width,
        attention_head_size=head_size,
        num_hidden_layers=layers,
        relative_attention_num_buckets=buckets,
        intermediate_size=7,
    )
    rng = np.random.default_rng(seed)
    read, write = (rng.integers(0, 60, (2, length)).astype("int32") for length in lengths)
    model = build(config, arrays, layout)
    assert_close(to_numpy(model([read, write])), run(layout, arrays, config, read, write)["lm"])


@each
def test_options_of_the_decoder(layout):
    config, arrays = sample(layout)
    for options, reference in (
        ({"cross_position_bias": True}, {"cross_position_bias": True}),
        ({"residual_attention_scores": True}, {"residual_scores": True}),
        ({"scale_decoder_outputs": True}, {"scale_output": True}),
        ({"scale_decoder_outputs": False}, {"scale_output": False}),
    ):
        expected = run(layout, arrays, config, READ, WRITE, **reference)
        model = build(config, arrays, layout, with_lm="linear", **options)
        assert_close(to_numpy(model(BATCH)), expected["lm_logits"])
    plain = run(layout, arrays, config, READ, WRITE)
    model = build(config, arrays, layout, with_lm=False)
    assert_close(to_numpy(model(BATCH)), plain["decoder_output"])


def test_long_distances_share_buckets():
    config, arrays = sample("t5.1.0", num_hidden_layers=1)
    read = np.random.default_rng(0).integers(1, 60, (1, 300)).astype("int32")
    write = np.concatenate([[[0]], read[:, :180]], axis=1).astype("int32")
    model = build(config, arrays)
    assert_close(to_numpy(model([read, write])), run("t5.1.0", arrays, config, read, write)["lm"])


@each
def test_what_must_not_be_seen(layout):
    config, arrays = sample(layout)
    model = build(config, arrays, layout, with_lm="linear")
    before = to_numpy(model(BATCH))
    later = WRITE.copy()
    later[:, 2:] = 11
    assert_close(to_numpy(model([READ, later]))[:, :2], before[:, :2])
    longer = np.pad(READ, ((0, 0), (0, 3)))
    assert_close(to_numpy(model([longer, WRITE])), before)
    for row, real in enumerate((READ != 0).sum(axis=1)):
        alone = model([READ[row : row + 1, :real], WRITE[row : row + 1]])
        assert_close(to_numpy(alone), before[row : row + 1])
    assert np.abs(to_numpy(model([READ + 1, WRITE])) - before).max() > 1e-3


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_low_precision_is_finite(dtype):
    config, arrays = sample("t5.1.1")
    model = build(config, arrays, dtype=dtype)
    batch = [np.zeros((2, 4), "int32"), WRITE[:2]]
    assert np.isfinite(to_numpy(model(BATCH))).all() and np.isfinite(to_numpy(model(batch))).all()
    np.testing.assert_allclose(
        to_numpy(model(BATCH)), run("t5.1.1", arrays, config, READ, WRITE)["lm"], atol=0.03
    )


# ---- parts -----------------------------------------------------------------------------------


@each
def test_encoder_and_decoder_alone(layout):
    config, arrays = sample(layout)
    builder = build(config, arrays, layout, return_keras_model=False)
    whole = to_numpy(builder.model(BATCH))
    context, write = builder.encoder(READ), ops.convert_to_tensor(WRITE)
    assert not to_numpy(context)[READ == 0].any()
    np.testing.assert_array_equal(to_numpy(builder.decoder([context, write])), whole)
    encoder, decoder = (build(config, arrays, f"{layout}_{p}") for p in ("encoder", "decoder"))
    np.testing.assert_array_equal(to_numpy(encoder(READ)), to_numpy(context))
    np.testing.assert_array_equal(to_numpy(decoder([context, write])), whole)
    expected = run(layout, arrays, config, READ, WRITE)
    assert_close(to_numpy(encoder(READ)), expected["encoder_output"], READ != 0)
    report = model_report(decoder)
    assert not report.missing and not report.unused and not report.optimizer_slots
    state = keras.Model(encoder.inputs, hidden_state(encoder, -1))(READ)
    assert_close(to_numpy(state), expected["encoder_states"][-1], READ != 0)
    state = keras.Model(decoder.inputs, hidden_state(decoder, 1))([context, write])
    assert_close(to_numpy(state), expected["decoder_states"][1])


def test_bert4keras_names_of_layers():
    builder = build(zoo_config("t5.1.1"), model="t5.1.1", return_keras_model=False)
    names = {
        "Embedding-Token",
        "Encoder-Embedding-Relative-Position",
        "Encoder-Transformer-0-MultiHeadSelfAttention",
        "Encoder-Transformer-2-FeedForward",
        "Encoder-Output-Norm",
        "Decoder-Embedding-Relative-Position",
        "Decoder-Transformer-1-MultiHeadCrossAttention",
        "Decoder-Output-Norm",
        "Decoder-Output-LM",
    }
    assert names <= set(builder.layers)
    assert [x.name for x in builder.inputs] == ["Encoder-Input-Token", "Decoder-Input-Token"]
    assert [x.name for x in builder.decoder.inputs] == ["Input-Context", "Decoder-Input-Token"]


# ---- files -----------------------------------------------------------------------------------


@each
def test_names_there_and_back(layout, tmp_path):
    config, arrays = sample(layout)
    prefix = write_checkpoint(tmp_path / "in.ckpt", {**arrays, "shared/embedding_slot_vr": [1.0]})
    model = build(config, prefix)
    paths = save_weights_as_checkpoint(model, tmp_path / "out.ckpt", verbose=0)
    written = open_checkpoint(paths["checkpoint"])
    assert written.shapes.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(written.read(name), np.asarray(array, "float32"))
    again = build(paths["config"], paths["checkpoint"])
    np.testing.assert_array_equal(to_numpy(again(BATCH)), to_numpy(model(BATCH)))
    with pytest.warns(UserWarning, match="sizes were read"):
        inferred = build(None, arrays)
    np.testing.assert_array_equal(to_numpy(inferred(BATCH)), to_numpy(model(BATCH)))
    assert model_report(model).optimizer_slots == ["shared/embedding_slot_vr"]


@pytest.mark.parametrize("other", ["t5", "t5.1.0", "t5.1.1", "mt5.1.1", "auto"])
@each
def test_the_file_decides_on_the_head(layout, other):
    config, arrays = sample(layout)
    expected = run(layout, arrays, config, READ, WRITE)["lm"]
    assert_close(to_numpy(build(config, arrays, other)(BATCH)), expected)


@each
def test_saved_and_reloaded(layout, tmp_path):
    config, arrays = sample(layout)
    model = build(config, arrays, layout)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(to_numpy(again(BATCH)), to_numpy(model(BATCH)))
    fresh = build(config, model=layout)
    load_weights_from_checkpoint(fresh, arrays, verbose=0)
    np.testing.assert_array_equal(to_numpy(fresh(BATCH)), to_numpy(model(BATCH)))


@each
def test_kept_tokens(layout):
    config, arrays = sample(layout)
    keep = [0, 9, 5, 7, 20]
    texts = [np.array([[9, 7]]), np.array([[0, 5]])]
    whole = to_numpy(build(config, arrays, with_lm="linear")(texts))
    cut = build(config, arrays, with_lm="linear", keep_tokens=keep)
    assert_close(to_numpy(cut([np.array([[1, 3]]), np.array([[0, 2]])])), whole[..., keep])


def test_inspect_names_heads_and_sizes(tmp_path):
    _, arrays = sample("mt5.1.1", num_attention_heads=3)
    text = str(inspect_checkpoint(write_checkpoint(tmp_path / "m.ckpt", arrays)))
    assert "Google mT5" in text and "num_attention_heads=3" in text and "lm (" in text
    assert "no slots" in text


# ---- training --------------------------------------------------------------------------------


@pytest.mark.backends
@each
def test_training_moves_every_variable(layout):
    config, arrays = sample(layout, num_hidden_layers=1)
    model = build(config, arrays, layout)
    before = {w.path: to_numpy(w) for w in model.trainable_weights}
    model.compile("adam", "sparse_categorical_crossentropy", **STEP_BY_STEP)
    model.fit(BATCH, np.roll(WRITE, -1, axis=1), epochs=1, verbose=0)
    still = [w.path for w in model.trainable_weights if np.array_equal(to_numpy(w), before[w.path])]
    assert not still


# ---- refusals --------------------------------------------------------------------------------


def test_heads_and_applications_that_t5_lacks():
    config = zoo_config("t5.1.0")
    with refused(ConfigError, "with_mlm", "with_lm"):
        build(config, model="t5", with_mlm=True)
    for application in ("lm", "unilm"):
        for name in ("t5", "t5.1.1", "mt5.1.1_decoder"):
            with refused(ConfigError, repr(application), "t5", "encoder"):
                build(config, model=name, application=application)
    with refused(ConfigError, "embedding_size=12", "hidden_size=24"):
        build({**config, "embedding_size": 12}, model="t5")


@each
def test_files_that_do_not_fit(layout):
    config, arrays = sample(layout)
    lost = "decoder/block_001/layer_001/EncDecAttention/k"
    with refused(WeightMismatchError, lost):
        build(config, {k: v for k, v in arrays.items() if k != lost}, layout)
    with refused(WeightMismatchError, "num_hidden_layers", "1", "2"):
        build({**config, "num_hidden_layers": 1}, arrays, layout)
    with refused(WeightMismatchError, "T5" if layout != "mt5.1.1" else "mT5", "model='t5'"):
        build(zoo_config("bert"), arrays, "bert")
    head = "decoder/logits/kernel"
    if head in arrays:
        wide = {**arrays, head: np.zeros((24, 61), "float32")}
        with refused(WeightMismatchError, head, "61"):
            build(config, wide, layout)
    gate = {**config, "hidden_act": "relu" if layout != "t5.1.0" else ["gelu", "linear"]}
    with refused(WeightMismatchError, "DenseReluDense/wi"):
        build(gate, arrays, layout)


@each
def test_a_part_is_recognised_from_its_file(layout, tmp_path):
    config, arrays = sample(layout)
    for part in ("encoder", "decoder"):
        model = build(config, arrays, f"{layout}_{part}")
        paths = save_weights_as_checkpoint(model, tmp_path / f"{part}.ckpt", verbose=0)
        again = build(paths["config"], paths["checkpoint"])
        assert [x.name for x in again.inputs] == [x.name for x in model.inputs]


def test_the_bias_of_bert4keras_is_part_of_the_config(tmp_path):
    config, arrays = sample("mt5.1.1")
    model = build(config, arrays, cross_position_bias=True)
    paths = save_weights_as_checkpoint(model, tmp_path / "model.ckpt", verbose=0)
    again = build(paths["config"], paths["checkpoint"])
    np.testing.assert_array_equal(to_numpy(again(BATCH)), to_numpy(model(BATCH)))
    assert np.abs(to_numpy(build(config, arrays)(BATCH)) - to_numpy(model(BATCH))).max() > 1e-4


@pytest.mark.parametrize("name", ["t5", "t5_encoder", "t5_decoder"])
def test_conditional_norms(name, tmp_path):
    condition = keras.Input((3,))
    more = {"layer_norm_cond": condition, "additional_input_layers": condition}
    model = build(zoo_config("t5.1.0", num_hidden_layers=2), model=name, **more)
    lengths = {"Input-Context": (2, 4, 24)}
    batch = [np.ones(lengths.get(x.name, (2, 4)), x.dtype) for x in model.inputs[:-1]]
    plain, other = (to_numpy(model([*batch, np.full((2, 3), n, "float32")])) for n in (0, 9))
    np.testing.assert_array_equal(plain, other)
    assert sum("gamma_dense" in weight.path for weight in model.weights) > 4
    model.save(tmp_path / "model.keras")
    assert len(keras.models.load_model(tmp_path / "model.keras").weights) == len(model.weights)


@pytest.mark.parametrize(
    "options",
    [
        {"attention_key_size": 3},
        {"custom_position_ids": True},
        {"with_mask_input": True},
        {"hierarchical_position": True},
        {"shared_segment_embeddings": True},
        {"segment_vocab_size": 2},
    ],
    ids=str,
)
def test_options_that_t5_has_no_use_for(options):
    with refused(ConfigError, *options):
        build(zoo_config("t5.1.1"), model="t5.1.1", **options)

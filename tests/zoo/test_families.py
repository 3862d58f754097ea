"""Every family of models: loading, numbers, heads, masks, writing, training, refusals."""

import json
import re

import keras
import numpy as np
import pytest
from families import (
    BERT_HEADS,
    LM_HEAD,
    MLM_HEAD,
    TOLERANCE,
    VOCABULARY,
    Family,
    assert_close,
    assert_equal_weights,
    family_of,
    outputs_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import make_arrays, tiny_config, write_checkpoint, write_config
from harness import STEP_BY_STEP, default_and_slow, refused, silent, to_numpy
from kerasbert import (
    build_transformer_model,
    hidden_state,
    inspect_checkpoint,
    load_weights_from_checkpoint,
    model_report,
    save_weights_as_checkpoint,
)
from kerasbert.errors import ConfigError, WeightMismatchError
from reference.zoo_parts import visible_keys

ERF = {"activation": "gelu_erf"}
KEY_BIAS = ("/key/bias",)  # a softmax cancels it, unless positions turn it

FAMILIES = [
    Family(
        "nezha",
        BERT_HEADS,
        "NEZHA",
        told={"use_relative_position": True},
        twins=("roformer",),
        causal={"application": "lm"},
        flat=KEY_BIAS,
    ),
    Family(
        "roformer",
        BERT_HEADS,
        "RoFormer",
        reference=ERF,
        told={"model_type": "roformer"},
        twins=("nezha",),
        causal={"application": "lm"},
        flat=(),
    ),
    Family("roformer_v2", MLM_HEAD, "RoFormer V2", causal={"causal": True}, flat=()),
    Family(
        "gau_alpha",
        MLM_HEAD,
        "GAU-alpha",
        causal={"causal": True},
        flat=(),
        shown=("attention_key_size",),
    ),
    Family("gpt", LM_HEAD, "GPT", reference={"epsilon": 1e-5}, always_causal=True, flat=KEY_BIAS),
    Family(
        "gpt2",
        LM_HEAD,
        "GPT-2",
        applications=("lm",),
        always_causal=True,
        segments=False,
        flat=KEY_BIAS,
    ),
    Family(
        "gpt2_ml",
        LM_HEAD,
        "GPT2_ML",
        reference=ERF,
        applications=("lm",),
        always_causal=True,
        segments=False,
        flat=KEY_BIAS,
    ),
]
MAIN = [family for family in FAMILIES if str(family) in ("nezha", "gau_alpha", "gpt2_ml")]
each = pytest.mark.parametrize("family", default_and_slow(FAMILIES, MAIN), ids=str)

ALL_HEADS = ("with_pool", "with_nsp", "with_mlm", "with_discriminator", "with_classifier")
SECOND = re.compile(r"layer_?0*1/")  # a variable of the second block
SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size")


# ---- loading ---------------------------------------------------------------------------------


@each
def test_a_written_checkpoint_and_its_report(family, tmp_path):
    config, arrays = family.sample()
    options, names = family.heads[0]
    prefix = write_checkpoint(tmp_path / "model.ckpt", arrays)
    path = write_config(tmp_path / "config.json", config)
    model = silent(family.build, path, prefix, hidden_states=True, **options)
    report = model_report(model)
    assert report.headline().startswith(f"{family.title}: {len(arrays)} variables loaded")
    assert sorted(n for loaded in report.loaded.values() for n in loaded) == sorted(arrays)
    assert not report.missing and not report.unused and not report.unused_heads
    batch = family.batch()
    assert_close(outputs_of(model, batch), family.expected(config, arrays, batch, names))
    again = family.build(config, arrays, hidden_states=True, **options)
    assert_equal_weights(model, again)


@pytest.mark.backends
@each
def test_every_head_and_every_state(family):
    config, arrays = family.sample(seed=1)
    batch = family.batch(seed=1)
    for options, names in family.heads:
        model = family.build(config, arrays, hidden_states=True, **options)
        assert_close(outputs_of(model, batch), family.expected(config, arrays, batch, names))
        # Without the states; one of them compiled.
        only = family.build(config, arrays, **options)
        inputs = batch if len(batch) > 1 else batch[0]
        run = only.predict_on_batch if options == family.heads[0][0] else only
        found = [to_numpy(x) for x in keras.tree.flatten(run(inputs))]
        assert_close(found, family.expected(config, arrays, batch, names)[: len(names)])


@st.composite
def sizes(draw):
    """Sizes of a model that are small, odd, and whatever else the draw gives."""
    heads = draw(st.sampled_from([1, 2, 3]))
    width = heads * draw(st.sampled_from([2, 6, 8]))
    return {
        "num_attention_heads": heads,
        "hidden_size": width,
        "num_hidden_layers": draw(st.integers(1, 3)),
        "intermediate_size": draw(st.integers(3, 33)),
        "type_vocab_size": draw(st.integers(2, 4)),
        "narrow": draw(st.sampled_from([None, width + 1, max(width - 1, 1)])),
    }


@each
@given(sizes=sizes(), length=st.integers(1, 17), seed=st.integers(0, 99))
@settings(max_examples=3)
def test_any_sizes(family, sizes, length, seed):
    narrow = sizes.pop("narrow")
    if narrow and family.is_narrow:
        sizes["embedding_size"] = narrow
    if family.name == "gau_alpha":
        sizes |= {"num_attention_heads": 1, "attention_key_size": 2 * (seed % 5) + 2}
    config, arrays = family.sample(seed, **sizes)
    options, names = family.heads[0]
    model = family.build(config, arrays, hidden_states=True, **options)
    batch = family.batch(seed, rows=2, length=length)
    assert_close(outputs_of(model, batch), family.expected(config, arrays, batch, names))


@each
def test_neither_padding_nor_the_rest_of_the_batch_matters(family):
    config, arrays = family.sample()
    options, _ = family.heads[0]
    model = family.build(config, arrays, hidden_states=True, **options)
    batch = family.batch()
    together = outputs_of(model, batch)
    for row, real in enumerate((batch[0] != 0).sum(axis=1)):
        alone = outputs_of(model, [x[row : row + 1, :real] for x in batch])
        for all_rows, one in zip(together, alone, strict=True):
            part = all_rows[row : row + 1]
            part = part[:, :real] if one.ndim == 3 else part
            np.testing.assert_allclose(part, one, rtol=0, atol=TOLERANCE)


@each
def test_the_epsilon_of_its_norms(family):
    """Tables so small that what is added to their mean square is seen."""
    config, arrays = family.sample()
    tables = [name for name in arrays if "embed" in name.rpartition("/")[2]]
    arrays |= {name: arrays[name] * np.float32(1e-4) for name in tables}
    batch = family.batch()
    model = family.build(config, arrays, hidden_states=True)
    assert_close(outputs_of(model, batch)[1:], family.expected(config, arrays, batch))


@each
def test_without_segments(family):
    if not family.segments:
        pytest.skip("the family has none")
    config, arrays = family.sample()
    model = family.build(config, arrays, segment_vocab_size=0, hidden_states=True)
    batch = family.batch()[:1]
    table = next(name for name in arrays if name.endswith("token_type_embeddings"))
    arrays = {**arrays, table: np.zeros((2, 24))}
    assert_close(outputs_of(model, batch)[1:], family.expected(config, arrays, batch))


# ---- who sees whom ---------------------------------------------------------------------------


@each
def test_language_model_by_the_reference(family):
    if family.causal is None:
        pytest.skip("the reference has no such option")
    config, arrays = family.sample()
    model = family.build(config, arrays, application="lm", with_mlm="linear", hidden_states=True)
    batch = family.batch()
    wanted = family.expected(config, arrays, batch, ["mlm_logits"], **family.causal)
    assert_close(outputs_of(model, batch), wanted)


@each
@pytest.mark.parametrize("application", ["encoder", "lm", "unilm"])
def test_who_depends_on_whom(family, application):
    """A token of one layer changes with exactly those that its application lets it see."""
    if application not in ("encoder", *family.applications):
        pytest.skip("refused, see below")
    config, arrays = family.sample(num_hidden_layers=1)
    model = family.build(config, arrays, application=application)
    ids = np.array([[5, 9, 3, 8, 7, 0]], "int32")
    segments = np.array([[0, 0, 0, 1, 1, 0]], "int32")
    visible = visible_keys(
        ids != 0,
        causal=application == "lm" or (application == "encoder" and family.always_causal),
        segments=segments if application == "unilm" else None,
    )[0]
    changed = np.repeat(ids, 5, axis=0)
    for place in range(5):
        changed[place, place] += 20
    rest = [np.repeat(segments, 5, axis=0)] if family.segments else []
    states = keras.Model(model.inputs, hidden_state(model, -1))
    before = outputs_of(states, [ids, *([segments] if family.segments else [])])[0]
    after = outputs_of(states, [changed, *rest])[0]
    moved = np.abs(after - before).max(axis=-1) > 1e-5  # [changed token, token that looks]
    np.testing.assert_array_equal(moved.T[:5], (visible[:, :5] | np.eye(6, 5, dtype=bool))[:5])


# ---- writing ---------------------------------------------------------------------------------


@each
@pytest.mark.parametrize("narrow", [False, True])
def test_written_and_read_again(family, narrow, tmp_path):
    if narrow and not family.is_narrow:
        pytest.skip("its tables are as wide as its blocks")
    config, arrays = family.sample(**({"embedding_size": 12} if narrow else {}))
    options, _ = family.heads[0]
    model = family.build(config, arrays, **options)
    paths = save_weights_as_checkpoint(model, tmp_path / "out" / "model.ckpt", verbose=0)
    # By the folder alone: its config has to say what its names do not.
    again = silent(build_transformer_model, tmp_path / "out", verbose=0, **options)
    assert family_of(again) == family.name
    assert_equal_weights(model, again)
    assert sorted(model_report(again).loaded) == sorted(model_report(model).loaded)
    named = family.build(paths["config"], paths["checkpoint"], **options)
    batch = family.batch()
    assert_close(outputs_of(named, batch), outputs_of(model, batch), 0)


@each
def test_own_activation_and_epsilon_survive_writing(family, tmp_path):
    config, arrays = family.sample(hidden_act="tanh")
    model = family.build(config, arrays)
    paths = save_weights_as_checkpoint(model, tmp_path / "model.ckpt", verbose=0)
    again = family.build(paths["config"], paths["checkpoint"])
    batch = family.batch()
    assert_close(outputs_of(again, batch), outputs_of(model, batch), 0)
    other = family.build(config, arrays, layer_norm_eps=3e-3)
    with refused(WeightMismatchError, "layer_norm_eps", 0.003):
        save_weights_as_checkpoint(other, tmp_path / "other.ckpt", verbose=0)


@each
def test_saved_by_keras(family, tmp_path):
    config, arrays = family.sample()
    options, _ = family.heads[0]
    model = family.build(config, arrays, hidden_states=True, **options)
    silent(model.save, tmp_path / "model.keras")
    again = silent(keras.models.load_model, tmp_path / "model.keras")
    assert_equal_weights(model, again)
    batch = family.batch()
    assert_close(outputs_of(again, batch), outputs_of(model, batch), 0)
    assert family_of(again) == family.name
    load_weights_from_checkpoint(again, family.sample(seed=3)[1], verbose=0)


# ---- training --------------------------------------------------------------------------------


@pytest.mark.backends
@each
def test_one_step_moves_every_variable(family):
    config, arrays = family.sample()
    options, _ = family.heads[0]
    model = family.build(config, arrays, **options)
    batch = family.batch(length=12)
    targets = [
        np.random.default_rng(5).normal(size=x.shape).astype("float32")
        for x in outputs_of(model, batch)
    ]
    before = {w.path: to_numpy(w) for w in model.trainable_weights}
    model.compile(keras.optimizers.SGD(1.0), "mse", **STEP_BY_STEP)
    model.fit(
        batch if len(batch) > 1 else batch[0],
        targets if len(targets) > 1 else targets[0],
        verbose=0,
        batch_size=3,
    )
    assert len(before) == len(model.weights) == len(arrays)
    still = {
        path
        for path, value in before.items()
        if np.abs(to_numpy(next(w for w in model.weights if w.path == path)) - value).max() < 1e-8
    }
    assert all(path.endswith(family.flat) for path in still) if family.flat else not still


@each
@pytest.mark.parametrize(
    "policy",
    default_and_slow(["mixed_float16", "mixed_bfloat16", "bfloat16"], ["mixed_float16"]),
)
def test_low_precision(family, policy):
    config, arrays = family.sample()
    options, names = family.heads[0]
    model = family.build(config, arrays, hidden_states=True, dtype=policy, **options)
    batch = family.batch()
    batch[0][2] = 0  # a row of padding alone
    tolerance = 0.02 if "float16" in policy.split("_") else 0.12
    for ours, exact in zip(
        outputs_of(model, batch), family.expected(config, arrays, batch, names), strict=True
    ):
        assert np.isfinite(ours).all()
        assert np.abs(ours - exact)[:2].max() <= tolerance * max(1, np.abs(exact).max())


@each
def test_initial_values_without_a_checkpoint(family):
    config, _ = family.sample()
    options, _ = family.heads[0]
    model = build_transformer_model(config, model=family.name, verbose=0, **options)
    kernels = [to_numpy(w) for w in model.weights if w.path.endswith(("/kernel", "/embeddings"))]
    assert len({tuple(k.ravel()[:4]) for k in kernels}) == len(kernels), "equal numbers"
    assert all(0.001 < kernel.std() < 0.5 for kernel in kernels)
    assert np.isfinite(outputs_of(model, family.batch())[0]).all()


# ---- refusals --------------------------------------------------------------------------------


@each
def test_heads_and_applications_it_does_not_have(family):
    config, arrays = family.sample()
    own = {option for options, _ in family.heads for option in options}
    for option in set(ALL_HEADS) - own - {"with_classifier"}:
        with refused(ConfigError, option, family.name):
            family.build(config, arrays, **{option: True})
    for application in {"lm", "unilm"} - set(family.applications):
        with refused(ConfigError, application, family.name):
            family.build(config, arrays, application=application)


@each
def test_files_of_other_families(family):
    config, arrays = family.sample()
    for other in FAMILIES:
        their_config, their_arrays = other.sample()
        if other is family or other.name in family.twins:
            silent(family.build, config, their_arrays)
            continue
        for one in (config, their_config):
            with refused(WeightMismatchError, f"model={other.name!r}"):
                family.build(one, their_arrays)
    for model, kind in (("bert", "google_bert"), ("albert", "google_albert")):
        foreign = tiny_config(kind)
        with refused(WeightMismatchError, "Google", f"model='{model}'"):
            family.build(foreign, make_arrays(kind, foreign, 1))
        with refused(WeightMismatchError, f"model={family.name!r}"):
            family.build(config, arrays, model=model)


@each
def test_a_file_that_lacks_a_variable_or_has_one_more(family):
    config, arrays = family.sample()
    kernel = next(n for n in sorted(arrays) if SECOND.search(n) and n.endswith("/kernel"))
    with refused(WeightMismatchError, "lacks 1 variables of the encoder", kernel):
        family.build(config, {n: a for n, a in arrays.items() if n != kernel})
    scope = kernel.rpartition("/")[0]
    with refused(WeightMismatchError, f"{scope}/more", "does not have"):
        family.build(config, {**arrays, f"{scope}/more": np.ones(3, "float32")})
    with refused(WeightMismatchError, "num_hidden_layers", 2, 3):
        family.build({**config, "num_hidden_layers": 2}, arrays)
    with refused(WeightMismatchError, "vocab_size", VOCABULARY, 61):
        family.build({**config, "vocab_size": 61}, arrays)


# ---- recognising -----------------------------------------------------------------------------


@each
def test_auto(family):
    config, arrays = family.sample()
    model = silent(build_transformer_model, {**config, **family.told}, arrays, verbose=0)
    assert family_of(model) == family.name
    if family.told:
        assert family_of(build_transformer_model({**config, **family.told}, verbose=0)) == str(
            family
        )
        with refused(ConfigError, "may hold a model", family.name, *family.twins) as caught:
            build_transformer_model(config, arrays, verbose=0)
        assert "bert'" not in str(caught.value)


@each
def test_sizes_from_the_file_alone(family):
    config, arrays = family.sample()
    given = {key: config[key] for key in ("hidden_act", "num_attention_heads")}
    with pytest.warns(UserWarning, match="sizes were read"):
        model = family.build(None, arrays, hidden_states=True, **given)
    batch = family.batch()
    assert_close(outputs_of(model, batch)[1:], family.expected(config, arrays, batch))


@each
def test_inspection(family, tmp_path):
    config, arrays = family.sample()
    prefix = write_checkpoint(tmp_path / "model.ckpt", arrays)
    seen = inspect_checkpoint(prefix, model=family.name)
    assert (seen.family, seen.model, seen.dialect) == (family.name, family.name, family.title)
    assert {key: seen.sizes[key] for key in SIZES} == {key: config[key] for key in SIZES}
    for key in family.shown:
        assert seen.sizes[key] == config[key]
    assert not seen.others
    in_heads = sum(seen.heads.values())
    assert seen.parameters + in_heads == sum(a.size for a in arrays.values())
    (tmp_path / "config.json").write_text(json.dumps({**config, **family.told}))
    seen = inspect_checkpoint(prefix)
    assert seen.family == family.name
    model = eval(seen.line, {"build_transformer_model": build_transformer_model})
    assert family_of(model) == family.name
    assert len(model_report(model).loaded) == len(arrays)


# ---- the vocabulary --------------------------------------------------------------------------


@each
def test_keep_tokens(family):
    config, arrays = family.sample()
    options, names = family.heads[0]
    keep = [0, *range(59, 20, -2)]
    model = family.build(config, arrays, keep_tokens=keep, hidden_states=True, **options)
    batch = family.batch()
    batch[0] %= len(keep)
    whole = [np.array(keep)[batch[0]], *batch[1:]]
    wanted = family.expected(config, arrays, whole, names)
    wanted = [x[..., keep] if x.shape[-1] == VOCABULARY else x for x in wanted]
    assert_close(outputs_of(model, batch), wanted)

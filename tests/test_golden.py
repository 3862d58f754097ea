"""Numbers of the original programs: every layer and head, at every mask, to 1e-5.

The last part opens genuine files: a trained ALBERT, and the indexes of two releases.
"""

import re

import keras
import numpy as np
import pytest
from keras import ops

from fixtures import DATA, FAST_CASES, GOLDEN_CASES, golden_case
from harness import refused, to_numpy
from kerasbert import build_transformer_model, model_report
from kerasbert.errors import WeightMismatchError

CASES = [name for name in GOLDEN_CASES if name not in FAST_CASES]

# Run again on JAX and torch: every dialect, norm placement and kind of sharing once.
QUICK = {
    ("bert", "bert"),
    ("bert_relu", "roberta"),
    ("albert", "albert"),
    ("albert_groups", "albert_unshared"),
    ("albert_smallvar", "albert"),
    ("albert_zh", "albert"),
    ("albert_zh_preln", "albert"),
    ("albert_zh_unshared", "albert_unshared"),
}


def fitting(name):
    """Every model= that can hold the case."""
    if name.startswith("bert"):
        return "bert", "roberta"
    return ("albert_unshared",) if name == "albert_zh_unshared" else ("albert", "albert_unshared")


def marks(name, model):
    if (name, model) in QUICK:
        return [pytest.mark.backends]
    # What shares its blocks loads a file by the same rows as what does not.
    alone = not any(name == other for other, _ in QUICK) and model == fitting(name)[0]
    return [] if alone else [pytest.mark.slow]


EVERY = pytest.mark.parametrize(
    ("name", "model"),
    [
        pytest.param(name, model, marks=marks(name, model))
        for name in CASES
        for model in fitting(name)
    ],
)


def tolerance(name):
    """Without a last norm the pre-LN numbers are an order larger."""
    return 2e-5 if name == "albert_zh_preln" else 1e-5


def build(case, model, **options):
    return build_transformer_model(case.config_path, case.checkpoint, model, verbose=0, **options)


def batch(case, *kinds, masked=True):
    """Inputs of the recorded runs "" (padding at the end), "hole_" and "nomask_", one below other.

    One call for several: the rows of a batch know nothing of each other.
    """
    rows = []
    for kind in kinds:
        ids, segments, mask = (
            case.arrays["hole_" * (kind != "") + key]
            for key in ("input_ids", "segment_ids", "input_mask")
        )
        if kind == "nomask_":
            mask, segments = np.ones_like(mask), np.zeros_like(segments)
        rows.append((ids, segments, mask) if masked else (ids, segments))
    return [np.concatenate(arrays) for arrays in zip(*rows, strict=True)]


def same(found, expected, atol):
    found = to_numpy(found)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=atol, rtol=0)


def pair_of(case, what):
    """The sentence head's array: ALBERT's is called sop, the others' nsp."""
    return case.arrays.get(f"sop_{what}", case.arrays.get(f"nsp_{what}"))


def check_all(case, model, **options):
    """All layers, all heads' logits, and three masks."""
    atol, rows = tolerance(case.name), len(case.arrays["input_ids"])
    model = build(
        case,
        model,
        with_mask_input=True,
        with_nsp="linear",
        with_mlm="linear",
        hidden_states=True,
        **options,
    )
    # The pooled output is no output beside a sentence head, but it is in the graph.
    model = keras.Model(model.inputs, [model.get_layer("Pooler-Dense").output, *model.outputs])
    pooled, sentence, words, *states = model(batch(case, "", "hole_", "nomask_"))
    layers = sorted(
        (name for name in case.arrays if re.fullmatch(r"layer_\d+", name)),
        key=lambda name: int(name[6:]),
    )
    assert len(states) == len(layers) + 1
    same(states[0][:rows], embedded(case), atol)
    for state, layer in zip(states[1:], layers, strict=True):
        same(state[:rows], case.arrays[layer], atol)
    same(words[:rows], case.arrays["mlm_logits"], atol)
    same(sentence[:rows], pair_of(case, "logits"), atol)
    for i, kind in enumerate(("", "hole_", "nomask_")):
        part = slice(i * rows, (i + 1) * rows)
        same(states[-1][part], case.arrays[f"{kind}sequence_output"], atol)
        same(pooled[part], case.arrays[f"{kind}pooled_output"], atol)


def embedded(case):
    """Input of the first block; Google's ALBERT recorded it before its projection."""
    output = case.arrays["embedding_output"]
    scope = "bert/encoder/embedding_hidden_mapping_in"
    if f"{scope}/kernel" not in case.variables:
        return output
    return output @ case.variables[f"{scope}/kernel"] + case.variables[f"{scope}/bias"]


# ---- recorded outputs ------------------------------------------------------------------------


@EVERY
def test_layers_and_logits(name, model):
    check_all(golden_case(name), model)


# Of the same heads over other encoders test_layers_and_logits has the logits.
@pytest.mark.parametrize("name", ["bert", "albert", "albert_zh"])
def test_probabilities_with_the_mask_taken_from_the_ids(name):
    case = golden_case(name)
    assert np.array_equal(case.arrays["input_mask"], case.arrays["input_ids"] > 0)
    option = "with_sop" if "sop_logits" in case.arrays else "with_nsp"
    heads = build(case, fitting(name)[-1], with_mlm=True, **{option: True})
    sentence, words = heads(batch(case, "", masked=False))
    # A logarithm: an error of a logit, and the same of the sum of all.
    same(np.log(to_numpy(words)), case.arrays["mlm_log_probs"], 2 * tolerance(name))
    same(np.log(to_numpy(sentence)), pair_of(case, "log_probs"), 2 * tolerance(name))


@pytest.mark.backends
def test_pooled_alone_and_compiled():
    case = golden_case("albert")
    model = build(case, "albert", with_mask_input=True, with_pool=True)
    found = model.predict(batch(case, "", "hole_", "nomask_"), verbose=0)
    kinds = ("", "hole_", "nomask_")
    same(found, np.concatenate([case.arrays[f"{kind}pooled_output"] for kind in kinds]), 1e-5)


# The smallvar cases have activations too small to tell the two forms apart.
@pytest.mark.parametrize("name", ["bert", "albert", "albert_zh_preln"])
def test_the_other_gelu_is_seen(name):
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check_all(golden_case(name), fitting(name)[0], hidden_act="gelu_erf")


@pytest.mark.parametrize(
    ("name", "epsilon"),
    [
        ("albert_zh", 1e-5),
        ("albert_zh_preln", 1e-3),
        ("bert_smallvar", 1e-6),
        ("albert_smallvar", 1e-8),
    ],
)
def test_another_epsilon_is_seen(name, epsilon):
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check_all(golden_case(name), fitting(name)[0], layer_norm_eps=epsilon)


@pytest.mark.parametrize("name", FAST_CASES)
@pytest.mark.parametrize("model", ["albert", "albert_unshared"])
def test_grouped_feed_forward_is_refused(name, model):
    case = golden_case(name)
    names = r"group_\d/inner_group_0/ffn_1/intermediate/(output/)?dense/kernel"
    with refused(WeightMismatchError, "grouped", "modeling_google_fast.py", case.checkpoint) as e:
        build(case, model)
    said = re.search(rf"\S*{names}", str(e.value))
    assert str(case.variables[said[0]].shape) in str(e.value)


def test_a_diverged_file_does_not_fit_a_shared_model():
    case = golden_case("albert_zh_unshared")
    with refused(WeightMismatchError, "layer_0", "layer_1", "albert_unshared"):
        build(case, "albert")


# ---- early albert_zh, folded into Google's form ----------------------------------------------


def folded(variables):
    """Early albert_zh under Google's names, with the product of both tables as the only table.

    So were the "google" zips of bert4keras' author made: E equals H, and there is no projection.
    """
    tails = {
        "attention/self/": "attention_1/self/",
        "attention/output/dense/": "attention_1/output/dense/",
        "attention/output/LayerNorm/": "LayerNorm/",
        "intermediate/dense/": "ffn_1/intermediate/dense/",
        "output/dense/": "ffn_1/intermediate/output/dense/",
        "output/LayerNorm/": "LayerNorm_1/",
    }
    made = {}
    for name, value in variables.items():
        head, shared, tail = name.partition("encoder/layer_shared/")
        if shared:
            part = next(part for part in tails if tail.startswith(part))
            name = f"{head}encoder/transformer/group_0/inner_group_0/" + tails[part]
            name += tail.removeprefix(part)
        made[name] = value
    second = made.pop("bert/embeddings/word_embeddings_2").astype("float64")
    table = made["bert/embeddings/word_embeddings"] @ second
    made["bert/embeddings/word_embeddings"] = table.astype("float32")
    return made


@pytest.mark.parametrize("model", ["albert", "albert_unshared"])
@pytest.mark.parametrize("keys", [{}, {"num_hidden_groups": 1, "inner_group_num": 1}])
def test_folded_albert_zh(model, keys):
    case = golden_case("albert_zh")
    config = {**case.config, "embedding_size": case.config["hidden_size"], **keys}
    options = {"with_mask_input": True, "with_nsp": "linear", "with_mlm": "linear"}
    model = build_transformer_model(
        config, folded(case.variables), model, hidden_states=True, verbose=0, **options
    )
    sentence, words, states = model(batch(case, ""))
    assert not any("Mapping" in weight.path for weight in model.weights)
    for k in range(3):
        same(states[k + 1], case.arrays[f"layer_{k}"], 1e-5)
    same(words, case.arrays["mlm_logits"], 1e-5)
    same(sentence, case.arrays["nsp_logits"], 1e-5)


# ---- genuine files ---------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["albert", "albert_unshared"])
def test_a_trained_albert_with_a_hugging_face_config(model):
    folder = DATA / "rxnmapper"
    with np.load(folder / "reference_hf.npz") as npz:
        recorded = dict(npz)
    options = {"with_mlm": "linear", "hidden_states": True, "verbose": 0}
    found = build_transformer_model(folder / "config.json", folder / "tf1", model, **options)
    inputs = [recorded["ids"], np.zeros_like(recorded["ids"])]
    words, states = found(inputs)
    assert len(states) == 13
    same(words, recorded["mlm_logits"], 1e-4)
    same(states[-1], recorded["last_hidden"], 1e-4)
    if model == "albert_unshared":
        return
    wrong = build_transformer_model(
        folder / "config.json", folder / "tf1", model, hidden_act="gelu_tanh", **options
    )
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        same(wrong(inputs)[0], recorded["mlm_logits"], 1e-4)


@pytest.fixture
def cheap_start(monkeypatch):
    """Zeros instead of random numbers: a tenth of the time of a big model."""
    monkeypatch.setattr(
        keras.initializers.TruncatedNormal,
        "__call__",
        lambda self, shape, dtype=None: ops.zeros(shape, dtype),
    )


@pytest.mark.parametrize(
    ("folder", "models"),
    [
        ("google-research+bert", ["bert"]),
        ("hellonlp+classifier_multi_label", ["albert", "albert_unshared"]),
    ],
)
def test_names_and_shapes_of_a_release(folder, models, cheap_start):
    import tensorflow as tf

    folder = DATA / "index_only" / folder
    (index,), (config,) = folder.glob("*.index"), folder.glob("*.json")
    reader = tf.train.load_checkpoint(str(index.with_suffix("")))
    shapes = {name: tuple(s) for name, s in reader.get_variable_to_shape_map().items()}
    slot = re.compile(r"/adam_[mv]$|^global_step$")
    wanted = {name for name in shapes if not slot.search(name)}
    # The file without its numbers: arrays of one element each, stretched.
    arrays = {name: np.broadcast_to(np.float32(1), shape) for name, shape in shapes.items()}
    for name in models:
        model = build_transformer_model(
            config, arrays, name, with_nsp=True, with_mlm=True, verbose=0
        )
        report = model_report(model)
        assert not report.missing and not report.unused and not report.unused_heads
        assert set(report.optimizer_slots) == shapes.keys() - wanted
        assert set(report.read) == wanted
        assert len(report.loaded) == len(model.weights)
        weights = {weight.path: weight for weight in model.weights}
        for path, names in report.loaded.items():
            turned = -1 if names[0] == "cls/seq_relationship/output_weights" else 1
            assert tuple(weights[path].shape) == shapes[names[0]][::turned], path
            assert float(ops.min(weights[path])) == float(ops.max(weights[path])) == 1.0


KEYS = (
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
)
SIZES = {
    "base": ((30000, 128, 768, 12, 12, 3072, "gelu"), 11_683_584),
    "large": ((30000, 128, 1024, 24, 16, 4096, "gelu"), 17_683_968),
    "base_zh": ((21128, 128, 768, 12, 12, 3072, "relu"), 10_547_968),
}


def parameters(size, model):
    config = dict(zip(KEYS, SIZES[size][0], strict=True))
    made = build_transformer_model(config, model=model, with_pool=True)
    blocks = {layer.name for layer in made.layers if "MultiHeadSelfAttention" in layer.name}
    return made.count_params(), len(blocks)


@pytest.mark.parametrize("size", list(SIZES))
def test_parameters_of_the_shared_sizes(size, cheap_start):
    assert parameters(size, "albert") == (SIZES[size][1], 1)


def test_parameters_of_the_unshared_base(cheap_start):
    h, i = 768, 3072
    block = 4 * (h * h + h) + (h * i + i) + (i * h + h) + 4 * h
    assert block == 7_087_872
    expected = SIZES["base"][1] + 11 * block
    assert expected == 89_650_176
    assert parameters("base", "albert_unshared") == (expected, 12)

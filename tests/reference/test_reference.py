"""The reference forward against recorded outputs of the original programs."""

import json

import numpy as np
import pytest

from fixtures import DATA, FAST_CASES, GOLDEN_CASES, golden_case, read_checkpoint
from reference.forward import forward, group_of

TOLERANCE = 1e-5  # float32 originals against float64; the worst measured is 2.2e-6
CASES = [name for name in GOLDEN_CASES if name not in FAST_CASES]
SMALL_VARIANCE = ["albert_smallvar", "bert_smallvar"]

# What the recordings call an output, where the reference says it otherwise. The originals'
# embedding_output stands before the projection of Google's ALBERT.
RENAMED = {"embedding_output": "embedding_norm", "sop_logits": "nsp_logits"}


def run(case, inputs="", **options):
    """Run a case on one of its three inputs: "", "hole_" or "nomask_"."""
    source = "hole_" if inputs == "nomask_" else inputs
    ids = case.arrays[f"{source}input_ids"]
    if inputs == "nomask_":
        return forward(case.variables, case.config, ids, **options)
    segments, mask = (case.arrays[f"{source}{name}"] for name in ("segment_ids", "input_mask"))
    return forward(case.variables, case.config, ids, segments, mask, **options)


def differences(case, outputs, inputs=""):
    """Return {name: largest absolute difference} for all outputs that were recorded."""
    found = {}
    for name, recorded in case.arrays.items():
        ours = name.removeprefix(inputs)
        ours = RENAMED.get(ours, ours)
        if name.startswith(inputs) and ours in outputs:
            found[name] = float(np.abs(outputs[ours] - recorded).max())
    return found


@pytest.mark.parametrize("name", CASES)
def test_every_output_agrees(name):
    case = golden_case(name)
    found = differences(case, run(case))
    blocks = case.config["num_hidden_layers"] * case.config.get("inner_group_num", 1)
    pair = {"nsp_logits", "sop_logits"} & set(case.arrays)
    assert len(pair) == 1
    expected = {f"layer_{i}" for i in range(blocks)} | pair
    expected |= {"embedding_output", "sequence_output", "pooled_output", "mlm_logits"}
    assert set(found) == expected
    assert max(found.values()) < TOLERANCE, found


@pytest.mark.parametrize("inputs", ["hole_", "nomask_"])
@pytest.mark.parametrize("name", CASES)
def test_other_masks_agree(name, inputs):
    case = golden_case(name)
    found = differences(case, run(case, inputs), inputs)
    assert set(found) == {f"{inputs}sequence_output", f"{inputs}pooled_output"}
    assert max(found.values()) < TOLERANCE, found


@pytest.mark.parametrize("name", CASES)
def test_no_mask_is_a_mask_of_ones(name):
    case = golden_case(name)
    ids = case.arrays["hole_input_ids"]
    ones, zeros = np.ones_like(ids), np.zeros_like(ids)
    explicit = forward(case.variables, case.config, ids, zeros, ones)
    for key, value in run(case, "nomask_").items():
        np.testing.assert_array_equal(value, explicit[key])


# ---- the comparison sees the mistakes it is there for ----------------------------------------


@pytest.mark.parametrize("name", [n for n in CASES if n not in [*SMALL_VARIANCE, "bert_relu"]])
def test_wrong_gelu_is_seen(name):
    case = golden_case(name)
    found = differences(case, run(case, activation="gelu_erf"))
    for output in ("layer_0", "sequence_output", "mlm_logits"):
        assert found[output] > 10 * TOLERANCE


def test_gelu_instead_of_relu_is_seen():
    case = golden_case("bert_relu")
    found = differences(case, run(case, activation="gelu_tanh"))
    assert min(found["layer_0"], found["mlm_logits"]) > 0.1


@pytest.mark.parametrize("epsilon", [1e-8, 1e-7, 1e-6, 1e-5])
@pytest.mark.parametrize("name", SMALL_VARIANCE)
def test_wrong_epsilon_is_seen(name, epsilon):
    case = golden_case(name)
    assert differences(case, run(case, epsilon=epsilon))["sequence_output"] > 10 * TOLERANCE


@pytest.mark.parametrize("name", [n for n in CASES if n not in SMALL_VARIANCE])
def test_mask_taken_from_the_ids_is_seen(name):
    case = golden_case(name)
    ids, segments = case.arrays["hole_input_ids"], case.arrays["hole_segment_ids"]
    outputs = forward(case.variables, case.config, ids, segments, ids > 0)
    assert differences(case, outputs, "hole_")["hole_sequence_output"] > 10 * TOLERANCE


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("albert_zh_preln", {"ln_type": "postln"}),
        ("albert_zh", {"ln_type": "preln"}),
        ("albert_groups", {"num_hidden_groups": 1}),
        ("albert_groups", {"inner_group_num": 1}),
        ("bert", {"num_attention_heads": 2}),
    ],
)
def test_wrong_config_is_seen(name, wrong):
    case = golden_case(name)
    ids, segments, mask = (case.arrays[k] for k in ("input_ids", "segment_ids", "input_mask"))
    outputs = forward(case.variables, case.config | wrong, ids, segments, mask)
    assert differences(case, outputs)["sequence_output"] > 0.01


# ---- details ---------------------------------------------------------------------------------


@pytest.mark.parametrize("ln_type", [None, "postln"])
def test_post_norm_has_two_spellings(ln_type):
    case = golden_case("albert_zh")
    config = case.config | {"ln_type": ln_type}
    ids, segments, mask = (case.arrays[k] for k in ("input_ids", "segment_ids", "input_mask"))
    outputs = forward(case.variables, config, ids, segments, mask)
    assert max(differences(case, outputs).values()) < TOLERANCE


def test_groups_follow_the_original_arithmetic():
    assert [group_of(i, 4, 2) for i in range(4)] == [0, 0, 1, 1]
    assert [group_of(i, 5, 3) for i in range(5)] == [0, 0, 1, 1, 2]
    assert [group_of(i, 4, 12) for i in range(4)] == [0, 3, 6, 9]
    for size in (6, 12, 24):
        assert [group_of(i, size, size) for i in range(size)] == list(range(size))
    assert group_of(15, 22, 22) == 14  # rounding: layer 15 has the group of layer 14


def test_a_row_without_keys_gives_numbers():
    case = golden_case("bert")
    ids = case.arrays["input_ids"]
    hidden = forward(case.variables, case.config, ids, input_mask=np.zeros_like(ids))
    seen = forward(case.variables, case.config, ids)
    # Every score falls by the same amount, which the softmax cancels.
    np.testing.assert_allclose(hidden["sequence_output"], seen["sequence_output"], atol=1e-9)


def test_too_many_positions_are_refused():
    case = golden_case("bert")
    with pytest.raises(ValueError, match="33 tokens, but the file knows 32 positions"):
        forward(case.variables, case.config, np.ones((1, 33), int))


@pytest.mark.parametrize("name", FAST_CASES)
def test_grouped_layers_are_refused(name):
    with pytest.raises(NotImplementedError, match="ffn_1/intermediate/dense/kernel is no matrix"):
        run(golden_case(name))


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="none of google_bert"):
        forward({"electra/embeddings/word_embeddings": np.ones((3, 2))}, {}, [[1]])


# ---- a real, trained ALBERT ------------------------------------------------------------------


def test_real_albert_agrees():
    folder = DATA / "rxnmapper"
    variables = read_checkpoint(folder / "tf1" / "albert_model.ckpt")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    with np.load(folder / "reference_hf.npz") as npz:
        ids, hidden, logits = npz["ids"], npz["last_hidden"], npz["mlm_logits"]

    right = forward(variables, config, ids, activation="gelu_erf")
    np.testing.assert_allclose(right["sequence_output"], hidden, atol=1e-4, rtol=0)
    np.testing.assert_allclose(right["mlm_logits"], logits, atol=1e-4, rtol=0)

    wrong = forward(variables, config, ids, activation="gelu_tanh")
    assert np.abs(wrong["sequence_output"] - hidden).max() > 1e-3
    assert np.abs(wrong["mlm_logits"] - logits).max() > 1e-2

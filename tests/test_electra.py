"""ELECTRA: both towers from one pre-training checkpoint, against the original outputs."""

import keras
import numpy as np
import pytest

from fixtures import DATA
from harness import refused, to_numpy
from kerasbert import build_transformer_model, model_report, save_weights_as_checkpoint
from kerasbert.errors import ConfigError, WeightMismatchError

CASES = ["electra", "electra_same_dim", "electra_smallvar", "electra_untied_gen"]
ATOL = 1e-5


def folder(case):
    return DATA / "golden" / case


def build(case, model, config, **options):
    return build_transformer_model(
        folder(case) / config, folder(case) / "model.ckpt", model=model, verbose=0, **options
    )


def discriminator(case, **options):
    return build(case, "electra", "discriminator_config.json", **options)


def generator(case, **options):
    return build(case, "electra_generator", "generator_config.json", **options)


def inputs_of(golden):
    """The three input sets: as pre-trained, with holes in the mask, without mask."""
    ids, mask, segments = (golden[f"input_{key}"] for key in ("ids", "mask")), None, None
    ids, mask = ids
    segments = golden["segment_ids"]
    hole = golden["hole_input_ids"]
    return {
        "": [ids, segments, mask],
        "hole_": [hole, golden["hole_segment_ids"], golden["hole_input_mask"]],
        "nomask_": [hole, np.zeros_like(hole), np.ones_like(hole)],
    }


@pytest.mark.backends
@pytest.mark.parametrize("case", CASES)
def test_golden(case):
    golden = dict(np.load(folder(case) / "golden.npz"))
    options = {"hidden_states": True, "with_mask_input": True}
    towers = {
        ("disc", "logits"): discriminator(case, with_discriminator="linear", **options),
        ("gen", "mlm_logits"): generator(case, with_mlm="linear", **options),
    }
    for (tower, output), model in towers.items():
        for prefix, batch in inputs_of(golden).items():
            head, states = keras.tree.map_structure(to_numpy, model(batch))
            np.testing.assert_allclose(head, golden[f"{prefix}{tower}_{output}"], 0, ATOL)
            sequence = golden[f"{prefix}{tower}_sequence_output"]
            np.testing.assert_allclose(states[-1], sequence, 0, ATOL)
            if prefix == "":
                for depth, state in enumerate(states[1:]):
                    np.testing.assert_allclose(state, golden[f"{tower}_layer_{depth}"], 0, ATOL)


def test_the_tanh_form_would_be_seen():
    golden = dict(np.load(folder("electra") / "golden.npz"))
    model = discriminator("electra", with_mask_input=True, hidden_act="gelu_tanh")
    output = to_numpy(model(inputs_of(golden)[""]))
    assert np.abs(output - golden["disc_sequence_output"]).max() > 10 * ATOL


def test_probabilities_of_a_compiled_model():
    golden = dict(np.load(folder("electra") / "golden.npz"))
    model = discriminator("electra", with_discriminator=True, with_mask_input=True)
    output = model.predict_on_batch(inputs_of(golden)[""])
    np.testing.assert_allclose(output, golden["disc_probs"], 0, ATOL)


@pytest.mark.parametrize("option", ["with_pool", "with_nsp", "with_mlm"])
def test_heads_that_electra_lacks(option):
    with refused(ConfigError, option, "electra", "with_discriminator"):
        discriminator("electra", **{option: True})


def test_the_report_tells_of_the_other_tower():
    model = discriminator("electra")
    report = model_report(model)
    assert not report.missing
    assert any(name.startswith("generator/") for name in report.unused)
    assert {"discriminator_predictions/dense/kernel"} <= set(report.unused_heads)


def test_a_wrong_model_is_told_the_right_one():
    with refused(WeightMismatchError, "ELECTRA", "model='electra'"):
        build("electra", "bert", "config.json")


@pytest.mark.parametrize("tower", [discriminator, generator])
@pytest.mark.parametrize("case", ["electra", "electra_same_dim", "electra_untied_gen"])
def test_written_and_read_again(tower, case, tmp_path):
    heads = {"with_discriminator" if tower is discriminator else "with_mlm": "linear"}
    model = tower(case, **heads)
    paths = save_weights_as_checkpoint(model, tmp_path / "model.ckpt", verbose=0)
    name = "electra" if tower is discriminator else "electra_generator"
    again = build_transformer_model(
        paths["config"], paths["checkpoint"], model=name, verbose=0, **heads
    )
    for old, new in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)

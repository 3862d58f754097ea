"""GPT-2 of Hugging Face transformers, loaded here and written back."""

import json

import numpy as np
import pytest

from harness import silent, to_numpy
from kerasbert import build_transformer_model, model_report, save_pretrained

torch = pytest.importorskip("torch", reason="parity needs the extra [parity]")
transformers = pytest.importorskip("transformers", reason="parity needs the extra [parity]")

pytestmark = pytest.mark.parity

SIZES = {"vocab_size": 50, "n_embd": 8, "n_layer": 3, "n_head": 2, "n_positions": 20}
CASES = [
    ("GPT2LMHeadModel", {}),
    ("GPT2LMHeadModel", {"n_inner": 20, "layer_norm_epsilon": 1e-3}),
    ("GPT2LMHeadModel", {"activation_function": "relu", "pad_token_id": 3}),
    ("GPT2LMHeadModel", {"activation_function": "gelu"}),
    ("GPT2Model", {}),
]
each_case = pytest.mark.parametrize(
    ("name", "changes"), CASES, ids=["plain", "inner", "relu", "erf", "bare"]
)


@pytest.fixture(autouse=True)
def quiet():
    transformers.logging.set_verbosity_error()


def theirs(name="GPT2LMHeadModel", **changes):
    """A model of theirs with weights large enough to show every mistake."""
    torch.manual_seed(1)
    cls = getattr(transformers, name)
    network = cls(transformers.GPT2Config(**{**SIZES, **changes})).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0.0, 0.3)
    return network


def batch(padding=None):
    """Token ids of which some are 0, a token like the others, and a mask."""
    ids = np.random.default_rng(2).integers(4, 50, (3, 9)).astype("int32")
    ids[:, 4] = 0
    mask = np.ones_like(ids)
    if padding == "right":
        mask[1, 6:], mask[2, 3:] = 0, 0
    elif padding == "left":
        mask[1, :3], mask[2, :5] = 0, 0
    return ids, mask


def outputs_of_theirs(network, ids, mask, positions=None):
    inputs = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}
    if positions is not None:
        inputs["position_ids"] = torch.tensor(positions.astype("int64"))
    with torch.no_grad():
        result = network(**inputs, output_hidden_states=True)
    states = [state.numpy() for state in result.hidden_states]
    return result[0].numpy(), states


def loaded(folder, headed, **options):
    options = {"with_lm": "linear" if headed else False, "verbose": 0, **options}
    return silent(build_transformer_model, folder, hidden_states=True, **options)


def assert_same(found, wanted, mask):
    """Compare logits and hidden states at real tokens; the last state there is normalised."""
    (logits, states), (their_logits, their_states) = found, wanted
    assert len(states) == len(their_states)
    pairs = [(logits, their_logits), *zip(states[:-1], their_states[:-1], strict=True)]
    for ours, other in pairs:
        np.testing.assert_allclose(to_numpy(ours)[mask > 0], other[mask > 0], rtol=0, atol=1e-5)


@each_case
def test_theirs_loaded_here(name, changes, tmp_path):
    network = theirs(name, **changes)
    network.save_pretrained(tmp_path)
    headed = name != "GPT2Model"
    ours = loaded(tmp_path, headed)
    report = model_report(ours)
    assert not report.missing and not report.unused
    ids, mask = batch()
    assert_same(ours(ids), outputs_of_theirs(network, ids, mask), mask)


@each_case
def test_ours_loaded_there(name, changes, tmp_path):
    network = theirs(name, **changes)
    network.save_pretrained(tmp_path / "theirs")
    headed = name != "GPT2Model"
    ours = loaded(tmp_path / "theirs", headed)
    save_pretrained(ours, tmp_path / "ours", verbose=0)
    again, info = type(network).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    ids, mask = batch("right")
    found, wanted = (outputs_of_theirs(net.eval(), ids, mask) for net in (again, network))
    assert_same(found, wanted, mask)
    for key, value in {**SIZES, **changes}.items():
        assert getattr(again.config, key) == value, key
    same = loaded(tmp_path / "ours", headed)
    for old, new in zip(ours.get_weights(), same.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize("counted", [False, True])
def test_padding_by_a_mask(padding, counted, tmp_path):
    network = theirs()
    network.save_pretrained(tmp_path)
    ours = loaded(tmp_path, True, with_mask_input=True, custom_position_ids=counted)
    ids, mask = batch(padding)
    positions, inputs = None, [ids, mask]
    if counted:  # as when they generate: the first real token is the first
        positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0).astype("int32")
        inputs = [ids, positions, mask]
    wanted = outputs_of_theirs(network, ids, mask, positions)
    assert_same(ours(inputs), wanted, mask)


def test_right_padding_needs_no_mask(tmp_path):
    network = theirs()
    network.save_pretrained(tmp_path)
    ids, mask = batch("right")
    found = loaded(tmp_path, True)(np.where(mask, ids, 0))
    assert_same(found, outputs_of_theirs(network, ids, mask), mask)


def test_sharded_files(tmp_path):
    network = theirs()
    network.save_pretrained(tmp_path, max_shard_size="4KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    ids, mask = batch()
    wanted = outputs_of_theirs(network, ids, mask)
    assert_same(loaded(tmp_path, True)(ids), wanted, mask)


def test_names_without_prefix_and_with_buffers(tmp_path):
    """The form of OpenAI's own release on the hub, whose file was written by the bare model."""
    network = theirs()
    state = {
        name.removeprefix("transformer."): tensor.contiguous()
        for name, tensor in network.state_dict().items()
        if name != "lm_head.weight"
    }
    for layer in range(SIZES["n_layer"]):
        state[f"h.{layer}.attn.bias"] = torch.tril(torch.ones(1, 1, 20, 20))
        state[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    torch.save(state, tmp_path / "pytorch_model.bin")
    network.config.save_pretrained(tmp_path)
    ours = loaded(tmp_path, True)
    assert len(model_report(ours).buffers) == 2 * SIZES["n_layer"]
    ids, mask = batch()
    assert_same(ours(ids), outputs_of_theirs(network, ids, mask), mask)


def test_without_a_config(tmp_path):
    network = theirs(n_embd=128)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(0.3)
    network.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    (tmp_path / "config.json").unlink()
    with pytest.warns(UserWarning, match=r"num_attention_heads=2 .*hidden_act='gelu_tanh'"):
        ours = build_transformer_model(
            None, tmp_path / "model.safetensors", hidden_states=True, with_lm="linear", verbose=0
        )
    assert config["n_head"] == 2
    ids, mask = batch()
    assert_same(ours(ids), outputs_of_theirs(network, ids, mask), mask)

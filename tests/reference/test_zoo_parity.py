"""The references of ``zoo`` against transformers on torch, in float64, weights copied by name.

Written for transformers 5.24.
"""

import numpy as np
import pytest

from fixtures import random_batch
from reference.zoo import run
from reference.zoo_parts import bucket_of
from reference.zoo_t5 import LAYOUTS
from reference.zoo_weights import zoo_arrays, zoo_config

torch = pytest.importorskip("torch", reason="parity needs the extra [parity]")
transformers = pytest.importorskip("transformers", reason="parity needs the extra [parity]")

pytestmark = pytest.mark.parity

TOLERANCE = 1e-5  # the worst measured: T5 1.4e-6, whose norms work in float32 there; others 1e-8


def load(network, state):
    """Put all arrays in, by name; nothing may be missing but buffers and tied tables."""
    tensors = {name: torch.tensor(np.asarray(value, float)) for name, value in state.items()}
    network = network.double().eval()
    missing, unexpected = network.load_state_dict(tensors, strict=False)
    assert not unexpected
    tied = ("lm_head.weight", "embed_tokens.weight", "decoder.weight", "decoder.bias")
    assert not [name for name in missing if not name.endswith((*tied, "embed_positions.weight"))]
    network.tie_weights()
    for name, tensor in tensors.items():
        assert torch.equal(network.state_dict()[name], tensor), name
    return network


def call(network, **inputs):
    inputs = {name: torch.tensor(np.asarray(value)) for name, value in inputs.items()}
    with torch.no_grad():
        return network(**inputs, output_hidden_states=True)


def assert_close(ours, theirs, seen=None):
    """Compare at the positions that are no padding; the others differ in nothing that matters."""
    ours, theirs = np.asarray(ours), theirs.numpy()
    assert ours.shape == theirs.shape
    if seen is not None:
        ours, theirs = ours[seen], theirs[seen]
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE)


# ---- T5 ----------------------------------------------------------------------------------------


def t5_state(layout, arrays, depth):
    """Their names: ``encoder.block.0.layer.1.DenseReluDense.wi.weight``, matrices turned."""
    state = {"shared.weight": arrays["shared/embedding"]}
    if layout != "t5.1.0":
        state["lm_head.weight"] = arrays["decoder/logits/kernel"].T
    norm = "rms_norm" if layout == "mt5.1.1" else "layer_norm"
    for stack, kinds in (("encoder", ["SelfAttention"]), ("decoder", ["SelfAttention"] * 2)):
        kinds = [*kinds[:1], *["EncDecAttention"] * (len(kinds) - 1), "DenseReluDense"]
        for i in range(depth):
            for n, kind in enumerate(kinds):
                here, there = f"{stack}/block_{i:03d}/layer_{n:03d}", f"{stack}.block.{i}.layer.{n}"
                state[f"{there}.layer_norm.weight"] = arrays[f"{here}/{norm}/scale"]
                for name, value in arrays.items():
                    if name.startswith(f"{here}/{kind}/") and value.ndim == 2:
                        end = name.removeprefix(f"{here}/").removesuffix("/kernel")
                        state[f"{there}.{end.replace('/', '.')}.weight"] = value.T
        final = "rms_norm" if layout == "mt5.1.1" else "final_layer_norm"
        state[f"{stack}.final_layer_norm.weight"] = arrays[f"{stack}/{final}/scale"]
    return state


def t5_network(layout, config):
    mt5 = layout == "mt5.1.1"
    name = "MT5" if mt5 else "T5"
    network_config = getattr(transformers, f"{name}Config")(
        vocab_size=config["vocab_size"],
        d_model=config["hidden_size"],
        d_kv=config["attention_head_size"],
        d_ff=config["intermediate_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=config["num_attention_heads"],
        feed_forward_proj="relu" if layout == "t5.1.0" else "gated-gelu",
        tie_word_embeddings=layout == "t5.1.0",
        dropout_rate=0.0,
    )
    network = getattr(transformers, f"{name}ForConditionalGeneration")(network_config)
    if layout != "t5.1.0":
        # Release 5.24 makes one table of the two whatever the config says; files have both.
        network.config.tie_word_embeddings = False
        network.lm_head.weight = torch.nn.Parameter(torch.zeros_like(network.shared.weight))
    return network


@pytest.mark.parametrize("layout", LAYOUTS)
def test_t5(layout):
    config = zoo_config(layout, attention_head_size=5, num_hidden_layers=2)
    arrays = zoo_arrays(layout, config)
    network = load(t5_network(layout, config), t5_state(layout, arrays, 2))
    rng = np.random.default_rng(0)
    ids, _ = random_batch(rng, 60, 3, 40)
    decoder_ids, _ = random_batch(rng, 60, 3, 30)
    decoder_ids[:, 0] = 0
    seen = decoder_ids != 0
    seen[:, 0] = True
    ours = run(layout, arrays, config, ids, decoder_ids)
    theirs = call(
        network,
        input_ids=ids.astype(int),
        attention_mask=(ids != 0).astype(int),
        decoder_input_ids=decoder_ids.astype(int),
        decoder_attention_mask=seen.astype(int),
    )
    assert_close(ours["lm_logits"], theirs.logits, seen)
    assert_close(ours["encoder_output"], theirs.encoder_last_hidden_state, ids != 0)
    assert_close(ours["decoder_output"], theirs.decoder_hidden_states[-1], seen)
    for i in range(2):  # their last state is normalised
        assert_close(ours["encoder_states"][i], theirs.encoder_hidden_states[i], ids != 0)
        assert_close(ours["decoder_states"][i], theirs.decoder_hidden_states[i], seen)


@pytest.mark.parametrize("bidirectional", [True, False])
def test_buckets(bidirectional):
    from transformers.models.t5.modeling_t5 import T5Attention

    distances = np.arange(-700, 700)
    theirs = T5Attention._relative_position_bucket(torch.tensor(distances), bidirectional)
    ours = [bucket_of(int(distance), bidirectional) for distance in distances]
    np.testing.assert_array_equal(ours, theirs.numpy())


# ---- GPT and GPT-2 -----------------------------------------------------------------------------

GPT_ENDS = {
    "attention/output/dense": "attn.c_proj",
    "intermediate/dense": "mlp.c_fc",
    "output/dense": "mlp.c_proj",
}


def gpt_state(family, arrays, depth):
    """Their kernels are [in, out] too; queries, keys and values lie side by side in one."""
    norms = {"gpt2": ("attention/input/LayerNorm", "input/LayerNorm")}
    norms = norms.get(family, ("attention/output/LayerNorm", "output/LayerNorm"))
    ends = GPT_ENDS | {norms[0]: "ln_1", norms[1]: "ln_2"}
    words, positions = ("wte", "wpe") if family == "gpt2" else ("tokens_embed", "positions_embed")
    state = {
        f"transformer.{words}.weight": arrays["gpt/embeddings/word_embeddings"],
        f"transformer.{positions}.weight": arrays["gpt/embeddings/position_embeddings"],
    }
    parts = {"kernel": "weight", "gamma": "weight", "bias": "bias", "beta": "bias"}
    for i in range(depth):
        here, there = f"gpt/transformer/layer_{i}", f"transformer.h.{i}"
        for part in ("kernel", "bias"):
            whole = [arrays[f"{here}/attention/self/{n}/{part}"] for n in ("query", "key", "value")]
            state[f"{there}.attn.c_attn.{parts[part]}"] = np.concatenate(whole, axis=-1)
        for ours, theirs in ends.items():
            for part, their_part in parts.items():
                if f"{here}/{ours}/{part}" in arrays:
                    state[f"{there}.{theirs}.{their_part}"] = arrays[f"{here}/{ours}/{part}"]
    if family == "gpt2":
        state["transformer.ln_f.weight"] = arrays["gpt/output/LayerNorm/gamma"]
        state["transformer.ln_f.bias"] = arrays["gpt/output/LayerNorm/beta"]
    return state


@pytest.mark.parametrize("family", ["gpt", "gpt2"])
def test_gpt(family):
    sizes = {} if family == "gpt2" else {"intermediate_size": 96}  # theirs is always 4 times H
    config = zoo_config(family, **sizes)
    arrays = zoo_arrays(family, config)
    if family == "gpt":
        del arrays["gpt/embeddings/token_type_embeddings"]  # theirs has no table of segments
    name = "GPT2" if family == "gpt2" else "OpenAIGPT"
    network_config = getattr(transformers, f"{name}Config")(
        vocab_size=60,
        n_positions=20,
        n_embd=24,
        n_layer=3,
        n_head=4,
        layer_norm_epsilon=1e-5,
        **({"n_inner": 40, "activation_function": "gelu_new"} if family == "gpt2" else {}),
    )
    network = load(
        getattr(transformers, f"{name}LMHeadModel")(network_config), gpt_state(family, arrays, 3)
    )
    ids, _ = random_batch(np.random.default_rng(0), 60, 3, 12)
    seen = ids != 0
    ours = run(family, arrays, config, ids, epsilon=1e-5)
    theirs = call(network, input_ids=ids.astype(int), attention_mask=seen.astype(int))
    assert_close(ours["lm_logits"], theirs.logits, seen)
    assert_close(ours["sequence_output"], theirs.hidden_states[-1], seen)
    for i in range(3):
        assert_close(ours["hidden_states"][i], theirs.hidden_states[i], seen)


# ---- RoFormer ----------------------------------------------------------------------------------


def roformer_state(arrays):
    state = {}
    for name, value in arrays.items():
        if name.endswith("/kernel"):
            name, value = name.removesuffix("kernel") + "weight", value.T
        name = name.replace("/gamma", "/weight").replace("/beta", "/bias")
        name = name.removeprefix("bert/encoder/embedding_hidden_mapping_in/")
        if name in ("weight", "bias"):
            name = f"roformer/embeddings_project/{name}"
        name = name.replace("cls/predictions/output_bias", "cls/predictions/bias")
        name = name.replace("_embeddings", "_embeddings/weight").replace("bert/", "roformer/")
        if "seq_relationship" not in name and "pooler" not in name:
            state[name.replace("layer_", "layer.").replace("/", ".")] = value
    return state


@pytest.mark.parametrize("embedding_size", [24, 12])
def test_roformer(embedding_size):
    config = zoo_config("roformer", embedding_size=embedding_size)
    arrays = zoo_arrays("roformer", config)
    sizes = {key: value for key, value in config.items() if key != "hidden_act"}
    network_config = transformers.RoFormerConfig(
        **sizes, hidden_act="gelu_new", layer_norm_eps=1e-12, rotary_value=False
    )
    network = load(transformers.RoFormerForMaskedLM(network_config), roformer_state(arrays))
    ids, segments = random_batch(np.random.default_rng(0), 60, 3, 12)
    seen = ids != 0
    ours = run("roformer", arrays, config, ids, segments)
    theirs = call(
        network,
        input_ids=ids.astype(int),
        token_type_ids=segments.astype(int),
        attention_mask=seen.astype(int),
    )
    assert_close(ours["mlm_logits"], theirs.logits, seen)
    for our_state, their_state in zip(ours["hidden_states"], theirs.hidden_states, strict=True):
        assert_close(our_state, their_state, seen)

"""`generate` against that of transformers on torch, at equal weights."""

import numpy as np
import pytest

from harness import silent
from kerasbert import build_transformer_model
from kerasbert.generation import generate

torch = pytest.importorskip("torch", reason="parity needs the extra [parity]")
transformers = pytest.importorskip("transformers", reason="parity needs the extra [parity]")

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("quick_to_compile")]

VOCABULARY, MOST = 60, 9
#: So many that few texts have the same length.
ENDS = [2, 11, 17, 23, 29, 31, 41]
SIZES = {
    "gpt2": {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "t5": {
        "vocab_size": VOCABULARY,
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 48,
        "num_layers": 2,
        "num_decoder_layers": 2,
        "num_heads": 4,
        "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 12,
        "dropout_rate": 0.0,
    },
}
SIZES["t5.1.1"] = {**SIZES["t5"], "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
SETTINGS = {
    "greedy": {"method": "greedy"},
    "beam": {"method": "beam", "length_penalty": 1.0},
    "repetition": {"method": "greedy", "repetition_penalty": 1.7},
    "ngrams": {"method": "beam", "no_repeat_ngram_size": 2},
    "long": {"method": "greedy", "min_length": 6},
}
# What is done to logits does not depend on the gated units of a T5 1.1.
RUNS = [(kind, name) for kind in ("gpt2", "t5") for name in SETTINGS] + [("t5.1.1", "greedy")]


@pytest.fixture(autouse=True)
def quiet():
    transformers.logging.set_verbosity_error()


@pytest.fixture(scope="module", params=["gpt2", "t5", "t5.1.1"])
def pair(request, tmp_path_factory):
    """A random model of theirs, and ours read from its folder."""
    torch.manual_seed(3)
    if request.param == "gpt2":
        config = transformers.GPT2Config(**SIZES["gpt2"], eos_token_id=ENDS[0], pad_token_id=0)
        network = transformers.GPT2LMHeadModel(config).eval()
    else:
        config = transformers.T5Config(
            **SIZES[request.param], eos_token_id=ENDS[0], pad_token_id=0, decoder_start_token_id=0
        )
        network = transformers.T5ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, values in network.named_parameters():
            is_scale = "norm.weight" in name or ("ln_" in name and "weight" in name)
            is_position = "relative" in name or "wpe" in name
            values.normal_(float(is_scale), 1.2 if is_position else 0.4)
        # So that texts neither repeat themselves for ever nor end at once.
        network.lm_head.weight[ENDS] *= 1.25
    folder = tmp_path_factory.mktemp("theirs")
    network.save_pretrained(folder)
    ours = silent(build_transformer_model, folder, with_lm="linear", verbose=0)
    return network, ours


def prompts():
    rng = np.random.default_rng(4)
    return [rng.integers(3, VOCABULARY, n).tolist() for n in rng.integers(1, 25, 8)]


def written_by_them(network, prompt, method="greedy", length_penalty=None, **settings):
    """The new tokens of one row, without padding anywhere."""
    options = {
        "repetition_penalty": settings.get("repetition_penalty"),
        "no_repeat_ngram_size": settings.get("no_repeat_ngram_size"),
        "min_new_tokens": settings.get("min_length"),
        "length_penalty": length_penalty,
    }
    options = {key: value for key, value in options.items() if value is not None}
    if method == "beam":
        options |= {"num_beams": 4, "length_penalty": length_penalty or 0.0}
    with torch.no_grad():
        found = network.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones((1, len(prompt)), dtype=torch.long),
            max_new_tokens=MOST,
            do_sample=False,
            eos_token_id=ENDS,
            # Ours never writes padding.
            suppress_tokens=[0],
            **options,
        )[0].tolist()
    start = 1 if network.config.is_encoder_decoder else len(prompt)
    return found[start:]


def _ended(row):
    """The row without the padding behind its end."""
    size = next((place + 1 for place, token in enumerate(row) if token in ENDS), len(row))
    return row[:size]


@pytest.mark.parametrize(("pair", "name"), RUNS, indirect=["pair"])
def test_the_same_texts(name, pair):
    network, ours = pair
    settings = SETTINGS[name]
    wanted = [written_by_them(network, prompt, **settings) for prompt in prompts()]
    found = generate(ours, prompts(), MOST, end_id=ENDS, **settings)
    if name == "greedy":
        assert len({len(text) for text in wanted}) >= 3, "texts should end at different lengths"
    differing = [
        (prompt, text.tolist(), other)
        for prompt, text, other in zip(prompts(), found, wanted, strict=True)
        if text.tolist() != other
    ]
    assert not differing, f"{len(differing)} of 8 rows differ, the first: {differing[0]}"


@pytest.mark.parametrize("pair", ["gpt2", "t5"], indirect=True)
def test_all_beams_in_their_order(pair):
    network, ours = pair
    found = generate(ours, prompts()[:4], MOST, "beam", num_return=3, end_id=ENDS)
    for prompt, own in zip(prompts(), found, strict=False):
        with torch.no_grad():
            rows = network.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones((1, len(prompt)), dtype=torch.long),
                max_new_tokens=MOST,
                num_beams=4,
                num_return_sequences=3,
                length_penalty=0.0,
                do_sample=False,
                eos_token_id=ENDS,
                suppress_tokens=[0],
            ).tolist()
        start = 1 if network.config.is_encoder_decoder else len(prompt)
        wanted = [row[start:] for row in rows]
        wanted = [_ended(row) for row in wanted]
        assert [text.tolist() for text in own] == wanted

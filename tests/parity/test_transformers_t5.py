"""T5 and mT5 against transformers on torch, read from its files and written for it."""

import numpy as np
import pytest

from harness import to_numpy
from kerasbert import build_transformer_model, save_pretrained

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.parity

READ = np.array([[5, 6, 7, 8, 0, 0], [3, 4, 0, 0, 0, 0], [9, 8, 7, 6, 5, 4]], "int32")
WRITE = np.array([[0, 4, 5, 2], [0, 7, 1, 3], [0, 3, 9, 8]], "int32")
SIZES = {
    "vocab_size": 60,
    "d_model": 24,
    "d_kv": 5,
    "d_ff": 40,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "dropout_rate": 0.0,
}
KINDS = {
    "t5": ("T5", {}),
    "t5_few_buckets": (
        "T5",
        {"relative_attention_num_buckets": 6, "relative_attention_max_distance": 5},
    ),
    "t5.1.1": ("T5", {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "t5_silu": ("T5", {"feed_forward_proj": "gated-silu", "tie_word_embeddings": False}),
    "mt5": ("MT5", {}),
}


def make(kind):
    """A random model of transformers whose norms, tables and head matter."""
    stem, options = KINDS[kind]
    torch.manual_seed(7)
    config = getattr(transformers, f"{stem}Config")(**SIZES, **options)
    model = getattr(transformers, f"{stem}ForConditionalGeneration")(config).eval()
    if stem == "MT5" or not options.get("tie_word_embeddings", True):
        model.lm_head.weight = torch.nn.Parameter(torch.empty(60, 24))
    with torch.no_grad():
        for name, values in model.named_parameters():
            small = any(word in name for word in ("lm_head", "shared"))
            values.normal_(0, 0.3 if small else 0.25)
            if "layer_norm" in name:
                values.add_(1)
    return model


def theirs(model):
    with torch.no_grad():
        return model(
            input_ids=torch.tensor(READ).long(),
            attention_mask=torch.tensor(READ != 0).long(),
            decoder_input_ids=torch.tensor(WRITE).long(),
            output_hidden_states=True,
        )


def ours(folder, **options):
    return build_transformer_model(
        folder, hidden_states=True, with_lm="linear", verbose=0, **options
    )


@pytest.fixture(scope="module", params=KINDS)
def pair(request, tmp_path_factory):
    """A model of theirs, and ours read from its folder."""
    model, folder = make(request.param), tmp_path_factory.mktemp("theirs")
    model.save_pretrained(folder)
    return model, ours(folder)


def assert_equal(found, expected):
    logits, encoder, decoder = found
    np.testing.assert_allclose(to_numpy(logits), expected.logits.numpy(), atol=1e-5, rtol=0)
    for state, other in zip(encoder[:-1], expected.encoder_hidden_states, strict=False):
        real = READ != 0
        np.testing.assert_allclose(to_numpy(state)[real], other.numpy()[real], atol=1e-5, rtol=0)
    for state, other in zip(decoder[:-1], expected.decoder_hidden_states, strict=False):
        np.testing.assert_allclose(to_numpy(state), other.numpy(), atol=1e-5, rtol=0)


def test_their_folder_here(pair):
    model, whole = pair
    assert_equal(whole([READ, WRITE]), theirs(model))


def test_our_folder_there(pair, tmp_path):
    _, whole = pair
    save_pretrained(whole, tmp_path, verbose=0)
    again, info = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    assert_equal(whole([READ, WRITE]), theirs(again.eval()))


def test_an_encoder_alone(tmp_path):
    model = make("t5")
    model.save_pretrained(tmp_path / "theirs")
    encoder = build_transformer_model(tmp_path / "theirs", model="t5_encoder", verbose=0)
    save_pretrained(encoder, tmp_path / "ours", verbose=0)
    again = transformers.T5EncoderModel.from_pretrained(tmp_path / "ours").eval()
    mask = torch.tensor(READ != 0).long()
    with torch.no_grad():
        expected = again(input_ids=torch.tensor(READ).long(), attention_mask=mask)[0].numpy()
    real = READ != 0
    np.testing.assert_allclose(to_numpy(encoder(READ))[real], expected[real], atol=1e-5, rtol=0)

"""Models of Hugging Face transformers, loaded here and written back."""

import json

import keras
import numpy as np
import pytest

from harness import refused, to_numpy
from kerasbert import build_transformer_model, model_report, save_pretrained
from kerasbert.errors import WeightMismatchError

torch = pytest.importorskip("torch", reason="parity needs the extra [parity]")
transformers = pytest.importorskip("transformers", reason="parity needs the extra [parity]")

SIZES = {
    "vocab_size": 50,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 20,
}
FACTORISED = dict(SIZES, embedding_size=4)
GROUPED = dict(FACTORISED, num_hidden_groups=2, inner_group_num=2)
DISTIL = {
    "vocab_size": 50,
    "dim": 8,
    "n_layers": 2,
    "n_heads": 2,
    "hidden_dim": 16,
    "max_position_embeddings": 20,
}
LINEAR = {"classifier_activation": "linear"}
SEQUENCE = dict(with_classifier=True, **LINEAR)
TOKEN = dict(with_classifier="token", **LINEAR)
SPAN = dict(with_classifier="span", **LINEAR)
MLM = {"with_mlm": "linear"}

ROFORMER = dict(SIZES, embedding_size=4)

HEADS = ("logits", "pooler_output")

# class there, its sizes, model= here, options here
CASES = [
    ("BertModel", SIZES, "bert", {"with_pool": True}),
    ("AlbertModel", GROUPED, "albert", {"with_pool": True}),
    ("ElectraModel", FACTORISED, "electra", {}),
    ("RobertaModel", SIZES, "roberta", {"with_pool": True}),
    ("DistilBertModel", DISTIL, "distilbert", {}),
    ("BertForMaskedLM", SIZES, "bert", MLM),
    ("BertForPreTraining", SIZES, "bert", dict(MLM, with_nsp="linear")),
    ("BertForSequenceClassification", dict(SIZES, num_labels=3), "bert", SEQUENCE),
    ("BertForTokenClassification", dict(SIZES, num_labels=3), "bert", TOKEN),
    ("BertForQuestionAnswering", SIZES, "bert", SPAN),
    ("AlbertForMaskedLM", GROUPED, "albert", MLM),
    ("AlbertForMaskedLM", dict(SIZES, embedding_size=8), "albert_unshared", MLM),
    ("AlbertForPreTraining", GROUPED, "albert_unshared", dict(MLM, with_sop="linear")),
    ("AlbertForSequenceClassification", FACTORISED, "albert", SEQUENCE),
    ("ElectraForPreTraining", FACTORISED, "electra", {"with_discriminator": "linear"}),
    ("ElectraForMaskedLM", FACTORISED, "electra_generator", MLM),
    ("ElectraForSequenceClassification", FACTORISED, "electra", SEQUENCE),
    ("RobertaForMaskedLM", SIZES, "roberta", MLM),
    ("RobertaForSequenceClassification", dict(SIZES, num_labels=4), "roberta", SEQUENCE),
    ("RobertaForTokenClassification", SIZES, "roberta", TOKEN),
    ("DistilBertForMaskedLM", DISTIL, "distilbert", MLM),
    ("DistilBertForSequenceClassification", DISTIL, "distilbert", SEQUENCE),
    ("RoFormerModel", ROFORMER, "roformer", {}),
    ("RoFormerForMaskedLM", ROFORMER, "roformer", MLM),
    ("RoFormerForMaskedLM", dict(SIZES, hidden_act="relu"), "roformer", MLM),
    ("RoFormerForSequenceClassification", dict(SIZES, num_labels=3), "roformer", SEQUENCE),
    ("RoFormerForTokenClassification", dict(SIZES, num_labels=3), "roformer", TOKEN),
    ("RoFormerForQuestionAnswering", ROFORMER, "roformer", SPAN),
]
pytestmark = pytest.mark.parity


@pytest.fixture(autouse=True)
def quiet():
    transformers.logging.set_verbosity_error()


def theirs(name, sizes):
    """A model of theirs with weights large enough to show every mistake."""
    torch.manual_seed(1)
    cls = getattr(transformers, name)
    network = cls(cls.config_class(**sizes)).eval()
    with torch.no_grad():
        for parameter_name, parameter in network.named_parameters():
            if not parameter_name.endswith("embed_positions.weight"):  # sines and cosines
                parameter.normal_(0.0, 0.3)
    return network


@pytest.fixture(scope="module", params=CASES, ids=[f"{c[0]}-{c[2]}" for c in CASES])
def loaded(request, tmp_path_factory):
    """A network of theirs, ours read from its folder, and what ours was called and given."""
    name, sizes, model, options = request.param
    network = theirs(name, sizes)
    folder = tmp_path_factory.mktemp("theirs")
    network.save_pretrained(folder)
    ours = build_transformer_model(folder, model=model, hidden_states=True, verbose=0, **options)
    return network, ours, model, options


def batch_for(model):
    pad = 1 if model == "roberta" else 0
    ids = np.random.default_rng(2).integers(2, 50, (2, 7)).astype("int32")
    ids[1, 5:] = pad
    segments = np.tile((np.arange(7) > 3).astype("int32"), (2, 1))
    has_segments = model not in ("roberta", "distilbert")
    return ids, segments if has_segments else None, (ids != pad).astype("int64")


def outputs_of_theirs(network, ids, segments, mask):
    inputs = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}
    if segments is not None:
        inputs["token_type_ids"] = torch.tensor(segments)
    with torch.no_grad():
        result = network(**inputs, output_hidden_states=True)
    heads = [value.numpy() for key, value in result.items() if key.endswith(HEADS)]
    return heads, [state.numpy() for state in result.hidden_states]


def outputs_of_ours(network, ids, segments):
    *heads, states = network(ids if segments is None else [ids, segments])
    return keras.tree.map_structure(to_numpy, (heads, states))


def test_theirs_loaded_here(loaded):
    network, ours, model, options = loaded
    assert not model_report(ours).missing
    ids, segments, mask = batch_for(model)
    heads, states = outputs_of_ours(ours, ids, segments)
    heads = heads if options else []  # without a head it is the last state again
    their_heads, their_states = outputs_of_theirs(network, ids, segments, mask)
    if "with_nsp" in options or "with_sop" in options:
        heads = heads[::-1]  # they put the masked-LM output first
    for got, wanted in zip(heads + list(states), their_heads + their_states, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5)


def test_ours_loaded_there(loaded, tmp_path):
    network, ours, model, _ = loaded
    save_pretrained(ours, tmp_path, verbose=0)
    again, info = type(network).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    ids, segments, mask = batch_for(model)
    (heads, states), (their_heads, their_states) = (
        outputs_of_theirs(net.eval(), ids, segments, mask) for net in (again, network)
    )
    for got, wanted in zip(heads + states, their_heads + their_states, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5)


def test_rotary_positions_that_were_trained(tmp_path):
    network = theirs("RoFormerModel", SIZES)
    with torch.no_grad():
        network.encoder.embed_positions.weight += 0.1
    network.save_pretrained(tmp_path)
    with refused(WeightMismatchError, "embed_positions.weight", "sines and cosines"):
        build_transformer_model(tmp_path, verbose=0)


@pytest.mark.parametrize("family", ["bert", "albert", "electra"])
def test_a_model_without_segments(family, tmp_path):
    config = dict(GROUPED if family == "albert" else SIZES, hidden_act="gelu", model_type=family)
    ours = build_transformer_model(config, model=family, segment_vocab_size=0, verbose=0)
    save_pretrained(ours, tmp_path, verbose=0)
    network, info = transformers.AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    # The base class there has a pooler, which a model without one cannot fill.
    assert all("pooler" in key for key in info.pop("missing_keys"))
    assert not any(info.values()), info
    ids, segments, mask = batch_for(family)
    _, states = outputs_of_theirs(network.eval(), ids, segments, mask)
    np.testing.assert_allclose(to_numpy(ours(ids)), states[-1], rtol=0, atol=1e-5)


def test_old_names_of_norms_and_unneeded_buffers(tmp_path):
    network = theirs("BertForMaskedLM", SIZES)
    arrays = {
        key.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): value.numpy()
        for key, value in network.state_dict().items()
    }
    arrays["bert.embeddings.position_ids"] = np.arange(20)[None]
    config = json.loads(network.config.to_json_string(use_diff=False))
    ours = build_transformer_model(config, arrays, model="bert", verbose=0, **MLM)
    assert model_report(ours).buffers == ["bert.embeddings.position_ids"]
    assert not model_report(ours).unused

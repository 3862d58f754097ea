"""Which variables of our models decay, and which rate each has by its depth."""

import keras
import pytest

from fixtures import tiny_config
from kerasbert import build_transformer_model
from kerasbert.errors import ConfigError, KerasbertError
from kerasbert.optimizers import AdamW, layerwise_multipliers
from kerasbert.registry import MODELS
from reference.zoo_weights import zoo_config

ZOO = {
    "nezha": "nezha",
    "roformer": "roformer",
    "roformer_v2": "roformer_v2",
    "gau_alpha": "gau_alpha",
    "gpt": "gpt",
    "gpt2": "gpt2",
    "gpt2_ml": "gpt2_ml",
    "t5": "t5.1.0",
    "t5.1.0": "t5.1.0",
    "t5.1.1": "t5.1.1",
    "mt5": "mt5.1.1",
    "mt5.1.1": "mt5.1.1",
}
TINY = {"albert": "google_albert", "albert_unshared": "google_albert", "electra": "electra"}


def model_of(kind, **arguments):
    base = kind.removesuffix("_encoder").removesuffix("_decoder")
    config = zoo_config(ZOO[base]) if base in ZOO else tiny_config(TINY.get(kind, "google_bert"))
    if kind == "electra_generator":
        config = tiny_config("electra")
    return build_transformer_model(config, model=kind, verbose=0, **arguments)


def decayed(model):
    optimizer = AdamW()
    variables = model.trainable_variables
    optimizer.build(variables)
    return {v.path for v, d in zip(variables, optimizer._decayed, strict=True) if d}


@pytest.mark.parametrize("kind", sorted(set(MODELS) - {"roberta", "distilbert"}))
def test_kernels_and_tables_decay_and_nothing_else(kind):
    model = model_of(kind, num_hidden_layers=1)
    matrices = {v.path for v in model.trainable_variables if len(v.shape) == 2}
    assert decayed(model) == matrices
    assert {path.rpartition("/")[2] for path in matrices} == {"kernel", "embeddings"}


def test_heads_and_your_own_layers():
    model = model_of("bert", with_mlm=True, with_nsp=True)
    output = keras.layers.Dense(2, name="mine")(model.outputs[-1])
    model = keras.Model(model.inputs, output)
    assert all(path.endswith(("/kernel", "/embeddings")) for path in decayed(model))
    assert "mine/kernel" in decayed(model)


def factors(model, **arguments):
    """Dict from the first part of each variable's path to its factor."""
    optimizer = AdamW(multipliers=layerwise_multipliers(model, **arguments))
    variables = model.trainable_variables
    optimizer.build(variables)
    found = {}
    for variable, factor in zip(variables, optimizer._factors, strict=True):
        found.setdefault(variable.path.rpartition("/")[0].split("/")[-2:][0], set()).add(factor)
    assert all(len(values) == 1 for values in found.values())
    return {name: values.pop() for name, values in found.items()}


def check(got, wanted):
    for name, value in wanted.items():
        assert got[name] == pytest.approx(value), name


def test_depths_are_electras():
    # Three blocks: 0.8 ** (3 + 2 - depth), embeddings 0, blocks from 1, task 5.
    got = factors(model_of("electra"))
    check(got, {"Embedding-Token": 0.8**5, "Embedding-Mapping": 0.8**5, "Embedding-Norm": 0.8**5})
    for i in range(3):
        check(got, {f"Transformer-{i}-FeedForward": 0.8 ** (4 - i)})
        check(got, {f"Transformer-{i}-MultiHeadSelfAttention": 0.8 ** (4 - i)})


def test_heads_and_your_own_layers_learn_at_the_full_rate():
    got = factors(model_of("bert", with_mlm=True, with_nsp=True), decay=0.5)
    check(got, {"Pooler-Dense": 1, "MLM-Dense": 1, "NSP-Proba": 1, "Embedding-Token": 0.5**5})


def test_shared_blocks_get_the_mean_or_less_by_their_uses():
    mean = (0.8**2 + 0.8**3 + 0.8**4) / 3
    check(factors(model_of("albert")), {"Transformer-FeedForward": mean})
    check(factors(model_of("albert"), by_uses=True), {"Transformer-FeedForward": mean / 3})
    only = factors(model_of("albert"), decay=1, by_uses=True)
    check(only, {"Transformer-MultiHeadSelfAttention": 1 / 3, "Embedding-Token": 1})


def test_partly_unshared_blocks():
    got = factors(model_of("albert", unshare="attention"), by_uses=True)
    check(got, {"Transformer-0-MultiHeadSelfAttention": 0.8**4})
    check(got, {"Transformer-FeedForward": (0.8**2 + 0.8**3 + 0.8**4) / 9})


def test_encoder_and_decoder():
    got = factors(model_of("t5.1.1"))
    for stack in ("Encoder", "Decoder"):
        check(got, {f"{stack}-Transformer-{i}-FeedForward": 0.8 ** (4 - i) for i in range(3)})
    check(got, {"Decoder-Transformer-0-MultiHeadCrossAttention": 0.8**4})
    check(got, {"Embedding-Token": 0.8**5, "Decoder-Output-LM": 1})


def test_models_inside_models_and_prefixes():
    inner = model_of("bert", prefix="left-")
    inputs = [keras.Input((None,), dtype="int32") for _ in inner.inputs]
    outer = keras.Model(inputs, keras.layers.Dense(2)(inner(inputs)))
    got = layerwise_multipliers(outer, 0.5)
    assert got["(^|/)left\\-Transformer\\-0\\-FeedForward/"] == 0.5**4
    optimizer = AdamW(multipliers=got)
    optimizer.build(outer.trainable_variables)
    assert set(optimizer._factors) == {1.0, 0.5**2, 0.5**3, 0.5**4, 0.5**5}


def test_lora_learns_at_the_rate_of_its_layer():
    model = model_of("bert")
    layer = model.get_layer("Transformer-0-FeedForward")
    layer.intermediate.enable_lora(2)
    got = AdamW(multipliers=layerwise_multipliers(model, 0.5))
    variables = model.trainable_variables
    got.build(variables)
    lora = [f for v, f in zip(variables, got._factors, strict=True) if "lora" in v.path]
    assert lora == [0.5**4] * 2


def test_refusals():
    with pytest.raises(ConfigError, match=r"decay=1\.5"):
        layerwise_multipliers(model_of("bert"), 1.5)
    with pytest.raises(KerasbertError, match="holds no encoder"):
        layerwise_multipliers(keras.Sequential([keras.layers.Dense(2)]))

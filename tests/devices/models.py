"""One small model of every family, with random numbers, and a batch for it."""

import keras
import numpy as np

from fixtures import tiny_config
from harness import to_numpy
from kerasbert import build_transformer_model, hidden_state
from reference.zoo_weights import zoo_config

MLM = {"with_mlm": "linear"}
LM = {"with_lm": "linear"}
#: Two uses of a shared block, or two blocks; groups have three layers, two of them of one group.
DEPTH = {"num_hidden_layers": 2}
NO_DROPOUT = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}

#: {name: (model=, config, options that give every head)}
KINDS = {
    "bert": (
        "bert",
        tiny_config("google_bert", **DEPTH, **NO_DROPOUT),
        {**MLM, "with_nsp": "linear"},
    ),
    "albert": ("albert", tiny_config("google_albert", **DEPTH), {**MLM, "with_nsp": "linear"}),
    "albert groups": (
        "albert",
        tiny_config("google_albert", num_hidden_groups=2, inner_group_num=2),
        {"with_pool": True},
    ),
    "albert_unshared": ("albert_unshared", tiny_config("google_albert", **DEPTH), MLM),
    "albert_zh preln": ("albert", tiny_config("albert_zh", **DEPTH, ln_type="preln"), MLM),
    "electra": (
        "electra",
        tiny_config("electra", **DEPTH, **NO_DROPOUT),
        {"with_discriminator": "linear"},
    ),
    **{
        name: (name, zoo_config(name, **DEPTH), LM if name.startswith("gpt") else MLM)
        for name in ("nezha", "roformer", "roformer_v2", "gau_alpha", "gpt", "gpt2", "gpt2_ml")
    },
    **{name: (name, zoo_config(name, **DEPTH), LM) for name in ("t5.1.0", "mt5.1.1")},
}


def build(kind, seed=1, **options):
    """A model of the kind; the same numbers for the same seed."""
    model, config, heads = KINDS[kind]
    keras.utils.set_random_seed(seed)
    config = {**config, "initializer_range": 0.15}
    made = build_transformer_model(config, model=model, verbose=0, **{**heads, **options})
    rng = np.random.default_rng(seed)
    for weight in made.weights:
        if weight.path.endswith(("bias", "beta")):
            weight.assign(rng.normal(0, 0.1, weight.shape))
    return made


def batch(model, seed=0, rows=4, length=9):
    """Ids for every input: rows with no, some and nothing but padding."""
    rng = np.random.default_rng(seed)
    arrays = []
    for tensor in model.inputs:
        segments = "Segment" in tensor.name
        ids = (
            rng.integers(0, 2, (rows, length)) if segments else rng.integers(5, 60, (rows, length))
        )
        if not segments:
            ids[1, 5:] = 0
            ids[2] = 0
        arrays.append(ids.astype("int32"))
    return arrays if len(arrays) > 1 else arrays[0]


def outputs(model, inputs):
    """All outputs in one flat list, as float32 numpy arrays."""
    return [to_numpy(x) for x in keras.tree.flatten(model(inputs, training=False))]


def difference(found, expected):
    """The largest difference between two lists of arrays."""
    pairs = zip(found, expected, strict=True)
    return max(np.abs(one - other).max() for one, other in pairs)


def classifier(encoder):
    """A user's head on the first token of the last hidden state."""
    hidden = keras.tree.flatten(encoder.output)[0]
    if hidden.shape[-1] is None:  # ELECTRA gives a number for each token
        hidden = hidden_state(encoder, -1)
    hidden = hidden if len(hidden.shape) == 2 else hidden[:, 0]
    logits = keras.layers.Dense(3, name="labels", dtype="float32")(hidden)
    return keras.Model(encoder.inputs, logits)

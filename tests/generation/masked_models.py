"""Small masked-LM models and a tokenizer for them, for the tests of the masked-LM tools."""

import keras
import numpy as np

from kerasbert import build_transformer_model
from kerasbert.tokenizers import Tokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused1]"]
WORDS = [
    *"今天气很好坏不满意房间干净吵。，？",
    "play",
    "##ing",
    "good",
    "bad",
    "it",
    "was",
    ".",
    "a",
]
TOKENS = SPECIAL + WORDS


def make_tokenizer(tokens=TOKENS, **options):
    return Tokenizer({token: i for i, token in enumerate(tokens)}, do_lower_case=True, **options)


def make_model(family="bert", seed=0, vocab_size=None, deviation=0.25, **options):
    """A model whose weights are wild enough for its probabilities to differ from each other."""
    config = {
        "vocab_size": vocab_size or len(TOKENS),
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "hidden_act": "gelu",
        "max_position_embeddings": 24,
        "type_vocab_size": 2,
        **options.pop("config", {}),
    }
    model = build_transformer_model(
        config, model=family, verbose=0, **{"with_mlm": True, **options}
    )
    random = np.random.default_rng(seed)
    for weight in model.weights:
        start = 1.0 if weight.path.endswith("gamma") else 0.0
        weight.assign(start + deviation * random.standard_normal(weight.shape))
    return model


def probabilities(model, ids, *others, output=0):
    """What the whole model gives for one row (L,), or rows (B, L): float32 array (…, L, V)."""
    inputs = [np.atleast_2d(np.array(row, "int32")) for row in (ids, *others)]
    inputs = inputs[: len(model.inputs)]
    # Not by predict, which would compile the model for every length.
    found = model(inputs if len(inputs) > 1 else inputs[0], training=False)
    found = keras.ops.convert_to_numpy(keras.tree.flatten(found)[output]).astype("float32")
    return found if np.ndim(ids) == 2 else found[0]

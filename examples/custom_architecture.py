"""BERT with an adapter behind every block: a class, and names for the new variables."""

import tempfile
from dataclasses import replace

import keras

from kerasbert import build_transformer_model
from kerasbert.models import BERT
from kerasbert.weights import GOOGLE_BERT, dense, one_stack

_BLOCKS = GOOGLE_BERT.blocks["encoder"]
_ROWS = (*dense("Adapter-Down", "adapter/down", "H A"), *dense("Adapter-Up", "adapter/up", "A H"))


class AdapterBERT(BERT):
    """Adds `up(relu(down(x)))` to the output of each block (Houlsby et al. 2019)."""

    dialects = (
        replace(
            GOOGLE_BERT,
            name="adapter_bert",
            title="BERT with adapters",
            blocks=one_stack(_BLOCKS.address, (*_BLOCKS.rows, *_ROWS)),
        ),
    )

    def make_blocks(self):
        """Returns the block of every depth."""
        return [self.adapted(n, block) for n, block in enumerate(super().make_blocks())]

    def adapted(self, n, block):
        """Returns what runs `block`, then an adapter."""
        down = self.dense(f"Transformer-{n}-Adapter-Down", 8, activation="relu")
        up = self.dense(f"Transformer-{n}-Adapter-Up", self.config.hidden_size)
        add = self.layer(keras.layers.Add, f"Transformer-{n}-Adapter-Add")

        def run(hidden, arguments, condition=None):
            hidden, scores = block(hidden, arguments, condition=condition)
            return add([hidden, up(down(hidden))]), scores

        return run


sizes = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64}
config = {**sizes, "num_attention_heads": 4, "hidden_act": "gelu"}
builder = build_transformer_model(config, model=AdapterBERT, return_keras_model=False)

paths = builder.save_weights_as_checkpoint(f"{tempfile.mkdtemp()}/adapter_bert.ckpt", verbose=0)
model = build_transformer_model(paths["config"], paths["checkpoint"], model=AdapterBERT, verbose=0)
print(builder.variable_mapping()["Transformer-1-Adapter-Up/kernel"])
print(f"{model.count_params():,} parameters")

"""BERT with an adapter behind every block: a class, and names for the new variables."""

import tempfile
from dataclasses import replace

import keras

from kerasbert import build_transformer_model
from kerasbert.models import BERT
from kerasbert.weights import GOOGLE_BERT, dense, one_stack

BLOCKS = GOOGLE_BERT.blocks["encoder"]
ROWS = (*dense("Adapter-Down", "adapter/down", "H A"), *dense("Adapter-Up", "adapter/up", "A H"))
NAMES = one_stack(BLOCKS.address, (*BLOCKS.rows, *ROWS))


class AdapterBERT(BERT):
    """Adds `up(relu(down(x)))` to the output of each block (Houlsby et al. 2019)."""

    dialects = (replace(GOOGLE_BERT, name="adapters", title="BERT with adapters", blocks=NAMES),)

    def make_feed_forward(self, block_name):
        """Returns what runs the feed-forward layer of a block, then an adapter."""
        feed_forward = super().make_feed_forward(block_name)
        down = self.dense(f"{block_name}-Adapter-Down", 8, activation="relu")
        up = self.dense(f"{block_name}-Adapter-Up", self.config.hidden_size)
        add = self.layer(keras.layers.Add, f"{block_name}-Adapter-Add")

        def run(hidden, **condition):
            hidden = feed_forward(hidden, **condition)
            return add([hidden, up(down(hidden))])

        return run


config = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
config |= {"intermediate_size": 64, "hidden_act": "gelu"}
builder = build_transformer_model(config, model=AdapterBERT, return_keras_model=False)
paths = builder.save_weights_as_checkpoint(f"{tempfile.mkdtemp()}/adapters.ckpt", verbose=0)
model = build_transformer_model(paths["config"], paths["checkpoint"], model=AdapterBERT, verbose=0)
print(builder.variable_mapping()["Transformer-1-Adapter-Up/kernel"])
print(f"{model.count_params():,} parameters")

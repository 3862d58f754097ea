"""What the tests of all families share: what a family is, its models, inputs, outputs.

Adding a family is adding a line to ``FAMILIES`` in ``test_families``. Every test there runs for
each of them against the reference of that name, ``reference.zoo.run``.
"""

from dataclasses import dataclass, field

import keras
import numpy as np

from fixtures import random_batch
from harness import to_numpy
from kerasbert import build_transformer_model
from kerasbert.models.view import find_encoder
from reference.zoo import run
from reference.zoo_weights import NARROW_TABLES, zoo_arrays, zoo_config

TOLERANCE = 1e-5  # float32 against float64
VOCABULARY = 60

#: What the heads of BERT's relatives return, for all options that there are.
BERT_HEADS = (
    ({"with_nsp": "linear", "with_mlm": "linear"}, ("nsp_logits", "mlm_logits")),
    ({"with_pool": True, "with_mlm": True}, ("pooled_output", "mlm")),
)
MLM_HEAD = (
    ({"with_mlm": "linear"}, ("mlm_logits",)),
    ({"with_mlm": True}, ("mlm",)),
)
LM_HEAD = (
    ({"with_lm": "linear"}, ("lm_logits",)),
    ({"with_lm": True}, ("lm",)),
)


@dataclass(frozen=True)
class Family:
    """One line of the table."""

    name: str
    """What is passed as ``model=``, and the name of the reference."""
    heads: tuple
    """Pairs (options, names of the reference's outputs); the first of them has every variable."""
    title: str
    """How the report calls the file."""
    reference: dict = field(default_factory=dict)
    """Options of the reference that stand for what the family's configurations mean."""
    told: dict = field(default_factory=dict)
    """Keys of a configuration that name the family, where the names of the file do not."""
    twins: tuple = ()
    """Other names of ``model=`` that the same variables can be loaded as."""
    applications: tuple = ("lm", "unilm")
    """Those it has besides "encoder"."""
    causal: dict | None = None
    """Options of the reference for application "lm"; None where it has none."""
    always_causal: bool = False
    """Whether no token ever sees a later one, but with "unilm"."""
    segments: bool = True
    flat: tuple = ("query_key_bias",)
    """Ends of the paths of variables on which no output depends."""
    shown: tuple = ()
    """Keys of the configuration, besides the usual ones, that shapes show."""

    def __str__(self):
        return self.name

    @property
    def is_narrow(self):
        """Whether its tables may be narrower than its blocks."""
        return self.name in NARROW_TABLES

    def sample(self, seed=0, **sizes):
        """A small config and variables for it."""
        config = zoo_config(self.name, **sizes)
        return config, zoo_arrays(self.name, config, seed)

    def build(self, config, arrays, **options):
        """The model, without a word."""
        options = {"model": self.name, "verbose": 0, **options}
        return build_transformer_model(config, arrays, **options)

    def batch(self, seed=0, rows=3, length=9):
        """Inputs as numpy arrays: token ids, and segment ids if the family has them."""
        ids, segments = random_batch(np.random.default_rng(seed), VOCABULARY, rows, length)
        return [ids, segments] if self.segments else [ids]

    def expected(self, config, arrays, batch, names=(), **options):
        """The reference's outputs of these names, then every hidden state."""
        out = run(self.name, arrays, config, *batch, **{**self.reference, **options})
        return [out[name] for name in names] + out["hidden_states"]


def outputs_of(model, batch):
    """All outputs of a model in one flat list, as float32 numpy arrays."""
    result = model(batch if len(batch) > 1 else batch[0], training=False)
    return [to_numpy(tensor) for tensor in keras.tree.flatten(result)]


def assert_close(found, expected, tolerance=TOLERANCE):
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance)


def assert_equal_weights(model, other):
    for old, new in zip(model.weights, other.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(old), to_numpy(new))


def family_of(model):
    return find_encoder(model).config.family

"""Batches for pre-training, small models for them, and the numbers they should give."""

import keras
import numpy as np

from fixtures import make_arrays, tiny_config
from kerasbert import build_transformer_model
from kerasbert.pretraining import for_model

MASK, CLS, SEP = 4, 2, 3
VOCABULARY = 100

#: A short run is quicker step by step than its compilation; on JAX it is the other way round.
QUICK = {
    "jit_compile": keras.backend.backend() == "jax",
    "run_eagerly": keras.backend.backend() == "tensorflow",
}


def batch(seed=0, rows=4, length=10, places=3, sentence=True, vocab_size=VOCABULARY):
    """A batch with padding in its rows and among its masked places; the first row is full."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(5, vocab_size, (rows, length)).astype("int32")
    lengths = np.r_[length, rng.integers(places + 3, length, rows - 1)]
    counts = np.r_[places, rng.integers(1, places, rows - 1)]
    positions, right = np.zeros((2, rows, places), "int32")
    weights = np.zeros((rows, places), "float32")
    segments = np.zeros_like(ids)
    for row, (end, count) in enumerate(zip(lengths, counts, strict=True)):
        ids[row, 0], ids[row, end - 1], ids[row, end:] = CLS, SEP, 0
        segments[row, end // 2 : end] = 1
        positions[row, :count] = np.sort(rng.permutation(np.arange(1, end - 1))[:count])
        right[row, :count] = ids[row, positions[row, :count]]
        weights[row, :count] = 1
        ids[row, positions[row, :count]] = MASK
    x = {
        "input_ids": ids,
        "input_mask": (np.arange(length) < lengths[:, None]).astype("int32"),
        "segment_ids": segments,
        "masked_lm_positions": positions,
    }
    y, w = {"masked_lm": right}, {"masked_lm": weights}
    if sentence:
        y["next_sentence"] = (np.arange(rows) % 2).astype("int32")
        w["next_sentence"] = np.ones(rows, "float32")
    return x, y, w


def dropout_free(kind, **more):
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return tiny_config(kind, **{"num_hidden_layers": 1, **rates, **more})


def built(kind="google_albert", model="albert", seed=1, arrays=None, **options):
    """A model with known numbers: all heads, no dropout."""
    config = dropout_free(kind)
    options = {"with_mlm": True, "with_nsp": True, **options}
    arrays = make_arrays(kind, config, seed) if arrays is None else arrays
    return build_transformer_model(config, arrays, model=model, verbose=0, **options)


def fresh(model="albert", seed=3, **options):
    """A random model with the variables of the usual size."""
    keras.utils.set_random_seed(seed)
    config = dropout_free("google_albert")
    return build_transformer_model(config, model=model, with_mlm=True, verbose=0, **options)


def cross_entropy(logits, ids):
    """Of float64 logits (…, V), for each place."""
    logits = np.asarray(logits, "float64")
    highest = logits.max(-1, keepdims=True)
    total = np.log(np.exp(logits - highest).sum(-1)) + highest[..., 0]
    return total - np.take_along_axis(logits, np.asarray(ids)[..., None], -1)[..., 0]


def at_places(values, places):
    """Vectors (B, M, …) at places (B, M) of an array (B, L, …)."""
    return values[np.arange(len(places))[:, None], places]


def masked_mean(values, weights):
    return (values * weights).sum() / weights.sum()


def steps_of(model, data, count=1):
    """The logs of some training steps on one batch."""
    data = next(for_model(model, [data]))
    return [model.train_on_batch(*data, return_dict=True) for _ in range(count)]


#: With dropout, whose random numbers have to go on too.
_RATES = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
CONFIGS = {
    kind: dropout_free(kind, num_hidden_layers=2, **_RATES, initializer_range=0.1)
    for kind in ("google_albert", "electra")
}


class MaskedDataset(keras.utils.PyDataset):
    """So many batches, others in every epoch."""

    epoch = 0

    def __init__(self, count=7):
        super().__init__()
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return batch(1000 * self.epoch + index)

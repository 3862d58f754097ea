"""Texts written by a model with low-rank adapters."""

import numpy as np
import pytest

from devices.models import build
from kerasbert import generate
from kerasbert.adapters import add_lora, merge_lora


@pytest.mark.usefixtures("do_not_compile")
def test_a_cache_and_merging_change_no_text():
    model = build("albert", with_nsp=False, application="lm", num_hidden_layers=2)
    lora = add_lora(model, 2, targets=("query", "key", "value", "intermediate"), verbose=0)
    rng = np.random.default_rng(3)
    for weight in lora.trainable_weights:
        weight.assign(rng.normal(0, 0.2, weight.shape))
    options = {"max_new_tokens": 3}
    merged = merge_lora(lora)
    pairs = [(lora, True), (lora, False), (merged, True), (model, True)]
    texts = [
        [list(text) for text in generate(m, [[7, 8, 9], [5]], use_cache=cache, **options)]
        for m, cache in pairs
    ]
    assert texts[0] == texts[1] == texts[2] != texts[3]

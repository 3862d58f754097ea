"""What `generate` refuses, and in which words."""

import keras
import numpy as np
import pytest
from writers import SIZES, random_prompts, writer

from harness import refused
from kerasbert import build_transformer_model
from kerasbert.errors import ConfigError
from kerasbert.generation import generate, stream

pytestmark = pytest.mark.usefixtures("do_not_compile")
PROMPTS = [[5, 6, 7], [8, 9]]


def bert(**options):
    return build_transformer_model(SIZES, model="bert", verbose=0, **options)


# ---- models ----------------------------------------------------------------------------------


def test_models_that_see_what_follows():
    for model in (bert(with_mlm=True, name="Tower"), bert(with_mlm="linear", name="Tower")):
        with refused(ConfigError, "Tower", "encoder", "lm", "unilm"):
            generate(model, PROMPTS, 3)


def test_models_without_a_head_for_tokens():
    with_pool = bert(with_pool=True, name="Tower")
    hidden = bert(with_mlm=False, name="Tower")
    whole = bert(application="unilm", name="Whole")
    cut = keras.Model(whole.inputs, whole.get_layer("MLM-Norm").output, name="Tower")
    for model in (with_pool, hidden, cut):
        with refused(ConfigError, "Tower", "with_mlm"):
            generate(model, PROMPTS, 3)


def test_a_gpt_without_its_head():
    sizes = {key: value for key, value in SIZES.items() if key != "type_vocab_size"}
    model = build_transformer_model(sizes, model="gpt2", with_lm=False, verbose=0, name="Tower")
    with refused(ConfigError, "Tower", "with_lm"):
        generate(model, PROMPTS, 3)


def test_the_encoder_of_a_t5():
    one = writer("t5")
    sizes = {k: v for k, v in (SIZES | one.sizes).items() if v is not ...}
    model = build_transformer_model(sizes, model="t5.1.0_encoder", verbose=0)
    with refused(ConfigError, "Encoder-Input-Token", "Decoder-Input-Token"):
        generate(model, PROMPTS, 3)


@pytest.mark.parametrize("model", [None, "albert", 3, keras.Sequential([keras.layers.Dense(3)])])
def test_what_is_no_functional_model(model):
    with refused(ConfigError, type(model).__name__, "build_transformer_model"):
        generate(model, PROMPTS, 3)


# ---- prompts ---------------------------------------------------------------------------------


WRONG = {
    "empty": ([[5, 6], []], ("1", "token")),
    "no rows": ([], ("token",)),
    "one empty": ([[]], ("0", "token")),
    "only padding": (np.array([[5, 6], [0, 0]]), ("1", "padding")),
    "too large": ([[5, 6], [7, 60]], ("1", "60", "59")),
    "negative": ([[5, -1, 6]], ("-1", "0")),
    "huge": ([[5, 2**40]], (2**40,)),
    "floats": ([[5.0, 6.0]], ("float64", "0")),
    "float array": (np.array([[5.5, 6.0]], "float32"), ("float32",)),
    "texts": ([["a", "b"]], ("Input-Token", "0")),
    "a text": ("hello", ("hello",)),
    "nothing": (None, ("None",)),
    "three levels": ([[[[5, 6]]]], ("Input-Token",)),
    "ragged segments": ([[[5, 6, 7]], [[0, 0]]], ("Input-Segment", "2", "3")),
    "rows of segments": ([[[5, 6], [7, 8]], [[0, 0]]], ("Input-Segment", "1", "2")),
    "three inputs": ([[[5]], [[0]], [[1]]], ("3", "2", "Input-Token", "Input-Segment")),
    "unknown input": ({"Input-Tokens": [[5]]}, ("Input-Tokens", "Did you mean 'Input-Token'?")),
    "no tokens": ({"Input-Segment": [[0]]}, ("Input-Token",)),
    "bools": ([[True, False]], ("bool",)),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("use_cache", [True, False], ids=["cached", "uncached"])
def test_prompts(case, use_cache):
    inputs, facts = WRONG[case]
    with refused(ConfigError, *facts):
        generate(writer("albert_unilm").made(), inputs, 3, use_cache=use_cache)


T5_WRONG = {
    "no encoder's text": ({"Decoder-Input-Token": [[0]]}, ("Encoder-Input-Token",)),
    "empty": ([[5, 6], []], ("Encoder-Input-Token", "1")),
    "too large": ([[5, 6], [7, 60]], ("Encoder-Input-Token", "60")),
    "floats": ([[5.0]], ("Encoder-Input-Token", "float64")),
    "rows": ([[[5], [6]], [[0]]], ("Decoder-Input-Token", "1", "2")),
    "unknown input": ({"Input-Token": [[5]]}, ("'Input-Token'", "Encoder-Input-Token")),
}


@pytest.mark.parametrize("case", T5_WRONG)
def test_prompts_of_a_t5(case):
    inputs, facts = T5_WRONG[case]
    with refused(ConfigError, *facts):
        generate(writer("t5").made(), inputs, 3)


def test_conditions():
    one, prompts = writer("bert_condition_unilm"), random_prompts(3)
    given = one.given(prompts)
    for wrong in ({"Condition": given["Condition"][:2]}, {"Condition": given["Condition"][0]}):
        with refused(ConfigError, "Condition"):
            generate(one.made(), given | wrong, 3)
    del given["Condition"]
    with refused(ConfigError, "'Condition'"):
        generate(one.made(), given, 3)


# ---- settings --------------------------------------------------------------------------------


SETTINGS = {
    "method": ({"method": "gredy"}, ("gredy", "Did you mean 'greedy'?", "beam", "sample")),
    "no method": ({"method": None}, ("None", "greedy")),
    "max_new_tokens": ({"max_new_tokens": 0}, ("max_new_tokens=0",)),
    "half": ({"max_new_tokens": 2.5}, ("max_new_tokens=2.5",)),
    "beams": ({"method": "beam", "beam_size": 0}, ("beam_size=0",)),
    "num_return": ({"method": "beam", "beam_size": 2, "num_return": 3}, ("num_return=3", "2")),
    "greedy texts": ({"num_return": 2}, ("num_return=2", "greedy")),
    "end": ({"end_id": 60}, ("end_id=60", "59")),
    "temperature": ({"method": "sample", "temperature": 0.0}, ("temperature=0.0",)),
    "top_p": ({"method": "sample", "top_p": 1.5}, ("top_p=1.5",)),
    "min_length": ({"end_id": 3, "min_length": 9}, ("min_length=9", "max_new_tokens=3")),
    "allowed": ({"allowed_tokens": [5]}, ("allowed_tokens=[5]",)),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_settings(case):
    settings, facts = SETTINGS[case]
    settings = {"max_new_tokens": 3, **settings}
    with refused(ConfigError, *facts):
        generate(writer("albert_unilm").made(), PROMPTS, **settings)


def test_nothing_is_allowed():
    model = writer("albert_unilm").made()
    for allowed in ([], [60], [-1], [0]):
        with refused(ConfigError):
            generate(model, PROMPTS, 3, allowed_tokens=lambda row, new, ids=allowed: ids)


def test_several_texts_cannot_be_streamed():
    model = writer("albert_unilm").made()
    with refused(ConfigError, "2 rows"):
        stream(model, PROMPTS, 3)
    with refused(ConfigError, "num_return=2"):
        stream(model, [[5]], 3, "sample", num_return=2)
    with refused(ConfigError, "beam"):
        list(stream(model, [[5]], 3, "beam"))

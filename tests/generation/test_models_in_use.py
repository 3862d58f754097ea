"""Models that write: in low precision, trained, changed, saved; compiled once; streamed."""

import functools

import keras
import numpy as np
import pytest
from plain_writing import all_logits, decoding, log_softmax
from writers import FEW, FEW_NAMES, VOCABULARY, fill, random_prompts, writer

from harness import STEP_BY_STEP, default_and_slow, saved_and_loaded
from kerasbert import compilation, layers
from kerasbert.generation import generate, stream
from kerasbert.tokenizers import Tokenizer

MOST = 3
PROMPTS = random_prompts(4, seed=40)
quick = pytest.mark.usefixtures("quick_to_compile")


def texts(model, one, **settings):
    return [text.tolist() for text in generate(model, one.given(PROMPTS), MOST, **settings)]


# ---- low precision ---------------------------------------------------------------------------


HALF = (
    ("bert_positions_mask_unilm", "mixed_float16"),
    ("nezha_lm", "bfloat16"),
    *(
        pytest.param(*pair, marks=pytest.mark.slow)
        for pair in (
            ("albert_unilm", "float16"),
            ("roformer_lm", "float16"),
            ("gau_alpha_unilm", "bfloat16"),
            ("gpt2", "mixed_float16"),
            ("t5", "float16"),
            ("t5.1.1", "bfloat16"),
        )
    ),
)


@quick
@pytest.mark.parametrize(("name", "dtype"), HALF)
def test_low_precision(name, dtype):
    one = writer(name)
    model = one.build(dtype=dtype)
    found = decoding(one, model, PROMPTS).first()
    assert found.dtype == np.float32 and np.isfinite(found).all()
    # Against the model itself: what it is apart from float32 is its own affair.
    wanted = [all_logits(one, model, prompt)[-1] for prompt in PROMPTS]
    assert np.abs(log_softmax(found) - wanted).mean() < (0.2 if dtype == "bfloat16" else 0.02)
    # Greedy search has the same step, with one slot in the place of several.
    for text in texts(model, one, method="beam"):
        assert len(text) == MOST and all(0 <= token < VOCABULARY for token in text)


# ---- weights that change ---------------------------------------------------------------------


@quick
@pytest.mark.backends
@pytest.mark.parametrize("name", FEW_NAMES)
def test_new_weights_write_new_texts(name, tmp_path):
    """Compiled code reads the weights of the moment."""
    one = writer(name)
    model, other = one.build(), one.build(seed=1)
    before, after = texts(model, one), texts(other, one)
    assert before != after
    old = model.get_weights()
    model.set_weights(other.get_weights())
    assert texts(model, one) == after
    assert texts(model, one, use_cache=False) == after
    model.set_weights(old)
    other.save_weights(tmp_path / "other.weights.h5")
    model.load_weights(tmp_path / "other.weights.h5")
    assert texts(model, one) == after


@quick
@pytest.mark.parametrize("name", FEW_NAMES)
def test_a_model_that_is_trained(name):
    """Before the first step of training, between two, and as a copy with its weights."""
    one = writer(name)
    model = one.build()
    before = texts(model, one)
    row = [np.repeat(part, 4, axis=0) for part in one.row(list(range(5, 12)), [9, 8, 7])]
    loss = "sparse_categorical_crossentropy"
    model.compile(keras.optimizers.SGD(0.5), loss, **STEP_BY_STEP)
    for token in (33, 34):
        wanted = np.full((*row[-1].shape, 1), token)
        model.fit(row, wanted, verbose=0)
        found = texts(model, one)
        assert found != before
        before = found
    copy = one.build()
    copy.set_weights(model.get_weights())
    assert found == texts(copy, one)
    # Training goes on as if nothing had been written.
    assert np.isfinite(model.evaluate(row, wanted, verbose=0))


@quick
@pytest.mark.parametrize(
    "name", default_and_slow(["bert_condition_unilm", *FEW], ["bert_condition_unilm"])
)
def test_saved_and_loaded(name, tmp_path):
    one = writer(name)
    model = one.build()
    before = texts(model, one)
    again = saved_and_loaded(model, tmp_path)
    assert texts(again, one) == before
    fill(again, 9)
    assert texts(again, one) != before
    assert texts(model, one) == before


@quick
def test_extended_models():
    """A model of one's own around it, with further outputs."""
    one = writer("bert_unilm")
    model = one.made()
    pooled = keras.layers.Dense(3, name="Own")(model.get_layer("MLM-Norm").output)
    extended = keras.Model(model.inputs, [pooled, model.output])
    assert texts(extended, one) == texts(model, one)
    assert texts(keras.models.clone_model(model), one) != texts(model, one)


@pytest.mark.slow
@quick
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="a strategy of TensorFlow")
def test_a_model_made_under_a_strategy():
    import tensorflow as tf

    one = writer("albert_unilm")
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = one.build()
        inside = texts(model, one)
    assert inside == texts(model, one) == texts(one.build(), one)


# ---- compiled once ---------------------------------------------------------------------------


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="nothing is traced there")
@pytest.mark.parametrize(("name", "method"), [("albert_unilm", "beam")])
def test_nothing_is_traced_twice(name, method, monkeypatch):
    one = writer(name)
    traced, call = [], layers.Embedding.call

    @functools.wraps(call)
    def counting(self, *args, **kwargs):
        traced.append(self.name)
        return call(self, *args, **kwargs)

    monkeypatch.setattr(layers.Embedding, "call", counting)
    model = one.build(num_hidden_layers=2)
    traced.clear()
    generate(model, random_prompts(4, seed=41, low=9, longest=16), 8, method)
    first = len(traced)
    # Once for the prompt and once for the step, not once a token.
    assert 0 < first <= 10
    for seed, longest, most in ((42, 10, 8), (43, 16, 7), (44, 12, 8)):
        generate(model, random_prompts(4, seed=seed, low=5, longest=longest), most, method)
    assert len(traced) == first
    # Weights that changed are no reason either.
    model.set_weights([weight + 0.01 for weight in model.get_weights()])
    prompts = random_prompts(4, seed=45, low=9, longest=16)
    found = generate(model, prompts, 8, method)
    assert len(traced) == first
    # And XLA computes what is computed without it, and without a cache.
    monkeypatch.setattr(compilation, "compiled", lambda function, variables: function)
    wanted = generate(model, prompts, 8, method, use_cache=False)
    assert [text.tolist() for text in found] == [text.tolist() for text in wanted]


# ---- streams ---------------------------------------------------------------------------------


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"语言模型生成文本快慢，。！(),."]
WORDS += ["hello", "world", "token", "##s", "##ing", "##ly", "un", "##e", "##语", "2", "##0", "'"]
WORDS += [f"word{n}" for n in range(VOCABULARY - len(WORDS))]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer({word: number for number, word in enumerate(WORDS)})


@quick
@pytest.mark.parametrize("name", FEW_NAMES)
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="greedy", marks=pytest.mark.slow),
        pytest.param({"method": "sample", "seed": 5}, id="sample"),
    ],
)
def test_streams_are_what_generate_writes(name, settings, tokenizer):
    one = writer(name)
    prompt = random_prompts(1, seed=46, low=9)[0]
    wanted = generate(one.made(), [prompt], 6, **settings)[0].tolist()
    found = list(stream(one.made(), [prompt], 6, **settings))
    assert found == wanted and all(type(token) is int for token in found)
    settings = {**settings, "end_id": wanted[3]}
    wanted = wanted[: wanted.index(wanted[3]) + 1]
    assert list(stream(one.made(), prompt, 6, use_cache=False, **settings)) == wanted
    pieces = list(stream(one.made(), prompt, 6, tokenizer=tokenizer, **settings))
    assert all(pieces) and "".join(pieces) == tokenizer.decode(wanted)


@quick
def test_a_stream_goes_token_by_token(monkeypatch):
    one, done = writer("albert_unilm"), []

    def allowed(row, new):
        done.append(len(new))
        return None

    found = stream(one.made(), [5, 6], 6, allowed_tokens=allowed)
    for number in range(6):
        next(found)
        assert len(done) == number + 1
    assert list(found) == []


@pytest.mark.parametrize("seed", range(20))
def test_pieces_of_any_tokens(seed, tokenizer):
    """Random tokens of both languages: the pieces join to the whole, whatever stands between."""
    from kerasbert.generation.streaming import text_pieces

    tokens = np.random.default_rng(seed).integers(0, VOCABULARY, 30).tolist()
    pieces = list(text_pieces(tokens, tokenizer))
    assert all(pieces) and "".join(pieces) == tokenizer.decode(tokens)
    assert len(pieces) > 10

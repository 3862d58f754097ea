"""`predict_texts`: equal to one text at a time, whatever the batches; little beside the model."""

import threading

import keras
import numpy as np
import pytest

import kerasbert
from fixtures import tiny_config
from harness import to_numpy
from kerasbert import compilation
from kerasbert.data import TextInputs
from kerasbert.errors import ConfigError, TokenizerError
from kerasbert.prediction import plan_batches, predict_texts
from kerasbert.tokenizers import Tokenizer

SIGNS = "房间很干净电池用不久好,"
TOKENIZER = Tokenizer(
    {t: i for i, t in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *SIGNS])}
)


def albert(**options):
    sizes = {"vocab_size": 32, "max_position_embeddings": 64, "num_hidden_layers": 1}
    config = tiny_config("google_albert", **sizes)
    return kerasbert.build_transformer_model(config, model="albert", verbose=0, **options)


@pytest.fixture(scope="module")
def model():
    """Pooled output (B, H) and logits of tokens (B, L, V)."""
    return albert(with_pool=True, with_mlm="linear")


def texts(count, longest=60, seed=0):
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(list(SIGNS), n)) for n in rng.integers(0, longest, count)]


def one_at_a_time(model, some):
    for text in some:
        pair = text if isinstance(text, tuple) else (text,)
        ids, segments = TOKENIZER.encode(*pair)
        # By predict TensorFlow would compile every length; JAX takes longer step by step.
        run = model if keras.backend.backend() == "tensorflow" else model.predict_on_batch
        found = run([np.array([ids]), np.array([segments])])
        yield keras.tree.map_structure(to_numpy, found)


@pytest.mark.backends
@pytest.mark.parametrize("jit_compile", [True, False])
def test_equals_one_text_at_a_time(model, jit_compile):
    some = texts(10, longest=12)  # few shapes to compile
    pairs = list(zip(some, some[::-1], strict=True))
    for own in [some] if jit_compile else [some, pairs]:
        pooled, logits = predict_texts(
            model, TOKENIZER, own, batch_size=5, verbose=0, jit_compile=jit_compile
        )
        assert isinstance(pooled, np.ndarray) and pooled.shape == (10, 32)
        for i, (first, second) in enumerate(one_at_a_time(model, own)):
            np.testing.assert_allclose(pooled[i], first[0], atol=1e-5)
            assert logits[i].shape == second[0].shape and logits[i].base is None
            np.testing.assert_allclose(logits[i], second[0], atol=1e-5)


def test_one_text_none_and_a_dict_of_outputs(model):
    pooled, logits = predict_texts(model, TOKENIZER, ["好"], verbose=0, jit_compile=False)
    assert pooled.shape == (1, 32) and logits[0].shape == (3, 32)
    pooled, logits = predict_texts(model, TOKENIZER, [], verbose=0)
    assert pooled.shape == (0, 32) and logits == []
    named = keras.Model(model.inputs, {"a": model.outputs[0], "b": model.outputs[1][:, 0]})
    found = predict_texts(named, TOKENIZER, ["好", "不好"], verbose=0, jit_compile=False)
    assert {name: value.shape for name, value in found.items()} == {"a": (2, 32), "b": (2, 32)}


def test_a_fixed_length_and_tables_of_pairs_of_tokens():
    fixed = albert(sequence_length=24)
    found = predict_texts(fixed, TOKENIZER, texts(3, 10), verbose=0, jit_compile=False)
    assert found.shape == (3, 24, 32)
    encoder = albert()
    pointer = kerasbert.layers.GlobalPointer(2, 4)(encoder.output)
    spans = keras.Model(encoder.inputs, pointer)
    found = predict_texts(spans, TOKENIZER, ["好", "房间很好"], verbose=0, jit_compile=False)
    assert [scores.shape for scores in found] == [(2, 3, 3), (2, 6, 6)]


def test_later_weights_count(model):
    encoder = albert(with_pool=True)
    before = predict_texts(encoder, TOKENIZER, ["好"], verbose=0)
    encoder.set_weights([weight * 1.5 for weight in encoder.get_weights()])
    after = predict_texts(encoder, TOKENIZER, ["好"], verbose=0)
    assert np.abs(before - after).max() > 1e-3
    np.testing.assert_allclose(after, next(one_at_a_time(encoder, ["好"])), atol=1e-5)


def test_few_shapes_and_every_text_once():
    inputs = TextInputs(32, 128)
    shapes = set()
    rng = np.random.default_rng(0)
    for count in (1, 2, 8, 9, 100, 5000):
        lengths = rng.integers(1, 129, count)
        plan = plan_batches(lengths, None, inputs)
        found = np.concatenate([batch.texts for batch in plan])
        assert sorted(found) == list(range(count))
        for batch in plan:
            assert len(batch.texts) <= batch.size < 2 * len(batch.texts) or batch.size == 1
            assert lengths[batch.texts].max() <= batch.length <= 128
            assert len(batch.padded_texts) == batch.size
        shapes |= {(batch.size, batch.length) for batch in plan}
    assert len(shapes) <= 18
    single = {plan_batches(np.array([n]), None, inputs)[0].length for n in range(1, 129)}
    assert single == {16, 32, 64, 128}
    assert all(batch.size <= 3 for batch in plan_batches(rng.integers(1, 9, 20), 3, inputs))


def test_many_threads_and_few_compilations(monkeypatch):
    encoder, made = albert(with_pool=True), []
    real = compilation._traced
    monkeypatch.setattr(compilation, "_traced", lambda *args: made.append(args) or real(*args))
    # What is counted is traced without XLA as with it.
    monkeypatch.setattr(compilation, "jit", lambda function: function)
    some = texts(16, longest=40)
    expected = [one[0] for one in one_at_a_time(encoder, some)]
    results = {}

    def work(thread):
        own = np.random.default_rng(thread).permutation(len(some))
        results[thread] = {
            i: predict_texts(encoder, TOKENIZER, [some[i]], verbose=0)[0] for i in own
        }

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    for found in results.values():
        for i, value in found.items():
            np.testing.assert_allclose(value, expected[i], atol=1e-5)
    if keras.backend.backend() == "tensorflow":
        assert len(made) <= 3


@pytest.mark.slow
def test_thousands_of_calls_need_no_memory():
    statm = pytest.importorskip("resource", reason="needs Linux' figures of memory")
    encoder = albert(with_pool=True)
    some = texts(2000, longest=60)
    for text in some[:200]:
        predict_texts(encoder, TOKENIZER, [text], verbose=0)
    before = statm.getrusage(statm.RUSAGE_SELF).ru_maxrss
    for text in some:
        predict_texts(encoder, TOKENIZER, [text], verbose=0)
    assert statm.getrusage(statm.RUSAGE_SELF).ru_maxrss - before < 20 * 1024


def test_a_model_can_be_saved_and_forgotten(tmp_path):
    import gc
    import weakref

    encoder = albert(with_pool=True)
    found = predict_texts(encoder, TOKENIZER, ["好"], verbose=0, jit_compile=False)
    encoder.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(
        predict_texts(again, TOKENIZER, ["好"], verbose=0, jit_compile=False), found, atol=1e-6
    )
    reference = weakref.ref(encoder)
    del encoder
    keras.utils.clear_session(free_memory=False)
    gc.collect()
    assert reference() is None or keras.backend.backend() != "tensorflow"


def test_progress_bar(model, capsys):
    predict_texts(model, TOKENIZER, texts(6), batch_size=3, jit_compile=False)
    assert "batch" in capsys.readouterr().out
    predict_texts(model, TOKENIZER, texts(1), jit_compile=False)
    predict_texts(model, TOKENIZER, texts(6), batch_size=3, verbose=0, jit_compile=False)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"texts": ["好", "好" * 80]}, r"texts\[1\] has 82 tokens(.|\n)*maxlen=64"),
        ({"texts": ["好"], "batch_size": 0}, "batch_size=0"),
        ({"texts": ["好"], "tokenizer": "vocab.txt"}, "tokenizer is a str"),
    ],
)
def test_refuses(model, arguments, said):
    with pytest.raises(ConfigError, match=said):
        predict_texts(**{"model": model, "tokenizer": TOKENIZER, "verbose": 0} | arguments)
    with pytest.raises(ConfigError, match="The order is"):
        predict_texts(TOKENIZER, model, ["好"])
    with pytest.raises(TokenizerError):
        predict_texts(model, TOKENIZER, "好")


def test_ids_outside_of_the_table_are_refused():
    config = tiny_config("google_albert", vocab_size=8)
    small = kerasbert.build_transformer_model(config, model="albert", verbose=0)
    with pytest.raises(ConfigError, match=r"texts\[1\] has the token id(.|\n)*0 to 7"):
        predict_texts(small, TOKENIZER, ["房间", "久"], verbose=0)
    short = predict_texts(albert(), TOKENIZER, ["好" * 80], maxlen=20, verbose=0, jit_compile=False)
    assert short[0].shape == (20, 32)

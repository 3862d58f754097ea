"""`BucketedDataset`: few shapes, every text once an epoch, labels beside their texts."""

import itertools
import pickle

import keras
import numpy as np
import pytest

import kerasbert
from batches.counting import Texts, assert_each_once, counting_model
from fixtures import tiny_config
from harness import STEP_BY_STEP, refused
from kerasbert.data import BucketedDataset, TextInputs
from kerasbert.data.buckets import STEP, bucket_lengths, common_length
from kerasbert.errors import ConfigError, TokenizerError
from kerasbert.tokenizers import Tokenizer

WORDS = [f"w{i}" for i in range(60)]
TOKENIZER = Tokenizer(
    {token: i for i, token in enumerate([*WORDS, "[PAD]", "[UNK]", "[CLS]", "[SEP]"])},
    token_start=None,
    token_end=None,
)
SAMPLES = 43
LIMITS = TextInputs(vocab_size=64, max_length=64)


def texts(seed=0, samples=SAMPLES, longest=60):
    """Texts that begin with their number; most are short."""
    rng = np.random.default_rng(seed)
    sizes = np.minimum(rng.exponential(12, samples).astype(int), longest)
    return [" ".join([f"w{i}", *rng.choice(WORDS, size)]) for i, size in enumerate(sizes)]


def labels():
    return np.arange(SAMPLES) % 2


def dataset(**options):
    options = {"batch_size": 4, "num_buckets": 3, "seed": 1} | options
    return BucketedDataset(LIMITS, TOKENIZER, texts(), labels(), **options)


def all_batches(data):
    return [data[i] for i in range(len(data))]


# ---- batches ---------------------------------------------------------------------------------


def test_every_text_once_an_epoch_in_few_shapes():
    data = dataset()
    shapes, orders = [], []
    for _ in range(4):
        batches = all_batches(data)
        shapes.append({tokens.shape for (tokens, _), _ in batches})
        orders.append(tuple(np.concatenate([tokens[:, 0] for (tokens, _), _ in batches])))
        assert sorted(orders[-1]) == list(range(SAMPLES))
        assert tuple(data.order) == orders[-1]
        for (tokens, segments), found in batches:
            assert (found == tokens[:, 0] % 2).all() and not segments.any()
            assert tokens.dtype == segments.dtype == "int32"
        # Keras learns from the first two batches which axis is open.
        assert batches[0][0][0].shape[1] != batches[1][0][0].shape[1]
        data.on_epoch_end()
    assert len(set(orders)) == 4
    assert all(one == shapes[0] for one in shapes)
    assert len(shapes[0]) <= 4 and len({length for _, length in shapes[0]}) <= 3
    assert len(data) == -(-SAMPLES // 4)


def test_texts_come_back_whole():
    data = dataset(num_buckets=6)
    rows = {}
    for (tokens, _), _ in all_batches(data):
        rows |= {row[0]: row[row != 0] if row[0] else row for row in tokens}
    for number, text in enumerate(texts()):
        if number:
            expected = [int(word[1:]) for word in text.split()]
            assert rows[number].tolist() == [i for i in expected if i]


def test_the_same_seed_gives_the_same_order_and_an_epoch_can_be_set():
    first, second, other = dataset(), dataset(), dataset(seed=2)
    assert (first.order == second.order).all() and (first.order != other.order).any()
    for _ in range(3):
        first.on_epoch_end()
    second.epoch = 3
    assert (first.order == second.order).all()
    keras.utils.set_random_seed(5)
    drawn = dataset(seed=None).order
    keras.utils.set_random_seed(5)
    assert (dataset(seed=None).order == drawn).all()


def test_lengths_waste_the_least():
    rng = np.random.default_rng(0)
    for _ in range(5):
        lengths = rng.integers(1, 60, 30)
        sizes = np.unique(-(-lengths // STEP) * STEP)

        def cost(chosen, lengths=lengths):
            padded = np.array([min(c for c in chosen if c >= n) for n in lengths])
            return (padded * (1 + padded / 1024)).sum()

        for most in (1, 2, 3):
            every = itertools.combinations(sizes, min(most, len(sizes)))
            best = min(cost(chosen) for chosen in every if chosen[-1] == sizes[-1])
            found = bucket_lengths(lengths, most)
            assert len(found) <= most
            np.testing.assert_allclose(cost(found), best)
    assert bucket_lengths(np.array([3, 62]), 1, limit=63).tolist() == [63]


def test_common_lengths_are_few_and_close():
    for few, share in ((False, 1.5), (True, 2.0)):
        found = {n: common_length(n, few=few) for n in range(1, 513)}
        assert all(n <= length < max(n + 16, n * share) for n, length in found.items())
        assert len(set(found.values())) <= (6 if few else 10)
    assert common_length(500, limit=500) == 500


# ---- in Keras --------------------------------------------------------------------------------


@pytest.mark.backends
# Steps are counted by Keras, workers ask ahead of them; neither alone is a path of its own.
@pytest.mark.parametrize(("workers", "steps"), [(1, None), (3, 11)])
def test_fit_sees_every_text_once(workers, steps):
    if workers > 1 and keras.backend.backend() != "tensorflow":
        with refused(ConfigError, "workers=3", keras.backend.backend(), "tokenised already"):
            dataset(workers=workers)
        return
    data = dataset(workers=workers)
    model, check = counting_model(SAMPLES)
    history = model.fit(
        data,
        steps_per_epoch=steps,
        epochs=3,
        verbose=0,
        validation_data=dataset(shuffle=False),
        callbacks=[check],
    ).history
    assert_each_once(check, SAMPLES, 3)
    again = model.evaluate(dataset(shuffle=False), verbose=0)[0]
    np.testing.assert_allclose(history["val_loss"][-1], again, atol=1e-5)


def test_several_processes():
    data = dataset(workers=2, use_multiprocessing=True)
    model, check = counting_model(SAMPLES)
    model.fit(data, epochs=2, verbose=0, callbacks=[check])
    assert_each_once(check, SAMPLES, 2)
    again = pickle.loads(pickle.dumps(data))
    assert (again.order == data.order).all()


@pytest.mark.backends
def test_predictions_are_put_in_order():
    plain = dataset(shuffle=False)
    model, _ = counting_model(SAMPLES)
    found = plain.restore(model.predict(plain, verbose=0))
    for number, text in enumerate(texts()):
        # Padding is summed up as well in this model.
        ids = [int(word[1:]) for word in text.split()]
        width = next(
            length
            for batch in all_batches(plain)
            for length in [batch[0][0].shape[1]]
            if number in batch[0][0][:, 0]
        )
        row = np.array([ids + [0] * (width - len(ids))])
        expected = keras.ops.convert_to_numpy(model([row, row * 0]))[0]
        np.testing.assert_allclose(found[number], expected, atol=1e-5)
    with pytest.raises(ConfigError, match="shuffle=True"):
        dataset().restore(found)


@pytest.mark.backends
def test_as_tf_data():
    pytest.importorskip("tensorflow", reason="needs TensorFlow, for tf.data")
    data = dataset()
    made = data.to_tf_data()
    assert len(made) == len(data)
    model, check = counting_model(SAMPLES)
    model.fit(made, epochs=3, verbose=0, callbacks=[check])
    assert_each_once(check, SAMPLES, 3)


@pytest.mark.parametrize(("dtype", "shape"), [("int32", (-1,)), ("float32", (-1, 1))])
def test_accuracy_is_a_count(dtype, shape):
    own = labels().astype(dtype).reshape(shape)
    data = BucketedDataset(LIMITS, TOKENIZER, texts(), own, batch_size=4, shuffle=False)
    model, _ = counting_model(SAMPLES)
    logits = data.restore(model.predict(data, verbose=0))
    counted = (logits.argmax(-1) == labels()).mean()
    np.testing.assert_allclose(model.evaluate(data, verbose=0)[1], counted, atol=1e-6)


# ---- with a model of ours --------------------------------------------------------------------


def albert(**options):
    config = tiny_config("google_albert", vocab_size=64, max_position_embeddings=64)
    return kerasbert.build_transformer_model(config, model="albert", verbose=0, **options)


@pytest.mark.backends
def test_every_way_to_feed_gives_the_same_loss():
    encoder = albert(with_pool=True, num_hidden_layers=1)
    model = keras.Model(encoder.inputs, keras.layers.Dense(2)(encoder.output))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    start = model.get_weights()
    options = {"num_buckets": 1, "shuffle": False}
    data = BucketedDataset(model, TOKENIZER, texts(), labels(), batch_size=22, **options)
    whole = BucketedDataset(model, TOKENIZER, texts(), batch_size=SAMPLES, **options)
    ((tokens, segments),) = whole[0]
    rows = [[int(word[1:]) for word in text.split()] for text in texts()]
    named = {"Input-Token": tokens, "Input-Segment": segments}
    ways = {
        "list": ([tokens, segments], labels()),
        "tuple": ((tokens, segments), labels()),
        "dict": (named, labels()),
        "PyDataset": (data,),
        "generator": (Texts(list(zip(rows, labels(), strict=True)), 22).forfit(random=False),),
        "tf.data": (data.to_tf_data(),),
    }
    losses = {}
    for name, given in ways.items():
        model.set_weights(start)
        model.compile("sgd", loss, **STEP_BY_STEP)
        steps = 2 if name == "generator" else None
        losses[name] = model.fit(
            *given,
            batch_size=22 if len(given) > 1 else None,
            steps_per_epoch=steps,
            shuffle=False,
            verbose=0,
        ).history["loss"][0]
    assert max(losses.values()) - min(losses.values()) < 1e-5, losses


def test_limits_are_read_from_a_model():
    read = TextInputs.of(albert(with_mask_input=True))
    assert read == TextInputs(64, 64, ("Input-Token", "Input-Segment", "Input-Mask"), 2)
    small = TextInputs.of(albert(keep_tokens=[0, 5, 7, 3]))
    assert small.vocab_size == 4
    assert TextInputs.of(albert(sequence_length=24)).fixed_length == 24
    encoder = albert(with_pool=True, prefix="own-")
    segments, tokens = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    nested = keras.Model([segments, tokens], encoder([tokens, segments]))
    assert TextInputs.of(nested).names == ("Input-Segment", "Input-Token")
    other = keras.Model([tokens, segments, keras.Input((3,), name="x")], nested.output)
    with pytest.raises(ConfigError, match="needs more than a text: x"):
        TextInputs.of(other)


def test_labels_of_tokens_and_several_outputs():
    own = texts()
    tags = [[int(word[1:]) for word in text.split()] for text in own]
    data = BucketedDataset(
        albert(with_mask_input=True),
        TOKENIZER,
        own,
        labels={"class": labels(), "one_hot": np.eye(2)[labels()]},
        token_labels={"tags": tags},
        batch_size=5,
        token_label_padding=-1,
    )
    for (tokens, _, mask), found in all_batches(data):
        real = mask == 1
        assert found["tags"].shape == tokens.shape
        assert (found["tags"][real] == tokens[real]).all() and (found["tags"][~real] == -1).all()
        assert (found["class"] == found["one_hot"].argmax(-1)).all()
        assert (found["class"] == tokens[:, 0] % 2).all()
    alone = BucketedDataset(LIMITS, TOKENIZER, own, token_labels=tags, batch_size=5)
    assert alone[0][1].shape == alone[0][0][0].shape
    assert len(BucketedDataset(LIMITS, TOKENIZER, own)[0]) == 1


def test_pairs():
    own = [(text, "w5 w6") for text in texts(longest=40)]
    (tokens, segments), _ = BucketedDataset(LIMITS, TOKENIZER, own, labels())[0]
    assert (segments.sum(axis=1) == 2).all()
    one = tokens[0][segments[0] == 1].tolist()
    assert one == [5, 6]


# ---- refusals --------------------------------------------------------------------------------

SHORT = ["w1", "w2 w3"]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: BucketedDataset(TextInputs(64, 8), TOKENIZER, ["w1", "w2 " * 9]),
         r"texts\[1\] has 9 tokens(.|\n)*at most 8(.|\n)*maxlen=8"),
        (lambda: BucketedDataset(TextInputs(3), TOKENIZER, SHORT),
         r"texts\[1\] has the token id 3(.|\n)*from 0 to 2(.|\n)*keep_tokens"),
        (lambda: BucketedDataset(TextInputs(64, segments=1), TOKENIZER, [("w1", "w2")]),
         r"texts\[0\] has a second text(.|\n)*type_vocab_size=1"),
        (lambda: BucketedDataset(LIMITS, TOKENIZER, SHORT, [1]), "1 labels for 2 texts"),
        (lambda: BucketedDataset(LIMITS, TOKENIZER, SHORT, [[1], [1, 2]]), "token_labels"),
        (lambda: BucketedDataset(LIMITS, TOKENIZER, SHORT, token_labels=[[1], [1]]),
         r"token_labels\[1\] has 1 labels, texts\[1\] has 2 tokens"),
        (lambda: BucketedDataset(LIMITS, TOKENIZER, SHORT, [1, 0], [[1], [1, 1]]), "two dicts"),
        (lambda: BucketedDataset(LIMITS, TOKENIZER, []), "texts is empty"),
        (lambda: BucketedDataset(LIMITS, TOKENIZER, ["w1", ("w1", "w2")]), r"texts\[0\]"),
        (lambda: BucketedDataset(LIMITS, "vocab.txt", SHORT), "tokenizer is a str"),
        (lambda: BucketedDataset(LIMITS, TOKENIZER, SHORT, batch_size=0), "batch_size=0"),
        (lambda: BucketedDataset(LIMITS, TOKENIZER, SHORT, num_buckets=0), "num_buckets=0"),
        (lambda: TextInputs(0), "vocab_size=0"),
        (lambda: TextInputs(5, names=("Input-Segment",)), "Input-Token"),
    ],
)  # fmt: skip
def test_refuses(make, said):
    with pytest.raises(ConfigError, match=said):
        make()


def test_refuses_what_is_no_text():
    with pytest.raises(TokenizerError, match=r"texts\[1\]"):
        BucketedDataset(LIMITS, TOKENIZER, ["w1", 2])
    with pytest.raises(TokenizerError):
        BucketedDataset(LIMITS, TOKENIZER, "w1")

"""`AutoRegressiveDecoder` against plain loops written from what it is said to do."""

import keras
import numpy as np
import pytest
from decodings import random_logits

from harness import to_numpy
from kerasbert.errors import ConfigError
from kerasbert.generation import AutoRegressiveDecoder

VOCABULARY, END = 9, 4


def decoder(function=None, rtype="logits", use_states=False, **options):
    """A decoder whose logits come from a function of (row, text); the row is the first input."""
    function = function or random_logits(VOCABULARY)

    class Decoder(AutoRegressiveDecoder):
        seen = None

        @AutoRegressiveDecoder.wraps(rtype, use_states)
        def predict(self, inputs, output_ids, states):
            self.seen.append((inputs, output_ids, states))
            assert all(len(one) == len(output_ids) for one in inputs)
            rows = inputs[0][:, 0] if inputs else [0] * len(output_ids)
            pairs = zip(rows, output_ids, strict=True)
            scores = np.array([function(row, text) for row, text in pairs])
            scores = softmax(scores) if rtype == "probas" else scores
            return (scores, (states or 0) + 1) if use_states else scores

    options = {"start_id": None, "end_id": END, "maxlen": 7, **options}
    made = Decoder(**options)
    made.seen = []
    return made


def softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def plain_beam_search(function, row, topk, start, maxlen, minlen=1, temperature=1, min_ends=1):
    """Beams as pairs (text, score); the best that ends is the result, others that end go."""
    beams = [([] if start is None else [start], 0.0)]
    for _ in range(maxlen):
        longer = []
        for text, score in beams:
            probas = softmax(function(row, tuple(text)) / temperature)
            longer += [([*text, token], score + np.log(p)) for token, p in enumerate(probas)]
        beams = sorted(longer, key=lambda pair: -pair[1])[:topk]

        def ended(text):
            enough = text.count(END) >= min_ends and len(text) >= minlen
            return text[-1] == END and enough

        if ended(beams[0][0]):
            break
        going = [pair for pair in beams if not ended(pair[0])]
        topk -= len(beams) - len(going)
        beams = going
    return beams[0][0]


OPTIONS = [
    {},
    {"start": 2},
    {"start": END},
    {"minlen": 4},
    {"start": 1, "minlen": 4},
    {"min_ends": 2},
    {"temperature": 0.5},
    {"temperature": 3, "min_ends": 2, "minlen": 3},
]


@pytest.mark.parametrize("rtype", ["logits", "probas"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_beam_search(options, rtype):
    function = random_logits(VOCABULARY)
    start, minlen = options.get("start"), options.get("minlen", 1)
    ours = decoder(function, rtype, start_id=start, minlen=minlen)
    rest = {key: options[key] for key in ("temperature", "min_ends") if key in options}
    lengths = set()
    for row in range(12):
        for topk in (1, 2, 5):
            found = ours.beam_search([np.array([row, 8, 8])], topk, **rest)
            wanted = plain_beam_search(function, row, topk, start, 7, minlen, **rest)
            assert found.tolist() == wanted, (row, topk)
            lengths.add(len(wanted))
    assert len(lengths) > 2


def plain_sample(function, row, n, uniform, start, maxlen, minlen, topk, topp, min_ends=1):
    """Random numbers are used for text after text, in the order of their tokens."""
    going, results = [[] if start is None else [start]] * n, []
    for _ in range(maxlen):
        longer = []
        for text, number in zip(going, uniform(len(going)), strict=True):
            probas = softmax(function(row, tuple(text)))
            order = np.argsort(-probas)
            probas[order[topk:]] = 0
            probas /= probas.sum()
            before = np.cumsum(probas[order]) - probas[order]
            probas[order[before >= topp]] = 0
            probas /= probas.sum()
            token = int(np.flatnonzero(np.cumsum(probas) > number)[0])
            longer.append([*text, token])
        done = [
            text
            for text in longer
            if text[-1] == END and text.count(END) >= min_ends and len(text) >= minlen
        ]
        results += done
        going = [text for text in longer if text not in done]
        if not going:
            break
    return results + going


@pytest.mark.parametrize("rtype", ["logits", "probas"])
@pytest.mark.parametrize(
    ("topk", "topp"), [(None, None), (3, None), (None, 0.6), (4, 0.8), (100, 1.0)]
)
def test_random_sample(topk, topp, rtype):
    function = random_logits(VOCABULARY)
    ours = decoder(function, rtype, seed=5, minlen=2, start_id=3)
    uniform = np.random.default_rng(5).random
    for row in range(6):
        found = ours.random_sample([np.array([row])], 4, topk, topp)
        wanted = plain_sample(function, row, 4, uniform, 3, 7, 2, topk or VOCABULARY, topp or 2)
        assert [text.tolist() for text in found] == wanted


def test_seeds():
    def texts(seed):
        ours = decoder(seed=seed)
        return str([ours.random_sample([[row]], 5) for row in range(4)])

    assert texts(1) == texts(1) != texts(2)
    assert texts(None) != texts(None)


def test_old_positional_calls():
    function = random_logits(VOCABULARY)
    ours = decoder(function, start_id=2)
    text = ours.beam_search([[1]], 3, None, 1, 1)
    assert text.tolist() == plain_beam_search(function, 1, 3, 2, 7)
    assert len(ours.random_sample([[1]], 2, 3, 0.9, None, 1, 1)) == 2
    scores, states = ours.predict([np.array([[1]])], ours.first_output_ids, None, 1, "logits")
    assert scores.shape == (1, VOCABULARY) and states is None
    probas, _ = ours.predict([np.array([[1]])], ours.first_output_ids, None, 2, rtype="probas")
    np.testing.assert_allclose(probas, softmax(function(1, (2,)) / 2)[None])
    assert ours.predict([np.array([[1]])], ours.first_output_ids, None)[0].max() <= 0


def test_what_predict_gets():
    ours = decoder(use_states=True, start_id=2)
    ours.beam_search([[1, 5], np.ones((4, 3))], topk=3, states=10)
    assert [states for _, _, states in ours.seen] == list(range(10, 10 + len(ours.seen)))
    for step, (inputs, texts, _) in enumerate(ours.seen):
        assert texts.shape == (1 if step == 0 else len(texts), 1 + step)
        assert [one.shape[1:] for one in inputs] == [(2,), (4, 3)]
    assert len(ours.seen[1][1]) == 3
    assert ours.first_output_ids.tolist() == [[2]]
    nothing = decoder(start_id=None).first_output_ids
    assert nothing.shape == (1, 0) and nothing.dtype == "int64"
    assert decoder().beam_search([], 2).tolist() == plain_beam_search(
        random_logits(VOCABULARY), 0, 2, None, 7
    )


def test_no_end():
    ours = decoder(end_id=None)
    assert len(ours.beam_search([], 3)) == 7
    assert {len(text) for text in ours.random_sample([], 5)} == {7}


def test_tokens_of_probability_zero_are_never_written():
    """Constraints by hand: what `predict` sets to 0 cannot come, however few are left."""

    class Alternating(AutoRegressiveDecoder):
        @AutoRegressiveDecoder.wraps("probas")
        def predict(self, inputs, output_ids, states):
            allowed = [1, 2] if output_ids.shape[1] % 2 else [5]
            probas = np.full((len(output_ids), 8), 0.1)
            probas[:, np.delete(np.arange(8), allowed)] = 0
            return probas

    ours = Alternating(None, None, 6, seed=0)
    for text in [ours.beam_search([], 5), *ours.random_sample([], 5)]:
        assert set(text[::2]) == {5} and set(text[1::2]) <= {1, 2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, -1, 5), "end_id=-1"),
        ((-2, 1, 5), "start_id=-2"),
        ((None, 1, 0), "maxlen=0"),
        ((None, 1, 5, -1), "minlen=-1"),
        ((None, 1, 5, 1, -3), "seed=-3"),
        ((True, 1, 5), "start_id=True"),
    ],
)
def test_wrong_settings(arguments, message):
    with pytest.raises(ConfigError, match=message):
        AutoRegressiveDecoder(*arguments)


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("beam_search", {"topk": 0}, "topk=0"),
        ("beam_search", {"topk": 2, "min_ends": 0}, "min_ends=0"),
        ("beam_search", {"topk": 2, "temperature": 0}, "temperature=0"),
        ("random_sample", {"n": 0}, "n=0"),
        ("random_sample", {"n": 2, "topk": 0}, "topk=0"),
        ("random_sample", {"n": 2, "topp": 1.5}, "topp=1.5"),
        ("random_sample", {"n": 2, "temperature": -1}, "temperature=-1"),
    ],
)
def test_wrong_arguments(method, given, message):
    with pytest.raises(ConfigError, match=message):
        getattr(decoder(), method)([], **given)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda row, text: np.zeros((3, 5)), r"shape \(1, 3, 5\) for 1 texts"),
        (lambda row, text: np.full(5, np.nan), "predict returned NaN"),
        (lambda row, text: np.full(5, -np.inf), "no token may follow the text"),
    ],
)
@pytest.mark.parametrize("method", ["beam_search", "random_sample"])
def test_wrong_predictions(function, message, method):
    with pytest.raises(ConfigError, match=message):
        getattr(decoder(function), method)([], 2)


def test_wrong_decorations():
    with pytest.raises(ConfigError, match=r"default_rtype='logit'.*Did you mean 'logits'"):
        AutoRegressiveDecoder.wraps("logit")
    with pytest.raises(ConfigError, match="rtype='proba'"):
        decoder().predict([], np.zeros((1, 0), int), None, rtype="proba")
    with pytest.raises(NotImplementedError, match="Define predict"):
        AutoRegressiveDecoder(None, 1, 3).predict([], np.zeros((1, 0), int))

    class Bare(AutoRegressiveDecoder):
        def predict(self, inputs, output_ids, states):
            return np.zeros((len(output_ids), 3))

    for cls in (Bare, AutoRegressiveDecoder):
        with pytest.raises(ConfigError, match=r"Expected a method .*AutoRegressiveDecoder\.wraps"):
            cls(None, 1, 3).beam_search([], 2)

    class Stateless(AutoRegressiveDecoder):
        @AutoRegressiveDecoder.wraps("logits", use_states=True)
        def predict(self, inputs, output_ids, states):
            return np.zeros((len(output_ids), 3))

    with pytest.raises(ConfigError, match="Expected a pair"):
        Stateless(None, 1, 3).beam_search([], 2)


# ---- the last position -----------------------------------------------------------------------


def language_model(outputs=1):
    tokens, segments = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    hidden = keras.layers.Embedding(VOCABULARY, 6)(tokens)
    hidden = hidden + keras.layers.Embedding(2, 6)(segments)
    hidden = keras.layers.GRU(6, return_sequences=True)(hidden)
    heads = [keras.layers.Dense(VOCABULARY)(hidden) for _ in range(outputs)]
    return keras.Model([tokens, segments], heads[0] if outputs == 1 else heads)


@pytest.mark.backends
@pytest.mark.parametrize("outputs", [1, 2])
def test_last_token(outputs, capsys):
    model, ours = language_model(outputs), decoder()
    cut = ours.last_token(model)
    assert ours.last_token(model) is cut
    random = np.random.default_rng(0)
    for shape in [(1, 1), (40, 5)]:
        inputs = [random.integers(0, VOCABULARY, shape), random.integers(0, 2, shape)]
        whole, last = model(inputs), cut.predict(inputs)
        whole, last = ([whole], [last]) if outputs == 1 else (whole, last)
        for one, other in zip(whole, last, strict=True):
            assert other.shape == (shape[0], VOCABULARY)
            np.testing.assert_allclose(to_numpy(one)[:, -1], other, rtol=1e-5, atol=1e-6)
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("step_by_step")
@pytest.mark.backends
def test_a_script_with_a_model():
    model = language_model()

    class Writer(AutoRegressiveDecoder):
        @AutoRegressiveDecoder.wraps(default_rtype="logits")
        def predict(self, inputs, output_ids, states):
            token_ids, segment_ids = inputs
            token_ids = np.concatenate([token_ids, output_ids], 1)
            segment_ids = np.concatenate([segment_ids, np.ones_like(output_ids)], 1)
            return self.last_token(model).predict([token_ids, segment_ids])

    writer = Writer(start_id=None, end_id=END, maxlen=3, seed=1)
    found = writer.beam_search([[1, 2, 3], [0, 0, 0]], topk=1).tolist()
    text = []
    while len(text) < 3 and END not in text:
        ids = np.array([[1, 2, 3, *text]])
        segments = np.array([[0, 0, 0, *[1] * len(text)]])
        text.append(int(to_numpy(model([ids, segments]))[0, -1].argmax()))
    assert found == text
    assert len(writer.random_sample([[1, 2, 3], [0, 0, 0]], n=3, topk=3, topp=0.9)) == 3

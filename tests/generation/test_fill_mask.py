"""Filling masks: against the whole model's own output, text by text."""

import gc
import weakref

import keras
import numpy as np
import pytest
from masked_models import SPECIAL, TOKENS, make_model, make_tokenizer, probabilities

from kerasbert import build_transformer_model
from kerasbert.errors import ConfigError, KerasbertError, TokenizerError
from kerasbert.generation import fill_mask
from kerasbert.generation.masked import MaskCandidate
from kerasbert.layers import Loss

TEXT = "今天[MASK]气很好"
LONG = "play [MASK] 。房间很[MASK]净，不满意"
# Without the model type it would be one of the Chinese BERTs of that name.
ROBERTA = {"model_type": "roberta", "type_vocab_size": 1}
# Most tests read a text or two. Compiled: texts of different lengths, pairs, new weights.
quick = pytest.mark.usefixtures("step_by_step")
SLOW = ("nezha", "roformer_v2", "electra_generator", "distilbert")
FAMILIES = (
    *(pytest.param(family, marks=pytest.mark.backends) for family in ("bert", "gau_alpha")),
    "albert",
    "roformer",
    *(pytest.param(family, marks=pytest.mark.slow) for family in SLOW),
)


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="module")
def model():
    return make_model()


def masked_row(tokenizer, text, second=None):
    """Ids and segments by the tokenizer's public methods, word by word."""
    tokens = ["[CLS]"]
    segments = [0]
    for segment, one in enumerate(t for t in (text, second) if t is not None):
        for number, part in enumerate(one.split("[MASK]")):
            tokens += ["[MASK]"] * (number > 0) + tokenizer.tokenize(part)[1:-1]
        tokens.append("[SEP]")
        segments += [segment] * (len(tokens) - len(segments))
    return tokenizer.tokens_to_ids(tokens), segments


def assert_fills(found, expected, ids, tolerance=1e-5):
    """Compares the candidates of all masks of a text with probabilities (L, V)."""
    places = np.flatnonzero(np.array(ids) == TOKENS.index("[MASK]"))
    assert len(found) == len(places) > 0
    for candidates, place in zip(found, places, strict=True):
        best = np.sort(expected[place])[::-1][: len(candidates)]
        np.testing.assert_allclose([c.probability for c in candidates], best, atol=tolerance)
        for candidate in candidates:
            assert abs(expected[place, candidate.id] - candidate.probability) <= tolerance
            assert candidate.token == TOKENS[candidate.id]


def assert_same(found, expected):
    """Compares results for one text, or lists of them."""
    found, expected = keras.tree.flatten(found), keras.tree.flatten(expected)
    assert [(c.id, c.text) for c in found] == [(c.id, c.text) for c in expected]
    np.testing.assert_allclose(
        [c.probability for c in found], [c.probability for c in expected], atol=1e-5
    )


@quick
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_fills_as_the_whole_model_says(family, tokenizer):
    sizes = {"embedding_size": 8} if family in ("albert", "electra_generator") else {}
    model = make_model(family, config=sizes)
    found = fill_mask(model, tokenizer, [TEXT, LONG, TEXT + TEXT], top_k=7)
    for text, fills in zip([TEXT, LONG, TEXT + TEXT], found, strict=True):
        ids, segments = masked_row(tokenizer, text)
        expected = probabilities(model, ids, segments)
        assert_fills(fills, expected, ids)


@quick
def test_roberta_pads_with_its_own_id_and_begins_after_it():
    tokens = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]", *TOKENS[5:]]
    tokenizer = make_tokenizer(tokens)
    ids = tokenizer.tokens_to_ids(["[CLS]", *"今天", "[MASK]", *"气很好", "[SEP]"])
    expected = probabilities(make_model("roberta", config=ROBERTA), ids)
    for options in ({}, {"custom_position_ids": True}, {"with_mask_input": True}):
        model = make_model("roberta", config=ROBERTA, **options)
        found = fill_mask(model, tokenizer, [TEXT, LONG], top_k=3)
        assert [c.id for c in found[0][0]] == list(np.argsort(-expected[3])[:3])
        np.testing.assert_allclose(found[0][0][0].probability, expected[3].max(), atol=1e-5)
    # 24 rows of the table, of which padding and what is below it take two.
    assert fill_mask(model, tokenizer, "[MASK]" + "好" * 19)
    with pytest.raises(ConfigError, match="at most 22"):
        fill_mask(model, tokenizer, "[MASK]" + "好" * 20)


@quick
@pytest.mark.parametrize(
    ("options", "output"),
    [
        ({"with_mlm": "linear"}, None),
        ({"with_nsp": True}, 1),
        ({"with_pool": True, "with_mlm": "linear"}, None),
        ({"hidden_states": True}, 0),
        ({"dtype": "float32", "prefix": "My-"}, 0),
        ({"with_mlm": lambda x: keras.ops.log_softmax(x)}, None),
    ],
)
def test_any_activation_and_other_outputs(options, output, tokenizer, model):
    if "hidden_states" in options:
        base = make_model()
        other = keras.Model(base.inputs, [base.output, base.layers[-3].output])
    else:
        other = make_model(**options)
    ids, segments = masked_row(tokenizer, LONG)
    other_weights = {w.path.removeprefix("My-"): w for w in other.weights}
    for weight in model.weights:
        other_weights[weight.path].assign(weight)
    assert_fills(fill_mask(other, tokenizer, LONG), probabilities(model, ids, segments), ids)


@quick
def test_inputs_that_options_add(tokenizer, model):
    expected = fill_mask(model, tokenizer, [TEXT, LONG])
    for options in (
        {"with_mask_input": True},
        {"custom_position_ids": True},
        {"with_mask_input": True, "custom_position_ids": True},
        {"sequence_length": 20},
        {"dtype": "float64"},
    ):
        other = make_model(**options)
        assert_same(fill_mask(other, tokenizer, [TEXT, LONG]), expected)


@quick
def test_kept_tokens(tokenizer):
    kept = [TOKENS.index(t) for t in [*SPECIAL, *"好很气今天"]]
    whole = make_model(seed=3)
    arrays = {}
    small = build_transformer_model(
        whole_config(), model="bert", with_mlm=True, keep_tokens=kept, verbose=0
    )
    for old, new in zip(whole.weights, small.weights, strict=True):
        old = keras.ops.convert_to_numpy(old)
        rows = "Embedding-Token" in new.path or "MLM-Bias" in new.path
        arrays[new.path] = old[kept] if rows else old
        new.assign(arrays[new.path])
    own = make_tokenizer([TOKENS[i] for i in kept])
    found = fill_mask(small, own, TEXT, top_k=len(kept))[0]
    ids, segments = masked_row(tokenizer, TEXT)
    expected = probabilities(whole, ids, segments)[3][kept]
    np.testing.assert_allclose(
        [c.probability for c in found], np.sort(expected / expected.sum())[::-1], atol=1e-5
    )
    with pytest.raises(ConfigError, match=f"{len(TOKENS)} ids, the model's vocabulary {len(kept)}"):
        fill_mask(small, tokenizer, TEXT)


def whole_config():
    return {
        "vocab_size": len(TOKENS),
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "hidden_act": "gelu",
        "max_position_embeddings": 24,
        "type_vocab_size": 2,
    }


@quick
def test_extended_nested_and_reloaded_models(tokenizer, model, tmp_path):
    expected = fill_mask(model, tokenizer, LONG)
    hidden = model.get_layer("Transformer-0-FeedForward").output
    inputs = [keras.Input((None,), dtype="int32", name=name) for name in "ab"]
    model.save(tmp_path / "model.keras")
    for other in (
        keras.Model(model.inputs, [keras.layers.Dense(3)(hidden), model.output]),
        keras.Model(inputs, model(inputs)),
        keras.models.load_model(tmp_path / "model.keras"),
    ):
        assert_same(fill_mask(other, tokenizer, LONG), expected)


@quick
def test_a_model_for_training_with_a_loss_layer(tokenizer, model):
    expected = fill_mask(model, tokenizer, LONG)
    targets = keras.Input((None,), dtype="int32")

    class Own(Loss):
        def compute_loss(self, inputs, mask=None):
            return keras.ops.mean(inputs[1])

    training = keras.Model([*model.inputs, targets], Own(1)([targets, model.output]))
    assert_same(fill_mask(training, tokenizer, LONG), expected)


@pytest.mark.backends
def test_texts_of_different_lengths_do_not_touch_each_other(tokenizer, model):
    texts = [TEXT, LONG, "[MASK]", "好" * 20 + "[MASK]", "[MASK]a", "it was [MASK]"]
    together = fill_mask(model, tokenizer, texts, batch_size=4)
    for text, found in zip(texts, together, strict=True):
        assert_same(found, fill_mask(model, tokenizer, text))


def test_pairs(tokenizer, model):
    found = fill_mask(model, tokenizer, TEXT, 3, "房间[MASK]干净")
    ids, segments = masked_row(tokenizer, TEXT, "房间[MASK]干净")
    assert_fills(found, probabilities(model, ids, segments), ids)
    assert found[0][0].text.startswith("今天") and found[1][0].text.startswith("房间")
    both = fill_mask(model, tokenizer, [TEXT, "a"], 3, ["房间[MASK]干净", "[MASK]"])
    assert [c.id for c in both[0][1]] == [c.id for c in found[1]]
    assert len(both[1]) == 1


@quick
def test_filled_texts(tokenizer, model):
    size = len(TOKENS)
    fills = {c.token: c.text for c in fill_mask(model, tokenizer, "It was play [MASK]！", size)[0]}
    assert len(fills) == size
    assert fills["##ing"] == "It was playing！"
    assert fills["good"] == "It was play good！"
    assert fills["."] == "It was play.！"
    assert fills["[SEP]"] == "It was play [SEP]！"
    first, second = fill_mask(model, tokenizer, "今天[MASK][MASK]很好", size)
    assert {c.token: c.text for c in first}["天"] == "今天天[MASK]很好"
    assert {c.token: c.text for c in second}["气"] == "今天[MASK]气很好"


def test_a_candidate_shows_what_matters_and_cannot_change():
    candidate = MaskCandidate("天", 7, 0.98765, "今天")
    assert repr(candidate) == "MaskCandidate('天', 0.9877, '今天')"
    with pytest.raises(AttributeError):
        candidate.id = 3


@quick
def test_sentencepiece(tmp_path):
    import sentencepiece

    from kerasbert.tokenizers import SpTokenizer

    (tmp_path / "text.txt").write_text("the cat sat on the mat\nthe dog was playing\n" * 20)
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "text.txt"),
        model_prefix=str(tmp_path / "sp"),
        vocab_size=24,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        pad_piece="<pad>",
        user_defined_symbols=["[CLS]", "[SEP]", "[MASK]"],
        minloglevel=2,
    )
    tokenizer = SpTokenizer(tmp_path / "sp.model")
    model = make_model("albert", vocab_size=tokenizer.vocab_size)
    fills = fill_mask(model, tokenizer, "the [MASK] sat", tokenizer.vocab_size)[0]
    for candidate in fills:
        word = candidate.token.replace("▁", "")
        if candidate.token.startswith("▁") and word:
            assert candidate.text == f"the {word} sat"
        elif word.isalpha():
            assert candidate.text == f"the{word} sat"


@quick
def test_a_vocabulary_smaller_than_the_model_and_with_gaps(model):
    tokens = {t: i for i, t in enumerate(TOKENS[:-4]) if t != "净"}
    from kerasbert.tokenizers import Tokenizer

    fills = fill_mask(model, Tokenizer(tokens), TEXT, top_k=len(tokens))[0]
    assert {c.token for c in fills} == set(tokens)
    with pytest.raises(ConfigError, match=f"at most {len(tokens)}"):
        fill_mask(model, Tokenizer(tokens), TEXT, top_k=len(tokens) + 1)


@quick
def test_float16_gives_finite_numbers(tokenizer, model):
    found = fill_mask(make_model(dtype="mixed_float16"), tokenizer, [TEXT, LONG])
    plain = fill_mask(model, tokenizer, [TEXT, LONG])
    for ours, theirs in zip(found, plain, strict=True):
        ours, theirs = ([c[0].probability for c in fills] for fills in (ours, theirs))
        np.testing.assert_allclose(ours, theirs, atol=0.02)


def test_new_weights_count_at_once_and_nothing_keeps_the_model_alive(tokenizer):
    model = make_model(seed=1)
    before = fill_mask(model, tokenizer, TEXT)[0][0].probability
    model.get_layer("MLM-Bias").bias.assign(np.arange(len(TOKENS)) * 1.0)
    after = fill_mask(model, tokenizer, TEXT)[0][0]
    assert after.probability > before
    ids, segments = masked_row(tokenizer, TEXT)
    assert abs(after.probability - probabilities(model, ids, segments)[3].max()) < 1e-5
    ghost = weakref.ref(model)
    del model
    keras.utils.clear_session(free_memory=False)
    gc.collect()
    assert ghost() is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["没有"], "has no mask"),
        ([[TEXT, "天气"]], r"text\[1\]='天气' has no mask"),
        (["[mask]"], "has no mask"),
        ([TEXT, 0], "top_k=0"),
        ([TEXT, True], "top_k=True"),
        ([TEXT, len(TOKENS) + 1], f"at most {len(TOKENS)}"),
        (["[MASK]" + "好" * 22], "25 tokens"),
        ([[TEXT], 5, ["a", "b"]], "2 texts"),
    ],
)
def test_refusals(arguments, words, tokenizer, model):
    with pytest.raises(ConfigError, match=words):
        fill_mask(model, tokenizer, *arguments)


def test_refusals_of_kinds(tokenizer, model):
    with pytest.raises(TokenizerError, match=r"text\[0\]"):
        fill_mask(model, tokenizer, [3])
    with pytest.raises(TokenizerError, match="second_text"):
        fill_mask(model, tokenizer, TEXT, second_text=3)
    with pytest.raises(ConfigError, match="batch_size"):
        fill_mask(model, tokenizer, TEXT, batch_size=0)
    with pytest.raises(ConfigError, match="tokenizer is a dict"):
        fill_mask(model, {}, TEXT)
    with pytest.raises(KerasbertError, match="Keras model"):
        fill_mask(3, tokenizer, TEXT)
    with pytest.raises(TokenizerError, match="mask token"):
        fill_mask(model, make_tokenizer([t for t in TOKENS if t != "[MASK]"]), TEXT)
    assert fill_mask(model, tokenizer, []) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"with_mlm": False}, "with_mlm=True"),
        ({"with_mlm": False, "with_pool": True}, "no masked-LM head"),
        ({"application": "lm"}, "application='lm'"),
        ({"application": "unilm"}, "application='unilm'"),
        ({"family": "gpt", "with_mlm": False}, "gpt family"),
        ({"config": {"type_vocab_size": 1}}, "type_vocab_size=1"),
        ({"config": {"vocab_size": 20}}, "the model's vocabulary 20"),
    ],
)
def test_models_that_cannot(options, words, tokenizer):
    with pytest.raises(ConfigError, match=words):
        fill_mask(make_model(**options), tokenizer, TEXT, second_text="a")


def test_models_that_need_more(tokenizer):
    condition = keras.Input((4,), name="condition")
    model = make_model(layer_norm_cond=condition, additional_input_layers=[condition])
    with pytest.raises(ConfigError, match="condition"):
        fill_mask(model, tokenizer, TEXT)

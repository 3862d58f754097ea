"""One block for all layers, or one for each: equal until they are trained, then free."""

import io
import itertools

import keras
import numpy as np
import pytest

from fixtures import golden_case, make_arrays, random_batch, tiny_config
from harness import default_and_slow, refused, silent, to_numpy
from kerasbert import build_transformer_model, hidden_state, unshare
from kerasbert.errors import ConfigError, KerasbertError
from reference.forward import forward

# name: (kind of the arrays, changes of the config)
KINDS = {
    "google": ("google_albert", {}),
    "groups": ("google_albert", {"num_hidden_groups": 2, "inner_group_num": 2}),
    "same_dim": ("google_albert", {"embedding_size": 32}),
    "early": ("albert_zh", {}),
    "preln": ("albert_zh", {"ln_type": "preln"}),
}


def release(kind):
    dialect, changes = KINDS[kind]
    config = tiny_config(dialect, **changes)
    return config, make_arrays(dialect, config, seed=2)


def build(kind="google", model="albert", **options):
    config, arrays = release(kind)
    return build_transformer_model(config, arrays, model, verbose=0, **options)


def batch(seed=0):
    return list(random_batch(np.random.default_rng(seed), 100, 3, 9))


def outputs(model):
    return [to_numpy(output) for output in keras.tree.flatten(model(batch()))]


def close(found, expected, atol=1e-6):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=atol, rtol=0)


def blocks(model, part="FeedForward"):
    """The distinct block layers, in order."""
    if not isinstance(model, keras.Model):
        return []
    found = [layer for layer in model.layers if layer.name.endswith(part)]
    return found + [block for layer in model.layers for block in blocks(layer, part)]


def equal(one, other):
    pairs = zip(one.weights, other.weights, strict=True)
    return all(np.array_equal(to_numpy(a), to_numpy(b)) for a, b in pairs)


def loss_of_mine(labels, predictions):
    """A function that Keras cannot find by its name: users do not register theirs."""
    return keras.ops.mean((labels - predictions) ** 2)


def train(model, inputs):
    """One step with a target of the width of the output; returns the loss before it."""
    model.compile(keras.optimizers.SGD(0.01), loss_of_mine, run_eagerly=True)
    target = np.random.default_rng(1).normal(size=(3, model.outputs[0].shape[-1]))
    return model.train_on_batch(inputs, target.astype("float32"))


def classifier(encoder, nested=False):
    """A user's head: two layers on the pooled output."""
    inputs = encoder.inputs
    if nested:
        inputs = [keras.Input((None,), dtype="int32", name=name) for name in ("ids", "types")]
    hidden = encoder(inputs) if nested else encoder.output
    hidden = keras.layers.Dense(7, activation="tanh", name="mine")(hidden)
    return keras.Model(inputs, keras.layers.Dense(3, name="labels")(hidden), name="classifier")


# ---- model="albert_unshared" -----------------------------------------------------------------


@pytest.mark.parametrize("kind", list(KINDS))
def test_equal_outputs_from_one_file(kind):
    heads = {"with_nsp": True, "with_mlm": "linear", "hidden_states": True}
    shared, unshared = build(kind, **heads), build(kind, "albert_unshared", **heads)
    close(outputs(unshared), outputs(shared))
    one, many = (4, 6) if kind == "groups" else (1, 3)
    for part in ("FeedForward", "MultiHeadSelfAttention"):
        assert len(blocks(shared, part)) == one
        copies = blocks(unshared, part)
        assert len(copies) == many
        assert all(equal(copies[0], copy) for copy in copies) == (kind != "groups")
    per_block = sum(
        layer.count_params()
        for part in ("FeedForward", "MultiHeadSelfAttention")
        for layer in blocks(shared, part)
    )
    assert unshared.count_params() - shared.count_params() == (many - one) * per_block // one
    for model, count in ((shared, one), (unshared, many)):
        text = io.StringIO()
        model.summary(print_fn=lambda line, text=text: text.write(line + "\n"), line_length=250)
        rows = [line for line in text.getvalue().splitlines() if "-FeedForward (" in line]
        assert len(rows) == count


def test_a_layer_works_on_its_own_depth_only():
    model = build(model="albert_unshared", hidden_states=True)
    before = outputs(model)
    layer = model.get_layer("Transformer-1-MultiHeadSelfAttention")
    layer.set_weights([value + 0.1 for value in layer.get_weights()])
    after = outputs(model)
    changed = [not np.array_equal(a, b) for a, b in zip(before[1:], after[1:], strict=True)]
    assert changed == [False, False, True, True]


@pytest.mark.parametrize(
    ("options", "attention", "feed_forward"),
    [
        ({"unshare": "attention"}, 3, 1),
        ({"unshare": "feed_forward"}, 1, 3),
        ({"unshare": "all"}, 3, 3),
        ({"unshare_layers": [1]}, 2, 2),
        ({"unshare": "attention", "unshare_layers": [0, 2]}, 3, 1),
        ({"unshare_layers": []}, 1, 1),
    ],
)
def test_finer_unsharing(options, attention, feed_forward):
    model = build(with_pool=True, **options)
    counts = [len(blocks(model, part)) for part in ("SelfAttention", "FeedForward")]
    assert counts == [attention, feed_forward]
    close(outputs(model), outputs(build(with_pool=True)))
    train(model, batch())
    for part in ("SelfAttention", "FeedForward"):
        assert not any(equal(*pair) for pair in itertools.combinations(blocks(model, part), 2))


# ---- kerasbert.unshare -----------------------------------------------------------------------


def fine_tuned(form):
    if form in ("extended", "nested"):
        model = classifier(build(with_pool=True), nested=form == "nested")
    else:
        encoder = build(with_pool=True, segment_vocab_size=0)
        model = keras.Sequential([encoder, keras.layers.Dense(3, name="labels")], name="tuned")
        if form == "sequential inside":
            model = keras.Model(model.inputs, model(model.inputs[0]))
    inputs = batch() if len(model.inputs) == 2 else batch()[0]
    train(model, inputs)
    return model, inputs


@pytest.mark.parametrize(
    "form",
    default_and_slow(
        ["extended", "nested", "sequential", "sequential inside"], ["nested", "sequential inside"]
    ),
)
def test_unshare_after_fine_tuning(form):
    model, inputs = fine_tuned(form)
    before = {weight.path: to_numpy(weight) for weight in model.weights}
    wider = silent(unshare, model)
    assert wider.name == model.name and not wider.compiled
    assert len(blocks(model)) == 1 and len(blocks(wider)) == 3
    expected = to_numpy(model(inputs))
    close([to_numpy(wider(inputs))], [expected])
    assert not {id(w) for w in wider.weights} & {id(w) for w in model.weights}

    assert train(wider, inputs) > train(wider, inputs)
    assert not any(equal(blocks(wider)[0], other) for other in blocks(wider)[1:])
    np.testing.assert_array_equal(to_numpy(model(inputs)), expected)
    for weight in model.weights:
        np.testing.assert_array_equal(to_numpy(weight), before[weight.path])


class NoConfig(keras.layers.Layer):
    """As users write them: with an argument and no get_config."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.supports_masking = True

    def call(self, inputs):
        return self.function(inputs)


ON_TOP = {
    "operations": lambda x: keras.layers.Dense(2)(x[:, 0] * 2),
    "batch norm": lambda x: keras.layers.BatchNormalization()(x),
    "lstm": lambda x: keras.layers.Bidirectional(keras.layers.LSTM(2))(x),
    "lambda": lambda x: keras.layers.Lambda(lambda y: y[:, 0] * 2)(x),
    "no config": lambda x: NoConfig(keras.ops.tanh)(x),
    "dict": lambda x: {"first": x[:, 0], "all": keras.layers.Dense(2)(x)},
}


@pytest.mark.parametrize(
    "what",
    default_and_slow(
        [*ON_TOP, "siamese", "tied"], ["operations", "lstm", "no config", "siamese", "tied"]
    ),
)
def test_whatever_stands_on_top(what):
    encoder = build()
    if what == "siamese":
        others = [keras.Input((None,), dtype="int32", name=name) for name in ("ids", "types")]
        difference = keras.layers.Subtract()([encoder(encoder.inputs), encoder(others)])
        model, inputs = keras.Model([*encoder.inputs, *others], difference), batch() + batch(4)
    else:
        if what == "tied":
            narrow = keras.layers.Dense(16)(encoder.output)
            output = encoder.get_layer("Embedding-Token")(narrow, mode="dense")
        else:
            output = ON_TOP[what](encoder.output)
        model, inputs = keras.Model(encoder.inputs, output), batch()
    wider = unshare(model)
    assert len(blocks(wider)) == 3
    assert wider.count_params() - model.count_params() == 2 * sum(
        layer.count_params()
        for part in ("Attention", "FeedForward")
        for layer in blocks(model, part)
    )
    for one, other in zip(*(keras.tree.flatten(m(inputs)) for m in (model, wider)), strict=True):
        close([to_numpy(other)], [to_numpy(one)])


@pytest.mark.parametrize(("kind", "what"), [("groups", "attention"), ("preln", "all")])
def test_unshare_every_kind(kind, what):
    heads = {"with_nsp": True, "with_mlm": True, "hidden_states": True, "prefix": "my-"}
    model = build(kind, with_mask_input=True, **heads)
    inputs = [*batch(), np.array([[1, 1, 0, 1, 0, 1, 0, 0, 1]] * 3)]
    wider = unshare(model, what)
    for one, other in zip(*(keras.tree.flatten(m(inputs)) for m in (model, wider)), strict=True):
        close([to_numpy(other)], [to_numpy(one)])
    twin = build(kind, unshare=what, with_mask_input=True, **heads)
    assert [weight.path for weight in wider.weights] == [weight.path for weight in twin.weights]


def test_unshare_keeps_precision_frozen_layers_and_dropout():
    encoder = build(dtype="mixed_float16", dropout_rate=0.3, with_pool=True)
    encoder.get_layer("Embedding-Token").trainable = False
    blocks(encoder)[0].trainable = False
    wider = unshare(classifier(encoder))
    assert not wider.get_layer("Embedding-Token").trainable
    assert {layer.trainable for layer in blocks(wider)} == {False}
    assert {layer.rate for layer in blocks(wider)} == {0.3}
    assert {layer.compute_dtype for layer in blocks(wider)} == {"float16"}


def test_unshare_keeps_frozen_parts_of_a_block():
    encoder = build()
    block = blocks(encoder, "SelfAttention")[0]
    block.norm.trainable = False
    block.query.trainable = False
    for copy in blocks(unshare(encoder), "SelfAttention"):
        frozen = [weight.path.split("/", 1)[1] for weight in copy.non_trainable_weights]
        assert frozen == [w.path.split("/", 1)[1] for w in block.non_trainable_weights] != []


def test_unshare_in_two_steps():
    model = build(with_pool=True)
    step = unshare(model, "attention", [0])
    wider = unshare(step, "all")
    close(outputs(wider), outputs(model))
    for what, layers in (("feed_forward", None), ("attention", [1]), ("all", [1, 2])):
        with refused(KerasbertError, "attention", "again", "unshare='all'"):
            unshare(step, what, layers)


def test_unshare_refuses():
    bert = build_transformer_model(tiny_config("google_bert", num_hidden_layers=1))
    with refused(KerasbertError, "bert", "albert family"):
        unshare(bert)
    model = build()
    with refused(ConfigError, "atention", "attention"):
        unshare(model, "atention")
    for layers in ([3], [-1], ["1"], [True]):
        with refused(ConfigError, "unshare_layers", "from 0 to 2"):
            unshare(model, "all", layers)
    plain = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    with refused(KerasbertError, "no encoder of kerasbert"):
        unshare(plain)
    both = keras.layers.Add()([build(prefix=prefix)(model.inputs) for prefix in ("a-", "b-")])
    with refused(KerasbertError, "2 encoders", "a-", "b-"):
        unshare(keras.Model(model.inputs, both))
    blocks(model)[0].intermediate.enable_lora(2)
    with refused(KerasbertError, "lora", "Transformer-FeedForward", "Merge LoRA"):
        unshare(model)


# ---- the hidden states -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "form"),
    default_and_slow(
        [
            *(("google", form) for form in ("unshared", "extended", "nested")),
            *(("groups", form) for form in ("shared", "reloaded", "nested")),
            ("early", "reloaded"),
        ],
        [("google", "unshared"), ("google", "extended"), ("groups", "nested")],
    ),
)
def test_hidden_states_by_depth(kind, form, tmp_path):
    config, arrays = release(kind)
    model = build(kind, "albert_unshared" if form == "unshared" else "albert", with_pool=True)
    if form == "reloaded":
        model.save(tmp_path / "model.keras")
        model = keras.models.load_model(tmp_path / "model.keras")
    elif form in ("extended", "nested"):
        model = classifier(model, form == "nested")
    ids, segments = batch()
    recorded = forward(arrays, config, ids, segments, ids > 0)
    expected = [recorded["embedding_output"]]
    while f"layer_{len(expected) - 1}" in recorded:
        expected.append(recorded[f"layer_{len(expected) - 1}"])
    count = len(expected)
    states = [hidden_state(model, k) for k in range(count)]
    assert all(hidden_state(model, k - count) is states[k] for k in range(count))
    owner = model if form != "nested" else next(x for x in model.layers if hasattr(x, "layers"))
    found = keras.Model(owner.inputs, states)([ids, segments])
    close([to_numpy(state) for state in found], expected, 1e-5)
    for k in (count, -count - 1):
        with refused(KerasbertError, f"k={k}", f"{count - 1} times", f"to {count - 1}"):
            hidden_state(model, k)


def test_output_of_a_shared_layer_is_that_of_its_last_call():
    case = golden_case("albert_groups")
    model = build_transformer_model(case.config_path, case.checkpoint, "albert", verbose=0)
    a = case.arrays
    for name, layer in (("group-0-inner-0", 2), ("group-0-inner-1", 3), ("group-1-inner-1", 7)):
        block = model.get_layer(f"Transformer-{name}-FeedForward")
        found = keras.Model(model.inputs, block.output)([a["input_ids"], a["segment_ids"]])
        close([to_numpy(found)], [a[f"layer_{layer}"]], 1e-5)


@pytest.mark.parametrize("model", ["albert", "albert_unshared"])
def test_a_model_cut_at_a_hidden_state(model):
    whole = build(model=model, hidden_states=True)
    cut = keras.Model(whole.inputs, hidden_state(whole, -2))
    expected = outputs(whole)[1:]
    for k in range(3):
        found = keras.Model(cut.inputs, hidden_state(cut, k))(batch())
        close([to_numpy(found)], expected[k : k + 1])
    for k in (3, -4):
        with refused(KerasbertError, f"k={k}"):
            hidden_state(cut, k)
    if model == "albert":
        wider = unshare(cut)
        assert len(blocks(wider)) == 2
        close(outputs(wider), expected[2:3])

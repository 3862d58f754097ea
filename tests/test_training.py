"""Models of ours learn with plain `fit`, on each backend, and every weight takes part."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest

from fixtures import make_arrays, random_batch, read_checkpoint, tiny_config
from harness import default_and_slow
from kerasbert import build_transformer_model, save_weights_as_checkpoint
from reference.forward import forward

MODELS = [
    ("google_bert", "bert"),
    ("google_albert", "albert"),
    ("google_albert", "albert_unshared"),
    ("albert_zh", "albert"),
]
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
each_model = pytest.mark.parametrize(("kind", "model"), MODELS)


# A short run is quicker step by step than its compilation; on JAX it is the other way round.
EAGER = keras.backend.backend() == "tensorflow"


def build(kind, model, config=None, **options):
    config = config or tiny_config(kind, num_hidden_layers=2)
    return build_transformer_model(
        config, make_arrays(kind, config, 3), model=model, verbose=0, **options
    )


def batch_and_labels(seed=0, size=8):
    rng = np.random.default_rng(seed)
    ids, segments = random_batch(rng, 100, size, 9)
    return ids, segments, np.arange(size) % 2


def classifier(encoder, **compile_options):
    outputs = keras.layers.Dense(2, activation="softmax")(encoder.output)
    network = keras.Model(encoder.inputs, outputs)
    network.compile(
        keras.optimizers.Adam(3e-3),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        **compile_options,
    )
    return network


@pytest.mark.backends
@pytest.mark.parametrize(
    ("kind", "model"), default_and_slow(MODELS, [("google_bert", "bert"), ("albert_zh", "albert")])
)
def test_fit_lowers_the_loss(kind, model):
    # Whole batches, no dropout, and steps at which the loss fell by 2.5e-4 or more for 32 of 32
    # other seeds: far from rounding, and from where a step leaps over the valley.
    config = tiny_config(kind, num_hidden_layers=2, **NO_DROPOUT)
    network = classifier(build(kind, model, config, with_pool=True))
    loss = "sparse_categorical_crossentropy"
    # One of them is compiled, as fit is by default.
    network.compile(keras.optimizers.SGD(0.003), loss, run_eagerly=EAGER and model != "bert")
    ids, segments, labels = batch_and_labels()
    losses = network.fit([ids, segments], labels, epochs=5, verbose=0).history["loss"]
    assert losses == sorted(set(losses), reverse=True)


@pytest.mark.parametrize(
    ("kind", "model"),
    [pytest.param(*m, marks=[pytest.mark.backends] if m[0] == "albert_zh" else []) for m in MODELS],
)
def test_every_weight_moves(kind, model):
    """One optimizer step reaches each variable, heads and tied tables included."""
    encoder = build(kind, model, with_nsp=True, with_mlm=True)
    ids, segments, labels = batch_and_labels()
    losses = ["sparse_categorical_crossentropy"] * 2
    encoder.compile(keras.optimizers.SGD(0.1), losses, run_eagerly=EAGER)
    before = {w.path: keras.ops.convert_to_numpy(w).copy() for w in encoder.trainable_weights}
    encoder.train_on_batch([ids, segments], [labels, ids])
    for weight in encoder.trainable_weights:
        moved = np.abs(keras.ops.convert_to_numpy(weight) - before[weight.path]).max()
        # The softmax over keys takes no notice of a constant in all of them.
        if not weight.path.endswith("key/bias"):
            assert moved > 0, f"{weight.path} got no gradient"


@pytest.mark.parametrize("rate", [0, None, 0.1])
def test_dropout_of_the_config(rate):
    config = tiny_config(
        "google_albert", hidden_dropout_prob=rate, attention_probs_dropout_prob=rate
    )
    encoder = build("google_albert", "albert", config)
    ids, segments, _ = batch_and_labels()
    first, second = (
        keras.ops.convert_to_numpy(encoder([ids, segments], training=True)) for _ in range(2)
    )
    assert np.array_equal(first, second) == (not rate)
    calm = [keras.ops.convert_to_numpy(encoder([ids, segments])) for _ in range(2)]
    np.testing.assert_array_equal(*calm)


@pytest.mark.slow
def test_training_compiled_by_xla():
    config = tiny_config("google_albert", num_hidden_layers=1)
    network = classifier(build("google_albert", "albert", config, with_pool=True), jit_compile=True)
    ids, segments, labels = batch_and_labels()
    losses = [network.train_on_batch([ids, segments], labels)[0] for _ in range(8)]
    assert losses[-1] < losses[0]


# ---- gradients -------------------------------------------------------------------------------

HEADS = {"with_nsp": "linear", "with_mlm": "linear"}
GROUPS = {"num_hidden_groups": 2, "inner_group_num": 2}


def targets(model, rows):
    rng = np.random.default_rng(1)
    shapes = [[rows, *(n or 9 for n in output.shape[1:])] for output in model.outputs]
    made = [rng.normal(size=shape).astype("float32") for shape in shapes]
    return made[0] if len(made) == 1 else made


def with_squares(model, optimizer):
    losses = ["mse"] * len(model.outputs) if len(model.outputs) > 1 else "mse"
    model.compile(optimizer, losses, run_eagerly=EAGER)
    return model


@pytest.mark.parametrize(
    ("kind", "model", "changes"),
    [
        ("google_bert", "bert", {}),
        ("google_albert", "albert", {**GROUPS, "hidden_act": "relu"}),
        ("google_albert", "albert_unshared", {"embedding_size": 32}),
        ("albert_zh", "albert", {}),
        ("albert_zh", "albert_unshared", {"ln_type": "preln"}),
        ("albert_zh_unshared", "albert_unshared", {}),
    ],
)
def test_gradients_agree_with_the_reference(kind, model, changes, tmp_path):
    """Along a random direction, against a difference quotient of the float64 forward pass."""
    config = tiny_config(kind, **{"num_hidden_layers": 2, **NO_DROPOUT, **changes})
    made = build(kind, model, config, **HEADS)
    ids, segments, _ = batch_and_labels(size=4)
    wanted = targets(made, 4)
    before = read_checkpoint(save_weights_as_checkpoint(made, tmp_path / "a", 0)["checkpoint"])
    with_squares(made, keras.optimizers.SGD(1e-2)).train_on_batch([ids, segments], wanted)
    paths = save_weights_as_checkpoint(made, tmp_path / "b", 0)
    after = read_checkpoint(paths["checkpoint"])
    config = json.loads(Path(paths["config"]).read_text("utf-8"))
    real = ids > 0  # the words carry the Keras mask, so padding is not in their mean

    def loss(arrays):
        out = forward(arrays, config, ids, segments, real)
        words = ((out["mlm_logits"] - wanted[1]) ** 2).mean(-1)
        return ((out["nsp_logits"] - wanted[0]) ** 2).mean() + words[real].mean()

    rng = np.random.default_rng(2)
    way = {name: rng.normal(size=value.shape) for name, value in before.items()}
    steps = {name: (before[name].astype("float64") - after[name]) / 1e-2 for name in way}
    ends = [{n: before[n] + sign * 1e-5 * way[n] for n in way} for sign in (1, -1)]
    expected = (loss(ends[0]) - loss(ends[1])) / 2e-5
    found = sum((steps[name] * way[name]).sum() for name in way)
    assert abs(found - expected) < 1e-3 * max(1.0, abs(expected))
    # A softmax cancels what all keys have in common.
    flat = [name for name in way if np.abs(steps[name]).max() < 1e-6]
    assert all(name.endswith("/key/bias") for name in flat)


@pytest.mark.backends
def test_the_gradient_of_a_shared_block_is_the_sum_of_its_copies():
    ids, segments, _ = batch_and_labels(size=4)
    moved = []
    for model in ("albert", "albert_unshared"):
        config = tiny_config("google_albert", num_hidden_layers=2, **NO_DROPOUT)
        made = with_squares(
            build("google_albert", model, config, with_pool=True), keras.optimizers.SGD(0.01)
        )
        for part in ("FeedForward", "SelfAttention"):
            blocks = [layer for layer in made.layers if layer.name.endswith(part)]
            moved.append((blocks, [block.get_weights() for block in blocks]))
        made.train_on_batch([ids, segments], targets(made, 4))
    moved = [
        [
            [new - old for new, old in zip(block.get_weights(), olds, strict=True)]
            for block, olds in zip(blocks, before, strict=True)
        ]
        for blocks, before in moved
    ]
    for (shared,), copies in zip(moved[:2], moved[2:], strict=True):
        assert len(copies) == 2
        for delta, parts in zip(shared, zip(*copies, strict=True), strict=True):
            np.testing.assert_allclose(delta, sum(parts), atol=1e-5, rtol=0)


# ---- settings of training --------------------------------------------------------------------


@pytest.mark.parametrize("key", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_each_dropout_by_itself(key):
    config = tiny_config("albert_zh", num_hidden_layers=1, **{**NO_DROPOUT, key: 0.1})
    encoder = build("albert_zh", "albert", config)
    inputs = list(batch_and_labels()[:2])
    one, other = (keras.ops.convert_to_numpy(encoder(inputs, training=True)) for _ in range(2))
    assert np.abs(one - other).max() > 0.01


class OwnData(keras.utils.PyDataset):
    def __init__(self, inputs, labels):
        super().__init__()
        self.inputs, self.labels = inputs, labels

    def __len__(self):
        return 2

    def __getitem__(self, index):
        part = slice(4 * index, 4 * index + 4)
        return tuple(array[part] for array in self.inputs), self.labels[part]


class OwnLoss(keras.layers.Layer):
    """The way of bert4keras' examples: labels are an input, and the loss is in the model."""

    def call(self, labels, scores):
        self.add_loss(keras.ops.mean(keras.losses.sparse_categorical_crossentropy(labels, scores)))
        return scores


def test_every_way_to_feed():
    ids, segments, labels = batch_and_labels()
    config = tiny_config("google_albert", num_hidden_layers=1)
    model = classifier(build("google_albert", "albert", config, with_pool=True))
    model.compile(keras.optimizers.SGD(0.0), "sparse_categorical_crossentropy", run_eagerly=True)
    data = OwnData((ids, segments), labels)
    feeds = [
        ([ids, segments], labels),
        ((ids, segments), labels[:, None]),
        ({"Input-Segment": segments, "Input-Token": ids}, labels.astype("float32")),
        ([ids.astype("float64"), segments.astype("int64")], labels),
        (data,),
        ((data[i] for i in range(2)),),
    ]
    if EAGER:
        import tensorflow as tf

        named = {"Input-Token": ids, "Input-Segment": segments}
        rows = [tf.data.Dataset.from_tensor_slices((x, labels)) for x in (named, (ids, segments))]
        feeds += [(rows[0].batch(4),), (rows[1].padded_batch(4),)]
    losses = []
    for feed in feeds:
        size = {"batch_size": 4} if len(feed) == 2 else {}
        history = model.fit(*feed, shuffle=False, verbose=0, **size).history
        losses.append(history["loss"][0])
    given = keras.Input((), dtype="int32", name="labels")
    own = keras.Model([*model.inputs, given], OwnLoss()(given, model.output))
    own.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    history = own.fit([ids, segments, labels], batch_size=4, shuffle=False, verbose=0).history
    np.testing.assert_allclose([*losses, history["loss"][0]], losses[0], rtol=1e-5)


@pytest.mark.backends
def test_resumed_with_a_schedule_and_frozen_layers(tmp_path):
    ids, segments, labels = batch_and_labels()
    config = tiny_config("google_albert", num_hidden_layers=2, **NO_DROPOUT)
    whole = classifier(build("google_albert", "albert", config, with_pool=True))
    whole.get_layer("Embedding-Token").trainable = False
    whole.get_layer("Transformer-FeedForward").trainable = False
    rate = keras.optimizers.schedules.PolynomialDecay(1e-2, 6)
    loss = "sparse_categorical_crossentropy"
    whole.compile(keras.optimizers.AdamW(rate), loss, run_eagerly=EAGER)
    frozen = whole.get_layer("Transformer-FeedForward").get_weights()
    settings = {"batch_size": 4, "shuffle": False, "verbose": 0}
    whole.fit([ids, segments], labels, **settings)
    whole.save(tmp_path / "half.keras")
    again = keras.models.load_model(tmp_path / "half.keras")
    assert len(again.trainable_weights) == len(whole.trainable_weights)
    for model in (whole, again):
        model.fit([ids, segments], labels, **settings)
    assert int(again.optimizer.iterations) == 4
    for one, other in zip(whole.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_allclose(other, one, atol=1e-6, rtol=0)
    for old, new in zip(
        frozen, again.get_layer("Transformer-FeedForward").get_weights(), strict=True
    ):
        np.testing.assert_array_equal(new, old)


def test_accumulated_steps_are_one_big_step():
    ids, segments, _ = batch_and_labels(size=6)
    config = tiny_config("google_albert", num_hidden_layers=2, **NO_DROPOUT)
    models = []
    for rows, options in ((6, {}), (2, {"gradient_accumulation_steps": 3})):
        model = build("google_albert", "albert", config, with_pool=True)
        with_squares(model, keras.optimizers.SGD(0.1, **options))
        wanted = targets(model, 6)
        model.fit([ids, segments], wanted, batch_size=rows, shuffle=False, verbose=0)
        models.append(model)
    for one, other in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_allclose(other, one, atol=1e-6, rtol=0)


@each_model
def test_weight_decay_can_be_told_from_the_names(kind, model):
    made = build(kind, model, **HEADS)
    optimizer = keras.optimizers.AdamW(1e-3)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    optimizer.build(made.trainable_variables)
    for weight in made.trainable_weights:
        assert optimizer._use_weight_decay(weight) == (len(weight.shape) == 2), weight.path


@pytest.mark.parametrize(
    "policy", ["mixed_float16", pytest.param("mixed_bfloat16", marks=pytest.mark.slow)]
)
def test_low_precision_keeps_learning(policy):
    config = tiny_config("google_albert", num_hidden_layers=1)
    model = build("google_albert", "albert", config, with_mlm=True, dtype=policy)
    optimizer = keras.optimizers.Adam(1e-3)
    if policy == "mixed_float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model.compile(optimizer, "sparse_categorical_crossentropy", run_eagerly=EAGER)
    ids, segments, _ = batch_and_labels(size=4)
    ids[3] = 0  # a row of nothing but padding
    losses = [float(model.train_on_batch([ids, segments], ids)) for _ in range(6)]
    assert np.isfinite(losses).all() and losses[-1] < losses[0]
    assert all(np.isfinite(weight).all() for weight in model.get_weights())
    if policy == "mixed_float16":
        assert float(optimizer.dynamic_scale) > 1

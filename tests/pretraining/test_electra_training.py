"""ELECTRA: two towers in one model, what each learns from, and their one checkpoint."""

import keras
import numpy as np
import pytest
from batches_of_masks import (
    MASK,
    QUICK,
    VOCABULARY,
    batch,
    cross_entropy,
    dropout_free,
    masked_mean,
    steps_of,
)

from fixtures import DATA, make_arrays, read_checkpoint, variable_shapes
from harness import refused, saved_and_loaded, to_numpy
from kerasbert import build_transformer_model
from kerasbert.errors import ConfigError, WeightMismatchError
from kerasbert.models.view import find_encoders
from kerasbert.optimizers import AdamW
from kerasbert.pretraining import (
    compile_objectives,
    electra_model,
    electra_towers,
    masked_lm_model,
    save_towers,
    small_generator,
)

BATCH = batch(sentence=False)
X, Y, W = BATCH
CONFIG = dropout_free("electra")
REAL = W["masked_lm"] > 0


def towers(seed=1, **options):
    keras.utils.set_random_seed(seed)
    return electra_towers(CONFIG, generator_size=0.5, verbose=0, **options)


def trained(seed=1, loss_weights=None, optimizer=None, **options):
    discriminator, generator = towers(seed, **options)
    model = electra_model(discriminator, generator, seed=7)
    optimizer = optimizer or keras.optimizers.SGD(0.5)
    return compile_objectives(model, optimizer, loss_weights=loss_weights, **QUICK)


def outputs(model, x=X):
    return {name: to_numpy(value) for name, value in model(x).items()}


def rows_and_places():
    rows = np.broadcast_to(np.arange(len(REAL))[:, None], REAL.shape)
    return rows[REAL], X["masked_lm_positions"][REAL]


# ---- what the discriminator sees -------------------------------------------------------------


@pytest.mark.backends
def test_only_masked_places_get_drawn_tokens():
    model = trained()
    replaced = model.get_layer("Replace-Tokens").output
    look = keras.Model(model.input, [replaced, model.output["sampled"]])
    rows, places = rows_and_places()
    seen = set()
    for _ in range(20):
        tokens, sampled = (to_numpy(value).astype(int) for value in look(X))
        chosen = np.zeros(tokens.shape, bool)
        chosen[rows, places] = True
        np.testing.assert_array_equal(tokens[~chosen], X["input_ids"][~chosen])
        np.testing.assert_array_equal(tokens[rows, places], sampled[REAL])
        assert sampled.min() >= 0 and sampled.max() < VOCABULARY
        seen |= set(tokens[rows, places])
    assert len(seen) > 30 and (X["input_ids"][rows, places] == MASK).all()


def completed(model, sampled):
    y_pred = {**model(X), "sampled": keras.ops.convert_to_tensor(sampled)}
    x = {name: keras.ops.convert_to_tensor(value) for name, value in X.items()}
    parts = model.completed(x, Y, y_pred, W)
    return [{name: to_numpy(value) for name, value in part.items()} for part in parts]


@pytest.mark.backends
def test_a_token_that_was_drawn_right_counts_as_not_replaced():
    model = trained()
    sampled = Y["masked_lm"].copy()
    sampled[0, 1] += 1
    sampled[2, 0] += 1
    y, y_pred, weights = completed(model, sampled)
    labels = np.zeros(X["input_ids"].shape)
    for row, column in ((0, 1), (2, 0)):
        labels[row, X["masked_lm_positions"][row, column]] = 1
    np.testing.assert_array_equal(y["replaced"][..., 0], labels)
    np.testing.assert_array_equal(weights["replaced"], X["input_mask"])
    assert y_pred.keys() == y.keys() == weights.keys() == {"masked_lm", "replaced"}


@pytest.mark.backends
def test_losses_are_those_of_plain_numpy():
    model = trained()
    seeds = model.get_layer("sampled").seed_generator.state
    start = np.array(keras.ops.convert_to_numpy(seeds.value))
    found = outputs(model)
    seeds.assign(start)
    logs = model.test_on_batch(*BATCH, return_dict=True)
    sampled = found["sampled"].astype(int)
    labels = np.zeros(X["input_ids"].shape)
    rows, places = rows_and_places()
    labels[rows, places] = (sampled != Y["masked_lm"])[REAL]
    masked = masked_mean(cross_entropy(found["masked_lm"], Y["masked_lm"]), W["masked_lm"])
    logits = found["replaced"].astype("float64")
    losses = np.log1p(np.exp(logits)) - labels * logits
    hits = (logits > 0) == labels
    expected = {
        "masked_lm_loss": masked,
        "replaced_loss": masked_mean(losses, X["input_mask"]),
        "loss": masked + 50 * masked_mean(losses, X["input_mask"]),
        "replaced_accuracy": masked_mean(hits, X["input_mask"]),
        "replaced_found": masked_mean(logits > 0, labels),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(float(logs[name]), value, atol=1e-4, err_msg=name)
    assert set(logs) == {*expected, "masked_lm_accuracy"}


# ---- who learns from what --------------------------------------------------------------------


def changes(model):
    before = [to_numpy(weight) for weight in model.trainable_weights]
    steps_of(model, BATCH)
    return {
        weight.path: np.abs(to_numpy(weight) - old).max()
        for weight, old in zip(model.trainable_weights, before, strict=True)
    }


@pytest.mark.parametrize("tied", [pytest.param(True, marks=pytest.mark.backends), False])
def test_the_generator_learns_nothing_from_the_discriminator(tied):
    found = changes(trained(loss_weights={"masked_lm": 0.0}, tied=tied))
    own = {path: change for path, change in found.items() if path.startswith("Generator-")}
    assert len(own) > 15 and not any(own.values())
    others = {path: change for path, change in found.items() if path not in own}
    assert all(change > 0 for path, change in others.items() if not path.endswith("key/bias"))


def test_the_discriminator_learns_nothing_from_the_generator():
    found = changes(trained(loss_weights={"replaced": 0.0}))
    shared = {path for path in found if path.startswith("Embedding-") and "Mapping" not in path}
    for path, change in found.items():
        if path.startswith("Generator-") or path in shared:
            assert change > 0 or path.endswith("key/bias"), path
        else:
            assert change == 0, path
    assert len(shared) == 5


def test_tied_tables_are_one_variable():
    discriminator, generator = towers()
    for name in ("Token", "Segment", "Position", "Norm"):
        one, other = (m.get_layer(f"Embedding-{name}").weights for m in (discriminator, generator))
        assert all(a is b for a, b in zip(one, other, strict=True))
    model = electra_model(discriminator, generator)
    paths = [weight.path for weight in model.weights]
    assert len(paths) == len(set(paths))
    assert len(paths) == len(discriminator.weights) + len(generator.weights) - 5
    discriminator, generator = towers(tied=False)
    shared = {id(w) for w in discriminator.weights} & {id(w) for w in generator.weights}
    assert not shared


@pytest.mark.parametrize(
    ("hidden", "size", "width", "heads"),
    [(256, 0.25, 64, 1), (768, 1 / 3, 256, 4), (36, 1.0, 36, 1)],
)
def test_sizes_of_the_generator(hidden, size, width, heads):
    config = {**CONFIG, "hidden_size": hidden, "num_attention_heads": 4}
    (view,) = find_encoders(electra_towers(config, generator_size=size, verbose=0)[1])
    found = view.config
    assert (found.hidden_size, found.num_attention_heads) == (width, heads)
    assert found.intermediate_size == 4 * width and found.num_hidden_layers == 1
    assert found.hidden_act == "gelu_erf"


# ---- files -----------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
def test_one_checkpoint_holds_both(tied, tmp_path):
    model = trained(tied=tied)
    steps_of(model, BATCH)
    paths = save_towers(model, tmp_path / "model.ckpt")
    names = read_checkpoint(paths["checkpoint"])
    if tied:
        wanted = variable_shapes("electra", CONFIG)
        # There the generator has fewer layers.
        assert set(names) >= {name for name in wanted if "generator/encoder" not in name}
        assert not any(name.startswith("generator/embeddings/") for name in names)
    else:
        assert "generator/embeddings/word_embeddings" in names
    again = electra_towers(
        paths["config"], paths["checkpoint"], generator_size=0.5, tied=tied, verbose=0
    )
    found, expected = outputs(electra_model(*again, seed=7)), outputs(model)
    np.testing.assert_array_equal(found["masked_lm"], expected["masked_lm"])
    generator = build_transformer_model(
        paths["generator_config"],
        paths["checkpoint"],
        model="electra_generator",
        with_mlm="linear",
        verbose=0,
    )
    logits = generator.predict_on_batch([X["input_ids"], X["segment_ids"]])
    np.testing.assert_allclose(
        logits[np.arange(4)[:, None], X["masked_lm_positions"]], expected["masked_lm"], atol=1e-5
    )


@pytest.mark.parametrize("case", ["electra", "electra_same_dim", "electra_untied_gen"])
def test_a_checkpoint_of_google_is_continued_and_written_alike(case, tmp_path):
    folder = DATA / "golden" / case
    tied = case != "electra_untied_gen"
    loaded = electra_towers(
        folder / "discriminator_config.json",
        folder / "model.ckpt",
        generator_size=0.5,
        generator_layers=find_layers(folder),
        tied=tied,
        verbose=0,
    )
    paths = save_towers(electra_model(*loaded), tmp_path / "model.ckpt")
    original = read_checkpoint(folder / "model.ckpt")
    written = read_checkpoint(paths["checkpoint"])
    kept = {name for name in original if "adam_" not in name and name != "global_step"}
    assert set(written) == kept
    for name in kept:
        np.testing.assert_array_equal(written[name], original[name], err_msg=name)


def find_layers(folder):
    names = read_checkpoint(folder / "model.ckpt")
    numbers = [name.split("/")[2] for name in names if name.startswith("generator/encoder/layer")]
    return len(set(numbers))


def test_a_checkpoint_without_generator_gives_a_random_one():
    arrays = make_arrays("electra", CONFIG, 2, heads=False)
    with pytest.warns(UserWarning, match="holds no generator"):
        discriminator, generator = electra_towers(
            CONFIG, arrays, generator_size=0.5, strict=False, verbose=0
        )
    table = to_numpy(generator.get_layer("Embedding-Token").embeddings)
    np.testing.assert_array_equal(table, arrays["electra/embeddings/word_embeddings"])
    assert discriminator.get_layer("Discriminator-Dense")


def test_saved_with_keras_it_goes_on(tmp_path):
    model = trained(optimizer=AdamW(1e-3))
    steps_of(model, BATCH)
    again = saved_and_loaded(model, tmp_path)
    assert type(again) is type(model) and len(find_encoders(again)) == 2
    assert [w.path for w in again.weights] == [w.path for w in model.weights]
    for m in (model, again):
        m.get_layer("sampled").seed_generator.state.assign([1, 2])
        steps_of(m, BATCH)
    for one, other in zip(model.weights, again.weights, strict=True):
        np.testing.assert_allclose(to_numpy(one), to_numpy(other), atol=1e-6)


# ---- training --------------------------------------------------------------------------------


def patterned(seed, rows=32, length=12):
    """Texts that count up, each from a start of its own: the right token can be found."""
    rng = np.random.default_rng(seed)
    ids = 5 + (rng.integers(0, 40, (rows, 1)) + np.arange(length)) % 40
    places = np.sort(np.argsort(rng.random((rows, length - 1)), 1)[:, :2] + 1, 1)
    right = np.take_along_axis(ids, places, 1)
    masked = ids.copy()
    np.put_along_axis(masked, places, MASK, 1)
    x = {
        "input_ids": masked,
        "input_mask": np.ones_like(ids),
        "segment_ids": np.zeros_like(ids),
        "masked_lm_positions": places,
    }
    x = {name: value.astype("int32") for name, value in x.items()}
    return x, {"masked_lm": right.astype("int32")}, {"masked_lm": np.ones((rows, 2), "float32")}


@pytest.mark.slow
def test_training_lowers_both_losses_and_the_discriminator_fine_tunes(tmp_path):
    keras.utils.set_random_seed(2)
    # About 1 / sqrt(hidden_size): from 0.02 so small a model stays at the frequencies of tokens.
    config = {**CONFIG, "initializer_range": 0.15}
    discriminator, generator = electra_towers(config, generator_size=0.5, verbose=0)
    model = electra_model(discriminator, generator, seed=1)
    compile_objectives(model, AdamW(1e-3), jit_compile=True)
    losses = []
    for start in range(0, 1200, 100):
        model.reset_metrics()
        for seed in range(start, start + 100):
            logs = model.train_on_batch(*patterned(seed), return_dict=True)
        losses.append({name: float(value) for name, value in logs.items()})
    assert losses[-1]["masked_lm_loss"] < 0.6 * losses[0]["masked_lm_loss"]
    assert losses[-1]["replaced_loss"] < 0.8 * losses[0]["replaced_loss"]
    assert losses[-1]["replaced_found"] > 0.3
    paths = save_towers(model, tmp_path / "model.ckpt")
    scores = {}
    for name, checkpoint in {"trained": paths["checkpoint"], "random": None}.items():
        keras.utils.set_random_seed(3)
        scores[name] = fine_tuned(paths["config"], checkpoint)
    assert scores["trained"] > max(scores["random"] + 0.1, 0.65)


def fine_tuned(config, checkpoint):
    """Accuracy at telling texts that count up from those with one token exchanged."""
    encoder = build_transformer_model(config, checkpoint, model="electra", verbose=0)
    output = keras.layers.Dense(2, "softmax")(encoder.output[:, 0])
    model = keras.Model(encoder.input, output)
    model.compile(AdamW(1e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    rng = np.random.default_rng(0)
    ids = 5 + (rng.integers(0, 40, (640, 1)) + np.arange(12)) % 40
    labels = rng.integers(0, 2, 640)
    places = rng.integers(2, 12, 640)
    wrong = 5 + (ids[np.arange(640), places] + rng.integers(5, 30, 640)) % 40
    ids[labels == 1, places[labels == 1]] = wrong[labels == 1]
    inputs = [ids.astype("int32"), np.zeros_like(ids, "int32")]
    model.fit([part[:512] for part in inputs], labels[:512], epochs=16, verbose=0)
    return model.evaluate([part[512:] for part in inputs], labels[512:], verbose=0)[1]


# ---- refusals --------------------------------------------------------------------------------


def test_refusals():
    discriminator, generator = towers()
    with refused(ConfigError, "with_discriminator=True"):
        electra_model(build_transformer_model(CONFIG, model="electra", verbose=0), generator)
    with refused(ConfigError, "vocab_size=50", "100"):
        other = {**CONFIG, "vocab_size": 50}
        electra_model(discriminator, electra_towers(other, verbose=0)[1])
    with refused(ConfigError, "prefix"):
        plain = build_transformer_model(CONFIG, model="electra_generator", with_mlm=True, verbose=0)
        electra_model(discriminator, plain)
    with refused(ConfigError, "size=0"):
        small_generator(discriminator, 0)
    with refused(ConfigError, "layers=0"):
        small_generator(discriminator, layers=0)
    early = build_transformer_model(dropout_free("albert_zh"), model="albert", verbose=0)
    with refused(ConfigError, "tied=False"):
        small_generator(early)
    assert masked_lm_model(small_generator(early, tied=False))


def test_a_generator_of_another_size_or_with_tables_of_its_own_is_refused():
    folder = DATA / "golden" / "electra_untied_gen"
    files = folder / "discriminator_config.json", folder / "model.ckpt"
    with refused(ConfigError, "tied=False"):
        electra_towers(*files, generator_size=0.5, verbose=0)
    with refused(WeightMismatchError):
        electra_towers(*files, generator_size=0.25, tied=False, verbose=0)

"""Weights lie in memory of their own: not another model's, not a dict's, not a reader's.

Loading hands memory around to spare copies. A mistake there shows only once something is
changed in place, so these tests change things: they train, and write into arrays.
"""

import hashlib
import itertools

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file

from fixtures import make_arrays, random_batch, tiny_config
from harness import STEP_BY_STEP, to_numpy
from kerasbert import build_transformer_model, save_pretrained, unshare
from kerasbert.weights.checkpoints.shards import ALIGNMENT
from kerasbert.weights.transpose import turned_by_backend

pytestmark = pytest.mark.backends

BACKEND = keras.backend.backend()
KINDS = {"bert": "google_bert", "albert": "google_albert", "albert_unshared": "google_albert"}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
XLA = {"jit_compile": True}
OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "adamw": lambda: keras.optimizers.AdamW(1e-2),
}


def aligned(array):
    """A copy that begins where every backend likes it, so that it is tempted to keep it."""
    memory = np.empty(array.nbytes + ALIGNMENT, "uint8")
    start = -memory.ctypes.data % ALIGNMENT
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@pytest.fixture(scope="module", params=["bert", "albert"])
def release(request, tmp_path_factory):
    """A folder with config and safetensors, whose kernels all have to be transposed."""
    kind, folder = KINDS[request.param], tmp_path_factory.mktemp("release")
    config = tiny_config(kind, num_hidden_layers=2)
    arrays = make_arrays(kind, config, 1)
    model = build_transformer_model(config, arrays, request.param, with_pool=True, verbose=0)
    save_pretrained(model, folder, verbose=0)
    return folder


def sources(folder, kind):
    """Where two models can come from, and a function that tells whether it was written to."""
    file = folder / "model.safetensors"
    if kind == "file":
        return folder, lambda: hashlib.sha256(file.read_bytes()).hexdigest()
    arrays = {name: aligned(array) for name, array in load_file(file).items()}
    return arrays, lambda: {name: array.tobytes() for name, array in arrays.items()}


def load(folder, source, **options):
    config = folder / "config.json"
    return build_transformer_model(
        config, source, with_pool=True, verbose=0, **NO_DROPOUT, **options
    )


def bits(model):
    return [to_numpy(weight.value).tobytes() for weight in model.weights]


def train(model, optimizer="sgd", **options):
    network = keras.Model(model.inputs, keras.layers.Dense(1)(model.outputs[0]))
    network.compile(OPTIMIZERS[optimizer](), "mse", **options)
    ids, segments = random_batch(np.random.default_rng(0), 100, 8, 9)
    network.train_on_batch([ids, segments], np.ones((8, 1)))


def skip_what_torch_cannot(options):
    if BACKEND == "torch" and options is XLA:
        pytest.skip("jit_compile on torch needs a C++ compiler at run time")


def addresses(model):
    """First and last byte of every variable, in the order of the memory."""
    found = []
    for weight in model.weights:
        if BACKEND == "tensorflow":
            start = np.asarray(memoryview(weight.value.value())).ctypes.data
        elif BACKEND == "jax":
            start = weight.value.unsafe_buffer_pointer()
        else:
            start = weight.value.data_ptr()
        found.append((start, start + to_numpy(weight.value).nbytes))
    return found


def overlap(ranges):
    pairs = itertools.pairwise(sorted(ranges))
    return any(end > start for (_, end), (start, _) in pairs)


# ---- after loading ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["file", "dict"])
def test_nothing_lies_in_the_same_place(kind, release):
    source, _ = sources(release, kind)
    one, other = load(release, source), load(release, source)
    ranges = addresses(one) + addresses(other)
    arrays = source.values() if kind == "dict" else ()
    ranges += [(array.ctypes.data, array.ctypes.data + array.nbytes) for array in arrays]
    assert not overlap(ranges)


def test_a_dict_may_be_changed_after_loading(release):
    arrays, _ = sources(release, "dict")
    model = load(release, arrays)
    before = bits(model)
    for array in arrays.values():
        array[...] = 7
    assert bits(model) == before


@pytest.mark.parametrize(
    ("release", "kind", "optimizer", "options"),
    [
        ("albert", "file", "sgd", XLA),
        ("bert", "file", "adamw", STEP_BY_STEP),
        ("albert", "dict", "sgd", STEP_BY_STEP),
        ("bert", "dict", "sgd", STEP_BY_STEP),
        pytest.param("bert", "dict", "adamw", XLA, marks=pytest.mark.slow),
    ],
    indirect=["release"],
    ids=["albert-XLA", "bert-adamw", "albert-dict", "bert-dict", "bert-dict-adamw-XLA"],
)
def test_training_changes_one_model_only(kind, optimizer, options, release):
    skip_what_torch_cannot(options)
    source, state = sources(release, kind)
    one, other = load(release, source), load(release, source)
    assert bits(one) == bits(other)
    before, untouched = bits(other), state()
    train(one, optimizer, **options)
    # All but a few: the first output does not depend on every head.
    assert sum(a != b for a, b in zip(bits(one), before, strict=True)) > 0.8 * len(before)
    assert bits(other) == before
    assert state() == untouched
    assert bits(load(release, source)) == before


@pytest.mark.parametrize(
    "options", [STEP_BY_STEP, pytest.param(XLA, marks=pytest.mark.slow)], ids=["steps", "XLA"]
)
def test_unshared_copies_of_one_name_are_independent(options):
    skip_what_torch_cannot(options)
    config = tiny_config("google_albert", num_hidden_layers=3, **NO_DROPOUT)
    arrays = make_arrays("google_albert", config, 1)
    model = build_transformer_model(config, arrays, "albert_unshared", with_pool=True, verbose=0)
    for layer in model.layers:
        layer.trainable = layer.name.startswith("Transformer-1-")
    assert model.trainable_weights
    before = {weight.path: to_numpy(weight.value).tobytes() for weight in model.weights}
    train(model, **options)
    moved = {w.path for w in model.weights if to_numpy(w.value).tobytes() != before[w.path]}
    assert moved
    assert all(path.startswith("Transformer-1-") for path in moved)


@pytest.mark.parametrize(
    ("release", "copied"),
    [
        ("bert", "saved"),
        ("bert", "cloned"),
        ("albert", "saved"),
        ("albert", "cloned"),
        ("albert", "unshared"),
    ],
    indirect=["release"],
)
def test_copies_of_a_loaded_model_are_independent(copied, release, tmp_path):
    model = load(release, release)
    if copied == "saved":
        model.save(tmp_path / "model.keras")
        copy = keras.models.load_model(tmp_path / "model.keras")
    elif copied == "unshared":
        copy = unshare(model)
    else:
        copy = keras.models.clone_model(model)
        copy.set_weights(model.get_weights())
    before, of_copy = bits(model), bits(copy)
    train(copy, **STEP_BY_STEP)
    assert bits(model) == before
    train(model, **STEP_BY_STEP)
    assert bits(model) != before
    assert bits(copy) != of_copy


# ---- every bit -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["file", "dict"])
def test_strange_numbers_arrive_as_they_are(kind, release, tmp_path):
    from safetensors.numpy import save_file

    arrays = load_file(release / "model.safetensors")
    strange = np.array([-0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3.4e38], "float32")
    arrays = {n: np.resize(np.append(strange, a.ravel()), a.shape) for n, a in arrays.items()}
    save_file(arrays, tmp_path / "model.safetensors")
    model = load(release, arrays if kind == "dict" else tmp_path / "model.safetensors")
    kernels = {name: w.T.tobytes() for name, w in arrays.items() if w.ndim == 2}
    found = {to_numpy(w.value).tobytes() for w in model.weights if w.path.endswith("kernel")}
    assert found <= set(kernels.values())
    assert found


@pytest.mark.parametrize("shape", [(64, 32), (5, 7), (1, 64), (64, 1), (1, 1), (0, 3), (9,)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", ">f4"])
def test_a_variable_keeps_nothing_of_a_transposed_array(shape, dtype):
    if BACKEND == "torch" and dtype == ">f4":
        pytest.skip("torch has no big-endian numbers")
    source = aligned(np.random.default_rng(0).standard_normal(shape).astype(dtype))
    expected = source.T.astype("float32").tobytes()
    variable = keras.Variable(np.zeros(shape[::-1], "float32"))
    own = source if BACKEND != "jax" else source.copy()  # JAX may keep what it is given
    variable.assign(turned_by_backend(own.T))
    source[...] = 0
    assert to_numpy(variable.value).tobytes() == expected


def test_read_only_arrays():
    config = tiny_config("google_bert", num_hidden_layers=1)
    arrays = make_arrays("google_bert", config, 1)
    for array in arrays.values():
        array.flags.writeable = False
    build_transformer_model(config, arrays, verbose=0)
    source = aligned(np.ones((4, 6), "float32"))
    source.flags.writeable = False
    variable = keras.Variable(np.zeros((6, 4), "float32"))
    variable.assign(turned_by_backend(source.T))
    assert np.all(to_numpy(variable.value) == 1)

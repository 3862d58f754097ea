"""What many tests share: one run over a layer, and one look at a refusal.

    run_layer(LayerCase("bias", BiasAdd, {}, {"inputs": x}, {"bias": (16,)}), tmp_path)

    with refused(ConfigError, "hidden_size", 30):
        build_transformer_model(config)

Weights are named by their paths relative to the layer, such as ``query/kernel``.
"""

import json
import re
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field

import keras
import numpy as np
import pytest
from keras import ops

from kerasbert.errors import KerasbertError

# For `compile`: on TensorFlow a short run is over before XLA has compiled it, and a few steps
# before they are traced; on JAX it is the other way round.
_TENSORFLOW = keras.backend.backend() == "tensorflow"
WITHOUT_XLA = {"jit_compile": False} if _TENSORFLOW else {}
STEP_BY_STEP = {"run_eagerly": True} if _TENSORFLOW else {}

# ---- refusals --------------------------------------------------------------------------------

# What only a program that fell over says; a message of ours begins with none of it.
_NOT_OURS = re.compile(
    r"Traceback|Exception encountered|[A-Za-z]+Error:|NodeDef|\{\{node|device:CPU|object at 0x"
)


@contextmanager
def refused(kind, *facts, cause=None):
    """Expect an error of exactly this class of ours, whose message holds every fact.

    Args:
        kind: Class from ``kerasbert.errors``.
        *facts: What the message has to contain, as ``str(fact)``.
        cause: Class of the original exception, where there was one.
    """
    with pytest.raises(KerasbertError) as caught:
        yield caught
    error, message = caught.value, str(caught.value)
    assert type(error) is kind, f"{type(error).__name__}: {message}"
    lines = message.splitlines()
    assert not _NOT_OURS.search(lines[0]), f"not a sentence of ours: {lines[0]}"
    assert 2 <= len(lines) <= 6, f"what, what was expected, what to do; one line each: {message}"
    absent = [str(fact) for fact in facts if str(fact) not in message]
    assert not absent, f"the message does not say {absent}:\n{message}"
    if cause is not None:
        assert isinstance(error.__cause__, cause), f"chained: {error.__cause__!r}"


def default_and_slow(values, default):
    """Values for `parametrize`, of which only some run by default and the others as slow tests.

    Args:
        values: the values, or tuples of them.
        default: those that run by default.
    """
    left_out = [value for value in default if value not in values]
    if left_out:
        raise ValueError(f"not among the values: {left_out}")

    def param(value):
        marks = () if value in default else pytest.mark.slow
        return pytest.param(*(value if isinstance(value, tuple) else [value]), marks=marks)

    return [param(value) for value in values]


def silent(function, *args, **kwargs):
    """Call a function for which a warning to users is a failure."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        return function(*args, **kwargs)


# ---- layers ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class LayerCase:
    """One layer with arguments and a batch for it."""

    name: str
    layer: type
    arguments: dict
    inputs: dict
    """Tensors of the call, by argument name, as numpy arrays; the first is the layer's input."""
    weights: dict
    """{relative path: shape} of everything the layer stores."""
    options: dict = field(default_factory=dict)
    """Arguments of the call that are no tensors."""
    flat: tuple = ()
    """Weights on which the output does not depend: the bias of a key, which a softmax cancels."""
    weights_dtype: str = None
    """The type of the weights, where it is not that of the policy."""

    def make(self, **more):
        """A new, unbuilt layer."""
        return self.layer(**self.arguments, **more)

    def call(self, layer, **inputs):
        return layer(**(inputs or self.inputs), **self.options)

    def spec(self, layer):
        """What the layer says of its output before it is called."""
        inputs = {n: keras.KerasTensor(v.shape, str(v.dtype)) for n, v in self.inputs.items()}
        return layer.compute_output_spec(**inputs, **self.options)

    def symbolic(self, batch=None):
        """Keras inputs for the tensors of the call, all but the last axis free."""
        return {
            name: keras.Input(
                (*[None if n == value.shape[1] > 1 else n for n in value.shape[1:-1]],)
                + ((value.shape[-1],) if value.dtype.kind == "f" else (None,)),
                batch_size=batch,
                dtype=str(value.dtype),
            )
            for name, value in self.inputs.items()
        }

    def shape(self):
        """Shape of the layer's input."""
        return next(iter(self.inputs.values())).shape

    def build(self, layer):
        """Builds a layer of the case by hand."""
        layer.build(self.shape())

    def filled(self, **more):
        """A new layer, built and with numbers in its weights."""
        layer = self.make(**more)
        self.build(layer)
        return fill(layer)

    def __str__(self):
        return self.name


def by_name(cases):
    """A function from the name of a case to the case."""
    return {case.name: case for case in cases}.__getitem__


class BuiltByName(LayerCase):
    """A case whose layer is built for the shape of each tensor of its call, by name."""

    def build(self, layer):
        layer.build(**{f"{name}_shape": value.shape for name, value in self.inputs.items()})


def weights_of(layer):
    """{relative path: weight} of a layer."""
    return {weight.path.rpartition(f"{layer.name}/")[2]: weight for weight in layer.weights}


def fill(layer, seed=0):
    """Give every weight new numbers: gammas around 1, kernels of deviation 1/sqrt(inputs)."""
    rng = np.random.default_rng(seed)
    for path, weight in sorted(weights_of(layer).items()):
        shape = tuple(weight.shape)
        deviation = 1 / np.sqrt(shape[0]) if len(shape) == 2 else 0.3
        weight.assign(rng.normal(float("gamma" in path), deviation, shape))
    return layer


def to_numpy(tensor):
    return np.asarray(ops.convert_to_numpy(ops.cast(tensor, "float32")))


def check_config(case):
    """The configuration survives JSON, and makes a layer that says the same of itself."""
    layer = case.make(name="original")
    again = case.layer.from_config(json.loads(json.dumps(layer.get_config())))
    assert again.get_config() == layer.get_config()
    written = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    assert written["registered_name"] == f"kerasbert>{case.layer.__name__}"
    restored = keras.saving.deserialize_keras_object(written)
    assert type(restored) is case.layer
    assert restored.get_config() == layer.get_config()


def check_builds(case):
    """Built by hand, by a symbolic call or by an eager one: the same weights, the same numbers."""
    by_hand, symbolic, eager = case.make(), case.make(), case.make()
    case.build(by_hand)
    assert by_hand.built
    inputs = case.symbolic()
    outputs = case.call(symbolic, **inputs)
    case.call(eager)
    fill(by_hand)
    found = {path: tuple(weight.shape) for path, weight in weights_of(by_hand).items()}
    assert found == case.weights
    expected = to_numpy(case.call(by_hand))
    for other in (symbolic, eager):
        assert {path: tuple(w.shape) for path, w in weights_of(other).items()} == found
        for path, weight in weights_of(other).items():
            weight.assign(weights_of(by_hand)[path].value)
        np.testing.assert_allclose(to_numpy(case.call(other)), expected, atol=1e-6, rtol=0)
    model = keras.Model(list(inputs.values()), outputs)
    np.testing.assert_allclose(
        to_numpy(model(list(case.inputs.values()))), expected, atol=1e-6, rtol=0
    )
    assert any(n is None for n in outputs.shape), "batch and length stay free in a graph"


def check_precision(case, policy, exact):
    """Under a low precision: variables and outputs have its types, numbers stay close."""
    layer = case.filled(dtype=policy)
    output = case.call(layer)
    policy = keras.dtype_policies.get(policy)
    kind = keras.backend.standardize_dtype(output.dtype)
    assert kind in (policy.compute_dtype, "bool", "int32")
    kept = case.weights_dtype or policy.variable_dtype
    assert {weight.dtype for weight in layer.weights} <= {kept}
    spec = case.spec(layer)
    assert (tuple(spec.shape), spec.dtype) == (tuple(output.shape), kind)
    found = to_numpy(output)
    assert np.isfinite(found).all()
    tolerance = 0.06 if "bfloat16" in policy.compute_dtype else 0.01
    assert np.abs(found - exact).max() <= tolerance * max(1.0, np.abs(exact).max())


def check_saving(case, folder, suffix="keras"):
    """Inside a functional model the layer is written and read back, bit for bit."""
    model, layer, batch = functional(case)
    path = folder / f"{case.name}.{suffix}"
    silent(model.save, path)
    again = silent(keras.models.load_model, path)
    assert type(again.get_layer("subject")) is case.layer
    found, written = again.get_layer("subject").get_config(), layer.get_config()
    if suffix == "h5":  # its configurations are JSON, where a tuple is a list
        found, written = (json.loads(json.dumps(config)) for config in (found, written))
    assert found == written
    for old, new in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(old), to_numpy(new))
    np.testing.assert_array_equal(to_numpy(again(batch)), to_numpy(model(batch)))


def saved_and_loaded(model, folder):
    """The model as it comes back from a file, without a word of custom objects or a warning."""
    silent(model.save, folder / "model.keras")
    return silent(keras.models.load_model, folder / "model.keras")


def functional(case, **more):
    """A functional model of one layer with numbers in its weights, the layer, and a batch."""
    inputs = case.symbolic()
    layer = case.make(name="subject", **more)
    model = keras.Model(list(inputs.values()), case.call(layer, **inputs))
    return model, fill(layer), list(case.inputs.values())


def check_gradient_numbers(case, reference, atol=5e-4):
    """The gradient of every weight is that of a float64 reference, by central differences.

    Args:
        reference: From {path: float64 array} to the output.
    """
    model, layer, batch = functional(case)
    upstream = np.random.default_rng(2).normal(size=to_numpy(model(batch)).shape)
    weights = in_float64(weights_of(layer))
    expected = numeric_gradients(reference, weights, upstream)
    found = gradients(model, batch, upstream)
    assert {path.removeprefix("subject/") for path in found} == set(expected)
    for path, value in found.items():
        wanted = expected[path.removeprefix("subject/")]
        np.testing.assert_allclose(value, wanted, atol=atol, rtol=0, err_msg=path)
    assert max(np.abs(value).max() for value in expected.values()) > 0.1


def in_float64(values):
    """{name: float64 array} of tensors or arrays; bools stay what they are."""
    arrays = {name: np.asarray(ops.convert_to_numpy(value)) for name, value in values.items()}
    return {n: v if v.dtype == bool else to_numpy(v).astype("float64") for n, v in arrays.items()}


def check_gradients(case):
    """One step of training moves every weight."""
    inputs = case.symbolic()
    layer = case.make()
    model = keras.Model(list(inputs.values()), case.call(layer, **inputs))
    fill(layer)
    before = {path: to_numpy(weight) for path, weight in weights_of(layer).items()}
    batch = list(case.inputs.values())
    target = np.random.default_rng(3).normal(size=to_numpy(model(batch)).shape)
    model.compile(keras.optimizers.SGD(1.0), "mse", run_eagerly=True, jit_compile=False)
    model.train_on_batch(batch, target.astype("float32"))
    still = [
        path
        for path, weight in weights_of(layer).items()
        if path not in case.flat and np.abs(to_numpy(weight) - before[path]).max() < 1e-6
    ]
    assert not still, "no gradient reaches these"
    assert {weight.path for weight in layer.trainable_weights} == {w.path for w in layer.weights}


def gradients(model, batch, upstream):
    """{path: gradient} of sum(upstream * model(batch)), by one step of training.

    The same on every backend; to compare with `numeric_gradients` of a reference.
    """
    before = [to_numpy(weight).astype("float64") for weight in model.trainable_weights]
    model.compile(
        keras.optimizers.SGD(1.0),
        lambda true, found: true * found,
        run_eagerly=True,
        jit_compile=False,
    )
    model.train_on_batch(batch, upstream.astype("float32"))
    return {
        # Keras took the mean over all numbers, not their sum.
        weight.path: (old - to_numpy(weight)) * upstream.size
        for weight, old in zip(model.trainable_weights, before, strict=True)
    }


def numeric_gradients(function, weights, upstream, step=1e-6):
    """{path: gradient} of sum(upstream * function(weights)), by central differences.

    Args:
        function: From {path: float64 array} to an array of the shape of `upstream`.
    """
    found = {path: np.zeros(value.shape) for path, value in weights.items()}
    for path, value in weights.items():
        for index in np.ndindex(*value.shape):
            sides = []
            for sign in (1, -1):
                moved = value.copy()
                moved[index] += sign * step
                sides.append((upstream * function({**weights, path: moved})).sum())
            found[path][index] = (sides[0] - sides[1]) / (2 * step)
    return found

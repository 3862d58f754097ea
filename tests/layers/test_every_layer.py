"""What every layer has to do, over the cases of all files in this folder.

A file lists its layers in ``CASES``; checks that it makes in a way of its own stand in ``OWN``.
"""

import importlib
import inspect
from pathlib import Path

import pytest

from harness import (
    LayerCase,
    check_builds,
    check_config,
    check_gradients,
    check_precision,
    check_saving,
    to_numpy,
)
from kerasbert import layers
from kerasbert.layers import Loss, SinusoidalRelativePositionEmbedding, TransformerBlock

POLICIES = [
    pytest.param("float16", marks=pytest.mark.slow),
    pytest.param("bfloat16", marks=pytest.mark.slow),
    pytest.param("mixed_bfloat16", marks=pytest.mark.slow),
    pytest.param("mixed_float16", marks=pytest.mark.backends),
]

# Arguments that only get_config writes.
STATE = {"sublayer_dtypes", "frozen_sublayers", "adapters"}


def modules():
    names = sorted(path.stem for path in Path(__file__).parent.glob("test_*.py"))
    return [importlib.import_module(name) for name in names if name != Path(__file__).stem]


ALL_CASES = [
    (module, case)
    for module in modules()
    for case in getattr(module, "CASES", ())
    if isinstance(case, LayerCase)
]


def cases_for(check, condition=lambda case: True):
    """A mark that runs a test over all cases whose file does not make this check itself."""
    return pytest.mark.parametrize(
        "case",
        [
            pytest.param(case, id=f"{module.__name__.removeprefix('test_')}-{case}")
            for module, case in ALL_CASES
            if check not in getattr(module, "OWN", ()) and condition(case)
        ],
    )


def test_no_public_layer_is_left_out():
    public = {getattr(layers, name) for name in layers.__all__}
    assert public - {TransformerBlock, Loss} == {case.layer for _, case in ALL_CASES}


@cases_for("config")
def test_configuration_survives_json(case):
    check_config(case)


@cases_for("arguments")
def test_arguments_are_in_the_configuration(case):
    config = case.make(name="layer").get_config()
    given = {name: config[name] for name in case.arguments if name != "norm"}
    assert given == {n: v for n, v in case.arguments.items() if n != "norm"}
    named = {
        name
        for cls in case.layer.__mro__
        if cls.__module__.startswith("kerasbert")
        for name, parameter in inspect.signature(cls.__init__).parameters.items()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    }
    if case.layer is SinusoidalRelativePositionEmbedding:
        # An argument of its base, which has a table.
        named.remove("embeddings_initializer")
    assert named - {"self", "sublayer_dtypes"} <= set(config)


@pytest.mark.parametrize("name", sorted(set(layers.__all__) - {"TransformerBlock"}))
def test_no_more_than_twelve_arguments(name):
    mro = getattr(layers, name).__mro__
    own = [cls for cls in mro if cls.__module__.startswith("kerasbert")]
    names = set().union(*(inspect.signature(cls.__init__).parameters for cls in own))
    assert len(names - {"self", "args", "kwargs"} - STATE) <= 12


@pytest.mark.backends
@cases_for("builds")
def test_the_ways_to_build_agree(case):
    check_builds(case)


@cases_for("precision")
@pytest.mark.parametrize("policy", POLICIES)
def test_low_precision(case, policy):
    check_precision(case, policy, to_numpy(case.call(case.filled())))


@pytest.mark.backends
@cases_for("saving")
def test_saves_inside_a_functional_model(case, tmp_path):
    check_saving(case, tmp_path)


@pytest.mark.slow
@cases_for("saving")
def test_saves_as_hdf5(case, tmp_path):
    check_saving(case, tmp_path, "h5")


@pytest.mark.backends
@cases_for("gradients", lambda case: case.weights)
def test_a_gradient_reaches_every_weight(case):
    check_gradients(case)

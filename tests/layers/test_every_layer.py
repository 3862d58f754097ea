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


def of_layer(case):
    return case.layer


def of_graph(case):
    """What a functional model of the case is made of, whatever its numbers are."""
    weights = frozenset(path.rpartition("/")[2] for path in case.weights)
    options = tuple(sorted(case.options.items()))
    return case.layer, tuple(case.inputs), options, weights, isinstance(case.shape(), list)


def firsts(cases, key):
    """The first case of each kind that `key` tells apart; all are {id: case}."""
    found = {}
    for name, case in cases.items():
        found.setdefault(key(case), name)
    return {name: cases[name] for name in found.values()}


def cases_for(check, condition=lambda case: True, default=None, only=None, on_backends=False):
    """A mark that runs a test over all cases whose file does not make this check itself.

    Args:
        check: its name, as in ``OWN``.
        condition: leaves out the cases for which it is false.
        default: as `only`, but the other cases are slow tests.
        only: function whose value tells kinds of cases apart, of each of which the first runs.
        on_backends: whether the first case of every layer runs again on the other backends.
    """
    cases = {
        f"{module.__name__.removeprefix('test_')}-{case}": case
        for module, case in ALL_CASES
        if check not in getattr(module, "OWN", ()) and condition(case)
    }
    cases = firsts(cases, only) if only else cases
    by_default = firsts(cases, default) if default else cases
    again = firsts(cases, of_layer) if on_backends else {}

    def param(name):
        marks = [] if name in by_default else [pytest.mark.slow]
        marks += [pytest.mark.backends] if name in again else []
        return pytest.param(cases[name], id=name, marks=marks)

    return pytest.mark.parametrize("case", [param(name) for name in cases])


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


@cases_for("builds", default=of_layer, on_backends=True)
def test_the_ways_to_build_agree(case):
    check_builds(case)


@cases_for("precision", default=of_layer, on_backends=True)
def test_low_precision(case):
    check_precision(case, "mixed_float16", to_numpy(case.call(case.filled())))


@pytest.mark.slow
@cases_for("precision")
@pytest.mark.parametrize("policy", ["float16", "bfloat16", "mixed_bfloat16"])
def test_other_low_precisions(case, policy):
    check_precision(case, policy, to_numpy(case.call(case.filled())))


@cases_for("saving", default=of_layer, only=of_graph)
def test_saves_inside_a_functional_model(case, tmp_path):
    check_saving(case, tmp_path)


@pytest.mark.slow
@cases_for("saving")
def test_saves_as_hdf5(case, tmp_path):
    check_saving(case, tmp_path, "h5")


@cases_for("gradients", lambda case: case.weights, default=of_layer, on_backends=True)
def test_a_gradient_reaches_every_weight(case):
    check_gradients(case)

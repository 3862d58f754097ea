"""All that a training has to remember to go on as if it had not been stopped."""

import json
import zipfile
from contextlib import nullcontext

import numpy as np
from keras import ops

from kerasbert.errors import CheckpointError, listing
from kerasbert.training.gradients import random_state, set_random_state

_ARRAYS, _ABOUT = "state.npz", "about.json"

# Groups of variables that have to be those of the model; random seeds may be others.
_STRICT = ("weights", "optimizer")


def write_state(model, folder, about):
    """Writes weights, random seeds and the optimizer of a compiled model into a folder.

    Args:
        model: the model.
        folder: `pathlib.Path` of a folder that exists.
        about: dict that JSON can hold, to be returned by `read_state`.
    """
    arrays, paths = {}, {}
    for group, variables in _groups(model).items():
        paths[group] = [variable.path for variable in variables]
        for number, variable in enumerate(variables):
            arrays[f"{group}/{number}"] = _to_numpy(variable)
    for number, part in enumerate(_torch_state()):
        arrays[f"torch/{number}"] = part
    np.savez(folder / _ARRAYS, **arrays)
    text = json.dumps({**about, "variables": paths}, indent=1)
    (folder / _ABOUT).write_text(text, encoding="utf-8")


def read_state(model, folder):
    """Gives a compiled model the state that `write_state` wrote.

    Args:
        model: a model like the one that was written. It may call its blocks more often: random
            seeds are then left as they are.
        folder: `pathlib.Path` of the folder.

    Returns:
        The dict `about`.

    Raises:
        CheckpointError: if a file is damaged, or of another model or optimizer.
    """
    about = read_about(folder)
    if not model.optimizer.built:
        # TensorFlow wants an optimizer's variables where those of the model are.
        strategy = getattr(model, "distribute_strategy", None)
        with strategy.scope() if strategy else nullcontext():
            model.optimizer.build(model.trainable_variables)
    groups = _groups(model)
    try:
        with np.load(folder / _ARRAYS) as arrays:
            stored = {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise _damaged(folder / _ARRAYS, error) from error
    values = {group: _values(stored, group) for group in groups}
    for group in _STRICT:
        _check(folder, group, groups[group], values[group], about["variables"][group])
    for group, variables in groups.items():
        if group in _STRICT or len(variables) == len(values[group]):
            for variable, value in zip(variables, values[group], strict=True):
                variable.assign(value)
    if torch := _values(stored, "torch"):
        tensors = [ops.convert_to_tensor(part, dtype="uint8") for part in torch]
        set_random_state((tensors[0].cpu(), [tensor.cpu() for tensor in tensors[1:]]))
    return about


def read_about(folder):
    """Returns the dict that was written with a state.

    Args:
        folder: `pathlib.Path` of the folder.

    Raises:
        CheckpointError: if the file is not there or damaged.
    """
    try:
        about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _damaged(folder / _ABOUT, error) from error
    return about


def _groups(model):
    weights = list(model.weights)
    known = {id(weight) for weight in weights}
    seeds = [variable for variable in model.variables if id(variable) not in known]
    return {"weights": weights, "seeds": seeds, "optimizer": list(model.optimizer.variables)}


def _to_numpy(variable):
    array = np.asarray(ops.convert_to_numpy(variable.value))
    # bfloat16, which numpy's files do not know.
    return array.astype("float32") if array.dtype.kind == "V" else array


def _torch_state():
    state = random_state()
    return [] if state is None else [np.asarray(part.cpu()) for part in (state[0], *state[1])]


def _values(stored, group):
    count = sum(name.startswith(f"{group}/") for name in stored)
    return [stored[f"{group}/{number}"] for number in range(count)]


def _check(folder, group, variables, values, paths):
    here = [tuple(variable.shape) for variable in variables]
    there = [value.shape for value in values]
    if here == there:
        return
    what = {"weights": "model", "optimizer": "optimizer"}[group]
    wrong = [
        f"{variable.path} {shape}, there {path} {other}"
        for variable, shape, path, other in zip(variables, here, paths, there, strict=False)
        if shape != other
    ]
    raise CheckpointError(
        f"{folder} holds the state of another {what}: {len(there)} variables, here {len(here)}.\n"
        f"Expected the same shapes; differing: {listing(wrong, 3) or 'only their number'}.\n"
        "Build and compile the model as it was, or write into another folder."
    )


def _damaged(path, error):
    return CheckpointError(
        f"Cannot read {path}: {str(error).splitlines()[0] if str(error) else type(error).__name__}."
        "\nExpected what a checkpoint of pre-training consists of.\n"
        "Delete that folder: training then goes on from the one before."
    )

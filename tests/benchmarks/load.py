"""How fast, and with how much memory, a checkpoint of the size of BERT base is loaded.

    python tests/benchmarks/load.py

Writes a checkpoint with random weights under Google's names to a temporary folder (409 MB) and
prints, beside the targets,

- the time numpy needs to read the data file, and the times of `load_weights_from_checkpoint`
  into a finished model and of `build_transformer_model` without and with the checkpoint:
  medians of runs that take turns, with the file in the page cache for all of them;
- the peak of the resident memory above that of the finished model, as a multiple of the size
  of the checkpoint: measured in fresh processes, with the kernel's own peak counter, which
  is reset before each measurement (Linux only).

Timings belong to no test: a busy machine would fail them. `--layers 1` makes a short run.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS.parent), str(TESTS)]  # works from a plain checkout too

SPEED_TARGET, MEMORY_TARGET = 0.5, 1.3


def bert_base(layers):
    """The configuration of Google's Chinese BERT base."""
    from fixtures import tiny_config

    return tiny_config(
        "google_bert",
        vocab_size=21128,
        hidden_size=768,
        num_hidden_layers=layers,
        num_attention_heads=12,
        intermediate_size=3072,
        max_position_embeddings=512,
    )


def write_files(folder, layers):
    """Writes config and checkpoint, heads left out."""
    import numpy as np

    from fixtures import variable_shapes, write_checkpoint, write_config

    config = bert_base(layers)
    rng = np.random.default_rng(0)
    shapes = variable_shapes("google_bert", config, heads=False)
    arrays = {name: rng.standard_normal(shape, "float32") for name, shape in shapes.items()}
    write_config(f"{folder}/config.json", config)
    write_checkpoint(f"{folder}/model.ckpt", arrays)


# ---- what runs in processes of its own -------------------------------------------------------


def measure_times(folder, rounds):
    """Seconds of each action, one list of `rounds` numbers each."""
    import numpy as np

    from kerasbert import build_transformer_model, load_weights_from_checkpoint

    config, checkpoint = f"{folder}/config.json", f"{folder}/model.ckpt"
    model = build_transformer_model(config)
    actions = {
        "numpy": lambda: np.fromfile(f"{checkpoint}.data-00000-of-00001", dtype="uint8"),
        "load": lambda: load_weights_from_checkpoint(model, checkpoint, verbose=0),
        "build": lambda: build_transformer_model(config),
        "build and load": lambda: build_transformer_model(config, checkpoint, verbose=0),
    }
    seconds = {name: [] for name in actions}
    for turn in range(rounds + 1):
        for name, action in actions.items():
            start = time.perf_counter()
            result = action()
            passed = time.perf_counter() - start
            del result
            gc.collect()
            if turn:  # the first round warms up
                seconds[name].append(passed)
    return seconds


def measure_model(folder):
    """Bytes of a finished model, and the peak above it while a checkpoint is loaded into it."""
    from kerasbert import build_transformer_model, load_weights_from_checkpoint

    warm_up(folder)
    before = reset_peak()
    model = build_transformer_model(f"{folder}/config.json")
    gc.collect()
    finished = reset_peak()
    load_weights_from_checkpoint(model, f"{folder}/model.ckpt", verbose=0)
    return {"model": finished - before, "peak": peak() - finished}


def measure_factory(folder):
    """Bytes at the peak of building and loading in one call, above those at the start."""
    from kerasbert import build_transformer_model

    warm_up(folder)
    before = reset_peak()
    model = build_transformer_model(f"{folder}/config.json", f"{folder}/model.ckpt", verbose=0)
    return {"peak": peak() - before, "parameters": model.count_params()}


def warm_up(folder):
    """Lets TensorFlow and Keras take what they take once: a tiny model, built, saved, loaded."""
    from kerasbert import build_transformer_model, save_weights_as_checkpoint

    sizes = {"vocab_size": 9, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2}
    model = build_transformer_model(f"{folder}/config.json", num_attention_heads=2, **sizes)
    prefix = f"{folder}/{os.getpid()}.ckpt"
    paths = save_weights_as_checkpoint(model, prefix, verbose=0)
    build_transformer_model(paths["config"], paths["checkpoint"], verbose=0)
    gc.collect()


def reset_peak():
    """Sets the peak of the resident memory to its present size; returns that, in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak():
    """The largest resident memory since the last reset, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("no VmHWM in /proc/self/status")


WORKERS = {"times": measure_times, "model": measure_model, "factory": measure_factory}


def in_new_process(worker, *arguments):
    """Returns what a function of WORKERS returns in a fresh interpreter."""
    command = [sys.executable, __file__, "--worker", json.dumps([worker, *arguments])]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(output.splitlines()[-1])


# ---- what is printed -------------------------------------------------------------------------


def run(layers, rounds):
    with tempfile.TemporaryDirectory() as folder:
        write_files(folder, layers)
        size = os.path.getsize(f"{folder}/model.ckpt.data-00000-of-00001")
        times = in_new_process("times", folder, rounds)
        models = [in_new_process("model", folder) for _ in range(rounds // 2 + 1)]
        factories = [in_new_process("factory", folder) for _ in range(rounds // 2 + 1)]
    print(f"{factories[0]['parameters'] / 1e6:.1f} M parameters, {size / 1e6:.0f} MB")
    print_times({name: statistics.median(values) for name, values in times.items()}, size)
    model = statistics.median(row["model"] for row in models)
    load_peak = statistics.median(row["peak"] for row in models) / size
    factory_peak = (statistics.median(row["peak"] for row in factories) - model) / size
    print(f"\nmemory in multiples of the checkpoint (target: at most {MEMORY_TARGET})")
    print(f"  the finished model            {model / size:6.2f}")
    for name, value in (
        ("load_weights_from_checkpoint", load_peak),
        ("build_transformer_model", factory_peak),
    ):
        print(f"  {name:<30}{value:6.2f} above it   {verdict(value <= MEMORY_TARGET)}")


def print_times(medians, size):
    print(f"\nseconds (target: load at least {SPEED_TARGET} x as fast as numpy reads)")
    labels = {
        "numpy": "numpy.fromfile",
        "load": "load_weights_from_checkpoint",
        "build": "build_transformer_model, no file",
        "build and load": "build_transformer_model",
    }
    for name, label in labels.items():
        print(f"  {label:<34}{medians[name]:6.3f}   {size / medians[name] / 1e9:5.2f} GB/s")
    speed = medians["numpy"] / medians["load"]
    print(f"  loading has {speed:.2f} x the speed of numpy   {verdict(speed >= SPEED_TARGET)}")


def verdict(met):
    return "met" if met else "MISSED"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--worker", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        name, *arguments = args.worker
        print(json.dumps(WORKERS[name](*arguments)))
    else:
        run(args.layers, args.rounds)


if __name__ == "__main__":
    main()

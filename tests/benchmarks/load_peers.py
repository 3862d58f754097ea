"""How fast, and with how much memory, the same weights are loaded here and by others.

    python tests/benchmarks/load_peers.py --python-of keras_hub=/path/to/python

Writes random weights of the size of BERT base (409 MB) once to a temporary folder, as Hugging
Face's config.json and model.safetensors, and opens it with

- kerasbert: `build_transformer_model(folder, model="bert", with_pool=True)`, the pooler being
  what the models of the others have too;
- transformers: `BertModel.from_pretrained(folder)`;
- keras_hub: `keras_hub.models.BertBackbone.from_preset(folder)`.

Each run is a fresh process, and the loaders take turns. Measured is the way from the files to
a usable model, which is one whose every weight has been read once. This matters: transformers
maps the file into memory, so that its call alone reads no weight at all; the column "call" is
the call alone. The columns are medians, but for "fastest", the least of the seconds: where the
two are far apart, the machine was busy.

Left out are imports and what a library does only once: every process loads a tiny model of the
same kind first. The file is in the page cache for all. The peak of the resident memory is the
kernel's own counter, reset before the call (Linux only); pages of a mapped file count as soon
as they are read, as they do for the system.

The sum of all weights is compared with that of the file, so that nobody skips any.

A peer that cannot be imported is named as not installed. `--python-of` runs one in another
environment (keras_hub asks for its own tensorflow-text), `--layers 1` makes a short run.
`KERAS_BACKEND` holds for kerasbert and keras_hub. Timings belong to no test.
"""

import argparse
import gc
import importlib.metadata
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from load import peak, reset_peak

BASE = {"vocab_size": 21128, "hidden_size": 768, "intermediate_size": 3072, "heads": 12}
TINY = {"vocab_size": 9, "hidden_size": 8, "intermediate_size": 16, "heads": 2, "layers": 2}
OURS = "kerasbert"
LOADERS = (OURS, "transformers", "keras_hub")
CLOSE = 1.1  # times the lowest is still called close to it


# ---- the files -------------------------------------------------------------------------------


def weight_shapes(layers, vocab_size, hidden_size, intermediate_size, **_):
    """Names and shapes as `BertModel.save_pretrained` writes them."""
    vector, square = (hidden_size,), (hidden_size, hidden_size)
    shapes = {
        "embeddings.word_embeddings.weight": (vocab_size, hidden_size),
        "embeddings.position_embeddings.weight": (512, hidden_size),
        "embeddings.token_type_embeddings.weight": (2, hidden_size),
        "pooler.dense.weight": square,
        "pooler.dense.bias": vector,
    }
    norms = ["embeddings.LayerNorm"]
    for layer in range(layers):
        place = f"encoder.layer.{layer}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            shapes[f"{place}.attention.{part}.weight"] = square
            shapes[f"{place}.attention.{part}.bias"] = vector
        shapes[f"{place}.intermediate.dense.weight"] = (intermediate_size, hidden_size)
        shapes[f"{place}.intermediate.dense.bias"] = (intermediate_size,)
        shapes[f"{place}.output.dense.weight"] = (hidden_size, intermediate_size)
        shapes[f"{place}.output.dense.bias"] = vector
        norms += [f"{place}.attention.output.LayerNorm", f"{place}.output.LayerNorm"]
    return shapes | {f"{norm}.{kind}": vector for norm in norms for kind in ("weight", "bias")}


def write_folder(folder, layers, heads, **sizes):
    """Writes config and weights; returns the number of weights and their sum."""
    import numpy as np
    from safetensors.numpy import save_file

    config = {
        **sizes,
        "model_type": "bert",
        "architectures": ["BertModel"],
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "initializer_range": 0.02,
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
    }
    rng = np.random.default_rng(0)
    arrays = {
        name: rng.standard_normal(shape, "float32") * np.float32(0.02)
        for name, shape in weight_shapes(layers, **sizes).items()
    }
    Path(folder).mkdir()
    Path(folder, "config.json").write_text(json.dumps(config), "utf-8")
    save_file(arrays, f"{folder}/model.safetensors", metadata={"format": "pt"})
    numbers = sum(array.size for array in arrays.values())
    return numbers, float(sum(array.sum(dtype="float64") for array in arrays.values()))


# ---- what runs in processes of its own -------------------------------------------------------


def loader_of(name):
    """Imports a library; returns its function from a folder to a model."""
    if name == "transformers":
        from transformers import BertModel

        return BertModel.from_pretrained
    if name == "keras_hub":
        from keras_hub.models import BertBackbone

        return BertBackbone.from_preset
    from kerasbert import build_transformer_model

    return lambda folder: build_transformer_model(folder, model="bert", with_pool=True, verbose=0)


def read_weights(model):
    """Reads every weight where it lies, without a copy of it; returns the sum of all."""
    # Keras models on the torch backend have `parameters` too, with the seeds among them.
    if not hasattr(model, "weights"):
        return sum(float(parameter.detach().sum()) for parameter in model.parameters())
    from keras import ops

    # Seeds of dropout are no weights.
    floats = [weight.value for weight in model.weights if "float" in weight.dtype]
    return sum(float(ops.sum(value)) for value in floats)


def measure_folder(name, folder, tiny):
    """Seconds and bytes of one loader, from the files to a usable model."""
    try:
        load = loader_of(name)
        read_weights(load(tiny))
    except ImportError as error:
        return {"absent": str(error).strip().splitlines()[0]}
    gc.collect()
    before = reset_peak()
    start = time.perf_counter()
    model = load(folder)
    called = time.perf_counter()
    total = read_weights(model)
    seconds = time.perf_counter() - start
    row = {"seconds": seconds, "call": called - start, "peak": peak() - before, "sum": total}
    return row | {"version": version(name)}


def measure_existing(folder, tiny):
    """Seconds and bytes of loading into a model of ours that exists already."""
    from kerasbert import build_transformer_model, load_weights_from_checkpoint

    read_weights(loader_of(OURS)(tiny))
    model = build_transformer_model(f"{folder}/config.json", model="bert", with_pool=True)
    gc.collect()
    before = reset_peak()
    start = time.perf_counter()
    load_weights_from_checkpoint(model, folder, verbose=0)
    called = time.perf_counter()
    total = read_weights(model)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "call": called - start, "peak": peak() - before, "sum": total}


def version(name):
    """The version of a library, "" if it runs from a plain checkout."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


WORKERS = {"folder": measure_folder, "existing": measure_existing}


def in_new_process(python, worker, *arguments):
    """Returns what a function of WORKERS returns in a fresh interpreter."""
    command = [python, __file__, "--worker", json.dumps([worker, *arguments])]
    # Nothing is to be looked up in the network while the clock runs.
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


# ---- what is printed -------------------------------------------------------------------------


def run(layers, runs, pythons):
    with tempfile.TemporaryDirectory() as root:
        folder, tiny = f"{root}/base", f"{root}/tiny"
        write_folder(tiny, **TINY)
        numbers, total = write_folder(folder, layers=layers, **BASE)
        rows = {name: [] for name in (*LOADERS, "existing")}
        for _ in range(runs):
            Path(folder, "model.safetensors").read_bytes()  # stays in the page cache
            for name in LOADERS:
                if not any("absent" in row for row in rows[name]):
                    row = in_new_process(pythons[name], "folder", name, folder, tiny)
                    rows[name].append(row)
            rows["existing"].append(in_new_process(pythons[OURS], "existing", folder, tiny))
    for name, measured in rows.items():
        check_sums(name, measured, total)
    print(f"{layers} layers, {numbers / 1e6:.1f} M parameters, {numbers * 4 / 1e6:.0f} MB of files")
    print(f"medians of {runs} runs in fresh processes, {os.cpu_count()} cores")
    absent = {name: rows[name][0]["absent"] for name in LOADERS if "absent" in rows[name][0]}
    medians = {name: median_of(rows[name]) for name in rows if name not in absent}
    existing = medians.pop("existing")
    print_table(medians, absent, {name: rows[name][0].get("version") for name in medians})
    print(
        f"\nkerasbert, into a model that exists (load_weights_from_checkpoint): "
        f"{existing['seconds']:.3f} s, of which the call {existing['call']:.3f}; "
        f"peak {existing['peak'] / 1e6:.0f} MB above it"
    )


def check_sums(name, rows, total):
    for row in rows:
        # The sum of other random weights would be off by a hundred or so.
        if "sum" in row and abs(row["sum"] - total) > 1:
            raise SystemExit(f"{name}: its weights sum up to {row['sum']}, the file's to {total}")


def median_of(rows):
    keys = ("seconds", "call", "peak")
    medians = {key: statistics.median(row[key] for row in rows) for key in keys}
    return medians | {"fastest": min(row["seconds"] for row in rows)}


def print_table(medians, absent, versions):
    """One line for every loader, and whether ours is the lowest."""
    titles = ("seconds", "fastest", "call", "peak MB", "ours / it: time", "peak")
    print("\n{:<22}{:>9}{:>9}{:>9}{:>9}{:>17}{:>8}".format("", *titles))
    ours = medians[OURS]
    for name in LOADERS:
        if name in absent:
            print(f"{name:<22}  not installed ({absent[name]})")
            continue
        row = medians[name]
        times = "".join(f"{row[key]:>9.3f}" for key in ("seconds", "fastest", "call"))
        ratios = f"{ours['seconds'] / row['seconds']:>17.2f}{ours['peak'] / row['peak']:>8.2f}"
        label = f"{name} {versions[name]}"
        print(f"{label:<22}{times}{row['peak'] / 1e6:>9.0f}{ratios if name != OURS else ''}")
    print()
    without = f" (without {', '.join(absent)})" if absent else ""
    for key, label in (("seconds", "time"), ("peak", "peak memory")):
        print(f"{label + ' of kerasbert:':<27}{verdict(key, medians)}{without}")


def verdict(key, medians):
    if len(medians) == 1:
        return "no peer to compare it with"
    lowest = min(medians, key=lambda name: medians[name][key])
    if lowest == OURS:
        return "the lowest"
    ratio = medians[OURS][key] / medians[lowest][key]
    close = "within 10 % of the lowest" if ratio <= CLOSE else "MISSED"
    return f"{close}, {ratio:.2f} x that of {lowest}"


def python_of(text):
    name, _, path = text.partition("=")
    if name not in LOADERS or not shutil.which(path):
        raise argparse.ArgumentTypeError(
            f"expected NAME=PYTHON, NAME one of {', '.join(LOADERS)} and PYTHON a program"
        )
    return name, path


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("expected at least 1")
    return number


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=positive, default=12)
    parser.add_argument("--runs", type=positive, default=5)
    parser.add_argument(
        "--python-of",
        type=python_of,
        action="append",
        default=[],
        metavar="NAME=PYTHON",
        help=f"the Python that runs one of {', '.join(LOADERS)}; may be repeated",
    )
    parser.add_argument("--worker", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        name, *arguments = args.worker
        print(json.dumps(WORKERS[name](*arguments)))
    else:
        pythons = dict.fromkeys(LOADERS, sys.executable) | dict(args.python_of)
        run(args.layers, args.runs, pythons)


if __name__ == "__main__":
    main()

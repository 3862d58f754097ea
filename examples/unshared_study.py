"""What un-sharing ALBERT's block gains: four tasks, shared, un-shared and partly un-shared.

    python examples/unshared_study.py --data DATASETS
    python examples/unshared_study.py --data DATASETS --config albert_config.json \
        --checkpoint albert_model.ckpt --vocab vocab.txt --learning-rate 5e-5
    python examples/unshared_study.py --data DATASETS --tasks triples --epochs 10 --seeds 0 1

DATASETS is the folder of results.py. Every run of a task, a variant and a seed is a process of
its own. Its figures are kept in unshared_study.json as soon as it ends, and a run that stands
there is not done again: after an interruption the same command goes on. From all that is kept, it
writes a table (.md, .csv) and a plot (.png). The best epoch is chosen by the texts that are
scored, for all variants alike. Without --data it takes made-up texts.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import json
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

import unshared_run
from shared import HERE, UsageError, in_one_line
from unshared_report import NAME, plot, rows_of, table, write_table
from unshared_settings import (
    check_seeds,
    files_of,
    fingerprint,
    make_ready,
    numbers_of,
    study_arguments,
)
from unshared_tasks import TASKS, VARIANTS

SEEDS = [0, 1, 2]
OPTIONS = [
    ("--tasks", {"nargs": "+", "choices": TASKS}),
    (
        "--variants",
        {"nargs": "+", "choices": VARIANTS, "help": "default all, --quick one for each task"},
    ),
    ("--seeds", {"nargs": "+", "type": int, "help": "default 0 1 2, --quick 0"}),
]


# ---- what is kept ----------------------------------------------------------------------------


def read_kept(path):
    """Returns the figures of earlier runs."""
    try:
        return json.loads(path.read_text("utf-8")) if path.exists() else {}
    except ValueError as error:
        raise UsageError(f"{path} is no JSON file: {error}") from error


def keep(path, kept):
    """Writes the figures of all runs; the file is never half written."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    new.replace(path)


def check_settings(kept, path, task, settings):
    """Refuses to put runs beside those of other sizes or another checkpoint."""
    for seeds in kept.get(task, {}).values():
        for figures in seeds.values():
            for name, value in settings.items():
                if (other := figures["settings"].get(name)) != value:
                    raise UsageError(
                        f"{path} has runs of {task} with {name} {other}, not {value}: "
                        "give another --output, or the settings of these runs"
                    )


# ---- runs ------------------------------------------------------------------------------------


def plan(args, kept):
    """Returns the runs (task, seed, variant) that are still to be done.

    All variants of a seed come one after the other, so that they can be compared early.
    """
    if args.variants:
        pairs = product(args.tasks, args.variants)
    else:
        # --quick shows that all of it runs, which takes one run of each.
        pairs = zip(args.tasks, VARIANTS, strict=False)
    return [
        (task, seed, variant)
        for seed, (task, variant) in product(args.seeds, pairs)
        if str(seed) not in kept.get(task, {}).get(variant, {})
    ]


def run(args, task, seed, variant, numbers):
    """Returns the figures of one run."""
    files = {name: getattr(args, name) for name in ("config", "checkpoint", "vocab")}
    files = {name: str(path) for name, path in {**files, **files_of(args, task)}.items()}
    with tempfile.TemporaryDirectory() as output:
        words = {"task": task, "variant": variant, "seed": seed, "quick": args.quick}
        words |= {**files, **numbers, "output": output}
        if args.quick:
            # Tiny models are trained faster than a process starts.
            unshared_run.run(unshared_run.arguments(json.dumps(words)))
        else:
            command = [sys.executable, HERE / "unshared_run.py", json.dumps(words)]
            done = subprocess.run(command, check=False)
            if done.returncode:
                if done.returncode != 2:  # then it has said itself what is wrong
                    print(f"{NAME}: {task}, {variant}, seed {seed} failed", file=sys.stderr)
                sys.exit(done.returncode)
        return json.loads((Path(output) / "figures.json").read_text("utf-8"))


def study(args):
    """Does the runs that are not kept yet, and writes table and plot of all that are."""
    path = args.output / f"{NAME}.json"
    kept = read_kept(path)
    numbers = {task: numbers_of(args, task) for task in args.tasks}
    checkpoint = {"checkpoint": fingerprint(args)}
    for task in args.tasks:
        check_settings(kept, path, task, numbers[task] | checkpoint)
    missing = plan(args, kept)
    for number, (task, seed, variant) in enumerate(missing, start=1):
        print(f"\n=== {task}, {variant}, seed {seed}: {number} of {len(missing)}", flush=True)
        figures = run(args, task, seed, variant, numbers[task])
        figures["settings"] = numbers[task] | checkpoint
        kept.setdefault(task, {}).setdefault(variant, {})[str(seed)] = figures
        keep(path, kept)
        write_table(rows_of(kept), args.output)
    rows = rows_of(kept)
    write_table(rows, args.output)
    plot(rows, args.output)
    print(f"\n{table(rows)}\nfigures, table and plot: {path.with_suffix('.*')}")


def main():
    """Runs the study."""
    args = study_arguments(__doc__.split("\n")[0], list(TASKS), OPTIONS)
    args.seeds = args.seeds or SEEDS[: 1 if args.quick else None]
    args.variants = args.variants or ([] if args.quick else list(VARIANTS))
    check_seeds(args.seeds)
    make_ready(args)
    study(args)


if __name__ == "__main__":
    in_one_line(NAME, main)

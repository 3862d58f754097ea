"""How fast texts are decoded, here and by others, side by side.

    python tests/benchmarks/decode_peers.py --make-environment --environment FOLDER

Decodes 64 tokens after prompts of 128 with UniLM models of random weights, of the sizes of
albert-tiny and bert-base, for 1 and 16 rows, greedily and with 4 beams, by

- kerasbert: `generate`;
- (a) uncached: the same with `use_cache=False`, which runs the whole text again for each token;
- (b) bert4keras: its `AutoRegressiveDecoder` around a UniLM model, in an environment of its own;
- (c) transformers: `generate` on torch, with a decoder of the same size.

For each case every peer is a fresh process with one model; then all take turns, so that a busy
moment of the machine meets each of them. The first call of each stands apart, because it
compiles. A peer whose timed calls took a minute is not called any more, and where a call would
take minutes a part of it is measured and scaled (the table says what).

bert4keras needs an environment: `--environment FOLDER` names it, `--make-environment` makes it
there if it is not there yet (a gigabyte). Without one its figures are those that `--keep` wrote
to decode_kept.json in an earlier run, marked with their date.

Printed are a markdown table, the time that reading the weights takes, which no step can be
faster than, and the targets. `--json FILE` writes the same as data. Timings belong to no test;
`--sizes tiny --batches 1 --beams 1 --prompt 8 --new 4 --repeats 1` is a short run.
"""

import argparse
import contextlib
import datetime
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from decode_cases import OLD, OURS, PEERS, SIZES, TORCH, Case, plan
from decode_environment import is_ready, last_line, make_environment, python_in
from decode_report import fill_in, read_kept, report, targets, write_kept

WORKERS = Path(__file__).with_name("decode_workers.py")
FAILED = "FAILED"
PAUSE = 0.3  # seconds in which the threads of the peer before stop to wait for more work
ENOUGH = 60  # seconds of timed calls after which a peer is not called any more


class WorkerError(Exception):
    """A process ended before its answer; the text is the last line of its complaint."""


class Worker:
    """A process of decode_workers.py."""

    def __init__(self, python, task):
        # Nothing is to be looked up in the network while the clock runs.
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - see close()
        self.process = subprocess.Popen(
            [python, str(WORKERS), json.dumps(task)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=environment,
        )
        self.hello = self._answer()

    def call(self, new):
        """Seconds of one call that decodes so many tokens."""
        # A process that has ended is found out when there is no answer.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{new}\n")
            self.process.stdin.flush()
        return self._answer()["seconds"]

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.errors.seek(0)
            raise WorkerError(last_line(self.errors.read()))
        return json.loads(line)

    def close(self):
        self.process.communicate()
        self.errors.close()


# ---- a case ----------------------------------------------------------------------------------


def measure_case(case, pythons, repeats, today):
    """One row for each peer; `pythons` has the interpreter of each, or why there is none."""
    plans = {name: plan(name, case) for name in pythons}
    workers, missing, ones, seconds = {}, {}, {}, {name: [] for name in pythons}
    try:
        for name, (python, reason) in pythons.items():
            if reason:
                missing[name] = reason
                continue
            with noted(name, missing):
                workers[name] = Worker(python, {"peer": name, **plans[name].as_dict()})
                if "absent" in workers[name].hello:
                    missing[name] = f"not installed ({workers[name].hello['absent']})"
        for _ in range(repeats + 1):
            for name in workers:
                if name not in missing and sum(seconds[name][1:]) < ENOUGH:
                    time.sleep(PAUSE)
                    with noted(name, missing):
                        seconds[name].append(workers[name].call(plans[name].case.new))
        for name in {OURS, TORCH} & workers.keys() - missing.keys():
            with noted(name, missing):
                ones[name] = [workers[name].call(1) for _ in range(3)][1:]  # one may compile
    finally:
        for worker in workers.values():
            worker.close()
    rows = []
    for name in pythons:
        row = {**vars(case), "peer": name, "date": today}
        if name in missing:
            rows.append({**row, "missing": missing[name]})
        else:
            versions = workers[name].hello["versions"]
            row |= {"versions": versions, **figures(seconds[name], plans[name])}
            if name in ones and case.new > 1:
                row["step"] = (row["seconds"] - statistics.median(ones[name])) / (case.new - 1)
            rows.append(row)
    return rows


@contextlib.contextmanager
def noted(name, missing):
    """Goes on without a peer that failed, and keeps what it said."""
    try:
        yield
    except WorkerError as error:
        missing[name] = f"{FAILED}: {error}"


def figures(seconds, planned):
    """The columns of the table, of the whole case; compiling is not scaled."""
    first, *later = seconds
    median = statistics.median(later)
    return {
        "seconds": median * planned.factor,
        "fastest": min(later) * planned.factor,
        "first": max(first - median, 0) + median * planned.factor,
        "calls": len(later),
        "note": planned.note,
    }


# ---- the run ---------------------------------------------------------------------------------


def interpreters(peers, environment):
    """{peer: (its Python, why it cannot run)}."""
    pythons = dict.fromkeys(peers, (sys.executable, ""))
    if OLD in pythons:
        ready = is_ready(environment)
        pythons[OLD] = (python_in(environment), "") if ready else ("", "no environment for it")
    return pythons


def run(args):
    """Measures everything; what is finished is written to the file as the run goes on."""
    today = datetime.date.today().isoformat()
    machine = {"date": today, "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    machine |= {"python": platform.python_version(), "prompt": args.prompt, "new": args.new}
    result = {"machine": machine, "floors": {}, "rows": [], "targets": []}
    pythons = interpreters(args.peers, args.environment)
    for size in args.sizes:
        floor = Worker(sys.executable, {"size": size})
        floor.close()
        result["floors"][size] = floor.hello
        for batch, beam in itertools.product(args.batches, args.beams):
            case = Case(size, batch, beam, args.prompt, args.new)
            print(f"{size}, batch {batch}, beam {beam} …", file=sys.stderr)
            rows = measure_case(case, pythons, args.repeats, today)
            result["rows"] += fill_in(rows, read_kept())
            result["targets"] = targets(result["rows"])
            if args.json:
                Path(args.json).write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    return result


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("expected at least 1")
    return number


def parser():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--batches", nargs="+", type=positive, default=[1, 16])
    parser.add_argument("--beams", nargs="+", type=positive, default=[1, 4])
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--repeats", type=positive, default=5, help="timed calls after the first")
    parser.add_argument("--prompt", type=positive, default=128)
    parser.add_argument("--new", type=positive, default=64)
    parser.add_argument("--json", metavar="FILE", help="writes the figures there")
    parser.add_argument("--environment", metavar="FOLDER", help="that of bert4keras")
    parser.add_argument("--make-environment", action="store_true", help="makes it if it is missing")
    parser.add_argument("--keep", action="store_true", help="keeps the figures of bert4keras")
    return parser


def main():
    args = parser().parse_args()
    if args.make_environment:
        if not args.environment:
            parser().error("--make-environment needs --environment FOLDER, where to make it")
        if problem := make_environment(args.environment):
            print(f"no environment for bert4keras: {problem}", file=sys.stderr)
    result = run(args)
    if args.keep:
        write_kept(result["rows"], result["machine"]["cores"])
    print(report(result))
    if any(row.get("missing", "").startswith(FAILED) for row in result["rows"]):
        raise SystemExit(1)


if __name__ == "__main__":
    main()

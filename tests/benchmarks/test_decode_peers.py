"""The parts of the benchmark of decoding, with made-up figures; no time is asserted."""

import json
import re
import subprocess
import sys
from dataclasses import asdict

import decode_cases
import decode_peers
import decode_report
import decode_workers
import pytest
from decode_cases import OLD, OURS, PEERS, TORCH, UNCACHED, Case, plan
from decode_environment import is_ready

BASE = {"size": "base", "batch": 1, "beam": 1, "prompt": 128, "new": 64}


def row(peer, seconds, **fields):
    times = {"seconds": seconds, "fastest": seconds, "first": 9.0, "calls": 5, "note": "all"}
    return {**BASE, "peer": peer, "date": "2001-02-03", "versions": {"it": "1"}, **times, **fields}


def missing(peer, why="not installed (it)", **fields):
    return {**BASE, "peer": peer, "date": "2001-02-03", "missing": why, **fields}


# ---- which part of a case is measured --------------------------------------------------------


def test_forwards_are_those_of_a_loop():
    for batch, beam, new in [(1, 1, 64), (16, 4, 64), (3, 2, 1)]:
        steps = [batch] + [batch * beam] * (new - 1)
        assert Case("tiny", batch, beam, 128, new).forwards == sum(steps)


@pytest.mark.parametrize("size", decode_cases.SIZES)
@pytest.mark.parametrize("batch", [1, 16])
@pytest.mark.parametrize("beam", [1, 4])
def test_plans(size, batch, beam):
    case = Case(size, batch, beam, 128, 64)
    assert plan(OURS, case) == plan(TORCH, case) == decode_cases.Plan(case, 1.0, "all")
    for name in (UNCACHED, OLD):
        planned = plan(name, case)
        part = planned.case
        assert part.forwards * planned.factor == pytest.approx(case.forwards)
        assert (part.size, part.beam) == (size, beam)
        assert part.batch == (1 if name == OLD else batch)
        # The middle of what is measured is the middle of the text.
        assert part.prompt + part.new / 2 == 128 + 32
        assert (planned.note == "all") == (part == case)
        assert (f"{part.new} of 64 tokens" in planned.note) == (part.new < 64)
        assert part.new == 2 or part.operations <= decode_cases.LONG


def test_only_long_cases_are_measured_in_part():
    assert plan(UNCACHED, Case("base", 1, 1, 128, 64)).note == "all"
    assert plan(UNCACHED, Case("base", 16, 1, 128, 64)).note == "8 of 64 tokens"
    assert plan(OLD, Case("tiny", 16, 4, 128, 64)).note == "1 of 16 rows"
    # No window is wider than the text.
    assert plan(UNCACHED, Case("base", 999, 4, 128, 4)).case.new == 2
    assert plan(UNCACHED, Case("base", 9999, 4, 128, 1)).case.new == 1


def test_compiling_is_not_scaled():
    planned = plan(OLD, Case("tiny", 16, 1, 128, 64))
    figures = decode_peers.figures([7.0, 2.0, 3.0, 2.5], planned)
    assert figures["seconds"] == 16 * 2.5
    assert figures["fastest"] == 16 * 2.0
    assert figures["first"] == (7.0 - 2.5) + 16 * 2.5
    assert figures["calls"] == 3


def test_the_weights_of_a_step():
    # Read four times, though there is one block; and the two matrices of the head.
    block = 4 * 312 * 312 + 2 * 312 * 1248
    head = 312 * 128 + 128 * 21128
    assert decode_workers.memory_limit("tiny", runs=1)["bytes"] == 4 * (4 * block + head)


# ---- table and targets -----------------------------------------------------------------------


def result_of(rows):
    machine = {"date": "2001-02-03", "cores": 2, "load": 0.1, "prompt": 128, "new": 64}
    return {
        "machine": machine | {"python": "3"},
        "floors": {"base": {"bytes": 4e8, "seconds": 0.02}},
        "rows": rows,
        "targets": decode_report.targets(rows),
    }


def test_the_table():
    rows = [
        row(OURS, 2.0, step=0.03),
        row(UNCACHED, 30.0),
        missing(OLD),
        row(TORCH, 1.0, note="a | b"),
    ]
    text = decode_report.report(result_of(rows))
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 4
    assert lines[2] == (
        "| bert-base | 1 | 1 | kerasbert | 32.0 | 2.000 | 2.000 | 9.000 |  | 5 | all |"
    )
    assert "| 15.00 x |" in lines[3]
    assert lines[4].endswith("| not installed (it) |")
    assert "| 0.50 x |" in lines[5]
    assert "10 x (a) kerasbert uncached: 15.00 x, held" in text
    assert "1 x (c) transformers: 0.50 x, MISSED" in text
    assert "batch 1, beam 1, a step of kerasbert 30.00 ms (1.50 x)" in text
    assert "(busy" not in text


def test_targets_of_each_case():
    wide = {"batch": 16, "beam": 4}
    rows = [row(name, 1.0) for name in PEERS] + [row(name, 1.0, **wide) for name in PEERS]
    texts = [line["target"] for line in decode_report.targets(rows)]
    assert texts == [
        "bert-base, batch 1, beam 1: 10 x (a) kerasbert uncached",
        "bert-base, batch 1, beam 1: 1 x (c) transformers",
        "bert-base, batch 16, beam 4: 1 x (c) transformers",
    ]


def test_no_verdict_without_both():
    for rows in ([missing(OURS), row(TORCH, 1.0)], [row(OURS, 1.0), missing(TORCH)]):
        (line,) = decode_report.targets(rows)
        assert decode_report.verdict(line) == "not measured"
    assert decode_report.targets([row(OURS, 1.0)]) == []


def test_kept_figures(tmp_path):
    path = tmp_path / "kept.json"
    assert decode_report.read_kept(path) == {}
    decode_report.write_kept([row(OURS, 1.0), row(OLD, 8.0), row(OLD, 9.0, batch=16)], 2, path)
    decode_report.write_kept([row(OLD, 7.0), missing(OLD, batch=16)], 4, path)
    kept = decode_report.read_kept(path)
    assert sorted(figures["seconds"] for figures in kept.values()) == [7.0, 9.0]

    rows = [row(OURS, 1.0), missing(OLD), missing(OLD, beam=4)]
    filled = decode_report.fill_in(rows, kept)
    assert filled[1]["seconds"] == 7.0
    assert filled[2] == rows[2]  # nothing is kept of this case
    table = decode_report.table(filled)
    assert "(b) bert4keras, kept of 2001-02-03, 4 cores | 9.1 |" in table
    # What was kept is not kept again as new, and a measured row stays.
    decode_report.write_kept(filled, 99, path)
    assert decode_report.read_kept(path) == kept
    assert decode_report.fill_in([row(OLD, 5.0)], kept)[0]["seconds"] == 5.0


# ---- processes -------------------------------------------------------------------------------

WORKER = """
import json, sys
task = json.loads(sys.argv[1])
if task["peer"] == "transformers":
    print(json.dumps({"absent": "No module named 'it'"}))
    sys.exit()
print(json.dumps({"versions": {"it": "1"}}), flush=True)
for turn, line in enumerate(sys.stdin):
    if int(line) == 1:
        print(json.dumps({"seconds": 0.2}), flush=True)
        continue
    if task["peer"] == "uncached" and turn:
        sys.exit("out of luck")
    print(json.dumps({"seconds": 40.0 if task["peer"] == "bert4keras" else 0.5}), flush=True)
"""


def test_measure_case(tmp_path, monkeypatch):
    script = tmp_path / "worker.py"
    script.write_text(WORKER, "utf-8")
    monkeypatch.setattr(decode_peers, "WORKERS", script)
    case = Case("tiny", 16, 1, 8, 4)
    pythons = dict.fromkeys(PEERS, (sys.executable, ""))
    rows = decode_peers.measure_case(case, pythons, 4, "2001-02-03")
    found = {row["peer"]: row for row in rows}
    assert list(found) == list(PEERS)
    assert all(decode_report.case_of(row) == tuple(asdict(case).values()) for row in rows)
    assert found[OURS]["seconds"] == 0.5
    assert found[OURS]["calls"] == 4
    assert found[OURS]["step"] == pytest.approx(0.1)  # three steps after the first
    assert "step" not in found[OLD]
    assert found[UNCACHED]["missing"] == "FAILED: out of luck"
    assert found[OLD]["seconds"] == 16 * 40.0
    assert found[OLD]["calls"] == 2  # a minute is enough
    assert found[TORCH]["missing"] == "not installed (No module named 'it')"


def test_without_an_environment(tmp_path):
    assert not is_ready(None)
    assert not is_ready(tmp_path / "nowhere")
    pythons = decode_peers.interpreters([OURS, OLD], None)
    assert pythons == {OURS: (sys.executable, ""), OLD: ("", "no environment for it")}
    rows = decode_peers.measure_case(Case("tiny", 1, 1, 8, 4), {OLD: pythons[OLD]}, 1, "2001")
    assert rows[0]["missing"] == "no environment for it"


@pytest.mark.slow
def test_the_script_runs(tmp_path):
    short = "--sizes tiny --batches 1 --beams 1 2 --prompt 8 --new 4 --repeats 1"
    command = [sys.executable, decode_peers.__file__, *short.split(), "--json", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
    for peer in ("kerasbert", re.escape("(a) kerasbert uncached")):
        assert re.search(rf"^\| albert-tiny \| 1 \| 2 \| {peer} \| \d", done.stdout, re.MULTILINE)
    rows = json.loads((tmp_path / "out").read_text("utf-8"))["rows"]
    assert len(rows) == 2 * len(PEERS)

"""Rows of the benchmark of decoding: the figures kept of bert4keras, the ratios and the table.

A row is a dict: the fields of a case, "peer", "date", "versions", and "seconds" (median of the
later calls), "fastest", "first", "calls", "note"; or "missing" with the reason. What was
measured in part is scaled already. "step" is the time of a token after the first, if there is
a cache: that of a call for all tokens, less that of a call for one.
"""

import json
from pathlib import Path

from decode_cases import NAMES, OLD, OURS, PEERS, TORCH, UNCACHED

KEPT = Path(__file__).with_name("decode_kept.json")
CASE = ("size", "batch", "beam", "prompt", "new")
CACHE_TARGET, TORCH_TARGET = 10, 1


def case_of(row):
    return tuple(row[key] for key in CASE)


def speed(row):
    """New tokens of all rows per second; those of the beams that are given up do not count."""
    return row["batch"] * row["new"] / row["seconds"]


# ---- kept figures ----------------------------------------------------------------------------


def read_kept(path=KEPT):
    """The figures of an earlier run, by case."""
    if not Path(path).exists():
        return {}
    return {case_of(row): row for row in json.loads(Path(path).read_text("utf-8"))}


def write_kept(rows, cores, path=KEPT):
    """Keeps the measured figures of bert4keras, beside those of other cases."""
    kept = read_kept(path)
    for row in rows:
        if row["peer"] == OLD and "seconds" in row and "kept" not in row:
            kept[case_of(row)] = {**row, "cores": cores}
    text = json.dumps([kept[case] for case in sorted(kept)], indent=1)
    Path(path).write_text(text + "\n", "utf-8")


def fill_in(rows, kept):
    """Puts kept figures, marked as such, in the place of those of bert4keras that are missing."""
    return [
        {**kept[case_of(row)], "kept": True}
        if row["peer"] == OLD and "missing" in row and case_of(row) in kept
        else row
        for row in rows
    ]


# ---- ratios ----------------------------------------------------------------------------------


def by_case(rows):
    """{case: {peer: row}}, in the order of the rows."""
    cases = {}
    for row in rows:
        cases.setdefault(case_of(row), {})[row["peer"]] = row
    return cases


def ratio(peers, name):
    """How many times as fast ours is as a peer, None if one of the two is missing."""
    if not all("seconds" in peers.get(key, {}) for key in (OURS, name)):
        return None
    return peers[name]["seconds"] / peers[OURS]["seconds"]


def targets(rows):
    """Pairs of a target's text and its ratio with what it has to be, for all cases measured."""
    lines = []
    for (size, batch, beam, *_), peers in by_case(rows).items():
        wanted = [(TORCH, TORCH_TARGET)]
        if size == "base" and batch == 1:
            wanted.insert(0, (UNCACHED, CACHE_TARGET))
        for name, least in wanted:
            if name in peers:
                text = f"{NAMES[size]}, batch {batch}, beam {beam}: {least} x {PEERS[name]}"
                lines.append({"target": text, "least": least, "ratio": ratio(peers, name)})
    return lines


def verdict(line):
    if line["ratio"] is None:
        return "not measured"
    return f"{line['ratio']:.2f} x, {'held' if line['ratio'] >= line['least'] else 'MISSED'}"


# ---- what is printed -------------------------------------------------------------------------


def table(rows):
    """The markdown table, a line for every row."""
    titles = ("size", "batch", "beam", "peer", "tokens/s", "call s", "fastest s", "first call s")
    titles += ("ours is", "calls", "measured")
    lines = [titles, ("---",) * 3 + ("---",) + ("---:",) * 6 + ("---",)]
    for (size, batch, beam, *_), peers in by_case(rows).items():
        for name, row in peers.items():
            place = (NAMES[size], batch, beam, label(row))
            if "missing" in row:
                lines.append((*place, *("–",) * 6, row["missing"].replace("|", "/")))
                continue
            times = [f"{row[key]:.3f}" for key in ("seconds", "fastest", "first")]
            times_ours = ratio(peers, name)
            against = "" if name == OURS or times_ours is None else f"{times_ours:.2f} x"
            lines.append((*place, f"{speed(row):.1f}", *times, against, row["calls"], row["note"]))
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def label(row):
    kept = f", kept of {row['date']}, {row['cores']} cores" if "kept" in row else ""
    return PEERS[row["peer"]] + kept


def limits(rows, floors):
    """How near the steps with a cache come to reading all weights once."""
    lines = []
    for size, floor in floors.items():
        lines.append(
            f"- {NAMES[size]}: a step reads {floor['bytes'] / 1e6:.0f} MB of weights, in "
            f"{floor['seconds'] * 1e3:.2f} ms at best "
            f"({floor['bytes'] / floor['seconds'] / 1e9:.1f} GB/s)"
        )
        for peers in by_case(rows).values():
            steps = {name: row["step"] for name, row in peers.items() if "step" in row}
            row = next(iter(peers.values()))
            if row["size"] == size and steps:
                texts = [
                    f"{PEERS[name]} {step * 1e3:.2f} ms ({step / floor['seconds']:.2f} x)"
                    for name, step in steps.items()
                ]
                lines.append(
                    f"  - batch {row['batch']}, beam {row['beam']}, a step of {', '.join(texts)}"
                )
    return "\n".join(lines)


def report(result):
    """The whole text."""
    rows, machine = result["rows"], result["machine"]
    parts = [
        f"# Decoding, {machine['date']}",
        f"{machine['cores']} cores, load average before the run {machine['load']:.2f}"
        + (" (busy: run it again)" if machine["load"] > machine["cores"] / 2 else "")
        + f"; prompt {machine['prompt']} tokens, {machine['new']} new ones; "
        "random weights, float32.",
        f"Versions: Python {machine['python']}; {versions_text(rows)}.",
        table(rows),
        NOTES,
        "## The limit of the memory",
        limits(rows, result["floors"]),
        "## Targets",
        "\n".join(f"- {line['target']}: {verdict(line)}" for line in result["targets"]),
    ]
    return "\n\n".join(part for part in parts if part)


def versions_text(rows):
    found = {}
    for row in rows:
        if "versions" in row:
            used = (f"{name} {version}".strip() for name, version in row["versions"].items())
            found[label(row)] = f"{label(row)} with {', '.join(used)}"
    return "; ".join(found.values())


NOTES = """\
Tokens per second are the new tokens of all rows; the beams given up do not count. "call s" is
the median of the later calls, "first call s" the one that also compiles, "ours is" how many
times as fast kerasbert is. Where only a part was measured, its seconds are scaled by the number
of rows that go through the model: bert4keras decodes one input after the other, so one stands
for all; and of what would take minutes a few steps in the middle of the text stand for all.
transformers has no ALBERT decoder: its albert-tiny is an ELECTRA of the same matrices, one set
for each layer. A step, below, is a token after the first: the prompt is not in it."""

"""Table and plot of the study of un-sharing, from the figures of its runs.

Runs are kept as `{task: {variant: {seed: figures}}}`.
"""

import csv
from statistics import mean, stdev

from matplotlib.figure import Figure
from unshared_tasks import TASKS, VARIANTS

NAME = "unshared_study"
BASE = "albert"  # the variant that the others are compared with

# Columns of the table: the key of a row, the head, and how a number is written.
SHARE, GAIN = "{:.1%}", "{:+.1%}"
COLUMNS = [
    ("first", "first epoch", SHARE),
    ("best", "best epoch", SHARE),
    ("first_gain", f"first, less {BASE}", GAIN),
    ("best_gain", f"best, less {BASE}", GAIN),
    ("seconds", "seconds per epoch", "{:.1f}"),
    ("processor_seconds", "processor seconds", "{:.1f}"),
    ("megabytes", "peak memory, MB", "{:.0f}"),
]


# ---- figures ---------------------------------------------------------------------------------


def measures(figures):
    """Returns what counts of one run."""
    return {
        "first": figures["by_epoch"][0],
        "best": max(figures["by_epoch"]),
        "seconds": mean(_later(figures["epoch_seconds"])),
        "processor_seconds": mean(_later(figures["epoch_processor_seconds"])),
        "megabytes": figures["peak_megabytes"],
    }


def _later(epochs):
    """Returns the epochs after the first, in which models are compiled, if there are any."""
    return epochs[1:] or epochs


def spread(numbers):
    """Returns mean and standard deviation of a sample; that of a single number is None."""
    return mean(numbers), stdev(numbers) if len(numbers) > 1 else None


def rows_of(kept):
    """Returns a dict for each task and variant; those of `COLUMNS` are pairs, see `spread`.

    A gain is the mean over the seeds that both variants have; of none it is None.
    """
    rows = []
    for task in filter(kept.get, TASKS):
        runs = {
            variant: {seed: measures(figures) for seed, figures in seeds.items()}
            for variant, seeds in kept[task].items()
        }
        for variant in filter(runs.get, VARIANTS):
            own, last = runs[variant], list(kept[task][variant].values())[-1]
            columns = {key: spread([one[key] for one in own.values()]) for key in measures(last)}
            for key in ("first", "best"):
                columns[f"{key}_gain"] = _gain(own, runs.get(BASE, {}), key)
            rows.append(
                {
                    "task": task,
                    "metric": TASKS[task].metric,
                    "variant": variant,
                    "parameters": last["parameters"],
                    "guess": last["guess"],
                    "seeds": sorted(own, key=int),
                    **{name: last["settings"][name] for name in ("epochs", "checkpoint")},
                    **{name: last[name] for name in ("training_texts", "scored_texts")},
                    **columns,
                }
            )
    return rows


def _gain(own, base, key):
    """Returns mean and deviation of the differences with the same seed."""
    seeds = own.keys() & base.keys()
    if own is base or not seeds:
        return None
    return spread([own[seed][key] - base[seed][key] for seed in seeds])


# ---- files -----------------------------------------------------------------------------------


def written(pair, form):
    """Returns a mean and its deviation as text."""
    if pair is None:
        return ""
    number, deviation = pair
    text = form.format(number)
    return text if deviation is None else f"{text} ± {form.replace('+', '').format(deviation)}"


def table(rows):
    """Returns the rows as markdown."""
    head = ["task", "variant", "parameters", *(name for _, name, _ in COLUMNS), "guess", "seeds"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for row in rows:
        cells = [f"{row['task']}, {row['metric']}", row["variant"], f"{row['parameters']:,}"]
        cells += [written(row[key], form) for key, _, form in COLUMNS]
        cells += [SHARE.format(row["guess"]), ", ".join(row["seeds"])]
        lines.append(f"| {' | '.join(cells)} |")
    notes = [
        f"{row['task']}: {row['training_texts']:,} texts to train on, {row['scored_texts']:,} to "
        f"score, {row['epochs']} epochs, checkpoint {row['checkpoint']}."
        for row in {row["task"]: row for row in rows}.values()
    ]
    return "\n".join([*lines, "", *(f"- {note}" for note in notes)]) + "\n"


def write_table(rows, folder):
    """Writes the rows as markdown, and as csv with a column for each deviation."""
    (folder / f"{NAME}.md").write_text(table(rows), "utf-8")
    pairs = [key for key, _, _ in COLUMNS]
    with (folder / f"{NAME}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = None
        for row in rows:
            cells = {key: value for key, value in row.items() if key not in pairs}
            cells["seeds"] = " ".join(row["seeds"])
            for key in pairs:
                number, deviation = row[key] or (None, None)
                cells |= {key: _rounded(number), f"{key}_deviation": _rounded(deviation)}
            if writer is None:
                writer = csv.DictWriter(file, cells)
                writer.writeheader()
            writer.writerow(cells)


def _rounded(number):
    return None if number is None else round(number, 5)


# ---- plot ------------------------------------------------------------------------------------


def plot(rows, folder):
    """Draws scores, seconds and memory of each task; the bars are standard deviations."""
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    figure = Figure(figsize=(1 + 3.2 * len(tasks), 9), layout="constrained")
    for column, task in enumerate(tasks):
        some = [row for row in rows if row["task"] == task]
        score, seconds, memory = (
            figure.add_subplot(3, len(tasks), 1 + column + place * len(tasks)) for place in range(3)
        )
        _points(score, some, "first", "o", "first epoch", -0.1)
        _points(score, some, "best", "s", "best epoch", 0.1)
        score.axhline(some[0]["guess"], color="gray", linestyle=":", label="by guessing")
        score.set(title=TASKS[task].title, ylabel=some[0]["metric"])
        score.legend(frameon=False)
        _points(seconds, some, "seconds", "o")
        seconds.set(ylabel="seconds per epoch", ylim=(0, None))
        _points(memory, some, "megabytes", "o")
        memory.set(ylabel="peak memory, MB", ylim=(0, None))
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(folder / f"{NAME}.png", dpi=150)


def _points(axes, rows, key, style, label=None, shift=0.0):
    places = [place + shift for place in range(len(rows))]
    numbers, deviations = zip(*(row[key] for row in rows), strict=True)
    bars = [deviation or 0 for deviation in deviations]
    axes.errorbar(places, numbers, bars, fmt=style, capsize=4, label=label)
    names = [row["variant"].replace("_", "\n") for row in rows]
    axes.set_xticks(range(len(rows)), names)
    axes.set_xlim(-0.5, len(rows) - 0.5)

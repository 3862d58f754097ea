"""Trains the examples on real data sets, and writes the table of their scores.

    python examples/results.py --data DATASETS
    python examples/results.py --data DATASETS --only sentiment afqmc --seeds 0
    python examples/results.py

Each run is a process of its own, with the small random model of the example. Its figures are kept
in results.json as soon as it ends; the table in README.md is made of them. Without --data only
the table is written anew.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import mean

HERE = Path(__file__).parent
KEPT = HERE / "results.json"
README = HERE / "README.md"
BEGIN, END = "<!-- results: made by results.py -->", "<!-- end of the results -->"


@dataclass(frozen=True)
class Task:
    """An example and the data set that it is scored on.

    Attributes:
        script: file name of the example, without `.py`.
        data: what the data set is.
        files: `{option: path in the folder of data sets}`.
        score: which of its scores counts.
        options: further arguments of the command line.
        at_least: what that score is to reach, for every seed; None if none has been stated yet.
    """

    script: str
    data: str
    files: dict
    score: str
    options: tuple = ()
    at_least: float | None = None

    def command(self, folder, seed, output):
        """Returns the command line of one run."""
        files = [part for name, path in self.files.items() for part in (f"--{name}", folder / path)]
        words = [sys.executable, HERE / f"{self.script}.py", *files, *self.options]
        return [str(word) for word in (*words, "--seed", seed, "--output", output)]


SENTIMENT = "sentiment/sentiment/sentiment.{}.data"
AFQMC = {"train": "bertorch-AFQMC/train.txt", "valid": "bertorch-AFQMC/dev.txt"}
CMRC = {"data": "cmrc2018/cmrc2018_dev.json", "test": "cmrc2018/cmrc2018_trial.json"}
# What both examples of triples are scored on.
DUIE = {
    "data": "DuIE: 4,398 sentences to train on, 2,000 others; 46 predicates",
    "files": {"train": "DuIE-4000/duie_train_4000.json", "valid": "DuIE-4000/duie_dev.json"},
    "score": "F1",
    "options": ("--epochs", "8", "--batch-size", "32"),
}

TASKS = {
    "ResumeNER": Task(
        script="sequence_labeling_ner_crf",
        data="ResumeNER, its test set: entities of 8 types in lives of managers",
        files={"train": "ResumeNER/train.char.bmes", "valid": "ResumeNER/test.char.bmes"},
        score="F1",
        options=("--epochs", "8", "--batch-size", "32"),
        at_least=0.9,
    ),
    "CLUENER": Task(
        script="entity_recognition_global_pointer",
        data="CLUENER, its development set: entities of 10 types in news",
        files={"train": "cluener/train.json", "valid": "cluener/dev.json"},
        score="F1",
        options=("--efficient", "--epochs", "3"),
        at_least=0.6,
    ),
    "cmrc2018": Task(
        script="reading_comprehension_extractive",
        data="CMRC 2018, whole passages: trained on the development set, scored on the trial set",
        files=CMRC,
        score="F1",
        options=("--epochs", "8"),
    ),
    "cmrc2018 written": Task(
        script="reading_comprehension_by_seq2seq",
        data="CMRC 2018, parts of passages that hold a short answer; development and trial set",
        files=CMRC,
        score="F1",
        at_least=0.2,
    ),
    "casrel": Task(script="relation_extraction_casrel", at_least=0.28, **DUIE),
    "gplinker": Task(script="relation_extraction_gplinker", at_least=0.32, **DUIE),
    "sentiment": Task(
        script="sentence_classification",
        data="Chinese reviews, 2 labels; test texts that do not stand in the training data",
        files={name: SENTIMENT.format(name) for name in ("train", "valid", "test")},
        score="accuracy",
        options=("--epochs", "2", "--batch-size", "64"),
        at_least=0.84,
    ),
    "SST-2": Task(
        script="sentence_classification",
        data="SST-2, phrases of English film reviews, 2 labels",
        files={"train": "SST-2/train.tsv", "valid": "SST-2/dev.tsv", "test": "SST-2/test.tsv"},
        score="accuracy",
        options=("--epochs", "1", "--batch-size", "64"),
        at_least=0.79,
    ),
    "AFQMC": Task(
        script="sentence_pairs",
        data="AFQMC, pairs of questions to a bank, 31 % mean the same",
        files=AFQMC,
        score="average precision",
        options=("--epochs", "1", "--batch-size", "64", "--learning-rate", "2e-3"),
        at_least=0.37,
    ),
    "adversarial": Task(
        script="adversarial_training",
        data="2,000 of the Chinese reviews, FGM",
        files={"train": SENTIMENT.format("train"), "valid": SENTIMENT.format("test")},
        score="accuracy, fgm",
        options=("--method", "plain", "fgm", "--learning-rate", "1e-3"),
    ),
    "eprstmt": Task(
        script="few_shot_masked_lm",
        data="FewCLUE eprstmt: 160 labelled reviews, 610 to score, 19,565 without labels",
        files={
            "train": "FewCLUE-eprstmt/train_few_all.json",
            "valid": "FewCLUE-eprstmt/test_public.json",
            "unlabelled": "FewCLUE-eprstmt/unlabeled.json",
        },
        score="accuracy",
        options=("--epochs", "4"),
        at_least=0.7,
    ),
    "iflytek": Task(
        script="long_texts_hierarchical_positions",
        data="FewCLUE iflytek, descriptions of apps, 119 labels, median 260 characters",
        files={
            "train": "FewCLUE-iflytek/train_few_all.json",
            "valid": "FewCLUE-iflytek/test_public.json",
        },
        score="accuracy, whole texts",
        options=("--epochs", "6", "--maxlen", "256"),
        at_least=0.39,
    ),
    "AFQMC, vectors": Task(
        script="sentence_similarity",
        data="AFQMC; Spearman correlation of cosine and label",
        files=AFQMC,
        score="correlation",
        options=("--batch-size", "64"),
        at_least=0.25,
    ),
    "titles": Task(
        script="conditional_language_model",
        data="THUCNews titles, 10 labels: trained on dev, scored on 2,000 of test",
        files={"train": "THUCNews-titles/dev.txt", "valid": "THUCNews-titles/test.txt"},
        score="likeliest under their label",
        options=("--epochs", "4", "--score", "1000"),
        at_least=0.81,
    ),
}


def run(name, folder, seed):
    """Returns the figures of one run."""
    with tempfile.TemporaryDirectory() as output:
        print(f"\n=== {name}, seed {seed}", flush=True)
        subprocess.run(TASKS[name].command(folder, seed, output), check=True)
        (path,) = Path(output).glob("*.json")
        return {**json.loads(path.read_text("utf-8")), "date": str(date.today())}


def short_of(kept):
    """Returns what keeps a task from its stated score, one line for each."""
    return [
        f"{name}: {TASKS[name].score} {figures['scores'][TASKS[name].score]:.1%} with seed {seed}, "
        f"expected at least {TASKS[name].at_least:.1%}"
        for name, runs in kept.items()
        for seed, figures in runs.items()
        if figures["scores"][TASKS[name].score] < (TASKS[name].at_least or 0)
    ]


def table(kept):
    """Returns the table of the scores, as markdown."""
    head = ["task", "data", "score", "at least", "mean", "lowest … highest", "guess"]
    head += ["seeds", "parameters", "processor minutes", "date"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for name, task in TASKS.items():
        runs = kept.get(name, {})
        if not runs:
            continue
        scores = [figures["scores"][task.score] for figures in runs.values()]
        last = list(runs.values())[-1]
        guess = "" if last["guess"] is None else f"{last['guess']:.1%}"
        minutes = mean(figures["processor_seconds"] for figures in runs.values()) / 60
        stated = "" if task.at_least is None else f"{task.at_least:.1%}"
        cells = [f"[{name}]({task.script}.py)", task.data, task.score, stated]
        cells += [f"{mean(scores):.1%}", f"{min(scores):.1%} … {max(scores):.1%}", guess]
        cells += [", ".join(runs), f"{last['parameters']:,}", f"{minutes:.1f}"]
        lines.append(f"| {' | '.join([*cells, max(f['date'] for f in runs.values())])} |")
    return "\n".join(lines)


def with_table(text, kept):
    """Returns a README with the table of these figures in its place."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table(kept)}\n\n{END}{rest.partition(END)[2]}"


def main():
    """Runs what was asked for, keeps the figures and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--only", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    args = parser.parse_args()
    kept = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}
    for name in args.only if args.data else ():
        for seed in args.seeds:
            figures = run(name, args.data, seed)
            kept[name] = dict(sorted({**kept.get(name, {}), str(seed): figures}.items()))
            KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", "utf-8")
    README.write_text(with_table(README.read_text("utf-8"), kept), "utf-8")
    print(table(kept))
    sys.exit("\n".join(short_of(kept)) or 0)


if __name__ == "__main__":
    main()

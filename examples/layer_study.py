"""What each layer of an ALBERT does to its input, shared and un-shared, before and after training.

    python examples/layer_study.py --data DATASETS
    python examples/layer_study.py --data DATASETS --config albert_config.json \
        --checkpoint albert_model.ckpt --vocab vocab.txt --layers 48 --learning-rate 5e-5

Cosine and L2 distance between the input and the output of each layer are averaged over the tokens
of some texts, padding left out. A shared block can be called more often than it was trained to be:
--layers times, by default three times as often. Distances that go to 0 tell of a fixed point; if
only those between a state and the one two layers before do, states go to and fro. Then the model
is fine-tuned on sentiment, at its own depth, and measured again. DATASETS is the folder of
results.py; without --data the texts are made up. It leaves layer_study.csv and .png.

Source: the question is that of Lan et al. 2019 (arXiv:1909.11942, figure 1); Bai et al. 2019
(arXiv:1909.01377) look for the fixed points of such models.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import csv
from itertools import pairwise

import keras
import numpy as np
from classifiers import left_to_score, some_of
from files import read_labelled
from matplotlib.figure import Figure
from runs import Run, load_encoder, starting_point
from shared import UsageError, in_one_line
from unshared_settings import (
    check_positive,
    check_seeds,
    files_of,
    make_ready,
    numbers_of,
    study_arguments,
)
from unshared_tasks import VARIANTS, classification

from kerasbert import build_transformer_model, hidden_state
from kerasbert.data import TextInputs

NAME = "layer_study"
OPTIONS = [
    ("--layers", {"type": int, "help": "calls of the shared block; default 3 times the layers"}),
    ("--measured", {"type": int, "default": 64, "help": "texts to measure; default %(default)s"}),
    ("--seed", {"type": int, "default": 0, "help": "default %(default)s"}),
]
MEASURES = ("cosine distance", "L2 distance", "L2 distance, two layers")


# ---- measures --------------------------------------------------------------------------------


def distances(states, real):
    """Returns `{measure: list}` with the mean over the tokens for each layer.

    Args:
        states: K + 1 arrays (N, L, H), the input of the first layer first.
        real: bool array (N, L), False at padding.

    Returns:
        K numbers of each measure: between the input and the output of each layer; that of two
        layers is between the input of the layer before and the output, and NaN for the first.
    """
    states = [np.asarray(state, "float64")[real] for state in states]  # (tokens, H) each
    pairs = list(pairwise(states))
    found = (
        [_cosine_distance(*pair) for pair in pairs],
        [_l2(*pair) for pair in pairs],
        [np.nan, *(_l2(*pair) for pair in zip(states, states[2:], strict=False))],
    )
    return dict(zip(MEASURES, found, strict=True))


def _cosine_distance(some, others):
    norms = np.linalg.norm(some, axis=-1) * np.linalg.norm(others, axis=-1)
    return float(np.mean(1 - (some * others).sum(-1) / norms))


def _l2(some, others):
    return float(np.linalg.norm(some - others, axis=-1).mean())


def measuring(encoder, depth, tokenizer, texts, maxlen):
    """Returns a function that tells the distances of the first so many layers, as they are now."""
    inputs = tokenizer.encode_batch(texts, maxlen=maxlen)
    states = [hidden_state(encoder, k) for k in range(depth + 1)]
    model = keras.Model(encoder.inputs, states)
    options = {"batch_size": 16, "verbose": 0}
    return lambda: distances(model.predict(list(inputs), **options), inputs[0] != 0)


# ---- study -----------------------------------------------------------------------------------


def depths(args):
    """Returns how many layers the checkpoint has, and how many are called if it is shared."""
    options = {"model": "albert", "return_keras_model": False, "verbose": 0}
    config = build_transformer_model(args.config, args.checkpoint, **options).config
    depth, groups = config.num_hidden_layers, config.num_hidden_groups
    layers = args.layers or (3 * depth if groups == 1 else depth)
    if layers < depth:
        raise UsageError(f"--layers {layers}: the checkpoint has {depth} already")
    if layers > depth and groups > 1:
        raise UsageError(f"--layers {layers}: the {depth} layers of the checkpoint share {groups}")
    return depth, layers


def texts_of(args):
    """Returns the texts to measure, none of which is trained on."""
    train, scored = read_labelled(args.train), read_labelled(args.test or args.valid)
    return [text for text, _ in some_of(left_to_score(train, scored), args.measured)]


def study(args):
    """Measures both variants, trains them, and measures them again."""
    files = {**dict.fromkeys(("train", "valid", "test")), **files_of(args, "sentiment")}
    vars(args).update({**numbers_of(args, "sentiment"), **files})
    session = Run(NAME, args)
    _, tokenizer = starting_point(args, ())
    depth, layers = depths(args)
    texts, curves = texts_of(args), {}
    for variant, calls in (("albert", layers), ("albert_unshared", depth)):
        print(f"\n=== {variant}", flush=True)
        options = {**VARIANTS[variant], "num_hidden_layers": calls}
        encoder = load_encoder(args, args.config, tokenizer, **options)
        args.maxlen = min(args.maxlen, TextInputs.of(encoder).max_length)
        measured = measuring(encoder, calls, tokenizer, texts, args.maxlen)
        curves[variant, "before"] = measured()
        keras.utils.set_random_seed(args.seed)
        trunk = keras.Model(encoder.inputs, hidden_state(encoder, depth))
        prepared = classification(args, tokenizer, trunk)
        session.fit(prepared.model, prepared.batches, label=variant)
        print(f"accuracy {prepared.score():.1%}, by guessing {prepared.guess:.1%}")
        curves[variant, "after"] = measured()
    show(curves, depth)
    write(curves, depth, args.output)
    plot(curves, depth, args.output)
    print(f"\nall layers, plot: {args.output / NAME}.*")


# ---- what it leaves --------------------------------------------------------------------------


def show(curves, depth):
    """Prints the distances at the first layer, at the last that was trained, and at the last."""
    print(f"\n{'':<26}{'layer':>6}" + "".join(f"{name:>25}" for name in MEASURES))
    for (variant, when), curve in curves.items():
        for layer in sorted({1, depth, len(curve[MEASURES[0]])}):
            numbers = "".join(f"{curve[name][layer - 1]:>25.5f}" for name in MEASURES)
            print(f"{f'{variant}, {when}':<26}{layer:>6}{numbers}")


def write(curves, depth, folder):
    """Writes a csv file with a line for each layer."""
    with (folder / f"{NAME}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["variant", "training", "layer", "of_the_checkpoint", *MEASURES])
        for (variant, when), curve in curves.items():
            for layer, numbers in enumerate(zip(*curve.values(), strict=True), start=1):
                cells = ["" if np.isnan(number) else f"{number:.6g}" for number in numbers]
                writer.writerow([variant, when, layer, int(layer <= depth), *cells])


def plot(curves, depth, folder):
    """Draws each measure by layer."""
    figure = Figure(figsize=(14, 4), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(MEASURES)), MEASURES, strict=True):
        for (variant, when), curve in curves.items():
            style = "o--" if when == "before" else "o-"
            color = "tab:blue" if variant == "albert" else "tab:orange"
            # Before the training both variants are the same model.
            size = 6 if variant == "albert" else 3
            layers = range(1, len(curve[name]) + 1)
            options = {"color": color, "markersize": size, "label": f"{variant}, {when}"}
            axes.plot(layers, curve[name], style, **options)
        axes.axvline(depth + 0.5, color="gray", linestyle=":", label="depth of the checkpoint")
        axes.set(title=name, xlabel="layer", ylim=(0, None))
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(folder / f"{NAME}.png", dpi=150)


def main():
    """Runs the study."""
    args = study_arguments(__doc__.split("\n")[0], ["sentiment"], OPTIONS)
    check_positive(args, ["layers", "measured"])
    check_seeds([args.seed])
    make_ready(args)
    study(args)


if __name__ == "__main__":
    in_one_line(NAME, main)

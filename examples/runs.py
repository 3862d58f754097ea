"""What a training starts from, and what it leaves: a table, a plot, and a file of figures."""

import json
import sys
import time
from collections import Counter

import keras
from matplotlib.figure import Figure
from shared import UsageError
from wordpieces import is_latin, word_pieces

from kerasbert import build_transformer_model
from kerasbert.optimizers import AdamW, WarmupDecay
from kerasbert.pretraining import pmi_embeddings
from kerasbert.tokenizers import SpTokenizer, Tokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def small_model(texts, at_least=1, **sizes):
    """Returns a config with these sizes and a tokenizer of what the texts consist of.

    Args:
        texts: strings, or what can be written as one.
        at_least: how often a character has to occur to be in the vocabulary.
        **sizes: for the config.
    """
    texts = list(map(str, texts))
    if is_latin(texts):
        tokens = word_pieces(texts, SPECIAL, size=8000)
    else:
        counts = Counter(char for text in texts for char in text.lower() if not char.isspace())
        characters = sorted(char for char, count in counts.items() if count >= at_least)
        # A number or a Latin word has as many pieces as characters.
        pieces = [f"##{char}" for char in characters if char.isascii() and char.isalnum()]
        tokens = SPECIAL + characters + pieces
    tokenizer = Tokenizer({token: n for n, token in enumerate(tokens)}, do_lower_case=True)
    return _config(tokenizer, sizes), tokenizer


def _config(tokenizer, sizes):
    return {
        "vocab_size": tokenizer.vocab_size,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "hidden_act": "gelu",
        **sizes,
    }


def starting_point(args, texts, at_least=1, **sizes):
    """Returns config and tokenizer: the user's, or those of a small model with random weights."""
    if not args.config:
        positions = {"max_position_embeddings": max(args.maxlen, 512)}
        return small_model(texts, at_least, **{**positions, **sizes})
    kind = SpTokenizer if args.vocab.suffix == ".model" else Tokenizer
    return args.config, kind(args.vocab, do_lower_case=True)


def load_encoder(args, config, tokenizer, **options):
    """Returns the user's encoder, or one with random weights; options go to its builder."""
    encoder = build_transformer_model(config, args.checkpoint, **options)
    check_vocabulary(encoder, tokenizer)
    return encoder


def check_vocabulary(model, tokenizer):
    """Refuses a tokenizer with more tokens than a model has."""
    rows = model.get_layer("Embedding-Token").input_dim
    if tokenizer.vocab_size > rows:
        raise UsageError(f"--vocab has {tokenizer.vocab_size} tokens, the model only {rows}")


def start_from_neighbours(model, ids, special):
    """Gives the table of tokens vectors by which those with like neighbours are near.

    Args:
        model: a model with random weights.
        ids: texts, or arrays of them, as `pmi_embeddings` takes them.
        special: ids of tokens that are no part of a text, such as padding.
    """
    table = model.get_layer("Embedding-Token")
    deviation = float(keras.ops.std(table.embeddings))
    sizes = {"size": table.output_dim, "vocab_size": table.input_dim}
    table.set_weights([pmi_embeddings(ids, ignore=special, deviation=deviation, **sizes)])


def batching(args, count):
    """Returns size and lengths of the batches of so many texts, for `BucketedDataset`."""
    # Each length is compiled, which takes longer than to train on few texts.
    num_buckets = 3 if count > 1000 else 1
    return {"batch_size": args.batch_size, "maxlen": args.maxlen, "num_buckets": num_buckets}


def optimizer(args, steps, **options):
    """Returns BERT's optimizer; its rate rises over a tenth of the steps, then falls to 0."""
    schedule = WarmupDecay(args.learning_rate, total_steps=steps, warmup_steps=max(steps // 10, 1))
    return AdamW(schedule, **options)


def use_xla(args, steps):
    """Returns `jit_compile` for a training of so many steps.

    XLA compiles each shape for some seconds, which a small model does not gain back on a CPU.
    """
    return True if args.config and steps > 100 else "auto"


class ScoreByEpoch(keras.callbacks.Callback):
    """Adds a score that no Keras metric computes to what Keras reports of each epoch.

    Args:
        name: of the score; it is reported as `val_` and this.
        function: returns it, given the model.
    """

    def __init__(self, name, function):
        super().__init__()
        self.name, self.function = f"val_{name}", function

    def on_epoch_end(self, epoch, logs=None):
        """Computes the score."""
        logs[self.name] = float(self.function(self.model))
        print(f" - {self.name}: {logs[self.name]:.4f}")


class Run:
    """One run of an example: seeded at its start, and timed.

    Args:
        name: of the files that it leaves.
        args: of the command line.
    """

    def __init__(self, name, args):
        args.output.mkdir(parents=True, exist_ok=True)
        self.name, self.args, self.histories = name, args, {}
        self.started = time.perf_counter(), time.process_time()
        keras.utils.set_random_seed(args.seed)

    def fit(self, model, data, label="", **options):
        """Trains a model for as many epochs as asked for; returns the history.

        Args:
            model: a compiled model.
            data: batches to train on.
            label: of this training, if there are several.
            **options: for `fit`.
        """
        verbose = 1 if sys.stdout.isatty() else 2
        options = {"epochs": self.args.epochs, "verbose": verbose, **options}
        self.histories[label] = model.fit(data, **options).history
        return self.histories[label]

    def finish(self, model, scores, guess=None, curve=None, **facts):
        """Prints the scores; writes them and the plot into the folder for output.

        Args:
            model: the model that was trained.
            scores: `{name: share}`, that which counts first.
            guess: what guessing would give of the first score, if that says something.
            curve: which score of the histories is drawn, if it has not the name of the first.
            **facts: further figures for the file, such as the number of texts.
        """
        print()
        for name, score in scores.items():
            print(f"{name:<34}{score:>8.1%}")
        if guess is not None:
            print(f"{'by guessing':<34}{guess:>8.1%}")
        seconds, processor = self.started
        figures = {
            "scores": {name: round(float(score), 4) for name, score in scores.items()},
            "guess": None if guess is None else round(float(guess), 4),
            "parameters": model.count_params(),
            "epochs": self.args.epochs,
            "seed": self.args.seed,
            "seconds": round(time.perf_counter() - seconds),
            "processor_seconds": round(time.process_time() - processor),
            **facts,
        }
        path = self.args.output / f"{self.name}.json"
        path.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", "utf-8")
        self._plot(curve or next(iter(scores)), guess)
        print(
            f"\n{model.count_params():,} parameters, {figures['processor_seconds']} s of processor"
        )
        print(f"figures and plot: {path.with_suffix('.*')}")

    def _plot(self, score, guess):
        """Draws loss and score by epoch."""
        figure = Figure(figsize=(10, 4), layout="constrained")
        left, right = figure.subplots(1, 2)
        for label, history in self.histories.items():
            epochs = range(1, len(history["loss"]) + 1)
            for name, values in history.items():
                axes = left if name.endswith("loss") else right
                style = "o-" if name.startswith("val_") else "o--"
                if name.removeprefix("val_") in ("loss", score):
                    words = f"{label} {'validation' if style == 'o-' else 'training'}"
                    axes.plot(epochs, values, style, label=words.strip())
        if guess is not None:
            right.axhline(guess, color="gray", linestyle=":", label="by guessing")
        left.set(title="loss", xlabel="epoch")
        right.set(title=score, xlabel="epoch")
        for axes in (left, right):
            axes.spines[["top", "right"]].set_visible(False)
            axes.xaxis.get_major_locator().set_params(integer=True)
            if axes.has_data():
                axes.legend(frameon=False)
        figure.savefig(self.args.output / f"{self.name}.png", dpi=150)

r"""Pre-trains a model on plain text, from random numbers or from a checkpoint.

    python examples/pretrain.py
    python examples/pretrain.py --data texts/*.txt --line paragraph --steps 20000
    python examples/pretrain.py --data texts/*.txt --config albert_config.json \
        --checkpoint albert_model.ckpt --vocab vocab.txt --steps 5000 --learning-rate 1e-4

Records are made of the texts, then a model learns them: masked tokens and the order of sentences
(ALBERT), or what --objective says. Without --config it is a small ALBERT, with a vocabulary of the
characters in the texts. Called again, the command goes on from its last checkpoint, also after it
was killed. Every checkpoint is in Google's form: build_transformer_model loads its folder.
"""

import argparse
import json
import math
import sys
from importlib.util import find_spec
from pathlib import Path

import keras
from files import read_labelled
from matplotlib.figure import Figure
from runs import check_vocabulary, start_from_neighbours
from shared import HERE, UsageError, in_one_line, sample

from kerasbert import build_transformer_model
from kerasbert.pretraining import (
    PretrainingCheckpoint,
    compile_objectives,
    electra_model,
    electra_towers,
    mask_proposal_model,
    masked_lm_model,
    pretraining_optimizer,
    shuffled_batches,
    small_generator,
    train_steps,
)
from kerasbert.tokenizers import SpTokenizer, Tokenizer

SIZES = {
    "embedding_size": 64,
    "hidden_size": 128,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
TINY = {**SIZES, "embedding_size": 16, "hidden_size": 32, "intermediate_size": 64}
OBJECTIVES = ("masked_lm", "electra", "word_order", "mask_proposal")

# Batches from which neighbours are counted.
COUNTED = 2000


# ---- texts -----------------------------------------------------------------------------------


def find_texts(args):
    """Returns the paths of the texts and what a line of them is; the sample is written first."""
    if args.data:
        return args.data, args.line
    path = args.output / "sample.txt"
    texts = [text for text, _ in read_labelled(sample("long_reviews_train.tsv"))]
    path.write_text("\n".join(texts) + "\n", "utf-8")
    return [path], "document"


def make_data(args, texts, line):
    """Returns the tokenizer and batches; makes vocabulary and records where they are missing."""
    # What is only needed here takes its time to be imported.
    from kerasbert.pretraining import (
        Corpus,
        PretrainingDataset,
        RecordSettings,
        build_character_vocabulary,
        build_records,
    )

    corpus = Corpus(texts, line=line)
    if args.vocab and not args.vocab.exists():
        raise UsageError(f"--vocab {args.vocab}: no such file; without --vocab one is made")
    vocab = args.vocab or args.output / "vocab.txt"
    if not vocab.exists():
        build_character_vocabulary(corpus, vocab, size=args.vocab_size)
    kind = SpTokenizer if vocab.suffix == ".model" else Tokenizer
    tokenizer = kind(vocab, do_lower_case=True)
    settings = RecordSettings(
        max_length=args.maxlen,
        objective=args.sentences,
        masking=args.masking,
        dupe_factor=args.copies,
    )
    records = args.output / "records"
    build_records(corpus, records, tokenizer, settings, workers=args.workers)
    data = PretrainingDataset(records, args.batch_size, seed=args.seed, drop_remainder=True)
    return tokenizer, data


def plain_ids(data, count):
    """Yields the token ids of some batches, as they were before they were masked."""
    for number in range(min(count, len(data))):
        x, y, weights = data[number]
        ids = x["input_ids"].copy()
        rows, columns = weights["masked_lm"].nonzero()
        ids[rows, x["masked_lm_positions"][rows, columns]] = y["masked_lm"][rows, columns]
        yield ids


# ---- models ----------------------------------------------------------------------------------


def make_model(args, tokenizer):
    """Returns the model to train: with the heads that its objective needs, not compiled."""
    config = args.config or {**(TINY if args.quick else SIZES), "vocab_size": tokenizer.vocab_size}
    options = {"strict": False} if args.checkpoint else {}
    if args.objective == "electra":
        towers = electra_towers(
            config, args.checkpoint, generator_size=args.generator_size, **options
        )
        return electra_model(*towers, seed=args.seed)
    model = build_transformer_model(
        config,
        args.checkpoint,
        model=args.model if args.config else "albert",
        with_mlm=True,
        with_nsp=args.sentences in ("sop", "nsp"),
        **options,
    )
    check_vocabulary(model, tokenizer)
    if args.objective == "mask_proposal":
        generator = small_generator(model, args.generator_size)
        return mask_proposal_model(model, generator, seed=args.seed)
    return masked_lm_model(model, word_order=args.objective == "word_order")


def special_ids(tokenizer):
    """Returns the ids of padding, [UNK], [CLS], [SEP] and [MASK]."""
    tokens = ("pad", "unk", "start", "end", "mask")
    return [getattr(tokenizer, f"_token_{name}_id") for name in tokens]


# ---- training --------------------------------------------------------------------------------


def batches_for(args, data, special):
    """Returns what `train_steps` reads: the data, or a function that changes the order of words."""
    if args.objective != "word_order":
        return data

    def batches(done):
        epoch, first = divmod(done, len(data))
        while True:
            data.epoch = epoch
            plain = (data[number] for number in range(first, len(data)))
            start = epoch * len(data) + first
            yield from shuffled_batches(plain, special_ids=special, seed=args.seed, start=start)
            epoch, first = epoch + 1, 0

    return batches


def run(args):
    """Makes records, trains from the last checkpoint on, and draws the curves."""
    args.output.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(args.seed)
    tokenizer, data = make_data(args, *find_texts(args))
    print(f"{data.num_records:,} records, {len(data):,} batches; {tokenizer.vocab_size} tokens")
    model, special = make_model(args, tokenizer), special_ids(tokenizer)
    optimizer = pretraining_optimizer(
        args.steps, args.optimizer, learning_rate=args.learning_rate, warmup=args.warmup
    )
    # XLA takes longer to compile than a few steps take.
    compile_objectives(model, optimizer, jit_compile=False if args.quick else None)
    checkpoint = PretrainingCheckpoint(args.output / "checkpoints", args.every, args.keep)
    if args.start == "neighbours" and not args.checkpoint and checkpoint.latest() is None:
        start_from_neighbours(model, plain_ids(data, COUNTED), special)
    callbacks = []
    if args.tensorboard:
        board = keras.callbacks.TensorBoard(
            str(args.tensorboard), write_graph=False, update_freq=100
        )
        callbacks.append(board)
    history = train_steps(
        model,
        batches_for(args, data, special),
        args.steps,
        checkpoint,
        callbacks=callbacks,
        verbose=1 if sys.stdout.isatty() else 2,
    )
    (args.output / "history.json").write_text(json.dumps(history, indent=1) + "\n", "utf-8")
    save_plot(args.output / "pretrain.png", history)
    for name, value in history[-1].items():
        print(f"{name:<34}{value:>10.4g}")
    print(f"\ncheckpoint: {checkpoint.latest()}\nfigures and plot: {args.output}")


def save_plot(path, history):
    """Draws losses and accuracies by step."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    steps = [row["step"] for row in history]
    for name in history[0]:
        if name == "step":
            continue
        axes = left if name.endswith("loss") else right
        axes.plot(steps, [row.get(name, math.nan) for row in history], ".-", label=name)
    left.set(title="loss", xlabel="step")
    right.set(title="accuracy", xlabel="step")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


# ---- the command line ------------------------------------------------------------------------


def parse_arguments():
    """Returns the arguments of the command line, checked."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--data", type=Path, nargs="+", help="plain text files, UTF-8; default a small sample")
    kinds = ("sentence", "paragraph", "document")
    add("--line", choices=kinds, default="sentence", help="what a line is, default %(default)s")
    add("--config", type=Path, help="config file; default a small ALBERT")
    add("--checkpoint", type=Path, help="checkpoint to go on from, whose config is --config")
    add("--vocab", type=Path, help="vocab.txt or SentencePiece .model; default one is made")
    add("--model", default="auto", help="family of --config, default %(default)s")
    add("--objective", choices=OBJECTIVES, default="masked_lm", help="default %(default)s")
    orders = ("sop", "nsp", "none")
    add("--sentences", choices=orders, help="order of sentences; default sop, ELECTRA none")
    add("--masking", help="how tokens are masked, such as ngram or bert; default ngram")
    add("--copies", type=int, default=10, help="masks of each text, default %(default)s")
    add("--vocab-size", type=int, default=4000, help="of a new vocabulary, default %(default)s")
    add("--generator-size", type=float, default=0.5, help="as a share, default %(default)s")
    starts = ("random", "neighbours")
    add("--start", choices=starts, default="neighbours", help="of a new table of tokens")
    add("--maxlen", type=int, default=64, help="tokens per row, default %(default)s")
    add("--batch-size", type=int, default=32, help="default %(default)s")
    add("--steps", type=int, default=1000, help="number of batches, default %(default)s")
    add("--every", type=int, help="steps between checkpoints, default a tenth of all")
    add("--keep", type=int, default=3, help="checkpoints to keep, default %(default)s")
    optimizers = ("lamb", "adamw", "electra")
    add("--optimizer", choices=optimizers, help="default lamb, for ELECTRA electra")
    add("--learning-rate", type=float, help="default that of the authors")
    add("--warmup", type=float, help="share of the steps; default that of the authors")
    add("--workers", type=int, help="processes that make records, default one a core")
    add("--tensorboard", type=Path, help="folder for TensorBoard")
    add("--seed", type=int, default=0, help="default %(default)s")
    add("--output", type=Path, default=HERE / "output" / "pretrain", help="folder")
    add("--quick", action="store_true", help="a tiny model, 20 steps")
    return checked(parser.parse_args())


def checked(args):
    """Returns the arguments with what follows from others filled in."""
    electra = args.objective == "electra"
    if args.checkpoint and not (args.config and args.vocab):
        raise UsageError("--checkpoint needs --config and --vocab, which belong to it")
    if args.quick:
        args.steps, args.every, args.maxlen, args.copies, args.workers = 20, 10, 32, 2, 1
    if args.tensorboard and find_spec("tensorboard") is None:
        raise UsageError("--tensorboard needs a package: pip install tensorboard")
    args.sentences = args.sentences or ("none" if electra else "sop")
    if electra and args.sentences != "none":
        raise UsageError("--objective electra has no sentence head: leave --sentences out")
    args.optimizer = args.optimizer or ("electra" if electra else "lamb")
    args.every = args.every or max(args.steps // 10, 1)
    if args.every < 1 or args.steps < 1 or args.steps % args.every:
        raise UsageError(f"--steps {args.steps} is no multiple of --every {args.every}")
    if min(args.batch_size, args.maxlen - 7, args.copies, args.keep) < 1:
        raise UsageError("expected positive numbers, and --maxlen of at least 8")
    if not 0 <= args.seed < 2**31:
        raise UsageError(f"--seed {args.seed}: expected a number from 0 to {2**31 - 1}")
    return args


def main():
    """Runs the example; a mistake of the user gives one line and exit status 2."""
    in_one_line("pretrain.py", lambda: run(parse_arguments()))


if __name__ == "__main__":
    main()

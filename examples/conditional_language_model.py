"""A language model that a label steers: it writes good or bad reviews, as asked.

    python examples/conditional_language_model.py
    python examples/conditional_language_model.py --train train.txt --valid dev.txt
    python examples/conditional_language_model.py --config bert_config.json \
        --checkpoint bert_model.ckpt --vocab vocab.txt --train train.txt --valid dev.txt

`application="lm"` makes a language model of any BERT, and `layer_norm_cond` lets a vector, here
one for each label, shift the scale and offset of all its layer norms (Su 2020,
https://kexue.fm/archives/7124). Such a model classifies, too: by the label under which a text is
likeliest. It is scored by how often that is right, and writes some texts under each label. Data
are lines of a text, a tab and its label, or JSON objects such as {"sentence": "…", "label": "…"}.
Without arguments it is a small BERT with random weights, on made-up reviews.
"""

import math
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from classifiers import Labelled, guessing, label_names, stand_in
from files import read_labelled
from keras import ops
from runs import Run, load_encoder, optimizer, starting_point, use_xla
from shared import UsageError, main, sample

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 256,
    "initializer_range": 0.12,  # about 1 / sqrt(hidden_size): 0.02 is for greater models
    "hidden_dropout_prob": 0.1,
    "max_position_embeddings": 64,
}
TINY = {**SIZES, "hidden_size": 48, "intermediate_size": 96, "initializer_range": 0.15}


def language_model(args, config, tokenizer, num_labels):
    """Returns a model of token ids (B, L) and labels (B, 1), with logits (B, L, V)."""
    label = keras.Input((1,), dtype="int32", name="Label")
    vectors = keras.layers.Embedding(num_labels, 32, name="Label-Vectors")(label)
    return load_encoder(
        args,
        config,
        tokenizer,
        application="lm",
        with_mlm="linear",
        segment_vocab_size=0,
        layer_norm_cond=keras.layers.Flatten(name="Label-Vector")(vectors),
        additional_input_layers=label,
    )


def encode(data, tokenizer, maxlen):
    """Returns the tokens (N, L) that are given, and those that follow each of them (N, L)."""
    ids, _ = tokenizer.encode_batch(data.texts, maxlen=maxlen)
    return ids[:, :-1], ids[:, 1:]


def train(model, data, tokenizer, args, session):
    """Trains the model: each token is predicted from those before it, and from the label."""
    given, following = encode(data, tokenizer, args.maxlen)
    steps = args.epochs * math.ceil(len(given) / args.batch_size)
    loss = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight"
    )
    model.compile(
        optimizer(args, steps), loss, weighted_metrics=[], jit_compile=use_xla(args, steps)
    )
    session.fit(
        model,
        [given, data.numbers[:, None]],
        y=following,
        sample_weight=(following != 0).astype("float32"),
        batch_size=args.batch_size,
    )


def losses_by_label(model, data, tokenizer, args, num_labels):
    """Returns the loss of each text under each label (N, C), and the number of its tokens (N,)."""
    targets = keras.Input((None,), dtype="int32", name="Targets")
    found = ops.log_softmax(model.output)  # (B, L, V)
    found = ops.take_along_axis(found, ops.expand_dims(targets, -1), axis=-1)
    found = ops.where(ops.not_equal(targets, 0), ops.squeeze(found, -1), 0.0)  # (B, L)
    scorer = keras.Model([*model.inputs, targets], -ops.sum(found, axis=1))
    given, following = encode(data, tokenizer, args.maxlen)
    losses = [
        scorer.predict([given, np.full((len(given), 1), label), following], 128, verbose=0)
        for label in range(num_labels)
    ]
    return np.stack(losses, axis=1), (following != 0).sum(axis=1)


def write(model, tokenizer, label, rng, maxlen=24):
    """Writes one text under a label: draws a token after the other until [SEP]."""
    start, end = (tokenizer.token_to_id(token) for token in ("[CLS]", "[SEP]"))
    ids = np.zeros((1, maxlen), "int32")  # of one length, for which the model is compiled once
    ids[0, 0] = start
    for size in range(1, maxlen):
        logits = model.predict_on_batch([ids, np.array([[label]])])[0, size - 1]
        likely = np.exp(2 * (logits.astype("float64") - logits.max()))  # sharper than they are
        ids[0, size] = rng.choice(len(likely), p=likely / likely.sum())
        if ids[0, size] == end:
            break
    return tokenizer.decode(ids[0, : size + 1].tolist())


def run(args):
    """Trains the model, and shows what the label does to it."""
    session = Run("conditional_language_model", args)
    rows, held_out = read_labelled(args.train), read_labelled(args.valid)
    if args.score < 1:
        raise UsageError(f"--score {args.score}: expected at least one text")
    labels, new = label_names(rows, held_out), np.flatnonzero(~stand_in(rows, held_out))
    chosen = np.random.default_rng(0).permutation(new)[: args.score]
    held_out = [held_out[i] for i in chosen]
    sizes = TINY if args.quick else SIZES
    texts = [text for text, _ in rows]
    config, tokenizer = starting_point(args, texts, 4 if len(rows) > 1000 else 1, **sizes)
    data, scored = Labelled(rows, labels), Labelled(held_out, labels)
    model = language_model(args, config, tokenizer, len(labels))
    train(model, data, tokenizer, args, session)

    losses, tokens = losses_by_label(model, scored, tokenizer, args, len(labels))
    own = losses[np.arange(len(losses)), scored.numbers]
    others = (losses.sum(axis=1) - own) / (len(labels) - 1)
    facts = {"own": own.sum() / tokens.sum(), "others": others.sum() / tokens.sum()}
    print(f"\nloss per token of {len(losses):,} held-out texts")
    print("under their label {own:.3f}, under another {others:.3f}".format(**facts))
    rng = np.random.default_rng(args.seed)
    for number, label in enumerate(labels):
        print(f"\n=== {label}", *(write(model, tokenizer, number, rng) for _ in range(3)), sep="\n")
    session.finish(
        model,
        {"likeliest under their label": np.mean(losses.argmin(axis=1) == scored.numbers)},
        guessing(data.numbers, scored.numbers),
        losses={name: round(float(value), 4) for name, value in facts.items()},
        scored=len(losses),
    )


if __name__ == "__main__":
    main(
        "conditional_language_model",
        run,
        description=__doc__.split("\n")[0],
        files={
            "train": (sample("short_reviews_train.tsv"), "texts to train on"),
            "valid": (sample("short_reviews_valid.tsv"), "texts to score"),
        },
        maxlen=64,
        epochs=(8, 30),
        quick_epochs=8,
        rates=(1e-4, 3e-3),
        options=[
            ("--score", {"type": int, "default": 2000, "help": "how many texts of --valid"}),
        ],
    )

"""A language model that a label steers: it writes good or bad reviews, as asked.

    python examples/conditional_language_model.py
    python examples/conditional_language_model.py --config bert_config.json \
        --checkpoint bert_model.ckpt --vocab vocab.txt --data my_texts.tsv

`application="lm"` makes a language model of any BERT, and `layer_norm_cond` lets a vector, here
one for each label, shift the scale and offset of all its layer norms (Su 2020,
https://kexue.fm/archives/7124). Of held-out texts it prints how well they are predicted under
their own label and under another, and it writes some of its own. Without arguments it is a small
one with random weights, on made-up reviews.
"""

import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from shared import UsageError, main, read_labelled, small_model

from kerasbert import build_transformer_model
from kerasbert.tokenizers import Tokenizer

DATA = Path(__file__).parent / "data" / "short_reviews.tsv"
SIZES = {"hidden_size": 48, "intermediate_size": 96, "max_position_embeddings": 64}


def language_model(args, config, num_labels):
    """Returns a compiled model of token ids (B, L) and labels (B, 1), with (B, L, V) outputs."""
    label = keras.Input((1,), dtype="int32", name="Label")
    vectors = keras.layers.Embedding(num_labels, 32, name="Label-Vectors")(label)
    model = build_transformer_model(
        config,
        args.checkpoint,
        application="lm",
        segment_vocab_size=0,
        layer_norm_cond=keras.layers.Flatten(name="Label-Vector")(vectors),
        additional_input_layers=label,
    )
    optimizer = keras.optimizers.AdamW(args.learning_rate, weight_decay=0.01, clipnorm=1.0)
    model.compile(optimizer, "sparse_categorical_crossentropy", weighted_metrics=[])
    return model


def examples_of(ids, labels):
    """Returns inputs, targets and weights: each token is predicted from those before it."""
    return [ids[:, :-1], labels[:, None]], ids[:, 1:], (ids[:, 1:] != 0).astype("float32")


def write(model, tokenizer, label, rng, maxlen=16):
    """Writes one text under a label: draws a token after the other until [SEP]."""
    ids = [tokenizer.token_to_id("[CLS]")]
    while len(ids) < maxlen and (len(ids) == 1 or ids[-1] != tokenizer.token_to_id("[SEP]")):
        given = np.array([ids], "int32")
        probabilities = model.predict_on_batch([given, np.array([[label]])])[0, -1]
        probabilities = probabilities.astype("float64") ** 2  # the likelier ones more often
        ids.append(int(rng.choice(len(probabilities), p=probabilities / probabilities.sum())))
    return tokenizer.decode(ids)


def run(args):
    """Trains the model, and prints what the label does to it."""
    pairs = read_labelled(args.data)
    labels = sorted({label for _, label in pairs})
    if len(labels) < 2:
        raise UsageError(f"{args.data} has {len(labels)} label: expected at least 2")
    pairs = [pairs[i] for i in np.random.default_rng(args.seed).permutation(len(pairs))]
    texts, numbers = [t for t, _ in pairs], np.array([labels.index(x) for _, x in pairs])
    if args.config:
        config, tokenizer = args.config, Tokenizer(args.vocab, do_lower_case=True)
    else:
        config, tokenizer = small_model(texts, **SIZES)
    keras.utils.set_random_seed(args.seed)
    model = language_model(args, config, len(labels))
    ids, _ = tokenizer.encode_batch(texts, maxlen=args.maxlen)

    held_out = max(len(pairs) // 6, 1)
    inputs, targets, weights = examples_of(ids[held_out:], numbers[held_out:])
    model.fit(
        inputs,
        targets,
        sample_weight=weights,
        batch_size=args.batch_size,
        epochs=args.epochs,
        verbose=2,
    )

    print("\nloss per token of held-out texts")
    for name, shift in (("under their label", 0), ("under another", 1)):
        given = (numbers[:held_out] + shift) % len(labels)
        inputs, targets, weights = examples_of(ids[:held_out], given)
        loss = model.evaluate(inputs, targets, sample_weight=weights, verbose=0)
        print(f"{name:<20}{loss:.3f}")
    rng = np.random.default_rng(args.seed)
    for number, label in enumerate(labels):
        print(f"\n=== {label}")
        for _ in range(3):
            print(write(model, tokenizer, number, rng))


if __name__ == "__main__":
    main(
        "conditional_language_model",
        run,
        description=__doc__.split("\n")[0],
        data=DATA,
        maxlen=64,
        epochs=30,
        quick_epochs=8,
        rates=(1e-4, 5e-3),
    )

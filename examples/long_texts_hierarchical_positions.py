"""Classifies texts that are longer than the position table of the checkpoint.

    python examples/long_texts_hierarchical_positions.py
    python examples/long_texts_hierarchical_positions.py --config bert_config.json \
        --checkpoint bert_model.ckpt --vocab vocab.txt --data my_texts.tsv --maxlen 2048

A table of 512 positions serves up to 512 * 512 with `hierarchical_position` (Su 2020,
https://kexue.fm/archives/7947). The same encoder is fine-tuned twice: on texts that are cut to
the table, and on whole ones. Without arguments it is a small one with random weights and 16
positions, on made-up reviews of up to 64 characters whose last sentence tells the label.
"""

import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from shared import main, read_labelled, small_model

from kerasbert import build_transformer_model
from kerasbert.tokenizers import Tokenizer

DATA = Path(__file__).parent / "data" / "long_reviews.tsv"
SIZES = {
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 16,
}


def classifier(args, config, num_labels, hierarchical):
    """Returns a compiled classifier, and the number of positions its encoder tells apart."""
    keras.utils.set_random_seed(args.seed)
    builder = build_transformer_model(
        config,
        args.checkpoint,
        hierarchical_position=hierarchical,
        with_pool=True,
        strict=False,  # a checkpoint without pooler will do, it starts fresh with a warning
        return_keras_model=False,
    )
    pooled = keras.layers.Dropout(0.1)(builder.output)
    probabilities = keras.layers.Dense(num_labels, activation="softmax", dtype="float32")(pooled)
    model = keras.Model(builder.inputs, probabilities)
    optimizer = keras.optimizers.AdamW(args.learning_rate, weight_decay=0.01, clipnorm=1.0)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model, builder.config.position_limit


def run(args):
    """Fine-tunes one encoder on cut and on whole texts, and prints both accuracies."""
    pairs = read_labelled(args.data)
    labels = sorted({label for _, label in pairs})
    pairs = [pairs[i] for i in np.random.default_rng(args.seed).permutation(len(pairs))]
    held_out = max(len(pairs) // 5, 1)
    texts, numbers = [t for t, _ in pairs], np.array([labels.index(x) for _, x in pairs])
    if args.config:
        config, tokenizer = args.config, Tokenizer(args.vocab, do_lower_case=True)
    else:
        config, tokenizer = small_model(
            texts,
            hidden_size=32,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=16,
        )

    results = {}
    for name, hierarchical in (("cut to the table", None), ("whole texts", True)):
        model, limit = classifier(args, config, len(labels), hierarchical)
        maxlen = min(args.maxlen, limit)
        ids, segments = tokenizer.encode_batch(texts, maxlen=maxlen)
        print(f"\n=== {name}: {ids.shape[1]} tokens of at most {limit:,}")
        history = model.fit(
            [ids[held_out:], segments[held_out:]],
            numbers[held_out:],
            validation_data=([ids[:held_out], segments[:held_out]], numbers[:held_out]),
            batch_size=args.batch_size,
            epochs=args.epochs,
            verbose=2,
        )
        results[name] = (ids.shape[1], history.history["val_accuracy"][-1])
    print(f"\n{'texts':<20}{'tokens':>8}{'validation accuracy':>22}")
    for name, (length, accuracy) in results.items():
        print(f"{name:<20}{length:>8}{accuracy:>22.1%}")


if __name__ == "__main__":
    main(
        "long_texts",
        run,
        description=__doc__.split("\n")[0],
        data=DATA,
        maxlen=2048,
        epochs=12,
        quick_epochs=2,
        rates=(3e-5, 3e-3),
    )

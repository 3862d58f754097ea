"""Classifies texts that are longer than the position table of the model.

    python examples/long_texts_hierarchical_positions.py
    python examples/long_texts_hierarchical_positions.py --train train.json --valid dev.json
    python examples/long_texts_hierarchical_positions.py --config bert_config.json \
        --checkpoint bert_model.ckpt --vocab vocab.txt --train … --valid … --maxlen 2048

A table of n positions serves up to n * n with `hierarchical_position` (Su 2020,
https://kexue.fm/archives/7947). The same encoder is trained twice: on texts that are cut to the
table, and on whole ones. Data are lines of a text, a tab and its label, or JSON objects such as
{"sentence": "…", "label_des": "…"}. Without a checkpoint it is a small BERT with random weights
and a table of 32 positions; without arguments at all, on made-up reviews of up to 69 characters
whose last sentence tells the label.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
from classifiers import Labelled, add_head, compile_classifier, guessing, label_names
from files import read_labelled
from runs import Run, load_encoder, starting_point
from shared import UsageError, main, sample

from kerasbert.data import TextInputs
from kerasbert.layers import GlobalAveragePooling1D

SIZES = {
    "num_hidden_layers": 1,
    "hidden_size": 64,
    "num_attention_heads": 2,
    "intermediate_size": 128,
    "initializer_range": 0.12,  # about 1 / sqrt(hidden_size): 0.02 is for greater models
    "hidden_dropout_prob": 0.2,
    "max_position_embeddings": 32,
}


def classifier(args, config, tokenizer, num_labels, hierarchical):
    """Returns a classifier, and the number of positions that its encoder tells apart."""
    # Both models start with the same weights.
    keras.utils.set_random_seed(args.seed)
    encoder = load_encoder(args, config, tokenizer, hierarchical_position=hierarchical)
    limit = TextInputs.of(encoder).max_length
    if limit is None:
        raise UsageError("the model has no table of positions: it takes long texts as it is")
    features = GlobalAveragePooling1D()(encoder.output)
    return add_head(encoder, features, num_labels, dropout=0.3), limit


def run(args):
    """Trains one encoder on cut and on whole texts, and scores both."""
    session = Run("long_texts_hierarchical_positions", args)
    train, valid = read_labelled(args.train), read_labelled(args.valid)
    labels = label_names(train, valid)
    texts = [text for text, _ in train]
    config, tokenizer = starting_point(args, texts, 2 if len(train) > 1000 else 1, **SIZES)
    train, valid, scores, tokens = Labelled(train, labels), Labelled(valid, labels), {}, {}
    for name, hierarchical in (("whole texts", True), ("cut to the table", None)):
        model, limit = classifier(args, config, tokenizer, len(labels), hierarchical)
        compile_classifier(model, args, len(train.texts))
        options = {"maxlen": min(args.maxlen, limit)}
        data = train.batches(model, tokenizer, args, **options)
        tokens[name] = int(data.rows.lengths.max())
        print(f"\n=== {name}: {tokens[name]} tokens of at most {limit:,}")
        history = session.fit(
            model,
            data,
            label=name,
            validation_data=valid.batches(model, tokenizer, args, shuffle=False, **options),
        )
        scores[f"accuracy, {name}"] = history["val_accuracy"][-1]
    guess = guessing(train.numbers, valid.numbers)
    session.finish(model, scores, guess, curve="accuracy", tokens=tokens, labels=len(labels))


if __name__ == "__main__":
    main(
        "long_texts_hierarchical_positions",
        run,
        description=__doc__.split("\n")[0],
        files={
            "train": (sample("long_reviews_train.tsv"), "texts to train on"),
            "valid": (sample("long_reviews_valid.tsv"), "texts to score"),
        },
        maxlen=2048,
        epochs=(10, 20),
        quick_epochs=15,
        rates=(None, 3e-3),
    )

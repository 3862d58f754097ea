"""Named entities in Chinese texts: a conditional random field on top of an encoder.

    python examples/sequence_labeling_ner_crf.py
    python examples/sequence_labeling_ner_crf.py --train train.char.bmes --valid dev.char.bmes
    python examples/sequence_labeling_ner_crf.py --config bert_config.json \
        --checkpoint bert_model.ckpt --vocab vocab.txt --train … --valid …

Each token has a tag in BIO form, and the best sequence of tags is searched for (Lample et al.
2016, arXiv:1603.01360). Whole entities count, in the original text. For the two forms of data see
`read_entities`. Without files it trains a small model with random weights on made-up sentences.
"""

import os
from functools import partial

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from entities import (
    characters_of,
    in_characters,
    in_tokens,
    known_names,
    print_found,
    read_entities,
    tags_of,
    types_of,
)
from runs import Run, ScoreByEpoch, batching, load_encoder, optimizer, starting_point, use_xla
from seqeval.metrics import classification_report, f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import IOB2
from shared import main, sample

from kerasbert.data import BucketedDataset, sequence_padding
from kerasbert.layers import ConditionalRandomField
from kerasbert.prediction import predict_texts

NAME = "sequence_labeling_ner_crf"
STRICT = {"mode": "strict", "scheme": IOB2, "zero_division": 0}


def add_crf(encoder, num_tags):
    """Returns a model of the scores of each token's tags."""
    hidden = keras.layers.Dropout(0.1)(encoder.output)
    scores = keras.layers.Dense(num_tags, dtype="float32")(hidden)
    crf = ConditionalRandomField(dtype="float32", name="crf")
    return keras.Model(encoder.inputs, crf(scores))


def compile_model(model, steps, args):
    """Compiles a model for so many steps."""
    # At the rates of fine-tuning the transitions would hardly move.
    faster = {"^crf/": max(0.01 / args.learning_rate, 1.0)}
    loss = model.get_layer("crf").sparse_loss
    model.compile(
        optimizer(args, steps, multipliers=faster), loss, jit_compile=use_xla(args, steps)
    )


def token_labels(pairs, characters, tags):
    """Returns the numbers of the tags of all tokens, a list for each text."""
    rows = [
        tags_of(in_tokens(entities, where), len(where))
        for (_, entities), where in zip(pairs, characters, strict=True)
    ]
    return [[tags.index(tag) for tag in row] for row in rows]


def find_entities(model, tokenizer, texts, tags, maxlen):
    """Returns the set of entities that the model finds in each text."""
    settings = {"maxlen": maxlen, "verbose": 0, "jit_compile": False}
    scores = predict_texts(model, tokenizer, texts, **settings)
    real = sequence_padding([np.ones(len(row)) for row in scores])
    paths = keras.ops.convert_to_numpy(
        model.get_layer("crf").decode(sequence_padding(scores), real)
    )
    return [
        in_characters(get_entities([tags[n] for n in path[: len(where)]]), where)
        for path, where in zip(paths, characters_of(texts, tokenizer, maxlen), strict=True)
    ]


def tag_texts(texts, entities):
    """Returns the tags of all characters, in the form that seqeval compares."""
    return [tags_of(found, len(text)) for text, found in zip(texts, entities, strict=True)]


def run(args):
    """Trains a model, and scores the entities that it finds."""
    train, valid = read_entities(args.train), read_entities(args.valid)
    types = types_of(train, valid)
    tags = ["O", *(f"{place}-{kind}" for kind in types for place in "BI")]
    print(f"{len(train):,} texts to train on, {len(valid):,} for validation; {types}")
    session = Run(NAME, args)
    texts = [text for text, _ in train]
    config, tokenizer = starting_point(args, texts, at_least=2, **sizes(args))
    model = add_crf(load_encoder(args, config, tokenizer), len(tags))
    labels = token_labels(train, characters_of(texts, tokenizer, args.maxlen), tags)
    options = {**batching(args, len(texts)), "token_label_padding": -1}
    data = BucketedDataset(model, tokenizer, texts, token_labels=labels, **options)
    compile_model(model, args.epochs * len(data), args)

    texts, expected = zip(*valid, strict=True)
    right = tag_texts(texts, expected)
    settings = {"tokenizer": tokenizer, "texts": texts, "tags": tags, "maxlen": args.maxlen}
    find = partial(find_entities, **settings)
    f1 = partial(f1_score, right, **STRICT)
    by_epoch = ScoreByEpoch("F1", lambda model: f1(tag_texts(texts, find(model))))
    session.fit(model, data, callbacks=[by_epoch])

    found = find(model)
    tagged = tag_texts(texts, found)
    print("\n", classification_report(right, tagged, **STRICT, digits=3))
    for n in range(min(len(texts), 3)):
        print_found(texts[n], found[n], expected[n])
    measures = {"F1": f1_score, "precision": precision_score, "recall": recall_score}
    scores = {name: measure(right, tagged, **STRICT) for name, measure in measures.items()}
    guess = f1(tag_texts(texts, known_names(train, texts)))
    model.save(args.output / f"{NAME}.keras")
    session.finish(model, scores, guess, texts=len(train), entities=sum(map(len, expected)))


def sizes(args):
    """Returns the sizes of the model with random weights."""
    hidden_size = 32 if args.quick else 96
    return {
        "model_type": "roformer",
        "hidden_size": hidden_size,
        "num_hidden_layers": 1 if args.quick else 3,
        "num_attention_heads": 4,
        "intermediate_size": 2 * hidden_size,
        "initializer_range": 0.1,  # about 1 / sqrt(hidden_size): 0.02 is for greater models
    }


if __name__ == "__main__":
    main(
        NAME,
        run,
        description=__doc__.split("\n")[0],
        files={
            "train": (sample("ner_train.txt"), "texts to train on"),
            "valid": (sample("ner_valid.txt"), "texts to score"),
        },
        maxlen=128,
        epochs=(10, 20),
        quick_epochs=12,
        rates=(3e-5, 2e-3),
        batch_size=16,
    )

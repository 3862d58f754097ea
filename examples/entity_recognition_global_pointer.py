"""Named entities, nested ones included: GlobalPointer on top of an encoder.

    python examples/entity_recognition_global_pointer.py
    python examples/entity_recognition_global_pointer.py --train train.json --valid dev.json
    python examples/entity_recognition_global_pointer.py --config bert_config.json \
        --checkpoint bert_model.ckpt --vocab vocab.txt --train … --valid …

Every span of a text has a score for each type, above 0 for an entity (Su et al. 2022,
arXiv:2208.03054). For the two forms of data see `read_entities`; JSON can tell of the place 北京
in the organization 北京大学. Without files it trains a small model with random weights on
made-up sentences.
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
    types_of,
)
from keras import ops
from runs import Run, ScoreByEpoch, batching, load_encoder, optimizer, starting_point
from shared import main, sample
from sklearn.metrics import classification_report, precision_recall_fscore_support

from kerasbert.data import BucketedDataset
from kerasbert.layers import EfficientGlobalPointer, GlobalPointer
from kerasbert.losses import sparse_multilabel_categorical_crossentropy
from kerasbert.prediction import predict_texts

NAME = "entity_recognition_global_pointer"


def add_pointer(encoder, num_types, args):
    """Returns a model that scores every span of a text for every type, (B, types, L, L)."""
    layer = EfficientGlobalPointer if args.efficient else GlobalPointer
    hidden = keras.layers.Dropout(0.1)(encoder.output)
    # The Keras mask of the hidden states tells the layer where padding is.
    scores = layer(heads=num_types, head_size=args.head_size, dtype="float32")(hidden)
    return keras.Model(encoder.inputs, scores)


def places_of(pairs, characters, types):
    """Returns first and last token of all entities, an int array (N, types, P, 2).

    Places that are left over are 0: [CLS] alone, which is no entity.
    """
    tokens = [
        in_tokens(entities, where) for (_, entities), where in zip(pairs, characters, strict=True)
    ]
    rows = [[[e[1:] for e in found if e[0] == kind] for kind in types] for found in tokens]
    most = max(len(places) for row in rows for places in row)
    array = np.zeros((len(rows), len(types), max(most, 1), 2), "int32")
    for filled, row in zip(array, rows, strict=True):
        for kind, places in enumerate(row):
            filled[kind, : len(places)] = np.reshape(places, (-1, 2))
    return array


def span_loss(places, scores):
    """Returns the loss (B, types) of scores (B, types, L, L), given `places_of` the entities."""
    batch, types, length, _ = ops.shape(scores)
    places = ops.cast(places, "int32")
    return sparse_multilabel_categorical_crossentropy(
        places[..., 0] * length + places[..., 1],
        ops.reshape(scores, (batch, types, length * length)),
        mask_zero=True,
    )


def find_entities(model, tokenizer, texts, types, maxlen):
    """Returns the set of entities that the model finds in each text."""
    settings = {"maxlen": maxlen, "verbose": 0, "jit_compile": False}
    scores = predict_texts(model, tokenizer, texts, **settings)
    return [
        in_characters([(types[kind], i, j) for kind, i, j in np.argwhere(row > 0).tolist()], where)
        for row, where in zip(scores, characters_of(texts, tokenizer, maxlen), strict=True)
    ]


def aligned(expected, found):
    """Returns the types of all entities of either side, and "" where the other side lacks them.

    Args:
        expected: a set of entities for each text.
        found: the same.

    Returns:
        Two lists, as scikit-learn compares them.
    """
    rows = [
        [entity[0] if entity in side else "" for side in (right, seen)]
        for right, seen in zip(expected, found, strict=True)
        for entity in right | seen
    ]
    return [first for first, _ in rows], [second for _, second in rows]


def measure(expected, found, types):
    """Returns precision, recall and F1 over all entities of all texts."""
    settings = {"labels": types, "average": "micro", "zero_division": 0}
    return precision_recall_fscore_support(*aligned(expected, found), **settings)[:3]


def run(args):
    """Trains a model, and scores the entities that it finds."""
    train, valid = read_entities(args.train), read_entities(args.valid)
    types = types_of(train, valid)
    print(f"{len(train):,} texts to train on, {len(valid):,} for validation; {types}")
    session = Run(NAME, args)
    texts = [text for text, _ in train]
    config, tokenizer = starting_point(args, texts, at_least=2, **sizes(args))
    model = add_pointer(load_encoder(args, config, tokenizer), len(types), args)
    labels = places_of(train, characters_of(texts, tokenizer, args.maxlen), types)
    data = BucketedDataset(model, tokenizer, texts, labels, **batching(args, len(texts)))
    steps = args.epochs * len(data)
    model.compile(optimizer(args, steps), span_loss, jit_compile=not args.quick)

    texts, expected = zip(*valid, strict=True)
    settings = {"tokenizer": tokenizer, "texts": texts, "types": types, "maxlen": args.maxlen}
    find = partial(find_entities, **settings)
    by_epoch = ScoreByEpoch("F1", lambda model: measure(expected, find(model), types)[2])
    session.fit(model, data, callbacks=[by_epoch])

    found = find(model)
    settings = {"labels": types, "zero_division": 0, "digits": 3}
    print("\n", classification_report(*aligned(expected, found), **settings))
    most = max(range(len(texts)), key=lambda n: len(expected[n]))
    print_found(texts[most], found[most], expected[most])
    precision, recall, f1 = measure(expected, found, types)
    scores = {"F1": f1, "precision": precision, "recall": recall}
    guess = measure(expected, known_names(train, texts), types)[2]
    # Without the loss, which is of this file, any process can load it.
    keras.Model(model.inputs, model.output).save(args.output / f"{NAME}.keras")
    session.finish(model, scores, guess, texts=len(train), entities=sum(map(len, expected)))


def sizes(args):
    """Returns the sizes of the model with random weights."""
    hidden_size = 32 if args.quick else 128
    return {
        "model_type": "roformer",
        "hidden_size": hidden_size,
        "num_hidden_layers": 1 if args.quick else 2,
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
            "train": (sample("entities_train.jsonl"), "texts to train on"),
            "valid": (sample("entities_valid.jsonl"), "texts to score"),
        },
        maxlen=64,
        epochs=(6, 60),
        quick_epochs=30,
        rates=(3e-5, 2e-3),
        options=[
            ("--efficient", {"action": "store_true", "help": "EfficientGlobalPointer, smaller"}),
            ("--head-size", {"type": int, "default": 64, "help": "default %(default)s"}),
        ],
    )

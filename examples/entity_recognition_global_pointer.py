"""Named entities, nested ones included, with GlobalPointer on top of an encoder.

    python examples/entity_recognition_global_pointer.py
    python examples/entity_recognition_global_pointer.py --config bert_config.json \
        --checkpoint bert_model.ckpt --vocab vocab.txt --train train.json --valid dev.json

Without files it trains a small encoder with random weights on made-up sentences, in which the
place 北京 stands inside the organization 北京大学. Files of data hold JSON objects such as
{"text": "他在北京", "label": {"place": {"北京": [[2, 3]]}}}, one after the other; the numbers
are the first and the last character.
"""

import argparse
import json
import math
import os
import sys
from collections import Counter
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

from kerasbert import build_transformer_model
from kerasbert.errors import KerasbertError
from kerasbert.layers import EfficientGlobalPointer, GlobalPointer
from kerasbert.losses import global_pointer_crossentropy
from kerasbert.tokenizers import SpTokenizer, Tokenizer

SAMPLE = Path(__file__).parent / "data" / "entities.jsonl"


class UsageError(ValueError):
    """What was asked for cannot be done; the message is for the user."""


# ---- data ------------------------------------------------------------------------------------


def read_entities(path):
    """Returns pairs (text, entities); an entity is (type, first character, last character)."""
    try:
        content, place, pairs = path.read_text("utf-8-sig").strip(), 0, []
        while place < len(content):
            entry, place = json.JSONDecoder().raw_decode(content, place)
            while content[place : place + 1].isspace():
                place += 1
            pairs.append((entry["text"], entities_of(entry)))
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8: {error}") from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UsageError(
            f'{path}, object {len(pairs) + 1}: expected {{"text": "...", "label": '
            f'{{"type": {{"entity": [[first, last]]}}}}}}: {error}'
        ) from error
    if not any(entities for _, entities in pairs):
        raise UsageError(f"{path}: {len(pairs)} texts without any entity")
    return pairs


def entities_of(entry):
    """Returns the entities of one JSON object."""
    found = set()
    for kind, names in entry.get("label", {}).items():
        for spans in names.values():
            for first, last in spans:
                if not 0 <= first <= last < len(entry["text"]):
                    raise ValueError(f"no characters {first} to {last} in {entry['text']!r}")
                found.add((kind, first, last))
    return found


def read_data(args):
    """Returns texts to train on and texts to validate on: the user's, or the sample."""
    if args.train:
        return read_entities(args.train), read_entities(args.valid)
    pairs = read_entities(SAMPLE)
    return [p for n, p in enumerate(pairs) if n % 6], pairs[::6]


class Batches(keras.utils.PyDataset):
    """Batches of (model inputs, labels (B, types, L, L)); labels are made when needed."""

    def __init__(self, pairs, tokenizer, types, args, shuffle=False):
        super().__init__()
        self.types, self.maxlen, self.batch_size = types, args.maxlen, args.batch_size
        self.entities = [entities for _, entities in pairs]
        tokens = [tokenizer.tokenize(text, maxlen=args.maxlen) for text, _ in pairs]
        self.ids = [tokenizer.tokens_to_ids(row) for row in tokens]
        # For each token the characters it stands for, to find entities and to name them again.
        self.characters = [
            tokenizer.rematch(text, row) for (text, _), row in zip(pairs, tokens, strict=True)
        ]
        self.order = np.arange(len(pairs))
        self.random = np.random.default_rng(args.seed) if shuffle else None
        self.on_epoch_end()

    def __len__(self):
        return math.ceil(len(self.order) / self.batch_size)

    def on_epoch_end(self):
        """Puts the texts in a new order."""
        if self.random is not None:
            self.random.shuffle(self.order)

    def chosen(self, index):
        """Returns the numbers of the texts of a batch."""
        return self.order[index * self.batch_size : (index + 1) * self.batch_size]

    def __getitem__(self, index):
        texts = self.chosen(index)
        ids = np.zeros((len(texts), self.maxlen), "int32")
        labels = np.zeros((len(texts), len(self.types), self.maxlen, self.maxlen), "float32")
        for row, text in enumerate(texts):
            ids[row, : len(self.ids[text])] = self.ids[text]
            starts = {place[0]: n for n, place in enumerate(self.characters[text]) if place}
            ends = {place[-1]: n for n, place in enumerate(self.characters[text]) if place}
            for kind, first, last in self.entities[text]:
                # Cut off, or in the middle of a token: such an entity cannot be found.
                if kind in self.types and first in starts and last in ends:
                    labels[row, self.types.index(kind), starts[first], ends[last]] = 1
        return (ids, np.zeros_like(ids)), labels


# ---- model -----------------------------------------------------------------------------------


def prepare(args, texts):
    """Returns an encoder and its tokenizer: the user's, or small ones with random weights."""
    if args.config:
        kind = SpTokenizer if args.vocab.suffix == ".model" else Tokenizer
        tokenizer = kind(args.vocab, do_lower_case=True)
        encoder = build_transformer_model(args.config, args.checkpoint, args.model)
    else:
        counts = Counter(char for text in texts for char in text.lower() if not char.isspace())
        tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        tokens += [char for char, count in counts.most_common() if count > 1]
        tokenizer = Tokenizer({token: n for n, token in enumerate(tokens)}, do_lower_case=True)
        size = 32 if args.quick else 128
        config = {
            "vocab_size": len(tokens),
            "hidden_size": size,
            "num_hidden_layers": 1 if args.quick else 2,
            "num_attention_heads": 2,
            "intermediate_size": 2 * size,
            "hidden_act": "gelu",
            "max_position_embeddings": max(args.maxlen, 64),
        }
        encoder = build_transformer_model(config, model="bert")
    if tokenizer.vocab_size > (rows := encoder.get_layer("Embedding-Token").input_dim):
        raise UsageError(f"--vocab has {tokenizer.vocab_size} tokens, the model only {rows}")
    if len(encoder.inputs) != 2:
        raise UsageError(f"expected an encoder of tokens and segments, got {encoder.input_names}")
    return encoder, tokenizer


def add_pointer(encoder, num_types, steps, args):
    """Returns a compiled model that scores every span of a text for every type."""
    layer = EfficientGlobalPointer if args.efficient else GlobalPointer
    # The Keras mask of the encoder's output tells the layer where padding is.
    scores = layer(heads=num_types, head_size=args.head_size)(encoder.output)
    model = keras.Model(encoder.inputs, scores)
    warm_up = max(steps // 10, 1)
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, max(steps - warm_up, 1), warmup_target=args.learning_rate, warmup_steps=warm_up
    )
    model.compile(keras.optimizers.Adam(schedule, clipnorm=1.0), global_pointer_crossentropy)
    return model


# ---- evaluation ------------------------------------------------------------------------------


def find_entities(model, batches):
    """Returns the entities that the model finds, a set for each text."""
    found = [set() for _ in batches.order]
    for index in range(len(batches)):
        scores = model.predict_on_batch(batches[index][0])  # (B, types, L, L)
        for row, kind, start, end in np.argwhere(scores > 0).tolist():
            text = batches.chosen(index)[row]
            characters = batches.characters[text]
            if characters[start] and characters[end]:  # no [CLS] and no [SEP]
                entity = (batches.types[kind], characters[start][0], characters[end][-1])
                found[text].add(entity)
    return found


def measure(found, expected, kinds):
    """Returns precision, recall and F1 over the entities of these kinds, of all texts together."""
    found, expected = (
        {
            (n, *entity)
            for n, entities in enumerate(texts)
            for entity in entities
            if entity[0] in kinds
        }
        for texts in (found, expected)
    )
    hits = len(found & expected)
    f1 = 2 * hits / max(len(found) + len(expected), 1)
    return hits / max(len(found), 1), hits / max(len(expected), 1), f1


class Evaluation(keras.callbacks.Callback):
    """Measures F1 on the validation texts after each epoch, and keeps the best weights."""

    def __init__(self, batches):
        super().__init__()
        self.batches, self.best, self.weights = batches, -1.0, None

    def on_epoch_end(self, epoch, logs=None):
        """Adds F1 to what Keras reports of the epoch."""
        found = find_entities(self.model, self.batches)
        f1 = logs["val_f1"] = measure(found, self.batches.entities, set(self.batches.types))[-1]
        print(f" - F1 on the validation texts: {f1:.1%}")
        if f1 > self.best:
            self.best, self.weights = f1, self.model.get_weights()

    def on_train_end(self, logs=None):
        """Goes back to the weights of the best epoch."""
        self.model.set_weights(self.weights)


def print_table(found, expected, types):
    """Prints precision, recall and F1 for each type and for all together."""
    print(f"\n{'type':<20}{'entities':>10}{'precision':>12}{'recall':>10}{'F1':>10}")
    for name, kinds in [*((kind, {kind}) for kind in types), ("all", set(types))]:
        count = sum(entity[0] in kinds for entities in expected for entity in entities)
        numbers = [f"{number:.1%}" for number in measure(found, expected, kinds)]
        print(f"{name:<20}{count:>10,}{numbers[0]:>12}{numbers[1]:>10}{numbers[2]:>10}")


def print_one(pairs, found, limit=8):
    """Prints the text that has most entities, and what was found in it."""
    best = max(range(len(pairs)), key=lambda n: len(pairs[n][1]))
    text, expected = pairs[best]
    print(f"\n{text}")
    for kind, first, last in sorted(found[best], key=lambda entity: entity[1:])[:limit]:
        right = "right" if (kind, first, last) in expected else "wrong"
        print(f"  {right}  {kind}: {text[first : last + 1]} [{first}, {last}]")


def run(args):
    """Trains, measures and saves a model."""
    train, valid = read_data(args)
    types = sorted({kind for _, entities in train + valid for kind, *_ in entities})
    print(f"{len(train):,} texts to train on, {len(valid):,} for validation, types: {types}")
    keras.utils.set_random_seed(args.seed)
    encoder, tokenizer = prepare(args, [text for text, _ in train])
    training = Batches(train, tokenizer, types, args, shuffle=True)
    validation = Batches(valid, tokenizer, types, args)
    model = add_pointer(encoder, len(types), args.epochs * len(training), args)
    print(f"{model.layers[-1].count_params():,} parameters in {type(model.layers[-1]).__name__}")
    model.fit(
        training,
        epochs=args.epochs,
        callbacks=[Evaluation(validation)],
        verbose=1 if sys.stdout.isatty() else 2,
    )
    found = find_entities(model, validation)
    print_table(found, validation.entities, types)
    print_one(valid, found)
    args.output.mkdir(parents=True, exist_ok=True)
    model.save(args.output / "entity_recognition.keras")
    print(f"\nmodel: {args.output / 'entity_recognition.keras'}")


# ---- command line ----------------------------------------------------------------------------


def parse_arguments():
    """Returns the arguments of the command line, checked."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--config", type=Path, help="config file of a checkpoint, such as bert_config.json")
    add("--checkpoint", type=Path, help="the checkpoint: a prefix, a file or a folder")
    add("--vocab", type=Path, help="its vocab.txt, or its SentencePiece .model")
    add("--model", default="auto", help="as for build_transformer_model, default %(default)s")
    add("--train", type=Path, help="file of JSON objects to train on")
    add("--valid", type=Path, help="the same, to measure F1 on")
    add("--efficient", action="store_true", help="EfficientGlobalPointer: fewer parameters")
    add("--head-size", type=int, default=64, help="default %(default)s")
    add("--maxlen", type=int, default=64, help="tokens per text, default %(default)s")
    add("--epochs", type=int, help="default 5, or 30 for the sample")
    add("--batch-size", type=int, default=16, help="default %(default)s")
    add("--learning-rate", type=float, help="default 3e-5, or 2e-3 for random weights")
    add("--seed", type=int, default=0, help="of weights and batches, default %(default)s")
    add("--output", type=Path, default=Path(__file__).parent / "output", help="folder")
    add("--quick", action="store_true", help="one epoch, and a tiny model unless one is given")
    args = parser.parse_args()
    if args.quick or args.epochs is None:
        args.epochs = 1 if args.quick else 5 if args.train else 30
    if args.learning_rate is None:
        args.learning_rate = 3e-5 if args.config else 2e-3
    if len({value is None for value in (args.config, args.checkpoint, args.vocab)}) > 1:
        raise UsageError("--config, --checkpoint and --vocab belong together: give all or none")
    if (args.train is None) != (args.valid is None):
        raise UsageError("--train and --valid belong together: give both or none")
    positive = (args.epochs, args.batch_size, args.maxlen - 2, args.learning_rate)
    if not all(0 < number < math.inf for number in positive):
        raise UsageError("expected positive numbers, and --maxlen of at least 3")
    if not 0 <= args.seed < 2**32:
        raise UsageError(f"--seed {args.seed}: expected a number from 0 to {2**32 - 1}")
    return args


def main():
    """Runs the example; a mistake of the user gives one line and exit status 2."""
    try:
        run(parse_arguments())
    except (UsageError, KerasbertError, OSError) as error:
        name = "entity_recognition_global_pointer.py"
        print(f"{name}: error:", *str(error).split("\n"), file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

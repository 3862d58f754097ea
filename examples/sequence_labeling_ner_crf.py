"""Named entities in Chinese texts: BERT or ALBERT, with a conditional random field on top.

    python examples/sequence_labeling_ner_crf.py --quick
    python examples/sequence_labeling_ner_crf.py --config bert_config.json \
        --checkpoint bert_model.ckpt --vocab vocab.txt --train train.txt --valid dev.txt

A data file has a character, a blank and its tag on each line, and an empty line between
sentences; tags are in BIO, BMES or BIOES form. Or it is a stream of JSON objects such as
{"text": "张伟在北京", "label": {"name": {"张伟": [[0, 1]]}}}, both ends included, as in CLUENER.
"""

import argparse
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

from kerasbert import build_transformer_model
from kerasbert.errors import KerasbertError
from kerasbert.layers import ConditionalRandomField
from kerasbert.tokenizers import Tokenizer

HERE = Path(__file__).parent
CRF_LR_MULTIPLIER = 1000  # at fine-tuning rates the transitions would hardly move
QUICK_CONFIG = {
    "hidden_size": 64,
    "embedding_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "hidden_act": "gelu",
    "max_position_embeddings": 128,
}


class UsageError(ValueError):
    """What was asked for cannot be done; the message is for the user."""


# ---- data: pairs of a text and its entities, (first character, last character, type) ------------


def read_data(path):
    """Returns the pairs (text, set of entities) of a file."""
    try:
        content = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8: {error}") from error
    reader = read_json if content.lstrip().startswith("{") else read_columns
    data = list(reader(path, content))
    if not any(entities for _, entities in data):
        raise UsageError(f"{path} has {len(data)} sentences without any entity")
    return data


def read_json(path, content):
    """Yields the pairs of a stream of JSON objects."""
    decoder, position = json.JSONDecoder(), 0
    while content[position:].strip():
        position += len(content[position:]) - len(content[position:].lstrip())
        try:
            item, position = decoder.raw_decode(content, position)
            yield (
                item["text"],
                {
                    (first, last, kind)
                    for kind, names in item["label"].items()
                    for spans in names.values()
                    for first, last in spans
                },
            )
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise UsageError(f"{path}, character {position}: {error!r}") from error


def read_columns(path, content):
    """Yields the pairs of a file with a character and its tag on each line."""
    text, tags = "", []
    for number, line in enumerate([*content.split("\n"), ""], start=1):
        parts = line.split()
        if len(parts) == 2 and len(parts[0]) == 1:
            text += parts[0]
            tags.append(parts[1])
        elif parts:
            raise UsageError(f"{path}, line {number}: expected a character and a tag: {line!r}")
        elif text:
            yield text, entities_of(tags, [[i] for i in range(len(text))])
            text, tags = "", []


def entities_of(tags, characters):
    """Returns the entities of a row of tags, given the characters that each tag is for."""
    entities, begun = set(), None
    for tag, where in zip(tags, characters, strict=True):
        place, _, kind = tag.partition("-")
        if begun and place in "IME" and kind == begun[2] and where:
            begun = (begun[0], where[-1], kind)
        else:
            entities |= {begun} if begun else set()
            # One that has no beginning is taken from where it goes on.
            begun = (where[0], where[-1], kind) if kind and where else None
    return entities | ({begun} if begun else set())


def encode(data, tokenizer, tags, maxlen):
    """Returns model inputs, label numbers (B, L), and each token's characters."""
    inputs = tokenizer.encode_batch([text for text, _ in data], maxlen=maxlen)
    labels, characters = np.zeros(inputs[0].shape, "int32"), []
    for row, (text, entities) in enumerate(data):
        begins = {first: kind for first, _, kind in entities}
        inside = {i: kind for first, last, kind in entities for i in range(first, last + 1)}
        characters.append(tokenizer.rematch(text, tokenizer.tokenize(text, maxlen=maxlen)))
        for position, where in enumerate(characters[-1]):
            if where and where[0] in inside:
                place = "B" if where[0] in begins else "I"
                labels[row, position] = tags.index(f"{place}-{inside[where[0]]}")
    return list(inputs), labels, characters


# ---- model ---------------------------------------------------------------------------------------


def write_vocabulary(path, texts):
    """Writes a vocabulary of all characters."""
    characters = sorted({char for text in texts for char in text.lower() if not char.isspace()})
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    path.write_text("\n".join([*special, *characters]) + "\n", "utf-8")


def add_crf(encoder, num_tags, learning_rate):
    """Returns a compiled model from texts to the scores of each token's tags."""
    scores = keras.layers.Dense(num_tags, dtype="float32")(encoder.output)
    crf = ConditionalRandomField(lr_multiplier=CRF_LR_MULTIPLIER, dtype="float32", name="crf")
    model = keras.Model(encoder.inputs, crf(scores))
    optimizer = keras.optimizers.Adam(learning_rate, clipnorm=1.0)
    model.compile(optimizer, loss=crf.sparse_loss, metrics=[crf.sparse_accuracy])
    return model


def find_entities(model, inputs, characters, tags):
    """Returns the set of entities that the model sees in each text."""
    paths = model.get_layer("crf").decode(model.predict(inputs, verbose=0))
    return [
        entities_of([tags[label] for label in path[: len(where)]], where)
        for path, where in zip(keras.ops.convert_to_numpy(paths), characters, strict=True)
    ]


class EntityScores(keras.callbacks.Callback):
    """Prints precision, recall and F1 of whole entities after each epoch."""

    def __init__(self, data, inputs, characters, tags):
        super().__init__()
        self.entities = [entities for _, entities in data]
        self.arguments = inputs, characters, tags

    def on_epoch_end(self, epoch, logs=None):
        """Counts the entities with the right bounds and type."""
        found = find_entities(self.model, *self.arguments)
        right = sum(len(a & b) for a, b in zip(self.entities, found, strict=True))
        all_found, wanted = sum(map(len, found)), sum(map(len, self.entities))
        precision, recall = right / max(all_found, 1), right / wanted
        logs["val_f1"] = 2 * right / (all_found + wanted)
        print(f"entities: precision {precision:.2%}, recall {recall:.2%}, F1 {logs['val_f1']:.2%}")


def run(args):
    """Trains a model, shows what it finds, and saves it."""
    args.output.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(args.seed)
    train, valid = read_data(args.train), read_data(args.valid)
    kinds = sorted({kind for _, entities in train + valid for _, _, kind in entities})
    tags = ["O", *(f"{place}-{kind}" for kind in kinds for place in "BI")]
    print(f"{len(train):,} sentences to train on, {len(valid):,} for validation; {kinds}")

    config = args.config
    if args.quick:
        args.vocab = args.output / "vocab.txt"
        write_vocabulary(args.vocab, [text for text, _ in train])
    tokenizer = Tokenizer(args.vocab, do_lower_case=True)
    if args.quick:
        config = {**QUICK_CONFIG, "vocab_size": tokenizer.vocab_size}
    encoder = build_transformer_model(config, args.checkpoint, "albert" if args.quick else None)

    inputs, labels, _ = encode(train, tokenizer, tags, args.maxlen)
    valid_inputs, _, characters = encode(valid, tokenizer, tags, args.maxlen)
    model = add_crf(encoder, len(tags), args.learning_rate)
    best = keras.callbacks.ModelCheckpoint(
        args.output / "ner_crf.keras", monitor="val_f1", mode="max", save_best_only=True
    )
    scores = EntityScores(valid, valid_inputs, characters, tags)
    options = {"epochs": args.epochs, "batch_size": args.batch_size, "verbose": 2}
    model.fit(inputs, labels, callbacks=[scores, best], **options)

    model = keras.models.load_model(args.output / "ner_crf.keras")
    found = find_entities(model, [part[:3] for part in valid_inputs], characters[:3], tags)
    for (text, _), entities in zip(valid, found, strict=False):
        names = [f"{text[first : last + 1]}/{kind}" for first, last, kind in sorted(entities)]
        print(text, "->", ", ".join(names) or "nothing")
    print(f"best model: {args.output / 'ner_crf.keras'}")


def parse_arguments():
    """Returns the arguments of the command line, checked."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--config", type=Path, help="config file of a checkpoint")
    add("--checkpoint", type=Path, help="checkpoint of a BERT, an ALBERT or their like")
    add("--vocab", type=Path, help="its vocab.txt")
    add("--train", type=Path, help="data to train on")
    add("--valid", type=Path, help="data to score")
    add("--maxlen", type=int, default=128, help="tokens per text, default %(default)s")
    add("--epochs", type=int, default=5, help="default %(default)s")
    add("--batch-size", type=int, default=16, help="default %(default)s")
    add("--learning-rate", type=float, default=2e-5, help="default %(default)s")
    add("--seed", type=int, default=0, help="of weights and batches, default %(default)s")
    add("--output", type=Path, default=HERE / "output", help="folder for the model")
    add("--quick", action="store_true", help="a tiny random model on the sentences in data/")
    args = parser.parse_args()
    needed = ("config", "checkpoint", "vocab", "train", "valid")
    missing = [f"--{name}" for name in needed if getattr(args, name) is None]
    if args.quick:
        if len(missing) < len(needed):
            raise UsageError("--quick takes no files: leave out either it or them")
        args.train, args.valid = (HERE / "data" / f"ner_{name}.txt" for name in ("train", "valid"))
        args.epochs, args.batch_size, args.learning_rate = 15, 4, 1e-3
    elif missing:
        raise UsageError(f"expected {', '.join(missing)} as well, or --quick")
    if min(args.epochs, args.batch_size, args.maxlen - 2) < 1 or not args.learning_rate > 0:
        raise UsageError("expected positive numbers, and --maxlen of at least 3")
    return args


def main():
    """Runs the example; a mistake of the user gives one line and exit status 2."""
    try:
        run(parse_arguments())
    except (UsageError, KerasbertError, OSError) as error:
        print("sequence_labeling_ner_crf.py: error:", *str(error).split("\n"), file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

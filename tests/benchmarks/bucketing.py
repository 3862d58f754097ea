"""How much faster texts of like length go together than all padded to 128 tokens.

    python tests/benchmarks/bucketing.py --reviews online_shopping_10_cats.csv --vocab vocab.txt

Takes real reviews (https://github.com/SophonPlus/ChineseNlpCorpus, online_shopping_10_cats; by
default from the folder `shared` beside the repository) and an un-trained ALBERT of the size of
albert_small, compiled by XLA on both sides, and prints

- bulk prediction: `predict_texts` against `model.predict` on arrays (N, 128), tokenising counted
  on both sides, and without it;
- training: an epoch of a `BucketedDataset` against one of arrays (N, 128).

Medians of runs that take turns, after one of each that compiles. Timings belong to no test: a
busy machine would fail them.
"""

import argparse
import csv
import os
import statistics
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # works from a plain checkout too

SHARED = ROOT.parent / "shared"
LENGTH, TARGET = 128, 2.5

SMALL = {
    "vocab_size": 21128,
    "embedding_size": 128,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "max_position_embeddings": 512,
    "hidden_act": "gelu",
}


def read_reviews(path, count):
    """Every n-th review of the file, so that all its categories are among them."""
    with open(path, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    rows = rows[:: max(len(rows) // count, 1)][:count]
    return [row["review"] for row in rows], [int(row["label"]) for row in rows]


def classifier():
    """An ALBERT with two classes, compiled for training."""
    import keras

    from kerasbert import build_transformer_model

    encoder = build_transformer_model(SMALL, model="albert", with_pool=True, verbose=0)
    model = keras.Model(encoder.inputs, keras.layers.Dense(2)(encoder.output))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(1e-5), loss, jit_compile=True)
    return model


def measured(actions, rounds):
    """Returns the median seconds of each action; they take turns, the first turn warms up."""
    seconds = {name: [] for name in actions}
    for turn in range(rounds + 1):
        for name, action in actions.items():
            start = time.perf_counter()
            action()
            if turn:
                seconds[name].append(time.perf_counter() - start)
        print(f"  turn {turn} of {rounds}", file=sys.stderr)
    return {name: statistics.median(values) for name, values in seconds.items()}


def compare(title, seconds, count, target=None):
    """Prints the texts a second of both ways, and their ratio."""
    padded, bucketed = seconds
    text = f"{title}: {count / padded:.0f} texts/s padded to {LENGTH}, {count / bucketed:.0f} here"
    print(text + f", {padded / bucketed:.2f} x" + (f" (target {target} x)" if target else ""))


def main():
    """Reads the arguments, measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    data = SHARED / "data" / "online_shopping_10_cats" / "online_shopping_10_cats.csv"
    vocab = SHARED / "weights" / "vocabs" / "albert_small_zh_google-vocab.txt"
    parser.add_argument("--reviews", type=Path, default=data, help="the csv file")
    parser.add_argument("--vocab", type=Path, default=vocab, help="a Chinese vocab.txt")
    parser.add_argument("--texts", type=int, default=2000, help="how many to predict")
    parser.add_argument("--train-texts", type=int, default=512, help="how many to train with")
    parser.add_argument("--rounds", type=int, default=3, help="measured turns")
    arguments = parser.parse_args()

    import keras
    import numpy as np

    from kerasbert.data import BucketedDataset
    from kerasbert.prediction import predict_texts
    from kerasbert.tokenizers import Tokenizer

    keras.utils.set_random_seed(0)
    tokenizer = Tokenizer(arguments.vocab, do_lower_case=True)
    texts, labels = read_reviews(arguments.reviews, arguments.texts)
    ids, segments = tokenizer.encode_batch(texts, maxlen=LENGTH, padding="max_length")
    lengths = (ids != 0).sum(axis=1)
    print(
        f"{len(texts)} reviews cut to {LENGTH} tokens: {lengths.mean():.1f} on average, "
        f"{np.median(lengths):.0f} in the middle; {LENGTH / lengths.mean():.2f} x fewer tokens"
    )
    model = classifier()

    def padded():
        inputs = tokenizer.encode_batch(texts, maxlen=LENGTH, padding="max_length")
        return model.predict(list(inputs), batch_size=32, verbose=0)

    def bucketed():
        return predict_texts(model, tokenizer, texts, maxlen=LENGTH, verbose=0)

    assert np.allclose(padded(), bucketed(), atol=1e-4)
    seconds = measured({"padded": padded, "bucketed": bucketed}, arguments.rounds)
    compare("prediction", seconds.values(), len(texts), TARGET)
    seconds = measured({"tokenising": lambda: tokenizer.encode_batch(texts, maxlen=LENGTH)}, 3)
    print(f"(tokenising alone, in both: {len(texts) / seconds['tokenising']:.0f} texts/s)")

    step = max(len(texts) // arguments.train_texts, 1)
    texts, labels = texts[::step], np.array(labels[::step])
    arrays = [ids[::step], segments[::step]], labels
    data = BucketedDataset(model, tokenizer, texts, labels, maxlen=LENGTH, batch_size=16, seed=0)
    ways = {
        "padded": lambda: model.fit(*arrays, batch_size=16, verbose=0),
        "bucketed": lambda: model.fit(data, verbose=0),
    }
    seconds = measured(ways, arguments.rounds)
    compare("training", seconds.values(), len(texts))


if __name__ == "__main__":
    main()

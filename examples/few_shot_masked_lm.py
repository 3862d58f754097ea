"""Classifies with a few labelled texts: by a word that a masked language model writes.

    python examples/few_shot_masked_lm.py
    python examples/few_shot_masked_lm.py --train train_0.json --valid test_public.json \
        --unlabelled unlabeled.json
    python examples/few_shot_masked_lm.py --config bert_config.json --checkpoint bert_model.ckpt \
        --vocab vocab.txt --train train_0.json --valid test_public.json

A text is put into a pattern with a [MASK], and the label is that whose word fits there best (PET,
Schick and Schütze 2020, arXiv:2001.07676): first without any labelled text, then after a training
on the few there are. Beside it stands what the usual head, a softmax on the mean of the last
hidden states, learns from the same texts and the same weights. Data are lines of a text, a tab and
its label, or JSON objects such as {"sentence": "…", "label": "…"}. Without a checkpoint a small
BERT is first trained as a masked language model on texts without labels; without arguments at
all, on made-up ones.
"""

import math
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import classifiers
import keras
import numpy as np
from classifiers import Labelled, add_head, guessing, label_names
from files import read_labelled, read_texts
from keras import ops
from runs import (
    SPECIAL,
    Run,
    ScoreByEpoch,
    batching,
    load_encoder,
    optimizer,
    start_from_neighbours,
    starting_point,
    use_xla,
)
from shared import UsageError, main, sample
from sklearn.metrics import accuracy_score

import kerasbert
from kerasbert.data import BucketedDataset
from kerasbert.generation import PatternClassifier
from kerasbert.layers import GlobalAveragePooling1D
from kerasbert.optimizers import AdamW, WarmupDecay

# Nothing is dropped: that helps where there are few texts, and to hide some tokens is enough.
SIZES = {**classifiers.SIZES, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
TINY = {**SIZES, "hidden_size": 32, "intermediate_size": 64, "initializer_range": 0.18}
RATES = {"many": 1e-3, "few": 3e-3}  # of the masked LM; few texts are few steps
MASKED = 0.15  # share of the tokens
MASKED_WORDS = 0.5  # share of those that stand for a label
WORD_WEIGHT = 20.0  # of such a word in the loss: there are few of them


# ---- masked language modelling ---------------------------------------------------------------


class MaskedTexts(BucketedDataset):
    """Batches of texts in which some tokens are hidden, others in each epoch.

    The words of the labels are hidden more often than others, and count more: to write one of
    them is what the pattern will ask for. They stay readable half of the time, as they say most
    about a text.

    Args:
        model: as for `BucketedDataset`.
        tokenizer: its tokenizer.
        texts: N strings.
        words: the words of the labels, of one token each.
        **options: for `BucketedDataset`.
    """

    def __init__(self, model, tokenizer, texts, words, **options):
        super().__init__(model, tokenizer, texts, **options)
        self.rng = np.random.default_rng(self.seed)
        self.mask = tokenizer.token_to_id("[MASK]")
        self.is_word = np.zeros(self.inputs.vocab_size, bool)
        self.is_word[tokenizer.tokens_to_ids(words)] = True
        self.is_special = np.zeros(self.inputs.vocab_size, bool)
        self.is_special[tokenizer.tokens_to_ids(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])] = True

    def __getitem__(self, index):
        """Returns ((inputs…, places (B, M)), tokens at these places (B, M), weights (B, M))."""
        tokens, *others = super().__getitem__(index)[0]
        # The lowest are hidden: words first, special tokens never.
        order = self.rng.random(tokens.shape) + self.is_special[tokens]
        order -= self.is_word[tokens] & (self.rng.random(tokens.shape) < MASKED_WORDS)
        count = max(round(MASKED * tokens.shape[1]), 1)
        places = order.argsort(axis=1)[:, :count].astype("int32")
        counts = np.take_along_axis(order, places, axis=1) < 1
        targets, hidden = np.take_along_axis(tokens, places, axis=1), tokens.copy()
        np.put_along_axis(hidden, places, np.where(counts, self.mask, targets), axis=1)
        weights = np.where(self.is_word[targets], WORD_WEIGHT, 1.0) * counts
        return (hidden, *others, places), targets, weights.astype("float32")


def pretrain(model, tokenizer, texts, words, args, session):
    """Trains the masked-LM head and the encoder on texts without labels."""
    many = len(texts) > 1000
    options = {**batching(args, len(texts)), "batch_size": 64 if many else 16}
    data = MaskedTexts(model, tokenizer, texts, words, **options)
    if many:  # few texts do not tell which tokens are alike
        ids = (tokenizer.encode(text, maxlen=args.maxlen)[0] for text in texts)
        start_from_neighbours(model, ids, special=tokenizer.tokens_to_ids(SPECIAL))
    hidden = model.get_layer("MLM-Dense").input  # (B, L, H)
    places = keras.Input((None,), dtype="int32", name="Places")
    # The head computes the hidden tokens only: it costs more than the encoder.
    chosen = ops.take_along_axis(hidden, ops.expand_dims(places, -1), axis=1)
    trained = keras.Model([*model.inputs, places], keras.Model(hidden, model.output)(chosen))
    epochs = args.pretraining or (3 if many else 12)
    steps = epochs * len(data)
    rate = RATES["many" if many else "few"]
    schedule = WarmupDecay(rate, total_steps=steps, warmup_steps=steps // 10)
    trained.compile(
        AdamW(schedule), token_loss(), weighted_metrics=[], jit_compile=use_xla(args, steps)
    )
    print(f"{len(texts):,} texts without labels")
    session.fit(trained, data, label="masked LM", epochs=epochs)


def token_loss():
    """Returns the mean loss of the tokens that count."""
    return keras.losses.SparseCategoricalCrossentropy(reduction="mean_with_sample_weight")


# ---- a few labelled texts --------------------------------------------------------------------


def words_of(args, labels):
    """Returns the word of each label, as the command line gives them: LABEL=WORD."""
    words = dict(pair.split("=", 1) for pair in args.words if "=" in pair)
    if sorted(words) != labels or len(words) != len(args.words):
        given, wanted = " ".join(args.words), " ".join(f"{label}=…" for label in labels)
        raise UsageError(f"--words {given}: expected a word for each label, --words {wanted}")
    return words


def accuracy(classifier, rows, prior=0.0):
    """Returns how many texts a `PatternClassifier` gets right.

    Args:
        classifier: the classifier.
        rows: pairs (text, label).
        prior: scores of the labels that are as likely as not; a word that is often written says
            less than one that is seldom.
    """
    found = (classifier.scores([text for text, _ in rows]) - prior).argmax(axis=-1)
    return accuracy_score([label for _, label in rows], [classifier.labels[n] for n in found])


def train_by_pattern(model, classifier, train, valid, args, session):
    """Trains the model to write the words of the labels; returns the accuracy."""
    inputs, targets, weights = classifier.training_data(*zip(*train, strict=True))
    steps = args.epochs * math.ceil(len(train) / args.batch_size)
    model.compile(optimizer(args, steps), token_loss(), weighted_metrics=[])
    by_epoch = ScoreByEpoch("accuracy", lambda _: accuracy(classifier, valid))
    options = {"sample_weight": weights, "batch_size": args.batch_size, "callbacks": [by_epoch]}
    history = session.fit(model, inputs, label="pattern", y=targets, **options)
    return history["val_accuracy"][-1]


def train_head(model, tokenizer, train, valid, labels, args, session):
    """Trains a softmax on the encoder, and the encoder with it; returns the accuracy."""
    train, valid = Labelled(train, labels), Labelled(valid, labels)
    features = GlobalAveragePooling1D()(kerasbert.hidden_state(model, -1))
    classifier = add_head(model, features, len(labels), dropout=0.1)
    data = train.batches(classifier, tokenizer, args)
    loss = "sparse_categorical_crossentropy"
    classifier.compile(optimizer(args, args.epochs * len(data)), loss, metrics=["accuracy"])

    by_epoch = ScoreByEpoch("accuracy", lambda _: valid.accuracy(classifier, tokenizer, args))
    history = session.fit(classifier, data, label="head", callbacks=[by_epoch])
    return history["val_accuracy"][-1]


def run(args):
    """Scores a model without labelled texts, then with some, by a pattern and by a head."""
    session = Run("few_shot_masked_lm", args)
    train, valid = read_labelled(args.train), read_labelled(args.valid)
    labels = label_names(train, valid)
    words = words_of(args, labels)
    if args.pretraining is not None and args.pretraining < 1:
        raise UsageError(f"--pretraining {args.pretraining}: expected at least one epoch")
    unlabelled = [text for text, _ in train]
    if args.unlabelled or args.train == SAMPLE:
        unlabelled = read_texts(args.unlabelled or sample("few_shot_unlabelled.txt"))
    elif not args.config:
        raise UsageError("random weights have nothing to say: give --unlabelled or a checkpoint")
    sizes = TINY if args.quick else SIZES
    config, tokenizer = starting_point(args, unlabelled, 3, **sizes)
    model = load_encoder(args, config, tokenizer, with_mlm=True)
    options = {"maxlen": args.maxlen, "batch_size": 64}
    classifier = PatternClassifier(model, tokenizer, args.pattern, words, **options)
    if not args.config:
        pretrain(model, tokenizer, unlabelled, list(words.values()), args, session)

    prior = classifier.scores(unlabelled[:1000]).mean(axis=0)
    without = accuracy(classifier, valid, prior)
    weights = model.get_weights()
    by_pattern = train_by_pattern(model, classifier, train, valid, args, session)
    model.set_weights(weights)
    by_head = train_head(model, tokenizer, train, valid, labels, args, session)
    scores = {"accuracy": by_pattern, "without labelled texts": without, "by a head": by_head}
    numbers = Labelled(train, labels).numbers, Labelled(valid, labels).numbers
    session.finish(model, scores, guessing(*numbers), labelled=len(train))


SAMPLE = sample("few_shot_train.tsv")

if __name__ == "__main__":
    main(
        "few_shot_masked_lm",
        run,
        description=__doc__.split("\n")[0],
        files={
            "train": (SAMPLE, "the few labelled texts"),
            "valid": (sample("few_shot_valid.tsv"), "texts to score"),
            "unlabelled": (None, "texts for the masked LM; for random weights only"),
        },
        maxlen=48,
        epochs=(10, 10),
        quick_epochs=3,
        rates=(3e-5, 5e-4),
        batch_size=8,
        options=[
            ("--pattern", {"default": "{mask}评，{text}", "help": "default %(default)s"}),
            ("--words", {"nargs": "+", "default": ["Positive=好", "Negative=差"]}),
            ("--pretraining", {"type": int, "help": "epochs of the masked LM, default 3, or 12"}),
        ],
    )

"""Builds records in a process of its own, slowly, to be killed: folder, text, workers."""

import sys
import time

from kerasbert.pretraining import Corpus, RecordSettings, build_records
from pretraining.made_up import TOKENIZER, by_character

SETTINGS = RecordSettings(max_length=32, dupe_factor=2, masking="ngram")
SHARD_BYTES = 1000


def slowly(text):
    """A segmenter that leaves time to be killed."""
    time.sleep(0.02)
    return by_character(text)


def build(folder, text, workers):
    """Builds the records of a text."""
    return build_records(
        Corpus(text),
        folder,
        TOKENIZER,
        SETTINGS,
        segmenter=slowly,
        shard_bytes=SHARD_BYTES,
        workers=workers,
        verbose=0,
    )


if __name__ == "__main__":
    # Under the name that the tests know it by: the name of the segmenter is noted.
    from pretraining.building import build as named_build

    named_build(sys.argv[1], sys.argv[2], int(sys.argv[3]))

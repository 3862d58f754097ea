"""Texts and vocabularies made up for the tests of pre-training."""

import numpy as np

from kerasbert.pretraining import TokenTable
from kerasbert.pretraining.words import TokenizedText
from kerasbert.tokenizers import Tokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CHINESE = "今天气很好我们去公园玩房间干净电池不用久。，！？"
WORDS = [f"w{i}" for i in range(60)]
TOKENS = [*SPECIAL, *WORDS, "un", "##aff", "##able", *CHINESE]

TOKENIZER = Tokenizer({token: i for i, token in enumerate(TOKENS)}, do_lower_case=True)
TABLE = TokenTable.of(TOKENIZER)


def table(size=1000, inside=()):
    """A table of [PAD] 0, [CLS] 2, [SEP] 3, [MASK] 4; `inside` are the ids inside of words."""
    starts = np.ones(size, bool)
    starts[list(inside)] = False
    return TokenTable(size, start=2, end=3, mask=4, pad=0, word_starts=starts)


def text_of(documents, starts=None):
    """A `TokenizedText` of documents given as lists of lists of ids."""
    sentences = [sentence for document in documents for sentence in document]
    ids = np.array([i for sentence in sentences for i in sentence], "int32")
    return TokenizedText(
        ids,
        np.ones(len(ids), bool) if starts is None else starts,
        [0, *np.cumsum([len(sentence) for sentence in sentences]).tolist()],
        [0, *np.cumsum([len(document) for document in documents]).tolist()],
    )


def random_documents(rng, count, sentences=(1, 12), tokens=(5, 30)):
    """Documents as lists of lists of ids, every token with an id of its own, from 100 on."""
    following, documents = 100, []
    for _ in range(count):
        document = []
        for _ in range(rng.integers(*sentences)):
            size = rng.integers(*tokens)
            document.append(list(range(following, following + size)))
            following += size
        documents.append(document)
    return documents


def written(path, documents=24, seed=0, sentences=(2, 9)):
    """Writes a text with a sentence a line, and returns the path."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(documents):
        for _ in range(rng.integers(*sentences)):
            lines.append(" ".join(rng.choice(WORDS, rng.integers(3, 12))) + " unaffable。")
        lines.append("")
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def by_character(text):
    """A segmenter: words of two characters."""
    return [text[i : i + 2] for i in range(0, len(text), 2)]

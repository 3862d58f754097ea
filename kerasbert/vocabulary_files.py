"""The vocabulary file that lies beside a checkpoint, and what conversions do to it."""

import json
import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from kerasbert.errors import ConfigError, listing
from kerasbert.tokenizers import SpTokenizer, Tokenizer, load_vocab
from kerasbert.tokenizers.vocab import vocab_bytes

SIMPLIFIED = "simplified"
_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclass(frozen=True)
class Vocabulary:
    """A vocabulary file, whole or cut.

    Attributes:
        path: the file.
        token_dict: dict from token to id of what is left of it; None if it is whole.
        kept: the old ids of these tokens, in their new order; None if it is whole.
    """

    path: Path
    token_dict: dict | None = None
    kept: tuple | None = None

    @property
    def is_sentencepiece(self):
        """Whether the file is a SentencePiece model."""
        return self.path.suffix == ".model"

    def cut(self, keep_tokens):
        """Returns the vocabulary with some tokens only.

        Args:
            keep_tokens: path of a file with the tokens to keep, or "simplified".

        Raises:
            ConfigError: if this vocabulary cannot be cut or lacks one of the tokens.
        """
        if self.is_sentencepiece:
            raise ConfigError(
                f"{self.path} is a SentencePiece model, which cannot be cut to some tokens.\n"
                "Expected a vocab.txt.\nLeave keep_tokens out."
            )
        if keep_tokens == SIMPLIFIED:
            start = [token for token in _SPECIAL_TOKENS if token in self.tokens]
            token_dict, kept = load_vocab(self.path, simplified=True, startswith=start)
            return replace(self, token_dict=token_dict, kept=tuple(kept))
        whole, token_dict = self.tokens, load_vocab(keep_tokens)
        unknown = [token for token in token_dict if token not in whole]
        if unknown:
            raise ConfigError(
                f"{keep_tokens} lists {len(unknown)} tokens that {self.path} does not have: "
                f"{listing(unknown)}.\nExpected tokens of that vocabulary."
            )
        order = sorted(token_dict, key=token_dict.get)
        return replace(self, token_dict=token_dict, kept=tuple(whole[token] for token in order))

    @cached_property
    def tokens(self):
        """Dict from token to id; of the file, unless it was cut."""
        return load_vocab(self.path) if self.token_dict is None else self.token_dict

    @property
    def size(self):
        """Number of rows that a table for it needs."""
        if self.is_sentencepiece:
            return self.tokenizer().vocab_size
        return max(self.tokens.values()) + 1

    def check_size(self, rows):
        """Refuses to go with a model that has fewer rows.

        Raises:
            ConfigError: names both sizes.
        """
        if self.size > rows:
            raise ConfigError(
                f"The vocabulary {self.path} has {self.size} tokens, the model vocab_size={rows}."
                "\nExpected the vocabulary of the model.\nPass vocabulary= (--vocabulary)."
            )

    def tokenizer(self):
        """Returns the tokenizer for this vocabulary."""
        if self.is_sentencepiece:
            return SpTokenizer(self.path)
        return Tokenizer(self.tokens, do_lower_case=self._lower_case())

    def content(self):
        """Returns what to write, in bytes."""
        return self.path.read_bytes() if self.kept is None else vocab_bytes(self.token_dict)

    def _lower_case(self):
        """What the settings beside the file say; else whether no token has a capital letter."""
        try:
            settings = json.loads((self.path.parent / "tokenizer_config.json").read_text("utf-8"))
        except (OSError, ValueError):
            settings = None
        if isinstance(settings, dict) and isinstance(settings.get("do_lower_case"), bool):
            return settings["do_lower_case"]
        # Uncased vocabularies have capitals in special tokens only: [CLS], and <S> in Chinese.
        words = (token for token in load_vocab(self.path) if not token.startswith(("[", "<")))
        return not any(word != word.lower() for word in words)


def find_vocabulary(source, given=None):
    """Finds the vocabulary of a checkpoint.

    Args:
        source: path of the checkpoint: a folder, a file or a prefix; or of a `.keras` file,
            whose vocabulary begins with its name, see `beside_keras`.
        given: path of the vocabulary, if it is known.

    Returns:
        A `Vocabulary`, or None if none lies beside the checkpoint.

    Raises:
        ConfigError: if there are several, or the given one does not exist.
    """
    if given is not None:
        path = Path(os.path.expanduser(os.fspath(given)))
        if not path.is_file():
            raise ConfigError(f"No such vocabulary: {path}.\nExpected a vocab.txt or .model file.")
        return Vocabulary(path)
    if not isinstance(source, str | os.PathLike):
        return None
    folder = Path(os.path.expanduser(os.fspath(source)))
    if folder.suffix == ".keras":
        own = (beside_keras(folder, suffix) for suffix in (".txt", ".model"))
        return next((Vocabulary(path) for path in own if path.is_file()), None)
    folder = folder if os.path.isdir(folder) else folder.parent
    found = sorted(folder.glob("*vocab*.txt")) or sorted(folder.glob("*.model"))
    if len(found) > 1:
        raise ConfigError(
            f"The folder {folder} holds {len(found)} vocabularies: "
            f"{listing(path.name for path in found)}.\nExpected one.\n"
            "Pass vocabulary= (--vocabulary)."
        )
    return Vocabulary(found[0]) if found else None


def beside_keras(path, suffix):
    """Returns where the vocabulary of a `.keras` file lies: many models may share its folder."""
    return path.with_name(f"{path.stem}_vocab{suffix}")

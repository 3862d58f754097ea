"""Documents from plain text files, of which never more than a shard is in memory.

A shard is a stretch of the text, of about `shard_bytes` bytes, that ends with a document.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from kerasbert.errors import CorpusError, check_integer, did_you_mean, listing
from kerasbert.pretraining.sentences import split_sentences

LINES = ("sentence", "paragraph", "document")

_BLOCK = 1 << 20


class Piece(NamedTuple):
    """A part of a file.

    Attributes:
        file: the number of the file.
        start: the byte it starts at.
        stop: the byte behind its last one.
    """

    file: int
    start: int
    stop: int


@dataclass(frozen=True)
class Corpus:
    """Plain text files, and what a line of them is.

    Args:
        files: a path, or a list of paths. Each file begins with a new document.
        line: "sentence" for one sentence a line and blank lines between documents, as Google's
            code has it; "paragraph" for lines that are split into sentences, with such blank
            lines too; "document" if every line is a document of its own, also to be split.
        splitter: function from a text to a list of sentences, for paragraphs and documents; None
            for `split_sentences`.
        encoding: of the files; one in which a line feed is a single byte, thus not UTF-16.

    Raises:
        CorpusError: if a file does not exist, or an argument is none of the above.

    Example:
        >>> text = "房间很干净。电池用不久！"
        >>> Path("corpus.txt").write_text(text, encoding="utf-8")
        12
        >>> corpus = Corpus("corpus.txt", line="paragraph")
        >>> list(corpus.documents())
        [['房间很干净。', '电池用不久！']]
    """

    files: tuple
    line: str = "sentence"
    splitter: Callable | None = None
    encoding: str = "utf-8"

    def __post_init__(self):
        files = self.files
        files = (files,) if isinstance(files, str | os.PathLike) else tuple(files)
        files = tuple(os.path.expanduser(os.fspath(path)) for path in files)
        object.__setattr__(self, "files", files)
        missing = [path for path in files if not os.path.isfile(path)]
        if missing or not files:
            raise CorpusError(
                f"No such text file: {listing(missing) or '(an empty list)'}.\n"
                "Expected the paths of one or more plain text files."
            )
        if self.line not in LINES:
            raise CorpusError(
                f"line={self.line!r}.{did_you_mean(self.line, LINES)}\n"
                f"Expected one of: {', '.join(LINES)}."
            )
        if self.splitter is not None and (self.line == "sentence" or not callable(self.splitter)):
            raise CorpusError(
                f"splitter={self.splitter!r} for line={self.line!r}.\n"
                "Expected a function from a text to a list of sentences, and line='paragraph' or "
                "'document': lines that are sentences are not split."
            )
        self._check_encoding()

    def _check_encoding(self):
        try:
            fits = "a\n".encode(self.encoding) == b"a\n"
        except LookupError:
            fits = False
        if not fits:
            raise CorpusError(
                f"encoding={self.encoding!r}.\n"
                "Expected one in which a line feed is a single byte, such as utf-8 or gb18030.\n"
                "Write the files anew as utf-8."
            )

    def shards(self, shard_bytes):
        """Divides the files into stretches that end with a document.

        No more than some lines at each end is read. A document that is longer than a shard is cut
        at the end of a line.

        Args:
            shard_bytes: how long a shard is; it grows until a document ends.

        Returns:
            A list of lists of `Piece`, in the order of the text; small files share a shard.

        Raises:
            CorpusError: if a line is longer than a shard, or all files are empty.
        """
        check_integer("shard_bytes", shard_bytes, minimum=1)
        shards, pieces, room = [], [], shard_bytes
        for number, path in enumerate(self.files):
            size, start = os.path.getsize(path), 0
            with open(path, "rb") as file:
                while start < size:
                    stop = self._end(file, start + room, size, shard_bytes)
                    pieces.append(Piece(number, start, stop))
                    start, room = stop, room - (stop - start)
                    if room <= 0:
                        shards.append(pieces)
                        pieces, room = [], shard_bytes
        if pieces and shards and room > shard_bytes // 2:
            shards[-1] += pieces
        elif pieces:
            shards.append(pieces)
        if not shards:
            raise CorpusError(f"{listing(self.files)}: no text.\nExpected files that hold some.")
        return shards

    def _end(self, file, position, size, limit):
        """Returns where the first document ends, from a position on; or a line, if none does."""
        if position >= size:
            return size
        file.seek(position - 1)
        here = line_end = position - 1 + len(_read_line(file, limit))
        if self.line == "document":
            return line_end
        while here < size and here - position < limit:
            line = _read_line(file, limit)
            here += len(line)
            if not line.strip():
                return here
        return size if here >= size else line_end

    def documents(self, pieces=None):
        """Yields the documents of some pieces, in their order.

        Args:
            pieces: list of `Piece`; None for all files.

        Yields:
            Lists of sentences: strings that are not empty.

        Raises:
            CorpusError: if the text has another encoding; names the file and the place.
        """
        for piece in self._all() if pieces is None else pieces:
            document = []
            for text in self._lines(piece):
                document += self._sentences(text)
                if document and (not text or self.line == "document"):
                    yield document
                    document = []
            if document:
                yield document

    def texts(self):
        """Yields the sentences of all documents, one after the other."""
        for document in self.documents():
            yield from document

    def _sentences(self, text):
        if self.line == "sentence":
            return [text] if text else []
        sentences = (self.splitter or split_sentences)(text) if text else []
        return [sentence.strip() for sentence in sentences if sentence.strip()]

    def _all(self):
        sizes = map(os.path.getsize, self.files)
        return [Piece(number, 0, size) for number, size in enumerate(sizes)]

    def _lines(self, piece):
        path, here = self.files[piece.file], piece.start
        with open(path, "rb") as file:
            file.seek(here)
            while here < piece.stop:
                line = file.readline()
                if not line:
                    break
                try:
                    text = line.decode(self.encoding)
                except UnicodeDecodeError as error:
                    raise CorpusError(
                        f"{path}, byte {here + error.start}: {line[error.start : error.end]!r} is "
                        f"no {self.encoding}.\nExpected a text in that encoding.\n"
                        "Pass encoding= of the files, for instance 'gb18030'."
                    ) from error
                yield (text if here else text.removeprefix("\ufeff")).strip()
                here += len(line)

    def digest(self, pieces):
        """Returns a checksum of the bytes of some pieces."""
        found = blake2b(digest_size=16)
        for piece in pieces:
            with open(self.files[piece.file], "rb") as file:
                file.seek(piece.start)
                left = piece.stop - piece.start
                while block := file.read(min(left, _BLOCK)):
                    found.update(block)
                    left -= len(block)
        return found.hexdigest()

    def description(self):
        """Returns what of it the records depend on, as a dict for JSON; the text left out."""
        names = [[Path(path).name, os.path.getsize(path)] for path in self.files]
        splits = self.line != "sentence"
        splitter = name_of(self.splitter or split_sentences) if splits else None
        return {
            "files": names,
            "line": self.line,
            "splitter": splitter,
            "encoding": self.encoding,
        }


def name_of(function):
    """Returns the name of a function, or of the class of another object, with its module."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _read_line(file, limit):
    line = file.readline(limit)
    if len(line) == limit and not line.endswith(b"\n") and file.read(1):
        raise CorpusError(
            f"{file.name} has a line of more than {limit} bytes near byte {file.tell()}.\n"
            f"Expected lines shorter than a shard, shard_bytes={limit}: a line is read at once.\n"
            "Put line feeds between sentences or paragraphs, or pass a greater shard_bytes."
        )
    return line

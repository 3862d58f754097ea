"""What a folder of records was made of, and which of its files are finished."""

import json
from hashlib import blake2b
from pathlib import Path

from kerasbert.errors import CorpusError, listing
from kerasbert.tokenizers.vocab import write_atomically

NAME = "manifest.json"

# Raised when the same settings begin to give other records.
_FORMAT = 1


class Manifest:
    """The settings of records, and the checksums of finished files, kept beside them.

    Args:
        folder: the folder of the records.
        settings: flat dict of what the records depend on.
        count: how many files there will be.
        shards: dict from the name of a finished file to what is known of it.
    """

    def __init__(self, folder, settings, count, shards=None):
        self.folder = Path(folder)
        self.settings = settings
        self.count = count
        self.shards = shards or {}

    @classmethod
    def read(cls, folder):
        """Returns that of a folder, or None if there is none.

        Raises:
            CorpusError: if it cannot be read.
        """
        path = Path(folder) / NAME
        if not path.is_file():
            return None
        try:
            content = json.loads(path.read_text("utf-8"))
            format_, *parts = (content[key] for key in ("format", "settings", "count", "shards"))
        except (ValueError, TypeError, KeyError) as error:
            raise CorpusError(
                f"{path} cannot be read: {error}.\n"
                "Expected the file that build_records wrote.\nDelete the folder and start anew."
            ) from error
        if format_ != _FORMAT:
            raise CorpusError(
                f"{path} has the format {format_}.\nExpected {_FORMAT}: the records were made by "
                "another version of kerasbert.\nFinish them with that one, or start anew."
            )
        return cls(folder, *parts)

    @classmethod
    def start(cls, folder, settings, count):
        """Returns that of a folder, made or read, whose settings are the given ones.

        Args:
            folder: made if it does not exist.
            settings: flat dict of what the records depend on.
            count: how many files there will be.

        Raises:
            CorpusError: if the folder holds records of other settings; names these.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        found = cls.read(folder)
        if found is None:
            others = [path.name for path in folder.glob("*.tfrecord")]
            if others:
                raise CorpusError(
                    f"The folder {folder} holds records already: {listing(sorted(others))}.\n"
                    "Expected an empty folder, or one that build_records has begun to fill."
                )
            found = cls(folder, settings, count)
            found.write()
        found._check(settings)
        for path in folder.glob(".*.tmp"):  # of a run that was killed
            path.unlink(missing_ok=True)
        return found

    def _check(self, settings):
        old, new = self.settings, json.loads(json.dumps(settings))
        names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        if names:
            changes = [f"{name} was {old.get(name)!r}, is {new.get(name)!r}" for name in names]
            raise CorpusError(
                f"The folder {self.folder} holds records of other settings: {listing(changes)}.\n"
                "Expected the same ones, to go on where it was left.\n"
                "Pass another folder, or delete this one."
            )

    def name(self, number):
        """Returns the name of the file with a number."""
        return f"shard-{number:05d}-of-{self.count:05d}.tfrecord"

    def paths(self):
        """Returns the paths of all files, in their order."""
        return [self.folder / self.name(number) for number in range(self.count)]

    @property
    def is_complete(self):
        """Whether all files are finished."""
        return len(self.shards) == self.count

    def is_whole(self, number):
        """Whether a file is finished, and still as it was written."""
        known = self.shards.get(self.name(number))
        path = self.folder / self.name(number)
        if known is None or not path.is_file() or path.stat().st_size != known["bytes"]:
            return False
        return checksum(path.read_bytes()) == known["checksum"]

    def add(self, number, known):
        """Takes a file for finished.

        Args:
            number: of the file.
            known: dict of its "records", "bytes", "checksum" and "text", the checksum of the text.
        """
        self.shards[self.name(number)] = known
        self.write()

    def forget(self, number):
        """Takes a file for unfinished."""
        self.shards.pop(self.name(number), None)

    def write(self):
        """Writes the manifest; it appears whole or not at all."""
        content = {
            "format": _FORMAT,
            "settings": self.settings,
            "count": self.count,
            "shards": self.shards,
        }
        text = json.dumps(content, ensure_ascii=False, indent=1, sort_keys=True)
        write_atomically(self.folder / NAME, text.encode())


def checksum(content):
    """Returns the checksum of bytes, as hexadecimal digits."""
    return blake2b(content, digest_size=16).hexdigest()

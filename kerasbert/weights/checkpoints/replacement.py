"""Replaces several files together, or none of them."""

import contextlib
import os
import shutil
import uuid
from pathlib import Path


class Replacement:
    """A context in which new files are written aside, to take the place of old ones at its end.

    If anything raises, an interruption included, the old files are as they were and nothing
    else is left behind. Each single exchange is atomic.

    Args:
        folder: where the files stand; made if needed.

    Example:
        >>> with Replacement("out") as files:
        ...     _ = files.aside("out/notes.txt").write_text("new")
    """

    def __init__(self, folder):
        self._folder = Path(folder)
        self._stem = f".{uuid.uuid4().hex}"
        self._done = False
        self._finals = {}  # from the new file to the path it is to take

    def aside(self, final):
        """Returns the path at which to write what is to become `final`."""
        final = Path(final)
        new = final.with_name(f"{self._stem}.new-{len(self._finals)}")
        self._finals[new] = final
        return new

    def take(self, new, final):
        """Adds a file that was written elsewhere in the folder by other means."""
        self._finals[Path(new)] = Path(final)

    @property
    def stem(self):
        """A path in the folder that the name of every temporary file may begin with."""
        return self._folder / self._stem

    def __enter__(self):
        self._made = [
            folder for folder in (self._folder, *self._folder.parents) if not folder.exists()
        ]
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            self._remove_folders()
            raise
        return self

    def __exit__(self, kind, error, traceback):
        try:
            if kind is None:
                self._exchange()
        finally:
            for leftover in self._folder.glob(f"{self._stem}*"):
                leftover.unlink()
            if kind is not None or not self._done:
                self._remove_folders()

    def _remove_folders(self):
        """Takes the folders away again that were made, unless someone else uses them now."""
        with contextlib.suppress(OSError):
            for folder in self._made:
                folder.rmdir()

    def _exchange(self):
        for new in self._finals:
            with open(new, "rb+") as file:
                os.fsync(file.fileno())
        backups = {final: self._backup(final) for final in self._finals.values()}
        done = []
        try:
            for new, final in self._finals.items():
                done.append(final)
                os.replace(new, final)
        except BaseException:
            for final in done:
                if backups[final] is None:
                    final.unlink(missing_ok=True)
                else:
                    os.replace(backups[final], final)
            raise
        self._done = True

    def _backup(self, final):
        """Gives an old file a second name; its own stays in place all the time."""
        if not final.exists():
            return None
        backup = self._folder / f"{self._stem}.old-{final.name}"
        try:
            os.link(final, backup)
        except OSError:  # a file system without hard links
            shutil.copy2(final, backup)
        return backup

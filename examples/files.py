"""Reading the data of the examples; what is wrong in a file is named with its place."""

import json

from shared import UsageError


def read_text(path):
    """Returns what is in a file."""
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8: {error}") from error


def read_columns(path, names):
    """Returns the lines of a file as tuples of their tab-separated columns, as many as names.

    A first line that says `label` in the last column is a header, and left out.
    """
    rows = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        row = tuple(map(str.strip, line.rsplit("\t", len(names) - 1)))
        if len(row) == len(names) and all(row):
            if number > 1 or row[-1] != "label":
                rows.append(row)
        elif line.strip():
            expected = "<TAB>".join(names)
            raise UsageError(f"{path}, line {number}: expected {expected}, got {line[:40]!r}")
    if not rows:
        raise UsageError(f"{path} is empty")
    return rows


def read_labelled(path):
    """Returns pairs (text, label) of a file with a text, a tab and its label on each line."""
    return read_columns(path, ("text", "label"))


def read_objects(path, make):
    """Returns `make(object)` of each JSON object of a file, which stand one after the other.

    Args:
        path: the file.
        make: turns an object into what is wanted of it; if that raises a KeyError, TypeError,
            AttributeError or ValueError, the file is not of the expected form.
    """
    content, place, found = read_text(path).strip(), 0, []
    decoder = json.JSONDecoder()
    try:
        while place < len(content):
            entry, place = decoder.raw_decode(content, place)
            while content[place : place + 1].isspace():
                place += 1
            found.append(make(entry))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UsageError(f"{path}, object {len(found) + 1}: {error!r}") from error
    if not found:
        raise UsageError(f"{path} is empty")
    return found

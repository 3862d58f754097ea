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
    """Returns pairs (text, label) of lines `text<TAB>label`, or of JSON objects as FewCLUE's.

    Such an object has a `sentence`, and a `label_des` or `label`.
    """
    if is_json(path):
        return read_objects(path, lambda entry: (_sentence(entry), _label(entry)))
    return read_columns(path, ("text", "label"))


def read_texts(path):
    """Returns the texts of a file: one on each line, or in JSON objects with a `sentence`."""
    if is_json(path):
        return read_objects(path, _sentence)
    texts = [line.strip() for line in read_text(path).split("\n") if line.strip()]
    if not texts:
        raise UsageError(f"{path} is empty")
    return texts


def is_json(path):
    """Returns whether a file begins like a JSON object."""
    return read_text(path).lstrip().startswith("{")


def _sentence(entry):
    text = entry["sentence"].strip()
    if not text:
        raise ValueError("an empty sentence")
    return text


def _label(entry):
    return str(entry["label_des"] if "label_des" in entry else entry["label"]).strip()


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

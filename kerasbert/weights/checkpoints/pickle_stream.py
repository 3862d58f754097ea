"""Reads a pickle as data: containers, numbers, texts, and a short list of known names.

`pickle.Unpickler` with a strict `find_class` runs no foreign code either, but it was
not written for hostile input. Measured on Python 3.11: a pickle of 13 bytes (a memo index of
one billion) took 16 GB and 147 s, one of 2 MB (nested tuples as a key of a dict) crashed the
process, and the opcode BUILD may set attributes of whatever `find_class` returned. So the
opcodes that torch's pickles consist of are interpreted here, each with its bound.
"""

import struct
from pickle import UnpicklingError

#: Bounds of one pickle. BERT-large has 390 tensors: 80 kB in 16,000 steps.
MAX_BYTES = 8 << 20
MAX_STEPS = 300_000

_MAX_LINE = 256
_KEY_TYPES = (str, int, float, bool, bytes, type(None))


class ForbiddenNameError(UnpicklingError):
    """The pickle names something that is no part of a state dict."""


class Constructor:
    """What a pickle may call: a function of ours in the role of a name of torch.

    Args:
        function: takes the arguments found in the pickle; may raise TypeError, ValueError
            or UnpicklingError if they make no sense.
    """

    __slots__ = ("function",)

    def __init__(self, function):
        self.function = function


class PickleStream:
    """One pickle in an open binary file; after `load` the file stands behind it.

    Args:
        file: binary file, positioned at the pickle.
        names: dict from dotted names that the pickle may use to a `Constructor`, or to an
            inert value.
        load_persistent: function from a persistent id to a value.

    Example:
        >>> PickleStream(io.BytesIO(pickle.dumps({"a": (1, 2.5)}, protocol=2))).load()
        {'a': (1, 2.5)}

    Source: the comments of `pickletools` in Python's standard library.
    """

    def __init__(self, file, names=None, load_persistent=None):
        self._file = file
        self._names = names or {}
        self._load_persistent = load_persistent
        self._used = 0
        self._memo = {}
        self._marks = []
        self.stack = []

    def load(self):
        """Returns the object that the pickle describes.

        Raises:
            ForbiddenNameError: if it names anything outside `names`.
            UnpicklingError: if it is damaged, too large, or uses other opcodes.
        """
        try:
            for _ in range(MAX_STEPS):
                opcode = self.take(1)
                if opcode == b".":
                    return self.stack.pop()
                if opcode not in _ACTIONS:
                    raise UnpicklingError(f"opcode {opcode!r} at byte {self._used - 1}")
                _ACTIONS[opcode](self)
        except (LookupError, TypeError, ValueError, struct.error) as error:
            message = f"it makes no sense at byte {self._used} ({str(error)[:80]})"
            raise UnpicklingError(message) from error
        raise UnpicklingError(f"it has more than {MAX_STEPS} steps")

    # --- reading ---

    def take(self, count):
        """Returns the next `count` bytes."""
        self._used += count
        if self._used > MAX_BYTES:
            raise UnpicklingError(f"it has more than {MAX_BYTES} bytes")
        data = self._file.read(count)
        if len(data) != count:
            raise UnpicklingError(f"it ends after {self._used - count + len(data)} bytes")
        return data

    def number(self, form):
        """Returns the next number, packed as `struct` calls `form`."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def text(self, length_form):
        """Returns the next text, behind its length."""
        return self.take(self.number(length_form)).decode("utf-8")

    def line(self):
        """Returns the next line without its end."""
        line = self._file.readline(_MAX_LINE)
        self._used += len(line)
        if not line.endswith(b"\n"):
            raise UnpicklingError(f"a name does not end at byte {self._used}")
        return line[:-1].decode("utf-8")

    # --- building ---

    def since_mark(self):
        """Removes and returns all that was pushed since the last mark."""
        start = self._marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def mark(self):
        self._marks.append(len(self.stack))

    def pop_tuple(self, length):
        if len(self.stack) < length:
            raise IndexError("too few items")
        items = tuple(self.stack[-length:])
        del self.stack[-length:]
        self.stack.append(items)

    def extend_list(self, items):
        if type(self.stack[-1]) is not list:
            raise TypeError("append to something else than a list")
        self.stack[-1].extend(items)

    def update_dict(self, items):
        target = self.stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise TypeError("items for something else than a dict")
        target.update(zip(map(check_key, items[::2]), items[1::2], strict=True))

    def push_name(self, module, name):
        dotted = f"{module}.{name}"
        if dotted not in self._names:
            raise ForbiddenNameError(f"it names {dotted[:120]}")
        self.stack.append(self._names[dotted])

    def push_stack_name(self):
        name, module = self.stack.pop(), self.stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise TypeError("a name that is no text")
        self.push_name(module, name)

    def call(self):
        arguments, constructor = self.stack.pop(), self.stack.pop()
        if type(constructor) is not Constructor or type(arguments) is not tuple:
            raise TypeError("a call of something that cannot be called")
        self.stack.append(constructor.function(*arguments))

    def skip_state(self):
        # torch sets `_metadata` on the OrderedDict: versions of modules, no weights.
        self.stack.pop()
        if type(self.stack[-1]) is not dict:
            raise TypeError("a state for something else than a dict")

    def push_persistent(self):
        if self._load_persistent is None:
            raise UnpicklingError("it refers to data outside of it")
        self.stack.append(self._load_persistent(self.stack.pop()))

    def remember(self, index):
        self._memo[index] = self.stack[-1]

    def recall(self, index):
        self.stack.append(self._memo[index])


def check_key(key):
    """Refuses a key of a dict other than texts, numbers and None.

    The hash of a tuple recurses, and of shared tuples in tuples it takes exponential time.
    """
    if type(key) not in _KEY_TYPES:
        raise TypeError(f"a {type(key).__name__} as a key")
    return key


def _push(read):
    return lambda stream: stream.stack.append(read(stream))


_ACTIONS = {
    b"\x80": lambda stream: stream.take(1),  # PROTO
    b"\x95": lambda stream: stream.take(8),  # FRAME: a hint for buffering
    b"0": lambda stream: stream.stack.pop(),
    b"1": PickleStream.since_mark,
    b"(": PickleStream.mark,
    # constants, numbers, texts, bytes
    b"N": _push(lambda stream: None),
    b"\x88": _push(lambda stream: True),
    b"\x89": _push(lambda stream: False),
    b"J": _push(lambda stream: stream.number("<i")),
    b"K": _push(lambda stream: stream.number("<B")),
    b"M": _push(lambda stream: stream.number("<H")),
    b"\x8a": _push(
        lambda stream: int.from_bytes(stream.take(stream.number("<B")), "little", signed=True)
    ),
    b"G": _push(lambda stream: stream.number(">d")),
    b"X": _push(lambda stream: stream.text("<I")),
    b"\x8c": _push(lambda stream: stream.text("<B")),
    b"T": _push(lambda stream: stream.text("<I")),  # the byte strings of Python 2
    b"U": _push(lambda stream: stream.text("<B")),
    b"B": _push(lambda stream: stream.take(stream.number("<I"))),
    b"C": _push(lambda stream: stream.take(stream.number("<B"))),
    # containers
    b")": _push(lambda stream: ()),
    b"t": _push(lambda stream: tuple(stream.since_mark())),
    b"\x85": lambda stream: stream.pop_tuple(1),
    b"\x86": lambda stream: stream.pop_tuple(2),
    b"\x87": lambda stream: stream.pop_tuple(3),
    b"]": _push(lambda stream: []),
    b"a": lambda stream: stream.extend_list([stream.stack.pop()]),
    b"e": lambda stream: stream.extend_list(stream.since_mark()),
    b"}": _push(lambda stream: {}),
    b"s": lambda stream: stream.update_dict([stream.stack.pop(-2), stream.stack.pop()]),
    b"u": lambda stream: stream.update_dict(stream.since_mark()),
    # names, calls, references
    b"c": lambda stream: stream.push_name(stream.line(), stream.line()),
    b"\x93": PickleStream.push_stack_name,
    b"R": PickleStream.call,
    b"b": PickleStream.skip_state,
    b"Q": PickleStream.push_persistent,
    b"q": lambda stream: stream.remember(stream.number("<B")),
    b"r": lambda stream: stream.remember(stream.number("<I")),
    b"\x94": lambda stream: stream.remember(len(stream._memo)),
    b"h": lambda stream: stream.recall(stream.number("<B")),
    b"j": lambda stream: stream.recall(stream.number("<I")),
}

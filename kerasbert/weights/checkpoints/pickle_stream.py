"""Reads the pickle of a `torch.save` file as data, running nothing it says.

It describes tensors as views of numbered storages, whose bytes are elsewhere in the file.

`pickle.Unpickler` with a strict `find_class` runs no foreign code either, but it was
not written for hostile input. Measured on Python 3.11: a pickle of 9 bytes (a memo index of
one billion) took 16 GB and 147 s, one of 2 MB (nested tuples as a key of a dict) crashed the
process, and the opcode BUILD may set attributes of whatever `find_class` returned. So the
opcodes that torch's pickles consist of are interpreted here, each with its bound.
"""

import struct
from pickle import UnpicklingError
from typing import NamedTuple

from kerasbert.weights.checkpoints.shards import MAX_AXES, STORED_DTYPES, width_of

#: Bounds of one pickle. BERT-large has 390 tensors: about 80 kB and 16,000 steps.
MAX_BYTES = 4 << 20
MAX_STEPS = 200_000

_MAX_LINE = 256
_MAX_ARGUMENTS = 16
_KEY_TYPES = (str, int, float, bool, type(None))


class ForbiddenNameError(UnpicklingError):
    """The pickle names something that is no part of a state dict."""


class Constructor(NamedTuple):
    """What a pickle may call: a function of ours in the role of a name of torch."""

    function: object
    """Raises TypeError, ValueError or UnpicklingError if the arguments make no sense."""


class PickleStream:
    """One pickle in an open binary file; after `load` the file stands behind it.

    Args:
        file: binary file, positioned at the pickle.
        names: dict from dotted names that the pickle may use to a `Constructor`, or to an
            inert value.
        load_persistent: function from a persistent id to a value.

    Example:
        >>> import io, pickle
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
        self._stack = []

    def load(self):
        """Returns the object that the pickle describes.

        Raises:
            ForbiddenNameError: if it names anything outside `names`.
            UnpicklingError: if it is damaged, too large, or uses other opcodes.
        """
        try:
            for _ in range(MAX_STEPS):
                opcode = self._take(1)
                if opcode == b".":
                    return self._stack.pop()
                if opcode not in _ACTIONS:
                    raise UnpicklingError(f"opcode {opcode!r} at byte {self._used - 1}")
                _ACTIONS[opcode](self)
        except (LookupError, TypeError, ValueError, struct.error) as error:
            message = f"it makes no sense at byte {self._used} ({str(error)[:80]})"
            raise UnpicklingError(message) from error
        raise UnpicklingError(f"it has more than {MAX_STEPS} steps")

    # --- reading ---

    def _take(self, count):
        self._used += count
        if self._used > MAX_BYTES:
            raise UnpicklingError(f"it has more than {MAX_BYTES} bytes")
        data = self._file.read(count)
        if len(data) != count:
            raise UnpicklingError(f"it ends after {self._used - count + len(data)} bytes")
        return data

    def _number(self, form):
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _text(self, length_form):
        return self._take(self._number(length_form)).decode("utf-8")

    def _line(self):
        line = self._file.readline(_MAX_LINE)
        self._used += len(line)
        if not line.endswith(b"\n"):
            raise UnpicklingError(f"a name does not end at byte {self._used}")
        return line[:-1].decode("utf-8")

    # --- building ---

    def _since_mark(self):
        """Removes and returns all that was pushed since the last mark."""
        start = self._marks.pop()
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def _mark(self):
        self._marks.append(len(self._stack))

    def _pop_tuple(self, length):
        if len(self._stack) < length:
            raise IndexError("too few items")
        items = tuple(self._stack[-length:])
        del self._stack[-length:]
        self._stack.append(items)

    def _extend_list(self, items):
        if type(self._stack[-1]) is not list:
            raise TypeError("append to something else than a list")
        self._stack[-1].extend(items)

    def _update_dict(self, items):
        target = self._stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise TypeError("items for something else than a dict")
        target.update(zip(map(_check_key, items[::2]), items[1::2], strict=True))

    def _push_name(self, module, name):
        dotted = f"{module}.{name}"
        if dotted not in self._names:
            raise ForbiddenNameError(f"it names {dotted[:120]}")
        self._stack.append(self._names[dotted])

    def _push_stack_name(self):
        name, module = self._stack.pop(), self._stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise TypeError("a name that is no text")
        self._push_name(module, name)

    def _call(self):
        arguments, constructor = self._stack.pop(), self._stack.pop()
        if type(constructor) is not Constructor or type(arguments) is not tuple:
            raise TypeError("a call of something that cannot be called")
        # A long tuple, remembered once and passed often, would cost steps times its length.
        if len(arguments) > _MAX_ARGUMENTS:
            raise TypeError(f"a call with {len(arguments)} arguments")
        self._stack.append(constructor.function(*arguments))

    def _skip_state(self):
        # torch sets `_metadata` on the OrderedDict: versions of modules, no weights.
        self._stack.pop()
        if type(self._stack[-1]) is not dict:
            raise TypeError("a state for something else than a dict")

    def _push_persistent(self):
        if self._load_persistent is None:
            raise UnpicklingError("it refers to data outside of it")
        self._stack.append(self._load_persistent(self._stack.pop()))

    def _remember(self, index):
        self._memo[index] = self._stack[-1]

    def _recall(self, index):
        self._stack.append(self._memo[index])


def _check_key(key):
    """Refuses a key of a dict other than texts, numbers and None.

    The hash of a tuple recurses, and of shared tuples in tuples it takes exponential time.
    """
    if type(key) not in _KEY_TYPES:
        raise TypeError(f"a {type(key).__name__} as a key")
    return key


def _push(read):
    return lambda stream: stream._stack.append(read(stream))


_ACTIONS = {
    b"\x80": lambda stream: stream._take(1),  # PROTO
    b"\x95": lambda stream: stream._take(8),  # FRAME: a hint for buffering
    b"(": PickleStream._mark,
    # constants, numbers, texts
    b"N": _push(lambda stream: None),
    b"\x88": _push(lambda stream: True),
    b"\x89": _push(lambda stream: False),
    b"J": _push(lambda stream: stream._number("<i")),
    b"K": _push(lambda stream: stream._number("<B")),
    b"M": _push(lambda stream: stream._number("<H")),
    b"\x8a": _push(
        lambda stream: int.from_bytes(stream._take(stream._number("<B")), "little", signed=True)
    ),
    b"G": _push(lambda stream: stream._number(">d")),
    b"X": _push(lambda stream: stream._text("<I")),
    b"\x8c": _push(lambda stream: stream._text("<B")),
    b"T": _push(lambda stream: stream._text("<I")),  # the byte strings of Python 2
    b"U": _push(lambda stream: stream._text("<B")),
    # containers
    b")": _push(lambda stream: ()),
    b"t": _push(lambda stream: tuple(stream._since_mark())),
    b"\x85": lambda stream: stream._pop_tuple(1),
    b"\x86": lambda stream: stream._pop_tuple(2),
    b"\x87": lambda stream: stream._pop_tuple(3),
    b"]": _push(lambda stream: []),
    b"a": lambda stream: stream._extend_list([stream._stack.pop()]),
    b"e": lambda stream: stream._extend_list(stream._since_mark()),
    b"}": _push(lambda stream: {}),
    b"s": lambda stream: stream._update_dict([stream._stack.pop(-2), stream._stack.pop()]),
    b"u": lambda stream: stream._update_dict(stream._since_mark()),
    # names, calls, references
    b"c": lambda stream: stream._push_name(stream._line(), stream._line()),
    b"\x93": PickleStream._push_stack_name,
    b"R": PickleStream._call,
    b"b": PickleStream._skip_state,
    b"Q": PickleStream._push_persistent,
    b"q": lambda stream: stream._remember(stream._number("<B")),
    b"r": lambda stream: stream._remember(stream._number("<I")),
    b"\x94": lambda stream: stream._remember(len(stream._memo)),
    b"h": lambda stream: stream._recall(stream._number("<B")),
    b"j": lambda stream: stream._recall(stream._number("<I")),
}


# ---- what a pickle of torch may name ----------------------------------------------------------

_STORAGE_DTYPES = {
    "BoolStorage": "bool",
    "ByteStorage": "uint8",
    "CharStorage": "int8",
    "ShortStorage": "int16",
    "IntStorage": "int32",
    "LongStorage": "int64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}
_FOREIGN_DTYPES = [f"float8_{kind}" for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz")]


class _Dtype(NamedTuple):
    name: str


class Storage(NamedTuple):
    """A numbered run of bytes."""

    key: str
    dtype: str
    size: int
    """Bytes that the pickle says it has."""
    shift: int = 0
    """Bytes before its first element, if it is a part of another (legacy layout)."""


class Tensor(NamedTuple):
    """A view of a storage, not read yet."""

    storage: Storage
    dtype: str
    offset: int
    """Elements of the storage before the first one."""
    shape: tuple
    strides: tuple


def _are_counts(values):
    if type(values) is not tuple or len(values) > MAX_AXES:
        return False
    return all(type(value) is int and value >= 0 for value in values)


def _rebuild(storage, offset, shape, strides, requires_grad, hooks, metadata=None):
    return _tensor(storage, getattr(storage, "dtype", None), offset, shape, strides, metadata)


def _rebuild_untyped(storage, offset, shape, strides, requires_grad, hooks, dtype, metadata=None):
    return _tensor(storage, getattr(dtype, "name", None), offset, shape, strides, metadata)


def _tensor(storage, dtype, offset, shape, strides, metadata):
    if not isinstance(storage, Storage) or not isinstance(dtype, str):
        raise TypeError("a tensor without a storage or a type")
    if not _are_counts((offset,)) or not _are_counts(shape) or not _are_counts(strides):
        raise TypeError("a shape, stride or offset that counts nothing")
    if len(shape) != len(strides):
        raise ValueError(f"a tensor of {len(shape)} axes and {len(strides)} strides")
    if metadata:
        raise UnpicklingError("it holds a tensor that is stored conjugated or negated")
    return Tensor(storage, dtype, offset, shape, strides)


def _size(lengths):
    if not _are_counts(lengths):
        raise TypeError("a size that counts nothing")
    return lengths


TORCH_NAMES = {
    "collections.OrderedDict": Constructor(lambda: {}),
    "torch._utils._rebuild_tensor_v2": Constructor(_rebuild),
    "torch._utils._rebuild_tensor_v3": Constructor(_rebuild_untyped),
    "torch._utils._rebuild_parameter": Constructor(lambda tensor, requires_grad, hooks: tensor),
    "torch.Size": Constructor(_size),
    "torch.device": Constructor(lambda *place: None),
    "torch.storage.UntypedStorage": _Dtype("uint8"),
    **{f"torch.{name}": _Dtype(dtype) for name, dtype in _STORAGE_DTYPES.items()},
    **{
        f"torch.{dtype}": _Dtype(dtype) for dtype in (*STORED_DTYPES, *_FOREIGN_DTYPES, "complex32")
    },
}


def find_storage(identity):
    """From the persistent id ("storage", type, key, device, elements[, view]) to a storage."""
    if type(identity) is not tuple or len(identity) not in (5, 6) or identity[0] != "storage":
        raise UnpicklingError("it refers to something else than a storage")
    _, kind, key, _, elements, *view = identity
    if not isinstance(kind, _Dtype) or type(key) is not str or not _are_counts((elements,)):
        raise TypeError("a storage without a type, a key or a size")
    width = width_of(kind.name)
    shift = 0
    if view and view[0] is not None:
        _, first, elements_of_view = view[0]
        if not _are_counts((first, elements_of_view)) or first + elements_of_view > elements:
            raise ValueError("a storage outside of another")
        shift = first * width
    return Storage(key, kind.name, elements * width, shift)

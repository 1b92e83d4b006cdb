"""Reads NumPy arrays, dicts and strings out of a pickle without running anything that it names.

OGB's link data sets keep their splits in files of `torch.save`. Python's unpickler imports and
calls what a pickle asks for. The reader here is an interpreter of its own. It knows the operations
that such files need, and it builds an array from the parts that NumPy writes of one. A name in the
pickle is never looked up: it stays a text, and it is compared with the few texts that NumPy writes.
"""

from __future__ import annotations

import math
import pickletools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, Final

import numpy as np

_DTYPE = re.compile(r"[iufb][1248]")
_BYTE_ORDERS = ("<", ">", "=", "|")
#: The names that NumPy and Python write into a pickle of an array, old and new.
_ARRAY_MAKERS = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
_ARRAY, _ELEMENT_TYPE, _ENCODE = "numpy ndarray", "numpy dtype", "_codecs encode"
_BYTES = ("__builtin__ bytes", "builtins bytes")


class PickleRefusedError(ValueError):
    """A pickle that holds something else than arrays, dicts, lists, strings and numbers."""


@dataclass(frozen=True)
class _Name:
    """A name that the pickle gives. It is never looked up.

    Attributes:
        text: the module and the name in it, with a space between them.
    """

    text: str


@dataclass(eq=False)
class _ElementType:
    """The type of an array's elements, which is complete when its byte order is known."""

    code: str
    dtype: np.dtype | None = None

    def set_state(self, state: Any) -> None:
        order = state[1] if isinstance(state, tuple) and len(state) >= 2 else None
        if order not in _BYTE_ORDERS:
            raise PickleRefusedError(f"a type of elements has the state {_shown(state)}")
        self.dtype = np.dtype(self.code).newbyteorder(order)


@dataclass(eq=False)
class _Array:
    """An array, which is complete when its state is known."""

    values: np.ndarray | None = None

    def set_state(self, state: Any) -> None:
        match state:
            case int(), tuple(shape), _ElementType(dtype=np.dtype() as dtype), bool(fortran), bytes(raw):
                pass
            case _:
                raise PickleRefusedError(f"an array has the state {_shown(state)}")
        if not all(type(size) is int and size >= 0 for size in shape):
            raise PickleRefusedError(f"an array has the shape {_shown(shape)}")
        if math.prod(shape) * dtype.itemsize != len(raw):
            raise PickleRefusedError(f"an array {dtype} {_shown(shape)} comes with {len(raw)} bytes")
        self.values = np.frombuffer(raw, dtype).reshape(shape, order="F" if fortran else "C")


def read_pickled_arrays(stream: IO[bytes]) -> Any:
    """Reads one pickle.

    Args:
        stream: at the start of the pickle. It is read to the end of the pickle.

    Returns:
        What was pickled. Arrays in a dict are NumPy arrays of numbers.

    Raises:
        PickleRefusedError: the pickle is damaged, ends early or holds anything else.
    """
    reader = _Reader()
    try:
        for operation, argument, _ in pickletools.genops(stream):
            reader.run(operation.name, argument)
        return _finished(reader.result())
    except PickleRefusedError:
        raise
    except (ValueError, IndexError, TypeError, KeyError, OverflowError, MemoryError) as error:
        raise PickleRefusedError(f"damaged or foreign pickle ({error!r})") from error


_MARK: Final = object()


class _Reader:
    """The stack and the memo of a pickle that is being read."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self, operation: str, argument: Any) -> None:
        """Runs one operation.

        Raises:
            PickleRefusedError: the operation is not one that arrays need.
        """
        if operation in _IGNORED:
            return
        if operation in _CONSTANTS:
            self._stack.append(_CONSTANTS[operation]())
        elif operation in _ARGUMENTS:
            self._stack.append(argument)
        elif operation in _OPERATIONS:
            _OPERATIONS[operation](self, argument)
        else:
            raise PickleRefusedError(f"it has the operation {operation}, which arrays do not need")

    def result(self) -> Any:
        if len(self._stack) != 1 or self._stack[0] is _MARK:
            raise PickleRefusedError("damaged pickle: its stack does not end with one value")
        return self._stack[0]

    def _pop(self) -> Any:
        value = self._stack.pop()
        if value is _MARK:
            raise PickleRefusedError("damaged pickle: a mark where a value should be")
        return value

    def _since_mark(self) -> list[Any]:
        values = []
        while (value := self._stack.pop()) is not _MARK:
            values.append(value)
        return values[::-1]

    def _push_name(self, argument: str) -> None:
        self._stack.append(_Name(argument))

    def _push_name_from_stack(self, _argument: None) -> None:
        name, module = self._pop(), self._pop()
        self._stack.append(_Name(f"{module} {name}"))

    def _put(self, argument: int | None) -> None:
        self._memo[len(self._memo) if argument is None else argument] = self._stack[-1]

    def _get(self, argument: int) -> None:
        self._stack.append(self._memo[argument])

    def _tuple(self, size: int) -> None:
        values = [self._pop() for _ in range(size)]
        self._stack.append(tuple(values[::-1]))

    def _tuple_since_mark(self, _argument: None) -> None:
        self._stack.append(tuple(self._since_mark()))

    def _set_items(self, pairs: list[Any]) -> None:
        target = self._stack[-1]
        if not isinstance(target, dict) or len(pairs) % 2:
            raise PickleRefusedError("damaged pickle: items for something that is no dict")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if not isinstance(key, (str, int)):
                raise PickleRefusedError(f"a dict has the key {_shown(key)}")
            target[key] = value

    def _append(self, values: list[Any]) -> None:
        if not isinstance(self._stack[-1], list):
            raise PickleRefusedError("damaged pickle: elements for something that is no list")
        self._stack[-1].extend(values)

    def _set_item(self, _argument: None) -> None:
        value, key = self._pop(), self._pop()
        self._set_items([key, value])

    def _call(self, _argument: None) -> None:
        """Builds what NumPy would by a call. Only these four calls are known."""
        arguments, name = self._pop(), self._pop()
        match name, arguments:
            case _Name(text), (_Name(made), tuple(), _) if text in _ARRAY_MAKERS and made == _ARRAY:
                made_now: Any = _Array()
            case _Name(text), (str(code), *_) if text == _ELEMENT_TYPE:
                if not _DTYPE.fullmatch(code):
                    raise PickleRefusedError(f"an array has elements of the type {_shown(code)}")
                made_now = _ElementType(code)
            case _Name(text), (str(letters), "latin1") if text == _ENCODE:
                made_now = letters.encode("latin1")
            case _Name(text), () if text in _BYTES:
                made_now = b""
            case _Name(text), _:
                raise PickleRefusedError(f"it calls {_shown(text)}, which arrays do not need")
            case _:
                raise PickleRefusedError(f"it calls {_shown(name)}")
        self._stack.append(made_now)

    def _build(self, _argument: None) -> None:
        state, target = self._pop(), self._stack[-1]
        if not isinstance(target, (_Array, _ElementType)):
            raise PickleRefusedError(f"it sets the state of {_shown(target)}")
        target.set_state(state)


_IGNORED = frozenset({"PROTO", "FRAME", "STOP"})
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "MARK": lambda: _MARK,
}
_ARGUMENTS = frozenset(
    {"BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES"}
)
_OPERATIONS: dict[str, Callable[[_Reader, Any], None]] = {
    "GLOBAL": _Reader._push_name,
    "STACK_GLOBAL": _Reader._push_name_from_stack,
    "BINPUT": _Reader._put,
    "LONG_BINPUT": _Reader._put,
    "MEMOIZE": _Reader._put,
    "BINGET": _Reader._get,
    "LONG_BINGET": _Reader._get,
    "TUPLE": _Reader._tuple_since_mark,
    "TUPLE1": lambda reader, _: reader._tuple(1),
    "TUPLE2": lambda reader, _: reader._tuple(2),
    "TUPLE3": lambda reader, _: reader._tuple(3),
    "SETITEM": _Reader._set_item,
    "SETITEMS": lambda reader, _: reader._set_items(reader._since_mark()),
    "APPEND": lambda reader, _: reader._append([reader._pop()]),
    "APPENDS": lambda reader, _: reader._append(reader._since_mark()),
    "REDUCE": _Reader._call,
    "BUILD": _Reader._build,
}


def _finished(value: Any) -> Any:
    """Returns a value, with the arrays of a dict in the places of their parts."""
    if not isinstance(value, dict):
        return value
    if any(isinstance(one, _Array) and one.values is None for one in value.values()):
        raise PickleRefusedError("an array has no state")
    return {key: one.values if isinstance(one, _Array) else one for key, one in value.items()}


def _shown(value: Any) -> str:
    """Returns a value for an error, without what lies inside it."""
    match value:
        case _Name(text):
            return repr(text[:80])
        case str() | int() | None:
            return repr(value)[:80]
    return f"a {type(value).__name__.strip('_')}"

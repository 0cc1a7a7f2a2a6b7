"""Pickles of numbers, read without trusting them: arrays, sparse matrices, dictionaries and lists.

A pickle is a program. Python's own unpickler, even when it is told which classes it may name, lets that
program call them with any arguments and fill their instances with any state; NumPy's `dtype` and `ndarray`
take pointers from such state. This reader is an interpreter of its own for the few instructions that data
need. What a pickle calls an array, a type or a sparse matrix is a stand-in here, which takes a type code of
numbers and as many bytes as its shape needs. Every number is bounded, and so are the steps.
"""

from __future__ import annotations

import pickletools
import re
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from erlangen.errors import DataError

MAX_BYTES = 1 << 27
"""Longest pickle that is read, and most bytes that its arrays have together; PubMed's largest has 11 MB."""
MAX_STEPS = 2_000_000
"""Most instructions that are followed: a few seconds. PubMed's citations need 150,000."""
MAX_ENTRIES = 50_000_000
"""Largest dense matrix, in entries. Citeseer's has 12 million."""

_CODE = re.compile(r"b1|[iu][1248]|f[248]", re.ASCII)


def read(pickled: bytes) -> Any:
    """What a pickle holds: numbers, texts, tuples, lists, dictionaries, arrays, `Sparse`.

    >>> import pickle
    >>> read(pickle.dumps({0: [1, 2]}, protocol=2)), read(pickle.dumps(np.eye(2), protocol=3)).shape
    ({0: [1, 2]}, (2, 2))
    >>> read(pickle.dumps(print, protocol=2))
    Traceback (most recent call last):
    ...
    erlangen.errors.DataError: it names __builtin__.print
    """
    if len(pickled) > MAX_BYTES:
        raise DataError(f"it has {len(pickled):,} bytes, more than the {MAX_BYTES:,} that are read")
    machine = _Machine()
    try:
        for step, (instruction, argument, _) in enumerate(pickletools.genops(pickled)):
            if step >= MAX_STEPS:
                raise DataError(f"it takes more than {MAX_STEPS:,} steps")
            if instruction.name == "STOP":
                return _value(machine.result())
            machine.take(instruction.name, argument)
    except DataError:
        raise
    except Exception as error:  # instructions in any order fail in any way
        raise DataError(f"its instructions are broken: {error}") from None
    raise DataError("its instructions have no end")


@dataclass
class Sparse:
    """Stands in for scipy's `csr_matrix`: what a pickle said of one."""

    parts: dict[Any, Any] = field(default_factory=dict)

    def dense(self) -> np.ndarray:
        """The matrix in float32; `DataError` unless the parts are those of one."""
        shape = self.parts.get("_shape", self.parts.get("shape"))
        rows, columns = _shape(shape, 2)
        indptr, indices, data = (_value(self.parts.get(part)) for part in ("indptr", "indices", "data"))
        for part in (indptr, indices, data):
            _need(isinstance(part, np.ndarray) and part.ndim == 1, "the parts of a sparse matrix are arrays")
        _need(indptr.dtype.kind == indices.dtype.kind == "i", "the places of a sparse matrix are integers")
        most = max(rows, rows * columns, indptr.size, indices.size)
        _need(most <= MAX_ENTRIES, f"a matrix has at most {MAX_ENTRIES:,} entries")
        # In the types of the file, which may be narrow, differences could wrap and look as they should.
        indptr, indices = indptr.astype(np.int64), indices.astype(np.int64)
        filled = np.diff(indptr)
        _need(
            indptr.size == rows + 1
            and indptr[0] == 0
            and bool((filled >= 0).all())
            and indptr[-1] == indices.size == data.size
            and (not indices.size or bool(indices.min() >= 0 and indices.max() < columns)),
            "the rows of a sparse matrix fit its shape",
        )
        dense = np.zeros((rows, columns), np.float32)
        np.add.at(dense, (np.repeat(np.arange(rows), filled), indices), data)
        return dense


@dataclass
class _Type:
    """Stands in for a `numpy.dtype`: a code of numbers, and later its byte order."""

    code: str
    order: str = "="

    def build(self, state: Any) -> None:
        _need(isinstance(state, tuple) and len(state) in (8, 9), "the state of a type has eight entries")
        _, order, *layout = state
        _need(order in ("<", ">", "|", "="), "a type has a byte order")
        _need(layout[:3] == [None] * 3, "a type is one of plain numbers")
        self.order = order


@dataclass
class _Array:
    """Stands in for a `numpy.ndarray`: nothing, until its state says type, shape and bytes."""

    value: np.ndarray | None = None

    def build(self, state: Any, room: int) -> int:
        """Take type, shape and bytes, at most `room` of them; how many they are."""
        _need(isinstance(state, tuple) and len(state) == 5, "the state of an array has five entries")
        _, shape, kind, fortran, raw = state
        _need(isinstance(kind, _Type) and type(fortran) is bool, "an array has a type and an order")
        _need(isinstance(raw, (str, bytes)), "the numbers of an array are bytes")
        shape = _shape(shape)
        dtype = np.dtype(kind.order + kind.code)
        _need(prod(shape) * dtype.itemsize == len(raw), "an array has as many bytes as its shape needs")
        _need(len(raw) <= room, f"the arrays have at most {MAX_BYTES:,} bytes together")
        raw = raw.encode("latin1") if isinstance(raw, str) else raw
        read_only = np.frombuffer(raw, dtype).reshape(shape, order="F" if fortran else "C")
        self.value = read_only.astype(dtype.newbyteorder("="))
        return len(raw)


def _shape(value: Any, axes: int | None = None) -> tuple[int, ...]:
    small = isinstance(value, tuple) and len(value) <= 4 and (axes is None or len(value) == axes)
    _need(small and all(type(n) is int and 0 <= n < 2**31 for n in value), "a shape has small numbers")
    return value


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise DataError(f"expected that {what}")


def _value(made: Any) -> Any:
    if not isinstance(made, _Array):
        return made
    if made.value is None:
        raise DataError("expected that an array has a state")
    return made.value


@dataclass(frozen=True)
class _Name:
    """A global that a pickle names; it is never looked up."""

    path: str


_NDARRAY, _DTYPE = _Name("numpy ndarray"), _Name("numpy dtype")
_RECONSTRUCT, _SPARSE = _Name("numpy _reconstruct"), _Name("scipy csr_matrix")
_DEFAULT, _LIST = _Name("defaultdict"), _Name("list")
_NAMES = {
    "numpy ndarray": _NDARRAY,
    "numpy dtype": _DTYPE,
    "numpy.core.multiarray _reconstruct": _RECONSTRUCT,
    "numpy._core.multiarray _reconstruct": _RECONSTRUCT,
    "scipy.sparse.csr csr_matrix": _SPARSE,
    "scipy.sparse._csr csr_matrix": _SPARSE,
    "collections defaultdict": _DEFAULT,
    "__builtin__ list": _LIST,
    "builtins list": _LIST,
}

_INTEGERS = ("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4")
_PLAIN = (
    "BINFLOAT", "FLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE",
    "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
)  # fmt: skip
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _Machine:
    """The stack and the memo of a pickle, and the instructions that data need."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        """What lay on the stack before each mark."""
        self.memo: dict[int, Any] = {}
        self.room = MAX_BYTES
        """Bytes that arrays may still have: many may share one string of the pickle, and each copies it."""

    def result(self) -> Any:
        _need(len(self.stack) == 1 and not self.below, "one value is left at the end")
        return self.stack[0]

    def take(self, name: str, argument: Any) -> None:
        """Follow one instruction."""
        stack = self.stack
        if name in _INTEGERS:
            _need(isinstance(argument, int) and argument.bit_length() < 64, "integers fit into 64 bits")
            stack.append(argument)
        elif name in _PLAIN:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in ("PROTO", "FRAME"):
            pass
        elif name == "MARK":
            self.below.append(stack)
            self.stack = []
        elif name in _TUPLES:
            count = _TUPLES[name]
            _need(len(stack) >= count, "a tuple has its entries")
            stack[len(stack) - count :] = [tuple(stack[len(stack) - count :])]
        elif name == "TUPLE":
            items = self.marked()
            self.stack.append(tuple(items))
        elif name == "EMPTY_LIST":
            stack.append([])
        elif name == "LIST":
            items = self.marked()
            self.stack.append(items)
        elif name == "EMPTY_DICT":
            stack.append({})
        elif name == "DICT":
            items = self.marked()
            self.stack.append({})
            self.fill(items)
        elif name == "APPEND":
            item = stack.pop()
            self.top(list).append(item)
        elif name == "APPENDS":
            items = self.marked()
            self.top(list).extend(items)
        elif name == "SETITEM":
            item = stack.pop()
            self.fill([stack.pop(), item])
        elif name == "SETITEMS":
            self.fill(self.marked())
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif name == "GLOBAL":
            stack.append(self.named(argument))
        elif name == "STACK_GLOBAL":
            attribute, module = stack.pop(), stack.pop()
            _need(isinstance(attribute, str) and isinstance(module, str), "a name is a text")
            stack.append(self.named(f"{module} {attribute}"))
        elif name in ("REDUCE", "NEWOBJ"):
            arguments, made = stack.pop(), stack.pop()
            stack.append(self.made(made, arguments))
        elif name == "BUILD":
            self.build(stack.pop())
        else:
            raise DataError(f"it has the instruction {name}, which data do not need")

    def marked(self) -> list[Any]:
        _need(bool(self.below), "a mark lies on the stack")
        items, self.stack = self.stack, self.below.pop()
        return items

    def top(self, kind: type) -> Any:
        _need(type(self.stack[-1]) is kind, f"a {kind.__name__} is filled")
        return self.stack[-1]

    def fill(self, items: list[Any]) -> None:
        target = self.top(dict)
        _need(len(items) % 2 == 0, "every key of a dictionary has a value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            # Nothing else is hashed: a tuple of tuples of itself would take for ever.
            _need(type(key) in (int, str), "the keys of a dictionary are integers or texts")
            target[key] = value

    def named(self, path: str) -> _Name:
        if path not in _NAMES:
            raise DataError(f"it names {path.replace(' ', '.')[:80]}")
        return _NAMES[path]

    def made(self, name: Any, arguments: Any) -> Any:
        """The stand-in that a call gives."""
        _need(isinstance(arguments, tuple) and len(arguments) <= 3, "a call has at most three arguments")
        if name is _RECONSTRUCT and arguments and arguments[0] is _NDARRAY:
            return _Array()
        if name is _DTYPE and arguments and isinstance(arguments[0], str) and _CODE.fullmatch(arguments[0]):
            return _Type(arguments[0])
        if name is _SPARSE and not arguments:
            return Sparse()
        if name is _DEFAULT and arguments in ((), (_LIST,)):
            return {}
        if name is _LIST and not arguments:
            return []
        called = name.path if isinstance(name, _Name) else f"a {type(name).__name__}"
        raise DataError(f"it calls {called} with arguments that data do not need")

    def build(self, state: Any) -> None:
        made = self.stack[-1]
        if isinstance(made, _Type):
            made.build(state)
        elif isinstance(made, _Array):
            self.room -= made.build(state, self.room)
        elif isinstance(made, Sparse):
            _need(type(state) is dict, "the state of a sparse matrix is a dictionary")
            made.parts = state
        else:
            raise DataError(f"it gives a state to a {type(made).__name__}")

"""Everything a model holds: tensors, attributes, containers, hooks, kept by identity and by content.

A forward pass may write through `.data`, replace a parameter, fill a cache, register a buffer or append to a
list. Each thing that can change has a record, which knows whether it is as it was and how to put it back.
"""

from __future__ import annotations

import random
import sys
import zlib
from argparse import Namespace
from collections import OrderedDict, UserDict, UserList, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import is_
from types import SimpleNamespace
from typing import Any, Protocol, TypeGuard

import numpy as np
import torch
from torch import nn

LARGE = 2 << 30
"""So many bytes of tensors are copied; beyond them tensors are compared by a hash and cannot be put back."""

OBJECTS, DEPTH = 20_000, 8
"""How many objects are looked into below the attributes of modules, and how deep; others by identity."""

_MISSING = object()
_PLAIN = (str, bytes, int, float, complex, bool, type(None), torch.dtype, torch.device, torch.Size)
_OTHERS = {"torch", "numpy", *sys.stdlib_module_names}
_LOOKED_INTO = (SimpleNamespace, Namespace, UserDict, UserList)
_ELIDED = {"_parameters", "_buffers", "_modules"}


class Record(Protocol):
    """One thing that can change."""

    path: str

    def same(self) -> bool:
        """Whether it is as it was, as far as that is cheap to say."""
        ...

    def put_back(self) -> None:
        """Make it what it was; an error where that is not possible."""
        ...


class Holdings:
    """What a module and its submodules hold at this moment.

    `outer` are holdings taken before that still stand: what they copied and has not changed is not copied
    again.

    >>> layer = nn.Linear(1, 1)
    >>> held = Holdings(layer)
    >>> _, layer.calls = layer.weight.data.add_(1), [1]
    >>> held.changed()
    ['calls', 'weight']
    >>> held.put_back()
    >>> held.changed(), hasattr(layer, "calls")
    ([], False)
    """

    def __init__(self, model: nn.Module, outer: list[Holdings] | None = None) -> None:
        self.records: list[Record] = []
        self.tensors: dict[int, _Tensor] = {}
        self.iterators: list[str] = []
        """Attributes that change by being used, of which nobody can say whether they did."""
        self._outer = outer or []
        self._seen: dict[int, Any] = {}
        self._looked = 0
        self._waiting: deque[tuple[Any, str, int]] = deque()
        with torch.no_grad(), torch._C.DisableTorchFunction():
            for name, module in model.named_modules():
                self._module(module, name)
            while self._waiting:
                self._look(*self._waiting.popleft())
            self._copy_tensors()
        # Most dictionaries are those of a module's hooks and empty: one look tells that all still are.
        self._empty_ones = [record.mapping for record in self.records if _is_empty(record)]
        self._others = [record for record in self.records if not _is_empty(record)]

    def put_back(self) -> None:
        """Put back what changed. What cannot be put back is left to `changed` to say."""
        with torch.no_grad(), torch._C.DisableTorchFunction():
            for record in self.records if any(self._empty_ones) else self._others:
                try:
                    if not record.same():
                        record.put_back()
                except Exception:
                    continue

    def changed(self) -> list[str]:
        """The paths of what is not as it was."""
        with torch.no_grad(), torch._C.DisableTorchFunction():
            apart = [record for record in self.records if not _unchanged(record)]
        paths: list[str] = []
        for record in apart:
            paths += record.names() if isinstance(record, _Mapping) else [record.path]
        return sorted(set(paths))

    # ---------------------------------------------------------------- looking

    def _module(self, module: nn.Module, path: str) -> None:
        if not self._first(module):
            return
        if isinstance(module, torch.jit.ScriptModule):
            self._script_module(module, path)
            return
        self.records.append(
            _Value(lambda: type(module), partial(setattr, module, "__class__"), type(module), path)
        )
        self._mapping(vars(module), path, 0, attributes=True)
        self._slots(module, path, 0)
        for cls in type(module).__mro__:
            if cls.__module__.partition(".")[0] not in _OTHERS and self._first(cls):
                names = {k: v for k, v in vars(cls).items() if not _dunder(k)}
                self.records.append(_ClassAttributes(cls, names, _join(path, f"{cls.__name__} (class)")))
                for name, value in names.items():
                    self._wait(value, _join(path, name), 1)

    def _script_module(self, module: Any, path: str) -> None:
        for name, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            self._wait(tensor, _join(path, name), 0)
        for name in module._concrete_type.get_attributes():
            value = module._c.getattr(name)
            if name != "training" and isinstance(value, (*_PLAIN, list, dict, tuple)):
                get, put = partial(module._c.getattr, name), partial(module._c.setattr, name)
                self.records.append(_Value(get, put, value, _join(path, name)))

    def _wait(self, value: Any, path: str, depth: int) -> None:
        if not isinstance(value, _PLAIN):
            self._waiting.append((value, path, depth))

    def _look(self, value: Any, path: str, depth: int) -> None:
        if isinstance(value, nn.Module):
            for name, module in value.named_modules():
                self._module(module, _join(path, name))
        elif isinstance(value, torch.Tensor):
            self._tensor(value, path)
        elif depth > DEPTH or self._looked >= OBJECTS:
            return
        elif isinstance(value, dict):
            self._mapping(value, path, depth)
        elif isinstance(value, tuple):
            if self._first(value):
                self._inside(value, path, depth)
        elif isinstance(value, list | deque | set):
            if self._first(value):
                self.records.append(_Collection(value, list(value), path))
                self._inside(value, path, depth)
        elif isinstance(value, np.ndarray | bytearray):
            if self._first(value):
                whole = slice(None) if isinstance(value, bytearray) else ...
                put = partial(value.__setitem__, whole)
                self.records.append(_Value(lambda: value, put, value.copy(), path))
        elif isinstance(value, torch.Generator | random.Random | np.random.Generator | np.random.RandomState):
            if self._first(value):
                get, put = _state_of(value)
                self.records.append(_Value(get, put, get(), path))
        elif hasattr(type(value), "__next__"):
            self.iterators.append(path)
        elif has_attributes(value) and self._first(value):
            self._mapping(getattr(value, "__dict__", {}), path, depth, attributes=True)
            self._slots(value, path, depth)

    def _first(self, value: Any) -> bool:
        """Whether it is met for the first time; it is kept, so that its id stays its own."""
        self._looked += 1
        return self._seen.setdefault(id(value), _MISSING) is _MISSING and self._keep(value)

    def _keep(self, value: Any) -> bool:
        self._seen[id(value)] = value
        return True

    def _inside(self, values: Any, path: str, depth: int) -> None:
        for index, value in enumerate(values):
            self._wait(value, f"{path}[{index}]", depth + 1)

    def _mapping(self, mapping: dict[Any, Any], path: str, depth: int, attributes: bool = False) -> None:
        if not self._first(mapping):
            return
        elided = path.rpartition(".")[2] in _ELIDED
        owner = path.rpartition(".")[0] if elided else path
        record = _Mapping(mapping, dict(mapping), owner, attributes or elided)
        self.records.append(record)
        for key, value in record.items.items():
            self._wait(value, record.name(key), depth + 1)

    def _slots(self, value: Any, path: str, depth: int) -> None:
        names = [
            name
            for cls in type(value).__mro__
            for name in slot_names(cls)
            if name not in ("__dict__", "__weakref__")
        ]
        if names:
            held = {name: getattr(value, name, _MISSING) for name in names}
            self.records.append(_Slots(value, held, path))
            for name, part in held.items():
                if part is not _MISSING:
                    self._wait(part, _join(path, name), depth + 1)

    def _tensor(self, tensor: torch.Tensor, path: str) -> None:
        if not self._first(tensor):
            return
        record = _Tensor(tensor, path)
        self.tensors[id(tensor)] = record
        self.records.append(record)
        if record.grad is not None:
            self._wait(record.grad, f"{path}.grad", 0)

    def _copy_tensors(self) -> None:
        """Copy the small ones first: a large model then still has its buffers and caches put back."""
        total = 0
        for record in sorted(self.tensors.values(), key=lambda one: one.bytes):
            for outer in self._outer:
                if record.take(outer.tensors.get(id(record.tensor))):
                    break
            else:
                record.copy(total + record.bytes <= LARGE)
            total += record.bytes


def _is_empty(record: Record) -> TypeGuard[_Mapping]:
    """Whether it is a plain dictionary in which nothing was."""
    return isinstance(record, _Mapping) and not record.items and type(record.mapping) in (dict, OrderedDict)


def _unchanged(record: Record) -> bool:
    try:
        return record.same_in_full() if isinstance(record, _Tensor) else record.same()
    except Exception:
        return False  # it can no longer even be compared


# --------------------------------------------------------------------------------------------- records


class _Tensor:
    """A tensor: the object, the memory it lies in, its content, its gradient."""

    def __init__(self, tensor: torch.Tensor, path: str) -> None:
        self.tensor, self.path = tensor, path
        self.kind = type(tensor)
        self.requires_grad = tensor.requires_grad
        self.grad = tensor.grad if tensor.is_leaf else None
        self.alias = tensor.data
        self.version = _version(tensor)
        self.dense = tensor.layout == torch.strided and tensor.device.type != "meta"
        self.bytes = self.alias.numel() * self.alias.element_size() if self.dense else 0
        self.value: torch.Tensor | None = None
        self.hash: int | None = None

    def copy(self, small: bool) -> None:
        """Keep the content: a copy, a hash of a large one, nothing where neither can be had."""
        try:
            if self.dense and small:
                self.value = self.alias.clone()
            elif self.dense:
                self.hash = content_hash(self.alias)
        except Exception:
            self.value = self.hash = None

    def take(self, other: _Tensor | None) -> bool:
        """Use what was kept before of the same tensor, if it still has that content."""
        if other is None or not other.same():
            return False
        self.value, self.hash = other.value, other.hash
        return True

    def same(self) -> bool:
        t = self.tensor
        if type(t) is not self.kind or t.requires_grad != self.requires_grad:
            return False
        if (t.grad if t.is_leaf else None) is not self.grad:
            return False
        if not self.dense:
            return _version(t) == self.version
        now, before = t.data, self.alias
        if now.dtype != before.dtype or now.shape != before.shape or now.stride() != before.stride():
            return False
        if now.data_ptr() != before.data_ptr():
            return False
        return same_bits(now, self.value) if self.value is not None else _version(t) == self.version

    def same_in_full(self) -> bool:
        """As `same`, and by the hash of a large tensor, which sees what the version does not."""
        if self.hash is None:
            return self.same()
        version, self.version = self.version, _version(self.tensor)
        try:
            return self.same() and content_hash(self.alias) == self.hash
        finally:
            self.version = version

    def put_back(self) -> None:
        t = self.tensor
        t.data = self.alias
        if self.value is not None and not same_bits(self.alias, self.value):
            self.alias.copy_(self.value)
        if type(t) is not self.kind:
            t.__class__ = self.kind
        if t.is_leaf:
            if t.requires_grad != self.requires_grad:
                t.requires_grad_(self.requires_grad)
            t.grad = self.grad


@dataclass(eq=False)
class _Mapping:
    """A dictionary, by the identity of its values; the attributes of a module among them.

    The training flag is left out: an audit sets it on purpose, and `state` looks after it.
    """

    mapping: dict[Any, Any]
    items: dict[Any, Any]
    path: str
    attributes: bool

    def name(self, key: Any) -> str:
        return _join(self.path, str(key)) if self.attributes else f"{self.path}[{key!r}]"

    def names(self) -> list[str]:
        """The paths of the entries that are not as they were."""
        get = _base(self.mapping).get
        keys = {*self.items, *self.mapping}
        return [
            self.name(key)
            for key in keys
            if not self._flag(key) and get(self.mapping, key, _MISSING) is not self.items.get(key, _MISSING)
        ] or [self.path]

    def _flag(self, key: Any) -> bool:
        return self.attributes and isinstance(key, str) and key == "training"

    def same(self) -> bool:
        mapping, base = self.mapping, _base(self.mapping)
        if len(mapping) != len(self.items) or not all(map(is_, base.keys(mapping), self.items)):
            return False  # the order counts, too: it is the order of layers
        if all(map(is_, base.values(mapping), self.items.values())):
            return True  # nearly always, and asked of every dictionary between any two runs
        return all(
            now is before or self._flag(key)
            for (key, before), now in zip(self.items.items(), base.values(mapping), strict=True)
        )

    def put_back(self) -> None:
        mapping, base = self.mapping, _base(self.mapping)
        for key in [key for key in base.keys(mapping) if key not in self.items]:
            base.__delitem__(mapping, key)
        for key, value in self.items.items():
            if base.get(mapping, key, _MISSING) is not value and not self._flag(key):
                base.__setitem__(mapping, key, value)
        if not all(map(is_, base.keys(mapping), self.items)):
            for key in self.items:
                value = base.get(mapping, key, _MISSING)
                if value is not _MISSING:
                    base.__delitem__(mapping, key)
                    base.__setitem__(mapping, key, value)


@dataclass(eq=False)
class _Collection:
    """A list, deque or set, by the identity of its elements."""

    values: Any
    before: list[Any]
    path: str

    def same(self) -> bool:
        if isinstance(self.values, set):
            return len(self.values) == len(self.before) and all(one in self.values for one in self.before)
        return len(self.values) == len(self.before) and all(map(is_, self.values, self.before))

    def put_back(self) -> None:
        if isinstance(self.values, list):
            list.__setitem__(self.values, slice(None), self.before)
            return
        self.values.clear()
        (self.values.update if isinstance(self.values, set) else self.values.extend)(self.before)


@dataclass(eq=False)
class _Value:
    """Something of the model's own that is read and written as a whole: a random generator, an array, the
    class of a lazy module, an attribute of a compiled script."""

    get: Callable[[], Any]
    put: Callable[[Any], Any]
    before: Any
    path: str

    def same(self) -> bool:
        now, before = self.get(), self.before
        if isinstance(now, torch.Tensor):
            return torch.equal(now, before)
        if isinstance(now, np.ndarray):
            kind = now.shape == before.shape and now.dtype == before.dtype
            return kind and now.tobytes() == before.tobytes()
        return now is before or (not isinstance(now, type) and repr(now) == repr(before))

    def put_back(self) -> None:
        self.put(self.before)


@dataclass(eq=False)
class _Slots:
    """Attributes that lie in `__slots__`."""

    owner: Any
    before: dict[str, Any]
    path: str

    def same(self) -> bool:
        return all(getattr(self.owner, name, _MISSING) is value for name, value in self.before.items())

    def put_back(self) -> None:
        for name, value in self.before.items():
            if value is not _MISSING:
                object.__setattr__(self.owner, name, value)
            elif hasattr(self.owner, name):
                object.__delattr__(self.owner, name)


@dataclass(eq=False)
class _ClassAttributes:
    """What a class of the model's own holds for all its instances."""

    cls: type
    before: dict[str, Any]
    path: str

    def same(self) -> bool:
        now = vars(self.cls)
        return all(now.get(name, _MISSING) is value for name, value in self.before.items()) and not any(
            name not in self.before and not _dunder(name) for name in now
        )

    def put_back(self) -> None:
        for name in [name for name in vars(self.cls) if name not in self.before and not _dunder(name)]:
            delattr(self.cls, name)
        for name, value in self.before.items():
            if vars(self.cls).get(name, _MISSING) is not value:
                setattr(self.cls, name, value)


# --------------------------------------------------------------------------------------------- helpers


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equality of every bit that counts: NaN equals NaN, and shapes and types must agree.

    >>> same_bits(torch.tensor([float("nan")]), torch.tensor([float("nan")]))
    True
    """
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if torch.equal(a, b):
        return True
    if a.is_floating_point() or a.is_complex():
        return bool(((a == b) | (a.isnan() & b.isnan())).all())
    return False


def content_hash(tensor: torch.Tensor, step: int = 1 << 26) -> int:
    """A checksum of the bytes of a tensor, taken piece by piece so that no second copy of it is needed."""
    flat = tensor.detach().contiguous().view(-1).view(torch.uint8)
    checksum = 0
    for first in range(0, flat.numel(), step):
        piece: Any = flat[first : first + step].cpu().numpy()
        checksum = zlib.crc32(piece, checksum)
    return checksum


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def _state_of(generator: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    if isinstance(generator, random.Random):
        return generator.getstate, generator.setstate
    if isinstance(generator, np.random.Generator):
        bits = generator.bit_generator
        return lambda: bits.state, lambda state: setattr(bits, "state", state)
    return generator.get_state, generator.set_state


def has_attributes(value: Any) -> bool:
    """Whether an object is one of the model's own, with attributes that may change."""
    kind = type(value)
    if isinstance(value, type) or (kind.__module__.partition(".")[0] in _OTHERS and kind not in _LOOKED_INTO):
        return False
    parameters = getattr(kind, "__dataclass_params__", None)
    frozen = parameters is not None and parameters.frozen
    return not frozen and (hasattr(value, "__dict__") or any(slot_names(cls) for cls in kind.__mro__))


def slot_names(cls: type) -> Iterator[str]:
    slots = vars(cls).get("__slots__", ())
    for name in (slots,) if isinstance(slots, str) else slots:
        private = name.startswith("__") and not name.endswith("__")
        yield f"_{cls.__name__.lstrip('_')}{name}" if private else name


def _base(mapping: dict[Any, Any]) -> Any:
    return OrderedDict if isinstance(mapping, OrderedDict) else dict


def _dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name else path or name

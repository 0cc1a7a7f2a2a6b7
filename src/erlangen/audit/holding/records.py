"""What a model holds, piece by piece: each piece knows whether it is as it was and how to put it back."""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from operator import is_
from typing import Any, Protocol

import numpy as np
import torch

MISSING = object()


class Record(Protocol):
    """One thing that can change."""

    path: str

    def same(self) -> bool:
        """Whether it is as it was, as far as that is cheap to say."""
        ...

    def put_back(self) -> None:
        """Make it what it was; an error where that is not possible."""
        ...


class HeldTensor:
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

    def take(self, other: HeldTensor | None) -> bool:
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
class HeldMapping:
    """A dictionary, by the identity of its values; the attributes of a module among them.

    The training flag is left out: an audit sets it on purpose, and `state` looks after it.
    """

    mapping: dict[Any, Any]
    items: dict[Any, Any]
    path: str
    attributes: bool

    def name(self, key: Any) -> str:
        return join_path(self.path, str(key)) if self.attributes else f"{self.path}[{key!r}]"

    def names(self) -> list[str]:
        """The paths of the entries that are not as they were."""
        get = _base(self.mapping).get
        keys = {*self.items, *self.mapping}
        return [
            self.name(key)
            for key in keys
            if not self._flag(key) and get(self.mapping, key, MISSING) is not self.items.get(key, MISSING)
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
            if base.get(mapping, key, MISSING) is not value and not self._flag(key):
                base.__setitem__(mapping, key, value)
        if not all(map(is_, base.keys(mapping), self.items)):
            for key in self.items:
                value = base.get(mapping, key, MISSING)
                if value is not MISSING:
                    base.__delitem__(mapping, key)
                    base.__setitem__(mapping, key, value)


@dataclass(eq=False)
class HeldCollection:
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
class HeldValue:
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
class HeldSlots:
    """Attributes that lie in `__slots__`."""

    owner: Any
    before: dict[str, Any]
    path: str

    def same(self) -> bool:
        return all(getattr(self.owner, name, MISSING) is value for name, value in self.before.items())

    def put_back(self) -> None:
        for name, value in self.before.items():
            if value is not MISSING:
                object.__setattr__(self.owner, name, value)
            elif hasattr(self.owner, name):
                object.__delattr__(self.owner, name)


@dataclass(eq=False)
class HeldClass:
    """What a class of the model's own holds for all its instances."""

    cls: type
    before: dict[str, Any]
    path: str

    def same(self) -> bool:
        now = vars(self.cls)
        return all(now.get(name, MISSING) is value for name, value in self.before.items()) and not any(
            name not in self.before and not is_dunder(name) for name in now
        )

    def put_back(self) -> None:
        for name in [name for name in vars(self.cls) if name not in self.before and not is_dunder(name)]:
            delattr(self.cls, name)
        for name, value in self.before.items():
            if vars(self.cls).get(name, MISSING) is not value:
                setattr(self.cls, name, value)


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


def _base(mapping: dict[Any, Any]) -> Any:
    return OrderedDict if isinstance(mapping, OrderedDict) else dict


def is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name else path or name

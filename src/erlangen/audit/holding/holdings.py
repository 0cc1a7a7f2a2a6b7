"""Everything a model holds: tensors, attributes, containers, hooks, kept by identity and by content.

A forward pass may write through `.data`, replace a parameter, fill a cache, register a buffer or append to a
list. Each thing that can change has a record, which knows whether it is as it was and how to put it back.
"""

from __future__ import annotations

import random
import sys
from argparse import Namespace
from collections import OrderedDict, UserDict, UserList, deque
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import nn

from erlangen.audit.holding.records import (
    MISSING,
    HeldClass,
    HeldCollection,
    HeldMapping,
    HeldSlots,
    HeldTensor,
    HeldValue,
    Record,
    is_dunder,
    join_path,
)

LARGE = 2 << 30
"""So many bytes of tensors are copied; beyond them tensors are compared by a hash and cannot be put back."""

OBJECTS, DEPTH = 20_000, 8
"""How many objects are looked into below the attributes of modules, and how deep; others by identity."""

_PLAIN = (str, bytes, int, float, complex, bool, type(None), torch.dtype, torch.device, torch.Size)
_OTHERS = {"torch", "numpy", *sys.stdlib_module_names}
_LOOKED_INTO = (SimpleNamespace, Namespace, UserDict, UserList)
_ELIDED = {"_parameters", "_buffers", "_modules"}


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
        self.tensors: dict[int, HeldTensor] = {}
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
            paths += record.names() if isinstance(record, HeldMapping) else [record.path]
        return sorted(set(paths))

    # ---------------------------------------------------------------- looking

    def _module(self, module: nn.Module, path: str) -> None:
        if not self._first(module):
            return
        if isinstance(module, torch.jit.ScriptModule):
            self._script_module(module, path)
            return
        self.records.append(
            HeldValue(lambda: type(module), partial(setattr, module, "__class__"), type(module), path)
        )
        self._mapping(vars(module), path, 0, attributes=True)
        self._slots(module, path, 0)
        for cls in type(module).__mro__:
            if cls.__module__.partition(".")[0] not in _OTHERS and self._first(cls):
                names = {k: v for k, v in vars(cls).items() if not is_dunder(k)}
                self.records.append(HeldClass(cls, names, join_path(path, f"{cls.__name__} (class)")))
                for name, value in names.items():
                    self._wait(value, join_path(path, name), 1)

    def _script_module(self, module: Any, path: str) -> None:
        for name, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            self._wait(tensor, join_path(path, name), 0)
        for name in module._concrete_type.get_attributes():
            value = module._c.getattr(name)
            if name != "training" and isinstance(value, (*_PLAIN, list, dict, tuple)):
                get, put = partial(module._c.getattr, name), partial(module._c.setattr, name)
                self.records.append(HeldValue(get, put, value, join_path(path, name)))

    def _wait(self, value: Any, path: str, depth: int) -> None:
        if not isinstance(value, _PLAIN):
            self._waiting.append((value, path, depth))

    def _look(self, value: Any, path: str, depth: int) -> None:
        if isinstance(value, nn.Module):
            for name, module in value.named_modules():
                self._module(module, join_path(path, name))
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
                self.records.append(HeldCollection(value, list(value), path))
                self._inside(value, path, depth)
        elif isinstance(value, np.ndarray | bytearray):
            if self._first(value):
                whole = slice(None) if isinstance(value, bytearray) else ...
                put = partial(value.__setitem__, whole)
                self.records.append(HeldValue(lambda: value, put, value.copy(), path))
        elif isinstance(value, torch.Generator | random.Random | np.random.Generator | np.random.RandomState):
            if self._first(value):
                get, put = _state_of(value)
                self.records.append(HeldValue(get, put, get(), path))
        elif hasattr(type(value), "__next__"):
            self.iterators.append(path)
        elif has_attributes(value) and self._first(value):
            self._mapping(getattr(value, "__dict__", {}), path, depth, attributes=True)
            self._slots(value, path, depth)

    def _first(self, value: Any) -> bool:
        """Whether it is met for the first time; it is kept, so that its id stays its own."""
        self._looked += 1
        return self._seen.setdefault(id(value), MISSING) is MISSING and self._keep(value)

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
        record = HeldMapping(mapping, dict(mapping), owner, attributes or elided)
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
            held = {name: getattr(value, name, MISSING) for name in names}
            self.records.append(HeldSlots(value, held, path))
            for name, part in held.items():
                if part is not MISSING:
                    self._wait(part, join_path(path, name), depth + 1)

    def _tensor(self, tensor: torch.Tensor, path: str) -> None:
        if not self._first(tensor):
            return
        record = HeldTensor(tensor, path)
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


def _is_empty(record: Record) -> TypeGuard[HeldMapping]:
    """Whether it is a plain dictionary in which nothing was."""
    return (
        isinstance(record, HeldMapping) and not record.items and type(record.mapping) in (dict, OrderedDict)
    )


def _unchanged(record: Record) -> bool:
    try:
        return record.same_in_full() if isinstance(record, HeldTensor) else record.same()
    except Exception:
        return False  # it can no longer even be compared


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

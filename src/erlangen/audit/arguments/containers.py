"""Values with tensors inside: containers and objects, looked into and rebuilt with other tensors.

What a model is given may be a tensor, a mapping, a data class or an object of the user's own. Its tensors are
found by name, and other ones are put in their place in a copy: what was given is never written to.
"""

from __future__ import annotations

import dataclasses
import enum
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set, ValuesView
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from erlangen.audit.holding.holdings import has_attributes, slot_names


@dataclass(frozen=True, eq=False)
class Counts:
    """A list of integers, held as a tensor: it can then be cut and changed as other lengths are."""

    tensor: torch.Tensor
    kind: type

    def made(self) -> Any:
        """The list as the model takes it."""
        return self.kind(self.tensor.tolist())


def hold_counts(value: Any, tensors: Iterable[torch.Tensor]) -> Any:
    """The value with lists of integers held as `Counts`, in mappings too, where they may be lengths: one for
    each sequence of a tensor and none longer than it is.

    >>> hold_counts([3, 2], [torch.zeros(2, 3)]).made()
    [3, 2]
    >>> hold_counts([3, 4], [torch.zeros(2, 3)])
    [3, 4]
    """
    shapes = [tuple(one.shape[:2]) for one in tensors if one.dim() >= 2]
    if type(value) is dict:
        return {key: hold_counts(part, tensors) for key, part in value.items()}
    if type(value) not in (list, tuple) or len(value) < 2 or not all(type(part) is int for part in value):
        return value
    either = [*shapes, *(shape[::-1] for shape in shapes)]
    fits = any(len(value) == batch and max(value) <= length for batch, length in either)
    return Counts(torch.tensor(value, device="cpu"), type(value)) if fits and min(value) > 0 else value


def made_counts(value: Any) -> Any:
    """The value with held lists as the model takes them."""
    if isinstance(value, Counts):
        return value.made()
    if type(value) is dict and any(True for _ in counts_in(value)):
        return {key: made_counts(part) for key, part in value.items()}
    return value


def counts_in(value: Any, name: str = "") -> Iterator[str]:
    """The names of the lists that are held."""
    if isinstance(value, Counts):
        yield name
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from counts_in(part, f"{name}.{key}" if name else str(key))


DEPTH = 6
"""Containers and objects are looked into this deep."""


@dataclass(frozen=True, eq=False)
class Packed:
    """A packed sequence, held as a padded batch and its lengths: positions can then be told apart."""

    padded: torch.Tensor
    lengths: torch.Tensor
    sorted: bool
    """Whether the sequences were given from the longest to the shortest."""

    @classmethod
    def of(cls, value: PackedSequence) -> Packed:
        padded, lengths = pad_packed_sequence(value, batch_first=True)
        return cls(padded, lengths, value.sorted_indices is None)

    def made(self) -> PackedSequence:
        lengths = self.lengths.cpu().clamp(1, self.padded.shape[1])
        ordered = self.sorted and bool((lengths.diff() <= 0).all())
        return pack_padded_sequence(self.padded, lengths, batch_first=True, enforce_sorted=ordered)


@dataclass(frozen=True, eq=False)
class Listed:
    """A list of tensors of one shape, held as one tensor: its entries may be positions or sequences."""

    stacked: torch.Tensor
    kind: type

    @classmethod
    def of(cls, value: list[torch.Tensor] | tuple[torch.Tensor, ...]) -> Listed:
        return cls(torch.stack(list(value)), type(value))

    def made(self) -> Any:
        return self.kind(self.stacked.unbind(0))


def gathered(values: Mapping[Any, Any], *, lists: bool = True) -> dict[Any, Any]:
    """Arguments with packed sequences held as padded batches, and a list that comes first as one tensor.

    A list counts where it is the first that holds tensors: beside another input its entries are conditions or
    states, each by itself. Entries of three axes are batches, which are inputs of their own.
    """
    result, first = {}, True
    tensors = [tensor for _, tensor in leaves(values)]
    for key, value in values.items():
        found = any(True for _ in leaves(value))
        if isinstance(value, PackedSequence):
            value = Packed.of(value)
        elif lists and found and first and _one_shape(value):
            value = Listed.of(value)
        first = first and not found
        result[key] = hold_counts(value, tensors)
    return result


def _one_shape(value: Any) -> bool:
    listed = type(value) is list or (type(value) is tuple and len(value) > 2)
    if not listed or len(value) < 2 or not all(type(part) is torch.Tensor for part in value):
        return False
    kinds = {(part.shape, part.dtype, part.device, part.layout) for part in value}
    return len(kinds) == 1 and value[0].dim() in (1, 2) and value[0].layout == torch.strided


def made(value: Any) -> Any:
    """The argument as the model takes it."""
    return value.made() if isinstance(value, Packed | Listed) else made_counts(value)


def unpacked(output: Any, length: int | None) -> Any:
    """An output with packed sequences as padded batches, as long as the packed input is."""
    if isinstance(output, PackedSequence):
        longest = len(output.batch_sizes)
        length = longest if length is None else max(length, longest)
        return pad_packed_sequence(output, batch_first=True, total_length=length)[0]
    if type(output) in (tuple, list):
        return type(output)(unpacked(part, length) for part in output)
    if type(output) is dict:
        return {key: unpacked(part, length) for key, part in output.items()}
    return output


def leaves(value: Any, name: str = "", above: tuple[int, ...] = ()) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor inside a value, with the name of its place; `above` are the values that it lies in."""
    if isinstance(value, torch.Tensor):
        yield name, value
        return
    if isinstance(value, Counts):
        yield name, value.tensor
        return
    if len(above) < DEPTH and id(value) not in above:
        for key, part in parts(value):
            yield from leaves(part, f"{name}.{key}" if name else str(key), (*above, id(value)))


def parts(value: Any) -> list[tuple[Any, Any]]:
    """The named parts of a container or object; nothing for anything else."""
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, tuple | list):
        fields = getattr(value, "_fields", range(len(value)))
        return list(zip(fields, value, strict=True))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, _attribute(value, field.name)) for field in dataclasses.fields(value)]
    if not _looked_into(value):
        return []
    if _keyed(value):
        keyed: Any = value
        return [(key, keyed[key]) for key in keyed.keys()]  # noqa: SIM118
    return list(_attributes(value).items())


def _attribute(value: Any, name: str) -> Any:
    """An attribute, or None where it raises: configurations refuse some of theirs."""
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def _looked_into(value: Any) -> bool:
    """Whether it is an object that may carry content: what a cache holds are states of earlier steps."""
    if isinstance(value, torch.nn.Module) or callable(value) or is_cache(value):
        return False
    return has_attributes(value)


def _keyed(value: Any) -> bool:
    """Whether an object is used as a mapping, as the batches of data loaders and of graphs are."""
    kind = type(value)
    return all(callable(getattr(kind, name, None)) for name in ("keys", "__getitem__", "__setitem__"))


def _attributes(value: Any) -> dict[str, Any]:
    slots = [name for kind in type(value).__mro__ for name in slot_names(kind)]
    held = {name: getattr(value, name) for name in slots if not _own(name) and hasattr(value, name)}
    return {**held, **getattr(value, "__dict__", {})}


def _own(name: str) -> bool:
    return name in ("__dict__", "__weakref__")


def mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor], above: tuple[int, ...] = ()) -> Any:
    """The same value with every tensor replaced by change(tensor); what cannot be copied stays as it is."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, Counts):
        return dataclasses.replace(value, tensor=change(value.tensor))
    if not any(True for _ in leaves(value, "", above)):
        return fresh(value)
    inside = {key: mapped(part, change, (*above, id(value))) for key, part in parts(value)}
    if isinstance(value, tuple):
        return type(value)(*inside.values()) if hasattr(value, "_fields") else type(value)(inside.values())
    if isinstance(value, list):
        return type(value)(inside.values())
    if type(value) is dict:
        return inside
    try:
        return _rebuilt(value, inside)
    except Exception:
        return value  # `sealed` says so


def _rebuilt(value: Any, inside: dict[Any, Any]) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, Mapping):
        try:
            return dataclasses.replace(value, **inside)  # type: ignore[type-var]
        except (TypeError, ValueError):  # fields that its own __init__ does not take
            return _with_attributes(copy(value), inside)
    result: Any = copy(value)
    if not isinstance(value, Mapping) and not _keyed(value):
        return _with_attributes(result, inside)
    data = getattr(value, "data", None)
    if isinstance(data, dict):  # a UserDict shares its entries with a shallow copy
        result.data = dict(data)
    for key, part in inside.items():
        if result[key] is not part:
            result[key] = part
    return result


def _with_attributes(result: Any, inside: dict[Any, Any]) -> Any:
    for name, part in inside.items():
        if getattr(result, name) is not part:
            object.__setattr__(result, name, part)  # frozen ones too: it is a copy
    return result


def sealed(value: Any) -> list[str]:
    """The names of tensors inside that cannot be replaced: their object cannot be copied.

    >>> sealed({"x": torch.zeros(1)})
    []
    """
    given = dict(leaves(value))
    before = {name: (id(tensor), tensor) for name, tensor in given.items()}
    again = dict(leaves(mapped(value, lambda tensor: tensor.clone())))
    after = dict(leaves(value))
    return [name for name, (old, _) in before.items()
            if name not in again or id(again[name]) == old or id(after.get(name)) != old]  # fmt: skip


def closed(value: Any) -> bool:
    """Whether a value holds others, or numbers, and has no named parts: a set, a queue, raw memory.

    >>> closed({1.5}), closed("text"), closed(range(3)), closed(())
    (True, False, False, False)
    """
    if isinstance(value, str | bytes | range | torch.Tensor | torch.Size | enum.Enum) or value is None:
        return False
    many = callable(getattr(type(value), "__iter__", None)) or isinstance(value, array | memoryview)
    try:
        return many and not isinstance(value, Mapping | list | tuple) and len(value) > 0
    except TypeError:
        return many


def unreadable(value: Any, name: str = "", above: tuple[int, ...] = ()) -> dict[str, str]:
    """Parts that hold numbers, yet no tensors: (name -> what it is).

    >>> unreadable({"x": np.zeros(3), "y": 1.0})
    {'x': 'a NumPy array'}
    """
    if isinstance(value, np.ndarray):
        return {name: "a NumPy array"} if value.size > 1 and value.dtype.kind in "fiubc" else {}
    if isinstance(value, Counts):
        return {}
    if hasattr(type(value), "__next__"):
        return {name: f"an iterator ({type(value).__name__})"}
    found: dict[str, str] = {}
    if len(above) < DEPTH and id(value) not in above and not isinstance(value, torch.Tensor):
        if isinstance(value, Set | deque | ValuesView):
            held = any(isinstance(part, torch.Tensor | np.ndarray) for part in value)
            return {name: f"a {type(value).__name__}"} if held else {}
        for key, part in parts(value):
            found |= unreadable(part, f"{name}.{key}" if name else str(key), (*above, id(value)))
    return found


def is_cache(value: Any) -> bool:
    """Whether it is an object that holds the states of earlier steps, by the name of its class."""
    return "Cache" in type(value).__name__ and not isinstance(value, torch.nn.Module | type)


def fresh(value: Any) -> Any:
    """A copy of a cache, and of a container that a model may fill; anything else as it is.

    >>> cache = {}
    >>> fresh(cache) is cache, fresh(cache)
    (False, {})
    """
    if not (is_cache(value) or type(value) in (list, dict, set)):
        return value
    copies: dict[int, Any] = {}
    for part in _parts(value):
        if isinstance(part, torch.Tensor):  # one with a gradient's history cannot be copied by itself
            copies[id(part)] = part.detach().clone()
        elif type(part).__name__.endswith("Config") or isinstance(part, torch.nn.Module):
            copies[id(part)] = part
    try:
        return deepcopy(value, copies)
    except Exception:
        return value  # what moves by itself is then said


def holds_keys(name: str, value: Any) -> bool:
    """Whether an input is a cache with keys of positions before the given ones.

    >>> holds_keys("past_key_values", [(torch.zeros(1, 2, 5, 4),) * 2]), holds_keys("past_key_values", None)
    (True, False)
    """
    if value is None or not (is_cache(value) or "past_key" in name or "cache" in name):
        return False
    length = getattr(value, "get_seq_length", None)
    if callable(length):
        return bool(length())
    return any(isinstance(part, torch.Tensor) and part.numel() for part in _parts(value))


def _parts(value: Any, depth: int = 0) -> Iterator[Any]:
    """The value and everything inside it."""
    yield value
    if depth >= DEPTH or isinstance(value, torch.Tensor | torch.nn.Module | str | bytes):
        return
    if isinstance(value, Mapping):
        inside = list(value.values())
    elif isinstance(value, list | tuple | set):
        inside = list(value)
    else:
        inside = list(getattr(value, "__dict__", {}).values()) if has_attributes(value) else []
    for part in inside:
        yield from _parts(part, depth + 1)

"""The outputs of a model, whatever their type: every tensor of numbers, and where its rows are."""

from __future__ import annotations

import dataclasses
from collections import UserList, deque
from collections.abc import Mapping, Set, ValuesView
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

from erlangen.audit.arguments.containers import closed, unpacked
from erlangen.audit.holding.holdings import slot_names
from erlangen.audit.inputs import Content

DEPTH = 6
"""Containers and objects are looked into this deep."""


def output_tensors(output: Any) -> list[tuple[str, torch.Tensor]]:
    """Every tensor in an output with the name of its place: tensors, tuples, mappings, objects, nested.

    Arrays and lists of numbers come as tensors, sparse tensors as dense ones and nested ones padded by zeros.

    >>> [name for name, _ in output_tensors({"logits": torch.zeros(1), "more": ([0.5, 1.5], 3)})]
    ['logits', 'more.0', 'more.1']
    """
    return [(name, part) for name, part in _leaves(output) if isinstance(part, torch.Tensor)]


def unread(output: Any) -> dict[str, str]:
    """Parts of an output that may hold numbers and were not looked into: (name -> what it is).

    >>> unread({"logits": torch.zeros(1), "later": lambda: 0})
    {'later': 'a function'}
    """
    return {name: part for name, part in _leaves(output) if isinstance(part, str)}


def _leaves(output: Any, depth: int = 0) -> list[tuple[str, torch.Tensor | str]]:
    """The tensors in an output, and in words what is no container and may hold numbers."""
    tensor = _as_tensor(output)
    if tensor is not None:
        return [("", tensor)]
    if isinstance(output, torch.nn.Module | type) or _cache_of_transformers(output):
        return []
    if callable(output):
        return [("", "a function")]
    if hasattr(type(output), "__next__"):
        return [("", "an iterator")]
    parts = _parts(output)
    if parts is None:
        return [("", f"a {type(output).__name__} of several entries, which are in no order")]
    if not parts and not isinstance(output, Set) and closed(output):
        return [("", f"a {type(output).__name__}")]
    if parts and depth >= DEPTH:
        return [("", f"a container more than {DEPTH} levels down")]
    return [
        (f"{name}.{inner}" if inner else str(name), found)
        for name, part in parts
        for inner, found in _leaves(part, depth + 1)
    ]


def _as_tensor(value: Any) -> torch.Tensor | None:
    """A value of numbers as a strided tensor; None for anything else."""
    if isinstance(value, PackedSequence):
        value = unpacked(value, None)
    if isinstance(value, torch.Tensor):
        if value.is_nested:
            return torch.nested.to_padded_tensor(value, 0.0)
        return value.to_dense() if value.layout != torch.strided else value
    if isinstance(value, np.ndarray | np.generic):
        return torch.tensor(value, device="cpu") if value.dtype.kind in "fciu" else None
    numbers = isinstance(value, int | float | complex) and not isinstance(value, bool)
    if numbers or (type(value) in (list, tuple) and _of_numbers(value)):
        try:
            return torch.tensor(value, device="cpu")
        except (TypeError, ValueError, OverflowError):
            return None  # rows of different lengths are looked at one by one
    return None


def _of_numbers(value: Any) -> bool:
    """Whether a list holds numbers, or lists of them, and nothing else."""
    while type(value) in (list, tuple) and value:
        if not all(type(part) is type(value[0]) for part in value):
            return False
        value = value[0]
    return isinstance(value, int | float | complex) and not isinstance(value, bool)


def _cache_of_transformers(value: Any) -> bool:
    """Whether it is a cache of transformers: what it holds comes out again as rows of later steps, which
    `compare` looks at."""
    return any(
        kind.__name__ == "Cache" and kind.__module__.startswith("transformers")
        for kind in type(value).__mro__
    )


def _parts(output: Any) -> list[tuple[Any, Any]] | None:
    """The named parts of a container or object; None for a set of several, which no two runs name alike."""
    if isinstance(output, Mapping):
        return list(output.items())
    if isinstance(output, Set):
        held = [part for part in output if not isinstance(part, str | bytes | bool | None)]
        return None if len(held) > 1 else list(enumerate(held))
    if isinstance(output, deque | ValuesView | UserList):
        return list(enumerate(output))
    if isinstance(output, tuple | list):
        return list(zip(getattr(output, "_fields", range(len(output))), output, strict=True))
    if dataclasses.is_dataclass(output):
        return [(field.name, getattr(output, field.name, None)) for field in dataclasses.fields(output)]
    slots = [name for kind in type(output).__mro__ for name in slot_names(kind)]
    held = {name: getattr(output, name) for name in slots if hasattr(output, name) and name[:2] != "__"}
    return list({**held, **getattr(output, "__dict__", {})}.items())


def moved_entries(before: Any, after: Any) -> dict[str, torch.Tensor]:
    """For every output of one shape in two runs: which entries move, bit by bit; NaN equals NaN."""
    was, now = dict(floating(before)), dict(floating(after))
    return {
        name: (now[name] != one) & ~(now[name].isnan() & one.isnan())
        for name, one in was.items()
        if name in now and now[name].shape == one.shape
    }


def floating(output: Any) -> list[tuple[str, torch.Tensor]]:
    """The tensors of an output as floating point numbers, integers last; each tensor once.

    An integer that moves shows a dependence; one that stays shows nothing, for it may be a rounded number.
    """
    found: list[tuple[str, torch.Tensor]] = []
    seen: list[torch.Tensor] = []
    for name, tensor in sorted(output_tensors(output), key=lambda part: discrete(part[1])):
        if tensor.numel() and not any(tensor is other for other in seen):
            seen.append(tensor)
            if tensor.is_complex():
                tensor = torch.view_as_real(tensor.resolve_conj())
            found.append((name, tensor.double() if discrete(tensor) else tensor))
    return found


def discrete(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds integers or booleans: predicted tokens, classes, decisions."""
    return not tensor.is_floating_point() and not tensor.is_complex()


@dataclass(frozen=True)
class Place:
    """Where the rows of an output are: the name of the tensor and the axes of positions and of the batch."""

    name: str
    axis: int | None
    """None: the output is pooled, one row for a sequence."""
    batch_axis: int | None
    """None: the output has one row or sequence for the whole batch."""
    items: int = 1
    """How many sequences lie along the batch axis; more entries than that are rows of one sequence."""
    folded: str | None = None
    """"items first" or "items last" where one axis holds items times rows."""
    discrete: bool = False
    """Whether the output holds integers: see `floating`."""
    filled: int | None = None
    """How many entries along the axis are in use, in a cache with room for more."""
    pairs: bool = False
    """Whether the first two axes are both of items, as scores in CLIP: entry (a, b) is of items a and b, and
    the row of an item is its own entry (a, a)."""
    grid: bool = False
    """Whether the rows are the pixels of the last two axes, row after row."""
    dims: int | None = None
    """How many axes the tensor has."""

    def rows(self, output: Any) -> torch.Tensor:
        """The output as (batch, rows, features)."""
        tensor = dict(floating(output))[self.name].detach()
        if tensor.dim() == 0:
            return tensor.reshape(1, 1, 1)
        if self.pairs:
            return tensor.diagonal(dim1=0, dim2=1).movedim(-1, 0).reshape(tensor.shape[0], 1, -1)
        if self.grid:
            return tensor.flatten(2).transpose(1, 2)
        if self.folded is not None:
            tensor = tensor.reshape(*self._unfolded(tensor), *tensor.shape[1:])
            tensor = tensor if self.folded == "items first" else tensor.transpose(0, 1)
            return tensor.reshape(*tensor.shape[:2], -1)
        if self.batch_axis is None:
            if self.axis is None:
                return tensor.reshape(1, 1, -1)
            tensor = tensor.movedim(self.axis, 0)
            return tensor.reshape(1, tensor.shape[0], -1)
        if self.axis is None:
            return tensor.movedim(self.batch_axis, 0).reshape(tensor.shape[self.batch_axis], 1, -1)
        tensor = tensor.movedim((self.batch_axis, self.axis), (0, 1))[:, : self.filled]
        return tensor.reshape(*tensor.shape[:2], -1)

    def fits(self, shape: tuple[int, ...], items: int) -> bool:
        """Whether an output of this shape, for so many items, can have its rows here."""
        if self.dims not in (None, len(shape)):
            return False  # a loss in training where there are rows in eval mode, both without a name
        if self.folded is not None:
            return shape[0] % items == 0
        if self.pairs:
            return shape[:2] == (items, items)
        # A batch of one has axes of its size by chance: states of layers, (1, batch, features).
        by_chance = self.items == 1 and items > 1
        return not shape or (len(shape) > max(self.axis or 0, self.batch_axis or 0) and not by_chance)

    def _unfolded(self, tensor: torch.Tensor) -> tuple[int, int]:
        rows = tensor.shape[0] // self.items
        return (self.items, rows) if self.folded == "items first" else (rows, self.items)

    @property
    def pooled(self) -> bool:
        """One row for a sequence, or for all of them."""
        return self.axis is None and self.folded is None


def place_of(
    name: str,
    tensor: torch.Tensor,
    found: list[Content],
    moved: torch.Tensor | None = None,
    fixed: frozenset[int] = frozenset(),
    labels: frozenset[int] = frozenset(),
) -> Place:
    """Where the rows of an output are, judged by the sizes of the inputs with positions.

    `moved` says which entries move when the first sequence of the batch is another one: of several axes that
    have the size of the batch, the batch is the one along which nothing else moves. `fixed` are axes that
    kept their size when the input was shorter: they have as many entries as there are positions by chance.
    `labels` are lengths of labels: rows of a decoder that is fed with these are as many.

    >>> x = Content("x", torch.zeros(2, 5, 3), 1, 0, None)
    >>> place_of("", torch.zeros(2, 5, 7), [x]).axis, place_of("", torch.zeros(2, 7), [x]).axis
    (1, None)
    """
    sequences = [one for one in found if one.axis is not None]
    first = (sequences or found)[0]
    lengths = [one.length for one in sequences]
    shape = tuple(tensor.shape)
    if tensor.dim() == 0 or (tensor.dim() == 1 and name.rpartition(".")[2] == "loss"):
        return Place(name, None, None)  # a loss may be a mean over the batch, repeated for each item
    if first.batch_axis is None:
        return Place(name, 0 if tensor.dim() >= 2 or shape[0] in lengths else None, None)
    batch = first.batch
    if first.patch == 1 and (len(shape), shape[0]) == (4, batch) and shape[-2:] == first.tensor.shape[-2:]:
        return Place(name, 2, 0, batch, grid=True)
    batch_axis = _batch_axis(shape, first, moved)
    if batch_axis is None:
        if batch > 1 and shape[0] % batch == 0 and shape[0] > batch:
            return Place(name, None, 0, batch, _fold(moved, batch))
        return Place(name, 0 if tensor.dim() >= 2 and not _kept(fixed, tensor) else None, None)
    others = [axis for axis in range(tensor.dim()) if axis != batch_axis]
    rooms = [axis for axis in others if tensor.dim() >= 3 and _filled(moved, axis, first.length)]
    if tensor.dim() >= 3 and batch_axis == 0 and shape[1] in labels and shape[1] not in lengths:
        return Place(name, 1, 0, batch)
    if tensor.dim() >= 3 and not rooms and _kept(fixed, tensor) and all(one.sequence for one in sequences):
        return Place(name, None, batch_axis, batch)  # states of one layer or several: they have no rows
    fitting = [axis for axis in others if shape[axis] in lengths and axis not in fixed]
    if tensor.dim() >= 3:
        usual = 1 if batch_axis == 0 else 0
        if len(rooms) == 1 and not fitting:
            return Place(name, rooms[0], batch_axis, batch, filled=first.length)
        if tensor.dim() == 3 and batch_axis == 1 and usual not in fitting:
            return Place(name, usual, batch_axis, batch)  # states of layers
        chance = not fixed and tensor.dim() == 3 and shape[usual] > 1 and fitting and fitting[0] == 2
        if usual in fitting or not fitting or chance:
            return Place(name, usual, batch_axis, batch)
        return Place(name, fitting[0], batch_axis, batch)
    if tensor.dim() == 2 and fitting:
        return Place(name, fitting[0], batch_axis, batch)
    return Place(name, None, batch_axis, batch)


def _batch_axis(shape: tuple[int, ...], first: Content, moved: torch.Tensor | None) -> int | None:
    usual = 1 if first.axis == 0 and first.batch_axis == 1 else 0
    fitting = [axis for axis in (usual, 1 - usual, 2) if axis < len(shape) and shape[axis] == first.batch]
    if len(fitting) > 1 or (fitting and fitting[0] != usual):
        alone = [axis for axis in fitting if moved is not None and _confined(moved, axis)]
        if len(shape) > 1 and fitting[0] != usual and not alone:
            return None
        return (alone or fitting)[0]
    return fitting[0] if fitting else None


def _fold(moved: torch.Tensor | None, batch: int) -> str:
    """What comes first where one axis holds items times rows: what moves with the first item lies together,
    or is one entry of every `batch`."""
    if moved is None:
        return "items first"
    rows = moved.reshape(len(moved), -1).any(1)
    first, last = rows.reshape(batch, -1), rows.reshape(-1, batch)
    return "items last" if bool(first[1:].any()) and not bool(last[:, 1:].any()) else "items first"


def _kept(fixed: frozenset[int], tensor: torch.Tensor) -> bool:
    """Whether no axis of an output has another size where the input is shorter: none is of positions."""
    return len(fixed) == tensor.dim()


def _filled(moved: torch.Tensor | None, axis: int, length: int) -> bool:
    """Whether most of the first `length` entries along an axis move, and no later one."""
    if moved is None or moved.shape[axis] <= length:
        return False
    used = moved.movedim(axis, 0).flatten(1).any(1)
    return 2 * int(used[:length].sum()) > length and not bool(used[length:].any())


def _confined(moved: torch.Tensor, axis: int) -> bool:
    """Whether only the first entries along an axis move, and something does."""
    return bool(moved.any()) and not bool(moved.narrow(axis, 1, moved.shape[axis] - 1).any())


def places(
    output: Any,
    found: list[Content],
    other: Any = None,
    fixed: dict[str, frozenset[int]] | None = None,
    labels: list[Content] | None = None,
) -> list[Place]:
    """The places of all floating outputs; those with rows first. `other` is the output for another first
    sequence."""
    asked = frozenset(one.length for one in labels or () if one.axis is not None)
    if not found:
        return []
    after = dict(floating(other)) if other is not None else {}
    made, integers = [], {name for name, tensor in output_tensors(output) if discrete(tensor)}
    for name, tensor in floating(output):
        again = after.get(name)
        same = again is not None and again.shape == tensor.shape
        moved = tensor != again if same else None
        place = place_of(name, tensor, found, moved, (fixed or {}).get(name, frozenset()), asked)
        made.append(replace(place, discrete=name in integers, dims=tensor.dim()))
    return sorted(made, key=lambda place: place.pooled)

"""Outputs of two sides, held against each other: the largest difference, and whether it is rounding."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from torch import nn

from erlangen.audit.inputs import Content, Inputs
from erlangen.audit.outputs import output_tensors

SURELY = 16
"""Differences up to so many units of the last place, of the largest output, are rounding."""
AT_MOST = 1e4
"""Differences beyond so many units are never rounding; in half precision, those beyond a sixteenth."""
TIMES = 64
"""In between: so many times what one unit in the last place of every weight and input does to the outputs."""


@dataclass(frozen=True)
class OutputDifference:
    """By how much an output of one side differs from that of another, at most."""

    sides: tuple[str, str]
    size: float
    relative: float
    """The part of the output's largest entry."""
    rounding: bool
    """Whether the type's rounding explains it."""
    output: str = ""
    """The name of the tensor among the outputs."""
    item: int | None = None
    row: int | None = None
    """The first place that differs by more than rounding; None without one, or for an output without rows."""

    def __str__(self) -> str:
        who = f"{self.sides[0]} / {self.sides[1]}"
        # Places in a tuple are no names.
        which = f" ({self.output})" if self.output and not self.output.isdigit() else ""
        told = (
            f"{who}: the outputs{which} differ by {self.size:.1e} ({self.relative:.1e} of the largest entry)"
        )
        if self.rounding:
            return f"{told} at most, which is rounding"
        where = ""
        if self.row is not None:
            where = f", first at row {self.row}" + (f" of item {self.item}" if self.item else "")
        return told + where


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one output: values (batch, rows, features), and which positions the rows are about."""

    values: torch.Tensor
    positions: np.ndarray | None
    """None for an output without rows for positions."""

    def at(self, positions: np.ndarray) -> torch.Tensor:
        """The values of some of the positions."""
        if self.positions is None:
            return self.values
        return self.values[:, torch.from_numpy(np.searchsorted(self.positions, positions))]


Outputs = dict[str, Rows]


def rows_of(output: Any, content: Content, start: int, stop: int) -> Outputs:
    """The floating tensors of an output with a row for each of the positions [start, stop).

    A tensor with one entry where the rows would be holds the last row alone, as many decoders return.

    >>> content = Content("x", torch.zeros(2, 5, 3), 1, 0, None)
    >>> found = rows_of((torch.zeros(2, 5, 3), torch.zeros(2), torch.zeros(2, 1, 7)), content, 0, 5)
    >>> {name: rows.positions.tolist() for name, rows in found.items()}
    {'0': [0, 1, 2, 3, 4], '2': [4]}
    """
    found: Outputs = {}
    axis, batch_axis = content.axis, content.batch_axis
    if axis is None or content.patch is not None:
        return found
    for name, tensor in output_tensors(output):
        if not tensor.is_floating_point() or tensor.dim() <= max(axis, batch_axis or 0):
            continue
        if batch_axis is not None and tensor.shape[batch_axis] != content.batch:
            continue
        last = tensor.shape[axis] == 1 and tensor.dim() >= (2 if batch_axis is None else 3)
        if tensor.shape[axis] != stop - start and not last:
            continue
        whole = tensor[None].movedim(axis + 1, 1) if batch_axis is None else tensor
        whole = whole if batch_axis is None else whole.movedim((batch_axis, axis), (0, 1))
        positions = np.arange(stop - whole.shape[1], stop)
        found[name] = Rows(whole.reshape(*whole.shape[:2], -1).detach(), positions)
    return found


def difference_of(
    sides: tuple[str, str],
    mine: Outputs,
    theirs: Outputs,
    noise: Callable[[], Outputs | None],
    real: np.ndarray | None = None,
) -> OutputDifference | None:
    """The largest difference among outputs of the same names, over the rows that both have.

    Positions that are padding by `real` do not count. Two NaN are equal; one alone is an infinite difference.
    The difference is rounding when it is no larger than rounding of every weight and input would make it:
    `noise()` gives the first side's outputs with each of them moved by one unit in the last place.

    >>> a, b = torch.ones(1, 3, 2), torch.ones(1, 3, 2)
    >>> b[0, 1] += 0.5
    >>> a, b = ({"": Rows(values, np.arange(3))} for values in (a, b))
    >>> print(difference_of(("a", "b"), a, b, lambda: None))
    a / b: the outputs differ by 5.0e-01 (5.0e-01 of the largest entry), first at row 1
    """
    worst: OutputDifference | None = None
    moved: Outputs | None = None
    asked = False
    for name, one in mine.items():
        other = theirs.get(name)
        if other is None or (one.positions is None) != (other.positions is None):
            continue
        rows = _common(one, other)
        a, b = one.at(rows), other.at(rows)
        if a.shape != b.shape or not a.numel():
            continue
        counts = (
            None if real is None or one.positions is None or rows[-1] >= real.shape[-1] else real[:, rows]
        )
        apart = _apart(a, b, counts)
        scale = _scale(_counted(a.double().nan_to_num(posinf=0, neginf=0), counts))
        size = float(apart.max())
        eps = max(torch.finfo(part.dtype).eps for part in (a, b))
        allowed = SURELY * eps * scale
        if allowed < size <= (AT_MOST * eps if eps < 1e-5 else 1 / SURELY) * scale:
            if not asked:
                asked, moved = True, noise()
            again = None if moved is None else moved.get(name)
            if again is not None and again.values.shape == one.values.shape:
                allowed = max(allowed, TIMES * float(_apart(a, again.at(rows), counts).max()))
        rounding = size <= allowed
        item = row = None
        if not rounding and one.positions is not None:
            # The earliest row, since in a causal model all later ones follow from it.
            first = int((apart > allowed).any(dim=0).nonzero()[0])
            item, row = int((apart[:, first] > allowed).nonzero()[0]), int(rows[first])
        found = OutputDifference(sides, size, size / scale, rounding, name, item, row)
        if worst is None or (not found.rounding, found.relative) > (not worst.rounding, worst.relative):
            worst = found
    return worst


def _scale(values: torch.Tensor) -> float:
    """The usual size of the outputs: the middle of the largest entries of all columns.

    One banned logit of -1e9 must not excuse the others.
    """
    columns = values.abs().reshape(-1, values.shape[-1]).amax(0)
    return float(columns.median()) or float(columns.max()) or 1.0


def _common(one: Rows, other: Rows) -> np.ndarray:
    if one.positions is None or other.positions is None:
        return np.arange(one.values.shape[1])
    return np.intersect1d(one.positions, other.positions)


def nudged(model: nn.Module, inputs: Inputs) -> tuple[nn.Module, Inputs] | None:
    """A copy of a model and inputs, every number moved by one unit in the last place; None without a copy.

    >>> copied, _ = nudged(nn.Linear(2, 2), Inputs.of(torch.zeros(1, 2)))
    >>> type(copied).__name__
    'Linear'
    """
    generator = torch.Generator(device="cpu").manual_seed(0)

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        signs = torch.randint(0, 2, tensor.shape, generator=generator, device="cpu").to(tensor.device) * 2 - 1
        finite = tensor.isfinite() & (tensor.abs() < torch.finfo(tensor.dtype).max / 2)
        return torch.where(finite, tensor + tensor * torch.finfo(tensor.dtype).eps * signs, tensor)

    try:
        other = copy.deepcopy(model)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.copy_(moved(parameter))
    except Exception:
        return None  # modules that cannot be copied, or weights that cannot be written to
    return other, inputs.map(moved)


def _apart(a: torch.Tensor, b: torch.Tensor, real: np.ndarray | None) -> torch.Tensor:
    """How far each real row moved, (batch, rows); everything else counts as zero."""
    same = (a == b) | (a.isnan() & b.isnan())
    size = (a.double() - b.double()).abs().nan_to_num(nan=float("inf"))
    size = torch.where(same, 0.0, size)
    return _counted(size, real).amax(dim=-1).cpu() if size.numel() else torch.zeros(1, 1, device="cpu")


def _counted(values: torch.Tensor, real: np.ndarray | None) -> torch.Tensor:
    if real is None or values.dim() != 3 or real.shape[-1] != values.shape[1]:
        return values
    rows = torch.from_numpy(np.broadcast_to(real, (values.shape[0], real.shape[-1])).copy()).to(values.device)
    return torch.where(rows[..., None], values, 0.0)


def matched(mine: list[str], theirs: list[str]) -> list[tuple[str | None, str | None]]:
    """The outputs of two sides, those of one name side by side; None where a side has no such output.

    Where no name is common, names say nothing: a model may return a tuple and the other its first entry.

    >>> matched(["", "rows"], ["0", "1", "2"])
    [('', '0'), ('rows', '1'), (None, '2')]
    >>> matched(["logits", "hidden"], ["hidden"])
    [('logits', None), ('hidden', 'hidden')]
    """
    if not set(mine) & set(theirs):
        return list(zip_longest(mine, theirs))
    names = dict.fromkeys([*mine, *theirs])
    return [(one if one in mine else None, one if one in theirs else None) for one in names]


def place_within(whole: Collection[str], part: Collection[str]) -> str | None:
    """The place in an output at which another one lies: what stands before its names; None where it is
    nowhere.

    A step of decoding may return the logits alone, or the first of a tuple.

    >>> place_within(["0.logits", "0.value", "1"], ["logits"]), place_within(["0", "1"], [""])
    ('0', '0')
    >>> place_within(["logits"], ["logits"]), place_within(["logits"], ["rows"])
    ('', None)
    """
    above = ["", *(name[:end] for name in whole for end, mark in enumerate(name + ".") if mark == ".")]
    return next((one for one in above if all(within(one, name) in whole for name in part)), None)


def within(above: str, name: str) -> str:
    """The name of a part of what is called `above`."""
    return f"{above}.{name}" if above and name else above or name

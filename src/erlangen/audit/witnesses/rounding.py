"""Changes that are rounding, told from those that are dependences: by runs in another precision.

A change as small as rounding (a mixture of experts groups tokens by expert, and other groups round otherwise)
is run again in another precision: a real dependence stays as large, rounding does not. Nothing larger than a
few units in the last place is ever excused as rounding, nor than a few times what such units of all weights
and inputs do to the output.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from erlangen.audit.comparing.closeness import AT_MOST, nudged
from erlangen.audit.inputs import Content
from erlangen.audit.outputs import Place
from erlangen.audit.witnesses.double import copied, in_precision
from erlangen.audit.witnesses.runs import Runner
from erlangen.errors import DataError

ULPS = 32
"""Changes above this many units in the last place of the output's size are never rounding."""
LOW_ULPS = 8
"""The same under autocast, of bfloat16: so that a sixteenth of the output's size is never rounding."""
SMALL_IN_DOUBLE = 1e-11
"""The part of the output's size below which a model in double precision is suspected of rounding."""
CHUNK = 1 << 20
"""Entries that are compared at a time."""
FEWEST = 2
"""So many changes are made again at least, where time ends before."""
NUDGES = 16
"""Rounding is at most so many times what one unit in the last place of every weight and input does."""
SHRINKS = 1e-3
"""A change that shrinks below this part of itself in double precision was rounding."""


@dataclass(eq=False)
class Changes:
    """How the rows of one output moved, with each position or with each item of the batch: (batch, rows,
    n)."""

    place: Place
    base: torch.Tensor
    """The rows without a change."""
    moved: np.ndarray
    """Whether any bit moved."""
    sizes: np.ndarray
    """By how much at most."""
    parts: np.ndarray
    """The same as a part of the usual size of the feature that moved."""

    @classmethod
    def none(cls, place: Place, base: torch.Tensor, n: int) -> Changes:
        """Before anything was changed."""
        shape = *base.shape[:2], n
        return cls(place, base, np.zeros(shape, bool), np.zeros(shape), np.zeros(shape))

    def add(self, j: int, rows: torch.Tensor, own: np.ndarray | bool = False) -> None:
        """What moved with j. What may move (`own`) is no rounding, however small it is, and says nothing
        about rounding."""
        bits, size = (part.numpy() for part in differs(rows, self.base))
        part = part_of(self.usual, rows, self.base, size)
        self.moved[:, :, j], self.sizes[:, :, j] = bits | own, np.where(own, np.inf, size)
        self.parts[:, :, j] = np.where(own, np.inf, part)

    @cached_property
    def usual(self) -> torch.Tensor:
        """The usual size of each feature."""
        return usual_sizes(self.base)

    @cached_property
    def scale(self) -> float:
        """The largest entry of the rows."""
        return float(self.base.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).abs().max()) or 1.0

    @property
    def eps(self) -> float:
        """The rounding of the rows' type."""
        return torch.finfo(self.base.dtype).eps

    @property
    def double(self) -> bool:
        """Whether the rows are in double precision."""
        return self.base.dtype == torch.float64


def roundings(
    runner: Runner, content: Content, outputs: list[Changes], done: list[int], items: bool = False
) -> tuple[list[np.ndarray], set[int]]:
    """Which of the changes are rounding, for every output; and positions that there was no time to tell of.

    With `items` the changes are of whole items of the batch, in place of positions.
    """
    suspects = []
    for one, grown in zip(outputs, _grown(runner, outputs), strict=True):
        limit = SMALL_IN_DOUBLE if one.double else ULPS * one.eps
        # Rounded inside to bfloat16; autocast leaves a model in double as it is.
        if runner.mode.autocast and (not one.double or one.place.discrete):
            limit = LOW_ULPS * torch.finfo(torch.bfloat16).eps
        suspects.append(one.moved & ((one.parts <= limit) | (one.sizes <= grown)))
    result, untold = [np.zeros_like(one) for one in suspects], set[int]()
    for dtype in (torch.float64, torch.float32):  # those in double are run in single precision
        mine = [
            k
            for k, suspect in enumerate(suspects)
            if suspect.any() and outputs[k].double != (dtype == torch.float64)
        ]
        if not mine:
            continue
        again = changes_in(runner, content, [outputs[k].place for k in mine], dtype, items)
        if again is None:
            for k in mine:
                result[k] = suspects[k] & (outputs[k].sizes <= 16 * _noise(runner, outputs[k]))
            continue
        others = {k: np.zeros_like(outputs[k].sizes) for k in mine}
        columns = np.any([suspects[k].any(axis=(0, 1)) for k in mine], axis=0)
        wanted = done if dtype == torch.float32 else np.flatnonzero(columns).tolist()
        for number, j in enumerate(spread(wanted)):
            if number >= FEWEST and runner.late:
                untold |= {one for one in wanted if columns[one]} - set(spread(wanted)[:number])
                break
            for k, change in zip(mine, again(j), strict=True):
                others[k][:, :, j] = change
        for k in mine:
            suspect, one, other = suspects[k], outputs[k], others[k]
            if dtype == torch.float32:
                # A bit may stay by chance: the largest change says how rounding has grown.
                least = SHRINKS * float(other[suspect | ~one.moved].max())
                result[k] = suspect & (one.sizes <= max(least, torch.finfo(torch.float64).eps * one.scale))
            else:
                result[k] = suspect & (other <= SHRINKS * one.sizes)
    _rounded_inside(runner, content, outputs, result, items)
    return result, untold


def _grown(runner: Runner, outputs: list[Changes]) -> list[float]:
    """How large rounding may have become on its way to each output, by the model's own numbers.

    Sums that nearly cancel leave outputs that are small beside what was rounded. One unit in the last place
    of every weight and input then moves the outputs by more than their own last places.
    """
    nothing = [0.0] * len(outputs)
    limits = [(ULPS * one.eps * one.scale, AT_MOST * one.eps * one.scale) for one in outputs]
    between = [
        one.base.dtype == torch.float32 and bool((one.moved & (one.sizes > low) & (one.sizes <= high)).any())
        for one, (low, high) in zip(outputs, limits, strict=True)
    ]
    nudge = nudged(runner.model, runner.inputs) if any(between) and runner.inputs.vary is None else None
    if nudge is None:
        return nothing
    try:
        output = runner.on(nudge[1], model=nudge[0])
        apart = [float(differs(rows_like(one.place, output, one.base), one.base)[1].max()) for one in outputs]
    except Exception:
        return nothing  # content that must stay what it is
    return [
        min(NUDGES * size, high) if asked else 0.0
        for size, asked, (_, high) in zip(apart, between, limits, strict=True)
    ]


def _rounded_inside(
    runner: Runner, content: Content, outputs: list[Changes], result: list[np.ndarray], items: bool
) -> None:
    """Outputs in double precision of a model that rounds to single precision inside: run without its casts,
    what was rounding shrinks."""
    suspects = {
        k: one.moved & ~result[k] & (one.sizes <= ULPS * torch.finfo(torch.float32).eps * one.scale)
        for k, one in enumerate(outputs)
        if one.double and not one.place.discrete
    }
    mine = [k for k, suspect in suspects.items() if suspect.any()]
    places, base = [outputs[k].place for k in mine], [outputs[k].base for k in mine]
    again = changes_in(runner, content, places, torch.float64, items) if mine else None
    if again is None or not any(float(one.max()) for one in again(None, base)):
        return  # nothing is rounded inside
    for j in np.flatnonzero(np.any([suspects[k].any(axis=(0, 1)) for k in mine], axis=0)).tolist():
        if runner.late:
            return
        for k, change in zip(mine, again(j), strict=True):
            result[k][:, :, j] |= suspects[k][:, :, j] & (change <= SHRINKS * outputs[k].sizes[:, :, j])


def _noise(runner: Runner, one: Changes) -> float:
    """How much the output moves when only the order of summation does: the batch run twice over."""
    batch, base = runner.reading.batch, one.base
    axes = {id(part.tensor): part.batch_axis for part in (*runner.reading.contents, *runner.reading.labels)}

    def twice(tensor: torch.Tensor) -> torch.Tensor:
        axis = axes.get(id(tensor), 0)
        if axis is None or tensor.dim() <= axis or tensor.shape[axis] != batch:
            return tensor
        return torch.cat([tensor, tensor], dim=axis)

    try:
        doubled = replace(one.place, items=2 * batch).rows(runner.on(runner.inputs.map(twice)))
    except Exception:
        return 0.0  # no other shape runs, so nothing is excused as rounding
    if doubled.shape[0] < len(base) or doubled.shape[1:] != base.shape[1:]:
        return 0.0
    return float((doubled[: len(base)].double() - base.double()).abs().nan_to_num().max())


def changes_in(
    runner: Runner, content: Content, found: list[Place], dtype: torch.dtype, items: bool = False
) -> Callable[..., list[np.ndarray]] | None:
    """The changes of some outputs caused by position j, or by several, in another precision, against the run
    without a change or other rows; None when the model has no such copy. With `items` j is an item of the
    batch, changed throughout."""
    try:
        model = copied(runner.model, dtype)
    except Exception:
        return None  # modules that cannot be copied
    base: list[torch.Tensor] = []
    casts = dtype == torch.float64  # first without the model's own casts, where it runs so
    while not base:
        casts = not casts
        try:
            output = runner.changed(content, [], model=model, recast=dtype, within=in_precision(dtype, casts))
            base = [place.rows(output).clone() for place in found]
        except Exception:
            if casts:
                return None  # kernels without this type

    def change(
        j: int | Sequence[int] | None, than: list[torch.Tensor] = base, item: int | None = None
    ) -> list[np.ndarray]:
        at: int | Sequence[int] = [] if j is None else j
        if items and isinstance(at, int):
            at, item = range(content.length), at
        output = runner.changed(
            content, at, item, model=model, recast=dtype, within=in_precision(dtype, casts)
        )
        return [differs(place.rows(output), rows)[1].numpy() for place, rows in zip(found, than, strict=True)]

    return change


def spread(positions: list[int]) -> list[int]:
    """The positions in an order whose every beginning is spread over them: whoever stops early has seen all
    parts.

    >>> spread([0, 1, 2, 3, 4])
    [0, 4, 2, 1, 3]
    """
    if len(positions) < 3:
        return list(positions)
    found, waiting = [positions[0], positions[-1]], deque([(0, len(positions) - 1)])
    while waiting:
        first, last = waiting.popleft()
        middle = (first + last) // 2
        if middle in (first, last):
            continue
        found.append(positions[middle])
        waiting += [(first, middle), (middle, last)]
    return found


def rows_like(place: Place, output: object, base: torch.Tensor) -> torch.Tensor:
    try:
        rows = place.rows(output)
    except KeyError:
        rows = None
    if rows is None or rows.shape != base.shape:
        raise DataError(
            f"changing the content changes the shape of {place.name or 'the output'}: rows cannot be compared"
        )
    return rows


def usual_sizes(rows: torch.Tensor) -> torch.Tensor:
    """The size by which changes of each feature are judged: its own largest entry, at least the middle one of
    all features.

    One banned logit of -1e4 must not excuse the others, and is itself known to so many places only.
    """
    columns = rows.detach().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).abs().amax((0, 1)).double()
    middle = float(columns.median()) or float(columns.max()) or 1.0
    return columns.clamp(min=middle)


def part_of(
    usual: torch.Tensor, rows: torch.Tensor, base: torch.Tensor, sizes: np.ndarray | None = None
) -> np.ndarray:
    """How much each row moved at most, as a part of the usual size of the feature that moves.

    `sizes` is how much it moved, where that is known.
    """
    sizes = differs(rows, base)[1].numpy() if sizes is None else sizes
    most = float(usual.max())
    if most <= 2 * float(usual.min()) or not sizes.any():
        return sizes / most
    divided = (part.double() / usual.to(part.device) for part in (rows, base))
    return differs(*divided)[1].numpy()


def differs(rows: torch.Tensor, base: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """For each row: did any bit move, and by how much at most."""
    moved = torch.zeros(rows.shape[:-1], dtype=torch.bool, device="cpu")
    size = torch.zeros(rows.shape[:-1], dtype=torch.float64, device="cpu")
    if rows.shape[-1] == 0:
        return moved, size
    # A row of logits may have 200,000 entries: a few rows at a time stay in cache.
    step = max(1, CHUNK // max(rows.shape[0] * rows.shape[-1], 1))
    for start in range(0, rows.shape[1], step):
        a, b = rows[:, start : start + step], base[:, start : start + step]
        unlike = a != b
        if not bool(unlike.any()):
            continue
        unlike &= ~(a.isnan() & b.isnan())
        apart = torch.where(unlike, (a - b).abs().nan_to_num(nan=float("inf")), 0.0)
        moved[:, start : start + step] = unlike.any(-1).cpu()
        size[:, start : start + step] = apart.amax(-1).double().cpu()
    return moved, size

"""Whether a pooled output that reads one position of padding takes the row that stands there.

The row of the last position, or of the token that ends a text, is chosen by its place: such a model may take
one of padding, whose row reads real positions as every row does. A mean that counts one position too many
reads the others by itself, and which one it is follows the mask.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from erlangen.audit.arguments.masks import Mask
from erlangen.audit.capture.tape import name_of
from erlangen.audit.inputs import Content
from erlangen.audit.observed import Measured
from erlangen.audit.support import of_item
from erlangen.audit.witnesses.flow import Flow
from erlangen.audit.witnesses.rounding import differs
from erlangen.audit.witnesses.runs import Runner

ROW, AVERAGE, UNTOLD = "row", "average", "untold"
ROUNDING = 1e-5
"""A change of the output below this part of its size is none."""


def taken(
    runner: Runner,
    flow: Flow,
    content: Content,
    item: int,
    position: int,
    calls: list[Measured],
    covered: bool,
) -> str:
    """`ROW` where all that the output reads comes through the row at this position, `AVERAGE` where real rows
    enter by themselves, `UNTOLD` where neither can be said."""
    mask = runner.reading.mask(content.name)
    if mask is None or runner.inputs.vary is not None:
        return UNTOLD
    place = next((one for one in runner.places() if one.name == flow.output), None)
    if place is None:
        return UNTOLD
    changed = None if flow.whole_batch else item
    try:
        follows = _follows_mask(runner, flow, content, mask, item, position)
        if follows:
            return AVERAGE
        sizes = {content.length: position}
        for call in calls:
            at = call.places[1].get(content.name)
            if at is not None:
                sizes.setdefault(call.keys, int(at[position]))
        frozen = _Frozen(content, sizes, changed)
        base = place.rows(runner.on(runner.inputs, frozen))
        frozen.hold()
        others = [j for j in range(content.length) if j != position]
        rows = place.rows(runner.changed(content, others, changed, within=frozen))
        apart = of_item(differs(rows, base)[1], item)
        if frozen.same and float(apart.max()) <= ROUNDING * (float(base.abs().nan_to_num().max()) or 1.0):
            return ROW
    except Exception:
        return UNTOLD
    # The last layer may ask for one row alone: then others come through attention, which was not held.
    asked = bool(calls) and all(call.queries == call.keys >= content.length for call in calls)
    return AVERAGE if covered and asked and frozen.same else UNTOLD


def _follows_mask(runner: Runner, flow: Flow, content: Content, mask: Mask, item: int, position: int) -> bool:
    """Whether the position is no longer read where one more is padding: it is counted off by the mask."""
    marked = mask.real()
    if flow.whole_batch:  # an item in which it is padding
        item = int(marked[:, position].argmin())
    real = np.flatnonzero(marked[item])
    if len(real) < 2:
        return False
    more = int(real[-1] if position > real[-1] else real[0])
    if mask.lengths and more != real[-1]:
        return False
    tensor = mask.padded(item, slice(more, more + 1))
    inputs = runner.inputs.map(lambda part: tensor if part is mask.tensor else part)
    reading = runner.reading.of(runner.model, inputs)
    other = Runner(runner.model, inputs, reading, runner.snapshot, runner.mode)
    other.random, other.fixed = runner.random, runner.fixed
    other.like = {one.name: one for one in runner.places()}
    place = next(one for one in other.places() if one.name == flow.output)
    same = reading.content(content.name)
    if same is None:
        return False
    rows = place.rows(other.changed(same, position, None if flow.whole_batch else item))
    moved = differs(rows, place.rows(other.base()))[0]
    return not bool(of_item(moved, item).any())


class _Frozen(TorchFunctionMode):
    """Holds the row of one position as it is in every tensor with rows, whatever other rows become."""

    def __init__(self, content: Content, sizes: dict[int, int], item: int | None) -> None:
        """`sizes`: how many rows a tensor may have -> the row that is held."""
        super().__init__()
        self._content, self._sizes, self._item = content, sizes, item
        self._kept: list[tuple[str, torch.Size, torch.Tensor]] = []
        self._next: int | None = None
        self.same = True
        """Whether both runs took the same steps."""

    def hold(self) -> None:
        """From now on rows are held; until then they are remembered."""
        self._next = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        with torch._C.DisableTorchFunction():
            inside = bool(args) and out is args[0]
            if isinstance(out, torch.Tensor):
                return self._row(name_of(func), out, inside)
            if type(out) in (tuple, list):
                return type(out)(
                    self._row(name_of(func), one, False) if isinstance(one, torch.Tensor) else one
                    for one in out
                )
        return out

    def _row(self, label: str, tensor: torch.Tensor, inside: bool) -> torch.Tensor:
        where = self._where(tensor)
        if where is None:
            return tensor
        if self._next is None:
            self._kept.append((label, tensor.shape, tensor[where].detach().clone()))
            return tensor
        if self._next >= len(self._kept) or self._kept[self._next][:2] != (label, tensor.shape):
            self.same = False
            return tensor
        row = self._kept[self._next][2]
        self._next += 1
        with torch.no_grad():
            result = tensor if inside else tensor.detach().clone()  # what works in place is held in place
            result[where] = row
        return result

    def _where(self, tensor: torch.Tensor) -> tuple[Any, ...] | None:
        """The index of the row; None where a tensor has no rows, or two axes that may be theirs."""
        batch, shape = self._content.batch, tensor.shape
        if not tensor.is_floating_point() or tensor.layout != torch.strided or not 2 <= tensor.dim() <= 4:
            return None
        for size, row in self._sizes.items():
            index: list[Any] = [slice(None)] * tensor.dim()
            if shape[0] == batch * size and shape[0] != batch and size not in shape[1:]:
                item = slice(None) if self._item is None else self._item
                rows = torch.arange(batch * size, device=tensor.device).reshape(batch, size)[item, row]
                return (rows, *index[1:])
            first = shape[0] == size and shape[1] == batch != size
            axes = [0] if first else [axis for axis in range(1, tensor.dim()) if shape[axis] == size]
            if len(axes) != 1 or (not first and shape[0] % batch):
                continue
            index[axes[0]] = row
            if self._item is not None:
                each = 1 if first else shape[0] // batch  # heads may be folded into the batch
                start = self._item * each
                index[1 if first else 0] = slice(start, start + each)
            return tuple(index)
        return None

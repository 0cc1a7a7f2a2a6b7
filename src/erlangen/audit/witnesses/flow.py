"""The flow witness: the model as a black box. Change one position; every output bit that moves depends on it.

Equality is bit for bit, between runs of equal shapes with equal random states. A change so small that it may
be rounding (a mixture of experts groups tokens by expert, and other groups round otherwise) is run again in
double precision: a real dependence stays as large, rounding shrinks. A model that already computes in double
precision is run again in single, where rounding grows. Rounding is reported apart.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from erlangen.audit.inputs import Content, Inputs, contents, with_content
from erlangen.audit.outputs import Place, place_of
from erlangen.audit.state import RandomState, Snapshot, untouched
from erlangen.relations import Neighborhoods

ROWS = 64
"""Sequences in one batched run."""
SMALL = 1e-4
"""Changes below this part of the output's size are suspected of being rounding."""
SMALL_IN_DOUBLE = 1e-11
"""The same for models that compute in double precision."""
SHRINKS = 1e-3
"""A change that shrinks below this part of itself in double precision was rounding."""


@dataclass(frozen=True)
class Flow:
    """What the outputs depend on: `relations[b]` relates the output rows of item b to input positions."""

    content: str
    relations: tuple[Neighborhoods, ...]
    rounding: tuple[Neighborhoods, ...]
    """Dependences at the level of rounding only, disjoint from `relations`."""
    batch_leak: tuple[int, int] | None
    """(item changed, item that moved), when a sequence depends on another one of its batch."""
    runs: int
    batched: bool
    pooled: bool
    """The output has one row for each sequence."""


def flow(model: nn.Module, inputs: Inputs, content: Content | None = None, *, observed: bool = False) -> Flow:
    """Which output rows depend on which positions of one input: n runs, batched where batching does not mix.

    `observed` runs under an idle function mode: PyTorch then leaves its fast paths, as under any observer.

    >>> scan = nn.GRU(2, 2, batch_first=True)
    >>> flow(scan, Inputs.of(torch.zeros(1, 3, 2))).relations[0].dense().astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    found = contents(model, inputs)
    content = found[0] if content is None else content
    with untouched(model) as snapshot:
        runner = _Runner(model, inputs, content, found, observed, snapshot)
        return runner.single()


def suffix_flow(
    model: nn.Module, inputs: Inputs, content: Content | None = None
) -> list[tuple[int, int, int]]:
    """Rows that read the future: change all positions from j on, and rows before j must not move.

    Returns (item, row, j) for every row that did; an empty list settles causality in n runs.

    >>> suffix_flow(nn.GRU(2, 2, batch_first=True), Inputs.of(torch.zeros(1, 3, 2)))
    []
    """
    found = contents(model, inputs)
    content = found[0] if content is None else content
    with untouched(model) as snapshot:
        runner = _Runner(model, inputs, content, found, False, snapshot)
        moved = []
        for j in range(1, content.length):
            rows = runner.rows(with_content(inputs, content, content.changed(range(j, content.length))))
            changed = _moved(rows, runner.base)[0].numpy()
            moved += [(int(b), int(i), j) for b, i in np.argwhere(changed) if i < j]
    return moved


def spot_flow(model: nn.Module, inputs: Inputs, content: Content, positions: list[int]) -> np.ndarray:
    """The flow from a few positions only, in the mode the model is in: shape (batch, rows, positions).

    Changes below a millionth of the output's size are not counted.
    """
    with untouched(model) as snapshot:
        runner = _Runner(model, inputs, content, contents(model, inputs), False, snapshot)
        scale = float(runner.base.double().abs().nan_to_num().max()) or 1.0
        columns = []
        for j in positions:
            rows = runner.rows(with_content(inputs, content, content.changed(j)))
            columns.append(_moved(rows, runner.base)[1] > 1e-6 * scale)
    return torch.stack(columns, dim=-1).numpy()


class _Runner:
    """Runs one model on changed inputs, always from the same random state."""

    def __init__(
        self,
        model: nn.Module,
        inputs: Inputs,
        content: Content,
        found: list[Content],
        observed: bool,
        snapshot: Snapshot,
    ) -> None:
        self.model, self.inputs, self.content, self.found = model, inputs, content, found
        self.observed = observed
        self.random = RandomState.now()
        self.snapshot = snapshot
        self.runs = 0
        output = self._run(inputs)
        self.place: Place = place_of(output, found)
        self.base = self.place.rows(output)

    def _run(self, inputs: Inputs, model: nn.Module | None = None) -> Any:
        self.runs += 1
        self.random.set()
        if self.model.training:
            self.snapshot.restore_buffers()  # running statistics move in training mode
        if self.observed:
            with torch.overrides.BaseTorchFunctionMode():
                return inputs.run(model or self.model)
        return inputs.run(model or self.model)

    def rows(self, inputs: Inputs, model: nn.Module | None = None) -> torch.Tensor:
        return self.place.rows(self._run(inputs, model))

    def single(self) -> Flow:
        n, batch, rows = self.content.length, self.content.batch, self.base.shape[1]
        changed = np.zeros((batch, rows, n), bool)
        sizes = np.zeros((batch, rows, n))
        batched = self._batched(changed, sizes)
        if not batched:
            for j in range(n):
                moved = self.rows(with_content(self.inputs, self.content, self.content.changed(j)))
                changed[:, :, j], sizes[:, :, j] = (part.numpy() for part in _moved(moved, self.base))
        rounding = self._rounding(changed, sizes)
        return Flow(
            self.content.name,
            tuple(Neighborhoods.from_dense(item) for item in changed & ~rounding),
            tuple(Neighborhoods.from_dense(item) for item in rounding),
            self._batch_leak(),
            self.runs,
            batched,
            self.place.axis is None,
        )

    # ------------------------------------------------------------- batched runs

    def _batched(self, changed: np.ndarray, sizes: np.ndarray) -> bool:
        """Many positions in one run; False, with nothing written, when copies disturb each other."""
        batch, n = self.content.batch, self.content.length
        copies = min(n, ROWS // batch)
        if self.content.batch_axis != 0 or self.place.batch_axis != 0 or copies < 2 or self.model.training:
            return False
        try:
            base = self._copies(self._repeated(copies), copies)
            one = self._copies(self._repeated(copies, {0: 0}), copies)
        except Exception:
            return False  # shapes that are no batch, or a model that fixes its batch size
        alike = base.shape[1:] == self.base.shape and torch.allclose(
            base[0].double(), self.base.double(), rtol=1e-3, atol=1e-4, equal_nan=True
        )
        if not alike or _moved(one[1:], base[1:])[0].any():
            return False
        for first in range(0, n, copies):
            positions = range(first, min(first + copies, n))
            run = self._copies(self._repeated(copies, dict(enumerate(positions))), copies)
            for copy_, j in enumerate(positions):
                moved, size = _moved(run[copy_], base[copy_])
                changed[:, :, j], sizes[:, :, j] = moved.numpy(), size.numpy()
        return True

    def _copies(self, inputs: Inputs, copies: int) -> torch.Tensor:
        rows = self.rows(inputs)
        return rows.reshape(copies, -1, *rows.shape[1:])

    def _repeated(self, copies: int, positions: dict[int, int] | None = None) -> Inputs:
        """Copies of the batch, one after the other, copy c changed at positions[c]."""
        content, batch = self.content, self.content.batch
        parts = [
            content.tensor if positions is None or c not in positions else content.changed(positions[c])
            for c in range(copies)
        ]
        stacked = torch.cat(parts)

        def repeat(tensor: torch.Tensor) -> torch.Tensor:
            if tensor is content.tensor:
                return stacked
            square = tensor.dim() == 2 and tensor.shape[0] == tensor.shape[1]
            if tensor.dim() == 0 or tensor.shape[0] != batch or square:
                return tensor
            return tensor.repeat(copies, *[1] * (tensor.dim() - 1))

        return self.inputs.map(repeat)

    # ----------------------------------------------------------------- rounding

    def _rounding(self, changed: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Which of the changes are rounding."""
        scale = float(self.base.double().nan_to_num(posinf=0, neginf=0).abs().max()) or 1.0
        double = self.base.dtype == torch.float64
        suspect = changed & (sizes <= (SMALL_IN_DOUBLE if double else SMALL) * scale)
        if not suspect.any():
            return suspect
        again = self._in(torch.float32 if double else torch.float64)
        if again is None:
            return suspect & (sizes <= 16 * self._noise())
        other = np.zeros_like(sizes)
        for j in range(sizes.shape[-1]) if double else np.flatnonzero(suspect.any(axis=(0, 1))).tolist():
            other[:, :, j] = again(j)
        if double:  # a bit may stay by chance, so the largest change says how rounding has grown
            return suspect & (sizes <= SHRINKS * other[suspect | ~changed].max())
        return suspect & (other <= SHRINKS * sizes)

    def _in(self, dtype: torch.dtype) -> Callable[[int], np.ndarray] | None:
        """The change caused by position j in another precision; None when the model has no such copy."""

        def recast(inputs: Inputs) -> Inputs:
            return inputs.map(lambda t: t.to(dtype) if t.is_floating_point() else t)

        try:
            model = copy.deepcopy(self.model).to(dtype)
            base = self.rows(recast(self.inputs), model)
        except Exception:
            return None  # kernels without this type, or modules that cannot be copied

        def change(j: int) -> np.ndarray:
            moved = with_content(self.inputs, self.content, self.content.changed(j))
            return _moved(self.rows(recast(moved), model), base)[1].numpy()

        return change

    def _noise(self) -> float:
        """How much the output moves when only the order of summation does: the batch run twice over."""
        try:
            doubled = self._copies(self._repeated(2), 2)
        except Exception:
            return 0.0  # no other shape runs, so nothing is excused as rounding
        return float((doubled[0].double() - self.base.double()).abs().nan_to_num().max())

    def _batch_leak(self) -> tuple[int, int] | None:
        """Does changing all of one item move another item of its batch?"""
        batch = self.content.batch
        for item in range(min(batch, 2)):
            if batch < 2:
                return None
            every = self.content.changed(range(self.content.length), item=item)
            moved, size = _moved(self.rows(with_content(self.inputs, self.content, every)), self.base)
            scale = float(self.base.double().abs().nan_to_num().max()) or 1.0
            real = (moved & (size > SMALL * scale)).any(dim=1)
            for other in range(batch):
                if other != item and real[other]:
                    return item, other
        return None


def _moved(rows: torch.Tensor, base: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """For each row: did any bit move, and by how much at most."""
    same = (rows == base) | (rows.isnan() & base.isnan())
    size = (rows.double() - base.double()).abs().nan_to_num(nan=float("inf"))
    return (~same).any(-1).cpu(), torch.where(same, 0.0, size).amax(-1).cpu()

"""Many positions changed at once: rows that may read none of them must not move.

Where a sequence is too long to change every position by itself, whole suffixes are changed (and prefixes,
where rows may not read those): one run then tests every row before a suffix against every position in it. A
row that moves is followed to one position by bisection. The rows are those of an output, or those inside the
model before an output that has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import torch

from erlangen.audit.calls.real import kept
from erlangen.audit.findings import Finding
from erlangen.audit.flow_rules.bounds import allowed
from erlangen.audit.flow_verdict import FlowVerdict, Scene
from erlangen.audit.inputs import Content
from erlangen.audit.support import of_item
from erlangen.audit.witnesses.rounding import LOW_ULPS, ULPS, changes_in, part_of, spread, usual_sizes
from erlangen.audit.witnesses.runs import Runner
from erlangen.relations import Neighborhoods

GROUPS = 6
"""How many suffixes are changed, spread evenly, and how many prefixes."""
FEWEST = 1
"""So many of them whatever the budget."""


class Moves(Protocol):
    """How much each row of each item moves when these positions change in all items, or in one, relative to
    the largest entry: (batch, rows)."""

    def __call__(self, positions: Sequence[int], item: int | None = None) -> np.ndarray: ...


class _Clock(Protocol):
    @property
    def late(self) -> bool: ...


def moves_of_output(runner: Runner, content: Content, output: str) -> tuple[Moves, bool]:
    """The moves of the rows of one output, and whether it is in double precision."""
    place = next(place for place in runner.places() if place.name == output)
    base = place.rows(runner.base())
    usual = usual_sizes(base)

    def moves(positions: Sequence[int], item: int | None = None) -> np.ndarray:
        return part_of(usual, place.rows(runner.changed(content, positions, item)), base)

    if not runner.mode.autocast:
        return moves, base.dtype.itemsize == 8
    again = changes_in(runner, content, [place], torch.float64)

    def in_both(positions: Sequence[int], item: int | None = None) -> np.ndarray:
        """What moves in bfloat16 by rounding does not in double precision, which autocast leaves as it is."""
        low = moves(positions, item)
        if again is None:
            return np.where(low > LOW_ULPS * torch.finfo(torch.bfloat16).eps, low, 0.0)
        return np.where(again(positions, item=item)[0] > no_rounding(False) * float(usual.max()), low, 0.0)

    return in_both, False


def no_rounding(double: bool) -> float:
    """Rows that move by more than this part of the largest entry do not move by rounding."""
    return 1e-11 if double else ULPS * 1.2e-7


def forbidden_by_groups(
    moves: Moves, content: Content, verdict: FlowVerdict, scene: Scene, clock: _Clock, double: bool
) -> tuple[Finding | None, int]:
    """The first row that depends on a position that it may not read, if any group shows one; and how many
    groups were changed."""
    n, items = content.length, len(verdict.flow.relations)
    bounds = [bound for item in range(items) if (bound := allowed(verdict, scene, item)) is not None]
    if len(bounds) < items:
        return None, 0
    dense = {bound: bound.dense() for bound in set(bounds)}
    threshold = no_rounding(double)

    def silent(start: int, stop: int) -> list[np.ndarray]:
        """For each item the real rows that may read none of [start, stop)."""
        found = []
        for b, bound in enumerate(bounds):
            reads = np.asarray(dense[bound][:, start:stop].any(axis=1))
            found.append(kept(Neighborhoods.from_dense(~reads[:, None]), verdict.real, b).dense()[:, 0])
        return found

    def padded(item: int, start: int, stop: int) -> bool:
        keys = verdict.real_keys
        return keys is not None and items > 1 and not of_item(keys, item)[start:stop].all()

    def broken(start: int, stop: int) -> tuple[int, int, float] | None:
        """(item, row, size) of a row that may read none of [start, stop) and moves with them."""
        rows = silent(start, stop)
        if not any(one.any() for one in rows):
            return None
        size = moves(range(start, stop))
        for b, one in enumerate(rows):
            moved = (one & (of_item(size, b) > threshold)).nonzero()[0]
            # What is padding in this item may be real in another one, which it may read by batch statistics.
            if len(moved) and padded(b, start, stop):
                size = moves(range(start, stop), b)
                moved = (one & (of_item(size, b) > threshold)).nonzero()[0]
            if len(moved):
                return b, int(moved[0]), float(of_item(size, b)[moved[0]])
        return None

    tried = 0
    for start, stop in _spans(n):
        if not any(one.any() for one in silent(start, stop)):
            continue
        if tried >= FEWEST and clock.late:
            break
        tried += 1
        found = broken(start, stop)
        if found is None:
            continue
        known = start, stop
        while stop - start > 1 and not clock.late:
            middle = (start + stop) // 2
            left = broken(start, middle)
            if left is not None:
                found, stop, known = left, middle, (start, middle)
            else:
                start = middle  # the other half, unless only both together move the row
        last = broken(start, stop) if (start, stop) != known else None
        if last is not None:
            found, known = last, (start, stop)
        item, row, size = found
        start, stop = known
        finding = verdict.found(
            expected=str(scene.expect), measured=verdict.text(item), item=item, query=row, key=start,
            size=size, detail="" if stop - start == 1 else f"or on another position up to {stop - 1}",
        )  # fmt: skip
        return finding, tried
    return None, tried


def _spans(n: int) -> Iterator[tuple[int, int]]:
    """Suffixes and prefixes, the middle ones first."""
    cuts = sorted({cut for k in range(1, GROUPS + 1) if 0 < (cut := round(k * n / (GROUPS + 1))) < n})
    for cut in reversed(spread(cuts)):
        yield cut, n
    for cut in reversed(spread(cuts)):
        yield 0, cut

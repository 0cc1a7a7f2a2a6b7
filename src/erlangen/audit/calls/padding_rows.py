"""Where padding stands among the queries and keys of a call, and what moves where it alone is changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np

from erlangen.audit.calls.real import Real, has_places
from erlangen.audit.inputs import Content
from erlangen.audit.observed import Measured, Pass
from erlangen.audit.witnesses.flow import Flow
from erlangen.audit.witnesses.rounding import differs
from erlangen.audit.witnesses.runs import Runner
from erlangen.relations import Neighborhoods

PASSES = 24
"""So many passes may be made to find the places of one input."""


def place_padding(
    calls: list[Measured], contents: list[Content], real: Real, changed: Callable[[Content, int], Pass]
) -> None:
    """Fill in the places of inputs with padding in calls that are longer than these are.

    The query, or key, that moves most with a position is its own: the one that came of it. It stands as far
    behind as what was joined before it is long. `changed` is the pass with other content at a position.
    """
    for content in contents:
        marked = real.get(content.name)
        if marked is None or marked.ndim != 2 or marked.all() or not content.sequence:
            continue
        passes: dict[int, Pass] = {}

        def spot(position: int, one: Content = content, passes: dict[int, Pass] = passes) -> Pass | None:
            if position not in passes and len(passes) < PASSES:
                passes[position] = changed(one, position)
            return passes.get(position)

        known: dict[int, np.ndarray] = {}
        waiting = []
        for call in calls:
            for side in (0, 1):
                if not has_places(call, side, content.name, content.length):
                    continue
                size = (call.queries, call.keys)[side]
                rows = _rows(call, side, size, content.length, spot)
                if rows is None:
                    waiting.append((call, side, size))
                    continue
                known.setdefault(size, rows)
                call.places[side][content.name] = rows
        # Behind many layers a row may move less than others do; what was joined once stays where it is.
        for call, side, size in waiting:
            if size in known:
                call.places[side][content.name] = known[size]


def _rows(
    call: Measured, side: int, size: int, n: int, spot: Callable[[int], Pass | None]
) -> np.ndarray | None:
    """The row of each position; None where rows are at another rate, or do not follow the positions."""

    def offset(position: int) -> int | None:
        try:
            other = spot(position)
        except Exception:
            return None
        after = None if other is None or call.index >= len(other.calls) else other.calls[call.index].marks
        if call.marks is None or after is None or after[side].shape != call.marks[side].shape:
            return None
        moved = np.abs(after[side] - call.marks[side])
        return int(moved.argmax()) - position if moved.any() else None

    found: dict[int, int | None] = {p: offset(p) for p in sorted({0, n // 3, 2 * n // 3, n - 1})}
    while True:
        places = sorted(found)
        if any(found[p] is None for p in places):
            return None
        apart = [(a, b) for a, b in pairwise(places) if found[a] != found[b] and b - a > 1]
        if not apart:
            break
        found |= {(a + b) // 2: offset((a + b) // 2) for a, b in apart}
    steps = np.array([found[p] for p in places])
    joined = len(set(steps.tolist())) <= max(2, n // 3)
    if not joined or steps[0] < 0 or steps[-1] > size - n or (np.diff(steps) < 0).any():
        return None
    at = np.searchsorted(places, np.arange(n), side="right") - 1
    return np.arange(n) + steps[at]


def padding_by_itself(
    runner: Runner, content: Content, flows: list[Flow], real: np.ndarray | None
) -> list[Flow]:
    """The flows, with what padded items read of their padding told by a change of this padding alone.

    A flow changes a position in all items at once. Where items read each other, as by batch statistics, an
    item in which it is padding then moves with the item in which it is real.
    """
    if real is None or real.shape != (content.batch, content.length):
        return flows
    places = {one.name: one for one in runner.places()}
    dense = {
        flow.output: np.stack([item.dense() for item in flow.relations])
        for flow in flows
        if len(flow.relations) == len(real)
    }
    for j in np.flatnonzero(real.any(axis=0) & ~real.all(axis=0)).tolist():
        padded = np.flatnonzero(~real[:, j])
        read = [name for name, matrix in dense.items() if _read(matrix, real, padded, j)]
        if not read or runner.late:
            continue
        outputs = [runner.changed(content, j, int(item)) for item in padded]
        for name in read:
            before = places[name].rows(runner.base())
            moved = [differs(places[name].rows(output), before)[0].numpy() for output in outputs]
            dense[name][padded, :, j] &= np.any(moved, axis=0)[padded]
    return [
        replace(flow, relations=tuple(map(Neighborhoods.from_dense, dense[flow.output])))
        if flow.output in dense
        else flow
        for flow in flows
    ]


def padding_alone(
    runner: Runner, content: Content, flow: Flow, real: np.ndarray | None
) -> dict[int, list[int]] | None:
    """Item -> its padding positions that move an output of the whole batch, changed in this item alone; None
    where there is no mask of one row for each item."""
    place = next((one for one in runner.places() if one.name == flow.output), None)
    if place is None or real is None or real.shape != (content.batch, content.length):
        return None
    before, found = place.rows(runner.base()), dict[int, list[int]]()

    def moves(positions: list[int], item: int) -> bool:
        return bool(differs(place.rows(runner.changed(content, positions, item)), before)[0].any())

    for item, row in enumerate(real):
        padding = np.flatnonzero(~row).tolist()
        if padding and moves(padding, item):
            found[item] = [j for j in padding if moves([j], item)] or padding
    return found


def _read(matrix: np.ndarray, real: np.ndarray, padded: np.ndarray, j: int) -> bool:
    """Whether a real row of an item in which position j is padding moves with it; any row, where rows are no
    positions."""
    rows = matrix[padded, :, j]
    return bool((rows & real[padded]).any() if rows.shape[1] == real.shape[1] else rows.any())

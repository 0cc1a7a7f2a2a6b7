"""Positions that are padding in some items of a batch only, changed in these items alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from erlangen.audit.inputs import Content
from erlangen.audit.witnesses.flow import Flow, differs
from erlangen.audit.witnesses.runs import Runner
from erlangen.relations import Neighborhoods


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

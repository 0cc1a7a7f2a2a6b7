"""Beside attention: what sampled positions leave open, told for every pair of positions.

The calls are known edge by edge. With all of them cut to the diagonal no row may move with another position;
a row that does is then asked of the model itself, for a convolution that looks back is no fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, islice
from math import comb
from typing import Any

import numpy as np
from torch.overrides import TorchFunctionMode

from erlangen.audit.apis.attention_call import APIS
from erlangen.audit.findings import Finding
from erlangen.audit.flow_rules.bounds import allowed
from erlangen.audit.flow_rules.groups import Moves, moves_of_output, no_rounding
from erlangen.audit.flow_rules.inside import Inside
from erlangen.audit.flow_verdict import FlowVerdict, Scene
from erlangen.audit.inputs import Content
from erlangen.audit.support import of_item
from erlangen.audit.witnesses.rounding import differs
from erlangen.audit.witnesses.runs import Runner


class Cut(TorchFunctionMode):
    """Runs a model whose attention over `n` positions reads each its own; `count` calls were cut."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.count = 0
        self._diagonals = [run for api in APIS.values() if (run := api.diagonal(n)) is not None]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for run in self._diagonals:
            out = run(func, args, kwargs)
            if out is not NotImplemented:
                self.count += 1
                return out
        return func(*args, **kwargs)


def separating(n: int) -> Iterator[list[int]]:
    """Sets of positions such that for any two positions one of the sets has the first and not the second.

    >>> [len(one) for one in separating(6)], len(list(separating(1024)))
    ([3, 3, 3, 3], 13)
    """
    runs = next(count for count in range(1, n + 2) if comb(count, count // 2) >= n)
    members = list(islice(combinations(range(runs), runs // 2), n))
    for run in range(runs):
        yield [position for position, member in enumerate(members) if run in member]


@dataclass(eq=False)
class Waiting:
    """A flow of rows at sampled positions, of which more may be told if time is left."""

    content: Content
    verdict: FlowVerdict
    scene: Scene
    inside: Inside

    @property
    def runs(self) -> int:
        """How many runs it may take, with those that follow a row to its position."""
        return needed(self.content.length) + FOLLOWED


ASKED = 4
"""So many rows that move with attention cut are asked of the model itself."""
FOLLOWED = 6
"""About so many runs follow a row to the position that it reads."""


def needed(n: int) -> int:
    """How many runs it takes."""
    return 1 + sum(1 for _ in separating(n))


def beside_attention(
    runner: Runner, content: Content, verdict: FlowVerdict, scene: Scene
) -> tuple[Finding | None, bool] | None:
    """(the forbidden edge if one was found, whether every pair of positions was told); None where attention
    cannot be cut, or there is no time."""
    n = content.length
    calls = scene.calls
    if not scene.covered or not calls or content.axis is None or verdict.role != "own":
        return None
    if any((call.kind, call.queries, call.keys) != ("self", n, n) for call in calls):
        return None
    if any(APIS[call.api].diagonal(n) is None for call in calls):
        return None
    if runner.affordable() < needed(n):
        return None
    cut, moved = Cut(n), np.zeros((len(verdict.flow.relations), n), int)
    place = next(place for place in runner.places() if place.name == verdict.flow.output)
    base = place.rows(runner.on(runner.inputs, cut)).clone()
    if cut.count != len(calls) or base.shape[1] != n:
        return None
    double = base.dtype.itemsize == 8
    scale = float(base.double().abs().nan_to_num(posinf=0, neginf=0).max()) or 1.0
    for positions in separating(n):
        output = runner.changed(content, positions, within=Cut(n))
        size = differs(place.rows(output), base)[1].numpy() / scale
        size[:, positions] = 0
        moved += size > no_rounding(double)
    if not moved.any():
        return None, True
    return _ask(runner, content, verdict, scene, moved), False


def _ask(
    runner: Runner, content: Content, verdict: FlowVerdict, scene: Scene, moved: np.ndarray
) -> Finding | None:
    """Whether a row that moves reads a position that it may not read; those that move least first."""
    moves, double = moves_of_output(runner, content, verdict.flow.output)
    rows = sorted(map(tuple, np.argwhere(moved).tolist()), key=lambda one: (moved[one], one))
    for item, row in rows[:ASKED]:
        bound = allowed(verdict, scene, item)
        real = verdict.real is None or of_item(verdict.real, item)[row]
        if bound is None or not real or runner.late:
            continue
        forbidden = np.flatnonzero(~bound.dense()[row]).tolist()
        found = _followed(moves, item, row, forbidden, no_rounding(double), runner) if forbidden else None
        if found is not None:
            key, size, detail = found
            return verdict.found(
                expected=str(scene.expect), measured=verdict.text(item), item=item, query=row, key=key,
                size=size, detail=detail,
            )  # fmt: skip
    return None


def _followed(
    moves: Moves, item: int, row: int, positions: list[int], threshold: float, runner: Runner
) -> tuple[int, float, str] | None:
    """The position among these that moves the row: (position, size, more about it)."""
    size = float(moves(positions)[item, row])
    if size <= threshold:
        return None
    while len(positions) > 1 and not runner.late:
        half = positions[: len(positions) // 2]
        moved = float(moves(half)[item, row])
        positions, size = (half, moved) if moved > threshold else (positions[len(half) :], size)
    more = "" if len(positions) == 1 else f"or on another position up to {positions[-1]}"
    return positions[0], size, more

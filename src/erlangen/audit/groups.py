"""Many positions changed at once: rows that may read none of them must not move.

Where a sequence is too long to change every position by itself, a suffix at a time is changed: one run then
tests every row before it against every position in it. A row that moves is followed to one position by
bisection.
"""

from __future__ import annotations

import numpy as np

from erlangen.audit.bounds import allowed
from erlangen.audit.findings import Finding
from erlangen.audit.flow_verdict import FlowVerdict, Scene
from erlangen.audit.inputs import Content
from erlangen.audit.verdict import kept
from erlangen.audit.witnesses.flow import ULPS, differs
from erlangen.audit.witnesses.runs import Runner
from erlangen.relations import Neighborhoods

SUFFIXES = 6
"""How many suffixes are changed, spread evenly."""


def forbidden_by_groups(
    runner: Runner, content: Content, verdict: FlowVerdict, scene: Scene
) -> Finding | None:
    """The first row that depends on a position that it may not read; None if no suffix shows one."""
    n = content.length
    base_output = runner.base()
    place = next(p for p in runner.places() if p.name == verdict.flow.output)
    base = place.rows(base_output)
    bounds = [allowed(verdict, content, scene, item) for item in range(base.shape[0])]
    if any(bound is None for bound in bounds):
        return None
    scale = float(base.double().abs().nan_to_num(posinf=0, neginf=0).max()) or 1.0
    threshold = (1e-11 if base.dtype.itemsize == 8 else ULPS * 1.2e-7) * scale

    def broken(start: int, stop: int) -> tuple[int, int, float] | None:
        """(item, row, size) of a row that may read none of [start, stop) and moves with them."""
        size = differs(place.rows(runner.changed(content, range(start, stop))), base)[1].numpy()
        for b, bound in enumerate(bounds):
            assert bound is not None
            reads = np.asarray(bound.dense()[:, start:stop].any(axis=1))
            real = kept(Neighborhoods.from_dense(~reads[:, None]), verdict.real, b).dense()[:, 0]
            rows = (real & (size[b] > threshold)).nonzero()[0]
            if len(rows):
                return b, int(rows[0]), float(size[b, rows[0]]) / scale
        return None

    for k in range(1, SUFFIXES + 1):
        start, stop = round(k * n / (SUFFIXES + 1)), n
        found = broken(start, stop)
        if found is None:
            continue
        while stop - start > 1:
            middle = (start + stop) // 2
            left = broken(start, middle)
            if left is not None:
                found, stop = left, middle
                continue
            right = broken(middle, stop)
            if right is None:
                break  # only both halves together move the row
            found, start = right, middle
        item, row, size = found
        return verdict.found(
            expected=str(scene.expect), measured=verdict.text(item), item=item, query=row, key=start,
            size=size, detail="" if stop - start == 1 else f"or on another position up to {stop - 1}",
        )  # fmt: skip
    return None

"""Inputs that decide who reads whom, such as document ids, and may carry content as well.

Changing one id changes the mask and, where the ids are embedded, the content too. Only rows whose attention
is untouched by the change can tell the two apart: if such a row moves, it reads the content of that id.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from erlangen.audit.case import Examiner
from erlangen.audit.feeding import Feeding
from erlangen.audit.flow_rules.judge import judge_flow
from erlangen.audit.flow_verdict import Scene
from erlangen.audit.inputs import Content, with_content
from erlangen.audit.obligations import Compared, Subject
from erlangen.audit.observed import Pass
from erlangen.audit.outputs import Place
from erlangen.audit.witnesses.flow import Flow
from erlangen.audit.witnesses.rounding import ULPS, part_of, usual_sizes
from erlangen.relations import Neighborhoods

POSITIONS = 24
"""At so many positions ids are changed one by one."""


def judge_structure(examiner: Examiner, feeding: Feeding, base: Pass, content: Content) -> None:
    """Hold the content of ids that decide which keys are read against the expectation."""
    name, ledger = content.name, examiner.ledger
    what = Subject(Compared.FLOW, input=name)
    places = [place for place in examiner.runner(feeding).places() if place.name in examiner.places]
    rows = [place for place in places if not place.pooled]
    other = _unused(examiner, feeding, content)
    if other is not None and _only_structure(examiner, feeding, base, content, other, places):
        ledger.held("given", Subject(Compared.STRUCTURE, input=name))
        return
    settle = f"say content=[...] without {name!r} to leave it as it is, or vary=... to change it by itself"
    if other is None:
        ledger.open(
            "given", what,
            f"{name} decides which keys are read, and has no value to spare that would tell its content from "
            f"the mask: {settle}",
        )  # fmt: skip
        return
    if not rows or examiner.expect is None:
        if examiner.expect is not None:
            ledger.open("given", what, f"{name} decides which keys are read and is content too: {settle}")
        return
    for place in rows:
        flow = _flow(examiner, feeding, base, content, other, place)
        if flow is None or flow.relations[0].queries != content.length:
            ledger.open("given", what, f"{name} decides which keys are read and is content too: {settle}")
            continue
        calls = list(base.calls)
        covered = not base.unexplained and not any(call.kind == "derived" for call in calls)
        scene = Scene(
            feeding, content, calls, covered, [*feeding.reading.contents, content], examiner.expect,
            {one.name: feeding.reading.real(one.name) for one in feeding.reading.contents},
            exact=False,
        )  # fmt: skip
        for one in judge_flow(flow, "own", scene).settled:
            ledger.enter(one if one.reason is None else replace(one, reason=f"{one.reason}; or {settle}"))


def _unused(examiner: Examiner, feeding: Feeding, content: Content) -> int | None:
    """An id that stands nowhere in the input and that the model takes."""
    used = set(content.tensor.flatten().tolist())
    spare = [] if content.pool is None else [int(v) for v in content.pool.tolist() if int(v) not in used]
    for value in (*sorted(spare, reverse=True)[:3], max(used) + 1):
        ids = content.tensor.clone()
        ids[content.where(content.length // 2, None)] = value
        try:
            examiner.observed_on(feeding, with_content(feeding.inputs, content, ids))
        except Exception:
            continue
        return value
    return None


def _only_structure(
    examiner: Examiner, feeding: Feeding, base: Pass, content: Content, other: int, places: list[Place]
) -> bool:
    """Whether nothing moves when an id gets another name everywhere, which leaves all masks as they are."""
    for value in sorted(set(content.tensor.flatten().tolist()))[:4]:
        ids = torch.where(content.tensor == value, torch.full_like(content.tensor, other), content.tensor)
        try:
            seen = examiner.observed_on(feeding, with_content(feeding.inputs, content, ids))
        except Exception:
            return False
        if [call.kernel for call in seen.calls] != [call.kernel for call in base.calls]:
            return False  # the order of ids counts, or one of them means something by itself
        if any(moved_rows(place, seen.output, base.output).any() for place in places):
            return False
    return True


def moved_rows(place: Place, after: Any, before: Any) -> np.ndarray:
    """The rows that move, by more than rounding: (batch, rows)."""
    a, b = place.rows(after), place.rows(before)
    if a.shape != b.shape:
        return np.ones((1, 1), bool)
    return np.asarray(part_of(usual_sizes(b), a, b) > ULPS * torch.finfo(b.dtype).eps)


def _flow(
    examiner: Examiner, feeding: Feeding, base: Pass, content: Content, other: int, place: Place
) -> Flow | None:
    """Which undisturbed rows move with each id; a row whose attention the id decides says nothing of it."""
    n = content.length
    chosen = sorted({round(k * (n - 1) / (POSITIONS - 1)) for k in range(POSITIONS)}) if n > POSITIONS else [
        *range(n)
    ]  # fmt: skip
    reads = [rows_read(call, n) for call in base.calls]
    if any(part is None for part in reads):
        return None
    dense: np.ndarray | None = None
    for j in chosen:
        ids = content.tensor.clone()
        ids[content.where(j, None)] = other
        try:
            seen = examiner.observed_on(feeding, with_content(feeding.inputs, content, ids))
            moved = moved_rows(place, seen.output, base.output)
        except Exception:
            return None
        again = [rows_read(call, n) for call in seen.calls]
        if len(again) != len(reads) or moved.shape[1] != n:
            return None
        dense = np.zeros((*moved.shape, n), bool) if dense is None else dense
        for b in range(len(moved)):
            quiet = undisturbed([one[b % len(one)] for one in reads if one is not None],
                                 [one[b % len(one)] for one in again if one is not None], n)  # fmt: skip
            dense[b, :, j] = moved[b] & quiet
    if dense is None:
        return None
    relations = tuple(Neighborhoods.from_dense(item) for item in dense)
    nothing = tuple(Neighborhoods.from_dense(np.zeros_like(item)) for item in dense)
    whole = None if len(chosen) == n else tuple(chosen)
    return Flow(content.name, relations, nothing, None, len(chosen), False, place.name, whole)


def rows_read(call: Any, n: int) -> np.ndarray | None:
    """What each head of each item reads, (batch, heads, n, n); None for calls between other sizes."""
    if (call.queries, call.keys) != (n, n):
        return None
    return np.stack([np.stack([head.dense() for head in item]) for item in call.kernel.items])


def undisturbed(before: list[np.ndarray], after: list[np.ndarray], n: int) -> np.ndarray:
    """Rows that, through all calls, read only rows whose attention is the same before and after."""
    touched = np.zeros(n, bool)
    for a, b in zip(before, after, strict=True):
        if a.shape != b.shape:
            return np.zeros(n, bool)
        changed = np.asarray((a != b).any(axis=(0, 2)))
        touched = touched | changed | np.asarray((a.any(axis=0) & touched[None, :]).any(axis=1))
    return ~touched

"""What a call reads behind a cache, over all positions: by the order of the keys, or by their vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from erlangen.audit.observed import Measured
from erlangen.audit.support import Support

CLOSE = 1e-5
"""Marks of key vectors that differ by less than this part of the largest one are of the same vector."""


def by_vectors(base: Measured, steps: Sequence[Measured]) -> np.ndarray | None:
    """What each row reads behind a cache, in positions, (batch, heads, n, n); None where that is not told.

    A key that was computed when everything was read at once lies in the cache with the same vector. A slot
    that is read and holds no such vector, or one that two positions have, tells nothing.

    >>> from erlangen.audit.support import Support
    >>> def call(mask, marks):
    ...     mask, marks = np.array(mask, bool)[None, None], np.array(marks, float)
    ...     q, k = mask.shape[2:]
    ...     return Measured(0, "", "sdpa", 1, 1, q, k, None, Support.from_dense(mask), (), None,
    ...                     marks=(np.zeros(q), marks))
    >>> whole = call(np.tri(3), [5, 6, 7])
    >>> steps = [call([[1]], [5]), call([[1, 1]], [5, 6]), call([[1, 1]], [7, 6])]   # slot 0 is written again
    >>> by_vectors(whole, steps)[0, 0].astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    """
    if base.marks is None or any(step.marks is None for step in steps):
        return None
    known = base.marks[1]
    near = CLOSE * float(np.abs(known).max(initial=0.0))
    n, rows = base.queries, []
    for step in steps:
        assert step.marks is not None
        same = np.abs(step.marks[1][:, None] - known[None, :]) <= near  # (slots, positions)
        dense = step.kernel.dense()
        read = dense.any(axis=(0, 1, 2))
        if same.shape != (step.keys, n) or (same.sum(axis=1)[read] != 1).any():
            return None
        told = np.zeros((*dense.shape[:3], n), bool)
        for slot in np.flatnonzero(read):
            told[..., int(same[slot].argmax())] |= dense[..., slot]
        rows.append(told)
    joined = np.concatenate(rows, axis=2)
    return joined if joined.shape[2] == n else None


@dataclass(frozen=True)
class Problem:
    """Why a call's relation behind the cache is not told edge by edge."""

    reason: str
    broken: bool = False
    """Whether it surely is another relation; otherwise it is open."""


def joined(
    base: Measured, steps: Sequence[Measured], n: int, real: np.ndarray | None
) -> tuple[Measured, Problem | None]:
    """The rows of all steps, one below the other, over all positions; and why they could not be told."""
    wanted = base.kernel.dense()
    sizes = {(step.heads, step.queries, step.keys) for step in steps}
    if sizes == {(base.heads, base.queries, base.keys)}:
        return _measured(base, steps[-1].kernel.dense()), None  # another sequence, which no step cuts
    if any(step.whole for step in steps) and base.keys == n:
        # Its hidden states are those of the step, so the keys in its cache were never changed.
        return base, Problem("it was probed as a whole, which does not see the keys in its cache")
    if base.queries != n or len({step.heads for step in steps} | {base.heads}) > 1:
        shape = f"{base.queries} queries x {base.keys} keys"
        return base, Problem(f"its steps have other shapes than its {shape} at once")
    if base.keys != n and any(step.keys != base.keys for step in steps):
        keys = f"its {base.keys} keys at once become {steps[-1].keys}"
        return base, Problem(f"{keys}, and are not the positions")
    rows = [step.kernel.dense() for step in steps]
    if base.keys != n:
        return _measured(base, np.concatenate(rows, axis=-2)), None
    stops = np.cumsum([step.queries for step in steps]).tolist()
    if stops[-1] != n:
        return base, Problem(f"its steps have {stops[-1]} queries for {n} positions")
    unwritten = [
        (stop - 1, slot)
        for dense, stop in zip(rows, stops, strict=True)
        for slot in range(max(stop, n), dense.shape[-1])
        if dense[..., slot].any()
    ]
    if unwritten:
        row, slot = unwritten[0]
        return base, Problem(f"row {row} reads slot {slot} of its cache, which holds no position", True)
    shape = (*wanted.shape[:2], n, n)
    ordered, ring = np.zeros(shape, bool), np.zeros(shape, bool)
    dropped = np.zeros(n, bool)
    for dense, stop in zip(rows, stops, strict=True):
        queries, keys = dense.shape[-2:]
        span = slice(stop - queries, stop)
        if keys >= stop:  # a static cache has more keys than positions so far; each sits where it belongs
            width = min(keys, n)
            ordered[..., span, :width] = ring[..., span, :width] = dense[..., :width]
            continue
        dropped[span] = True
        ordered[..., span, stop - keys : stop] = dense
        # The newest position p of each slot, where position p is written to slot p modulo the slots.
        held = np.arange(stop - keys, stop)
        ring[..., span, held] = dense[..., held % keys]
    counted = np.ones(wanted.shape[:3], bool)
    if real is not None and real.shape[-1] == n:
        counted &= np.broadcast_to(real, (wanted.shape[0], n))[:, None]
    for candidate in (ordered, ring):
        if not (candidate != wanted)[counted].any():
            return _measured(base, candidate), None
    wrong = (ordered != wanted).any(axis=-1) & counted
    if not (wrong & dropped).any():
        return _measured(base, ordered), None
    # A row differs whose cache has dropped keys: its positions are known only if all slots are read.
    item, head, row = np.argwhere(wrong & dropped)[0].tolist()
    many, few = int(ordered[item, head, row].sum()), int(wanted[item, head, row].sum())
    if many != few and np.array_equal(ordered[item, head], ring[item, head]):
        return _measured(base, ordered), None
    known = _measured(base, np.where(dropped[:, None], wanted, ordered))
    kept = f"its cache has dropped keys by row {row}, and which positions the others hold cannot be told"
    by = by_vectors(base, steps)
    apart = None if by is None else np.argwhere((by != wanted).any(axis=-1) & counted)
    told = ""
    if by is not None and apart is not None and len(apart):
        b, h, i = apart[0].tolist()
        there, once = (", ".join(map(str, np.flatnonzero(one[b, h, i]))) or "none" for one in (by, wanted))
        told = f"; by their key vectors row {i} reads positions {there} behind the cache and {once} at once"
    if many != few:
        keys = f"{many} key{'s' * (many != 1)}"
        return known, Problem(
            f"row {row} reads {keys} behind the cache and {few} at once; {kept} from their order{told}", True
        )
    if by is not None and not told:
        return known, Problem(f"{kept} from their order; by their key vectors they are those read at once")
    return known, Problem(
        f"{kept} from their order{told or '; the relations of such rows were not compared'}", bool(told)
    )


def _measured(call: Measured, dense: np.ndarray) -> Measured:
    return replace(
        call,
        queries=dense.shape[-2],
        keys=dense.shape[-1],
        declared=None,
        kernel=Support.from_dense(dense),
        nan_rows=(),
        weights=None,
    )

"""Which position each slot of a rolling cache holds, told by the key vectors that lie in it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from erlangen.audit.observed import Measured

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

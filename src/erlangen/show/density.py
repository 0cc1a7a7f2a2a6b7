"""A bound relation seen from afar: how full each block of its matrix is, exactly."""

from __future__ import annotations

import numpy as np

from erlangen.relations.neighborhoods import Neighborhoods


def block_counts(bound: Neighborhoods, height: int, width: int) -> np.ndarray:
    """How many pairs are related in each block of `height` queries x `width` keys, int64.

    The blocks at the ragged ends are smaller. The cost is O(runs + blocks): the keys below x that a set of
    runs covers number the sum over its runs of max(x - start, 0) - max(x - stop, 0), so counts and sums of
    the boundaries per block are enough.

    >>> from erlangen.relations import Causal
    >>> block_counts(Causal().on(5), 2, 2).tolist()
    [[3, 0, 0], [4, 3, 0], [2, 2, 1]]
    """
    rows, columns = -(-bound.queries // height), -(-bound.keys // width)
    run_rows = np.repeat(np.arange(bound.queries, dtype=np.int64), np.diff(bound.indptr)) // height
    points = np.concatenate([bound.starts, bound.stops])
    sign = np.repeat(np.array([1, -1], np.int64), bound.starts.size)
    cell = np.tile(run_rows, 2) * (columns + 1) + -(-points // width)
    shape = rows, columns + 1
    number, total = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    np.add.at(number.reshape(-1), cell, sign)
    np.add.at(total.reshape(-1), cell, sign * points)
    edges = np.minimum(np.arange(columns + 1, dtype=np.int64) * width, bound.keys)
    below = edges * np.cumsum(number, axis=1) - np.cumsum(total, axis=1)
    return np.diff(below, axis=1)


def block_areas(bound: Neighborhoods, height: int, width: int) -> np.ndarray:
    """How many pairs each block holds, related or not.

    >>> from erlangen.relations import Causal
    >>> block_areas(Causal().on(5), 2, 2).tolist()
    [[4, 4, 2], [4, 4, 2], [2, 2, 1]]
    """
    tall = np.diff(np.minimum(np.arange(0, bound.queries + height, height), bound.queries))
    wide = np.diff(np.minimum(np.arange(0, bound.keys + width, width), bound.keys))
    return tall[:, None] * wide

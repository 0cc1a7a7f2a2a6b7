"""How dark a part of a matrix is drawn, exactly: the share of a block that is read, the weight of a pair."""

from __future__ import annotations

import numpy as np

from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.weighted import WeightedNeighborhoods


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


def pixels(bound: Neighborhoods, most: int) -> tuple[int, np.ndarray]:
    """The side of square blocks of which there are at most `most` a side, and the share of each that is read.

    >>> from erlangen.relations import Causal
    >>> pixels(Causal().on(4), 2)
    (2, array([[0.75, 0.  ],
           [1.  , 0.75]]))
    """
    block = max(1, -(-max(bound.queries, bound.keys) // most))
    return block, block_counts(bound, block, block) / block_areas(bound, block, block)


def shares(bound: WeightedNeighborhoods, head: int) -> np.ndarray:
    """Each weight of one head as a part of the largest in its row, shape (queries, keys); NaN: not read.

    >>> from erlangen.relations import Decay
    >>> shares(Decay(0.5).on(2), 0).tolist()
    [[1.0, nan], [0.5, 1.0]]
    """
    logs = bound.dense()[head]
    read = np.isfinite(logs)
    largest = np.max(logs, axis=1, keepdims=True, initial=-np.inf)
    return np.where(read, np.exp(logs - np.where(np.isfinite(largest), largest, 0)), np.nan)

"""Extremes of an array over many ranges at once: what checks on runs need instead of edges."""

from __future__ import annotations

import numpy as np

from erlangen.relations import Neighborhoods


def extreme(values: np.ndarray, starts: np.ndarray, stops: np.ndarray, operation: np.ufunc) -> np.ndarray:
    """`operation` (np.maximum or np.minimum) of values[start:stop] for each non-empty range.

    Each range is covered by two blocks of 2^t entries; block extremes are built by doubling.

    >>> extreme(np.array([3, 1, 2]), np.array([0, 1]), np.array([3, 2]), np.maximum)
    array([3, 1])
    """
    levels = np.frexp((stops - starts).astype(np.float64))[1] - 1  # floor(log2(length)), exact below 2^53
    result = np.empty(starts.size, np.int64)
    table, span = np.asarray(values, np.int64), 1
    deepest = int(levels.max(initial=-1))
    for level in range(deepest + 1):
        here = levels == level
        if here.any():
            result[here] = operation(table[starts[here]], table[stops[here] - span])
        if level < deepest:
            table = operation(table[:-span], table[span:])
            span *= 2
    return result


def positions_read(bound: Neighborhoods) -> np.ndarray:
    """Which keys some query reads, as booleans.

    >>> positions_read(Neighborhoods.from_edges(2, 3, [(0, 2), (1, 2)]))
    array([False, False,  True])
    """
    change = np.zeros(bound.keys + 1, np.int64)
    np.add.at(change, bound.starts, 1)
    np.add.at(change, bound.stops, -1)
    return np.cumsum(change[:-1]) > 0


def first_edge(bound: Neighborhoods) -> tuple[int, int]:
    """The first pair (query, key) of a relation that has one.

    >>> first_edge(Neighborhoods.from_edges(3, 3, [(2, 1), (1, 2)]))
    (1, 2)
    """
    return int(np.searchsorted(bound.indptr, 0, side="right")) - 1, int(bound.starts[0])


def first_missing(bound: Neighborhoods) -> tuple[int, int]:
    """The first pair (query, key) that a relation lacks; it must lack one.

    >>> first_missing(Neighborhoods.from_edges(2, 2, [(0, 0), (0, 1), (1, 0)]))
    (1, 1)
    """
    row = int((bound.degrees < bound.keys).argmax())
    runs = bound.row(row)
    return row, runs[0][1] if runs and runs[0][0] == 0 else 0


def first_beyond(a: Neighborhoods, b: Neighborhoods) -> tuple[int, int] | None:
    """The first pair that is in a and not in b, None if a <= b; looks at a few rows before all of them.

    >>> first_beyond(Neighborhoods.loops(3), Neighborhoods.from_edges(3, 3, [(0, 0)]))
    (1, 1)
    """
    for rows in dict.fromkeys((min(a.queries, 64), a.queries)):
        beyond = a.restrict(slice(0, rows)) - b.restrict(slice(0, rows))
        if beyond.starts.size:
            return first_edge(beyond)
    return None

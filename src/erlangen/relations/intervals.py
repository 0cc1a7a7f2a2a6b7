"""Sets of integers as sorted boundaries: the arithmetic under `Neighborhoods`.

A finite union of half-open intervals [s0, e0) u [s1, e1) u ... with s0 < e0 < s1 < e1 < ... is the strictly
increasing array (s0, e0, s1, e1, ...). A point x is in the set iff an odd number of boundaries is <= x.
The form is canonical, so set equality is array equality.
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray
"""One-dimensional int64 array."""


def merge(starts: Array, stops: Array) -> Array:
    """Boundaries of the union of the intervals [start, stop), which may overlap, touch or come unsorted.

    >>> merge(np.array([5, 0, 2]), np.array([6, 2, 3]))
    array([0, 3, 5, 6])
    """
    keep = stops > starts
    if not keep.all():
        starts, stops = starts[keep], stops[keep]
    if starts.size == 0:
        return np.empty(0, np.int64)
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")
        starts, stops = starts[order], stops[order]
    reach = np.maximum.accumulate(stops)
    first = np.flatnonzero(starts[1:] > reach[:-1]) + 1
    bounds = np.empty(2 * (first.size + 1), np.int64)
    bounds[0], bounds[-1] = starts[0], reach[-1]
    bounds[2::2] = starts[first]
    bounds[1:-1:2] = reach[first - 1]
    return bounds


def inside(bounds: Array, points: Array) -> Array:
    """Which points lie in the set.

    >>> inside(np.array([0, 3]), np.array([-1, 0, 2, 3]))
    array([False,  True,  True, False])
    """
    return (np.searchsorted(bounds, points, side="right") & 1).astype(bool)


def _combine(a: Array, b: Array, operation: np.ufunc) -> Array:
    points = np.concatenate([a, b])
    points.sort(kind="stable")  # two sorted runs: a merge
    member = operation(inside(a, points), inside(b, points))
    change = np.empty(points.size, bool)
    change[:1] = member[:1]
    change[1:] = member[1:] != member[:-1]
    return points[change]


def union(a: Array, b: Array) -> Array:
    """Boundaries of a u b.

    >>> union(np.array([0, 2]), np.array([2, 5]))
    array([0, 5])
    """
    return _combine(a, b, np.logical_or)


def intersection(a: Array, b: Array) -> Array:
    """Boundaries of a n b.

    >>> intersection(np.array([0, 4]), np.array([2, 5]))
    array([2, 4])
    """
    return _combine(a, b, np.logical_and)


def difference(a: Array, b: Array) -> Array:
    """Boundaries of a without b.

    >>> difference(np.array([0, 4]), np.array([2, 5]))
    array([0, 2])
    """
    return _combine(a, b, np.greater)


def symmetric_difference(a: Array, b: Array) -> Array:
    """Boundaries of the points in exactly one of a and b.

    >>> symmetric_difference(np.array([0, 4]), np.array([2, 5]))
    array([0, 2, 4, 5])
    """
    return _combine(a, b, np.not_equal)


def expand(starts: Array, lengths: Array) -> Array:
    """The concatenation of arange(start, start + length).

    >>> expand(np.array([5, 0]), np.array([2, 3]))
    array([5, 6, 0, 1, 2])
    """
    total = int(lengths.sum())
    before = np.cumsum(lengths) - lengths
    return np.arange(total, dtype=np.int64) + np.repeat(starts - before, lengths)

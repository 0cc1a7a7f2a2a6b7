"""Searches that cost a relation's runs, not its edges: topological orders, cycles, spanning forests."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import NamedTuple, TypeVar

import numpy as np

from erlangen.relations import Neighborhoods, intervals
from erlangen.taxonomy.ranges import extreme

MAX_TRANSPOSE = 200_000_000
"""A transpose with more boundaries than this is not built: the property is then left open (None)."""


Found = TypeVar("Found")


def remembered(search: Callable[[Neighborhoods], Found]) -> Callable[[Neighborhoods], Found]:
    """Keep the answer with the neighborhoods, as `cached_property` does: several properties ask the same."""
    key = f"_{search.__module__}.{search.__name__}"

    @wraps(search)
    def once(bound: Neighborhoods) -> Found:
        if key not in bound.__dict__:
            bound.__dict__[key] = search(bound)
        return bound.__dict__[key]

    return once


@remembered
def transposable(bound: Neighborhoods) -> bool:
    """Whether the transpose is small enough to build.

    Few runs may have a huge transpose: when every other row is full, every column has n / 2 runs.

    >>> transposable(Neighborhoods.loops(5))
    True
    """
    change = intervals.symmetric_difference(bound._bounds, bound._bounds + bound.keys + 1)
    return int((change[1::2] - change[::2]).sum()) <= MAX_TRANSPOSE


def ranks(order: np.ndarray) -> np.ndarray:
    """The inverse of a permutation: the place of each position in the order.

    >>> ranks(np.array([2, 0, 1]))
    array([1, 2, 0])
    """
    place = np.empty(order.size, np.int64)
    place[order] = np.arange(order.size, dtype=np.int64)
    return place


@remembered
def without_loops(bound: Neighborhoods) -> Neighborhoods:
    """The relation without its loops.

    >>> without_loops(Neighborhoods.loops(3)).num_edges
    0
    """
    return bound - Neighborhoods.loops(bound.queries)


def latest_key(bound: Neighborhoods, place: np.ndarray) -> tuple[int, int] | None:
    """A pair (i, j), j != i, of the relation in which j does not come before i; None if there is none.

    >>> latest_key(Neighborhoods.from_edges(2, 2, [(0, 1)]), np.array([0, 1]))
    (0, 1)
    """
    strict = without_loops(bound)
    rows = strict.run_rows
    late = np.flatnonzero(extreme(place, strict.starts, strict.stops, np.maximum) > place[rows])
    if late.size == 0:
        return None
    run = int(late[0])
    first, last = int(strict.starts[run]), int(strict.stops[run])
    return int(rows[run]), first + int(place[first:last].argmax())


@remembered
def mutual(bound: Neighborhoods) -> tuple[int, int] | None:
    """Two different positions that read each other; None if there are none, or the transpose is too large.

    >>> mutual(Neighborhoods.from_edges(3, 3, [(1, 1), (2, 0), (0, 2)]))
    (0, 2)
    """
    at = np.arange(bound.queries, dtype=np.int64)
    beside = np.flatnonzero(bound.contains(at[1:], at[:-1]) & bound.contains(at[:-1], at[1:]))
    if beside.size:
        return int(beside[0]), int(beside[0]) + 1
    if not transposable(bound):
        return None
    both = bound & bound.T
    rows = both.run_rows
    other = np.flatnonzero((both.starts != rows) | (both.stops != rows + 1))
    if other.size == 0:
        return None
    run = int(other[0])
    i, start = int(rows[run]), int(both.starts[run])
    return i, start if start != i else start + 1


class Ordering(NamedTuple):
    """A topological order (keys before their readers), or a cycle v0 reads v1 reads ... reads v0."""

    order: np.ndarray | None
    cycle: list[int] | None


@remembered
def topological(bound: Neighborhoods) -> Ordering:
    """A topological order of the relation without its loops, or a cycle of at least two positions.

    A depth-first search that skips visited positions inside a run in near constant time, so it visits
    each position and each run once.

    >>> topological(Neighborhoods.from_edges(3, 3, [(0, 2), (2, 1), (1, 1)])).order.tolist()
    [1, 2, 0]
    >>> topological(Neighborhoods.from_edges(3, 3, [(0, 2), (2, 1), (1, 0)])).cycle
    [0, 2, 1]
    """
    n, rows = bound.queries, bound.run_rows
    if (bound.stops <= rows + 1).all():
        return Ordering(np.arange(n, dtype=np.int64), None)
    if (bound.starts >= rows).all():
        return Ordering(np.arange(n - 1, -1, -1, dtype=np.int64), None)
    pair = mutual(bound)
    if pair is not None:
        return Ordering(None, list(pair))
    by_degree = np.argsort(bound.degrees, kind="stable")
    if latest_key(bound, ranks(by_degree)) is None:
        return Ordering(by_degree, None)
    order, parents = _postorder(bound)
    late = latest_key(bound, ranks(order))
    if late is None:
        return Ordering(order, None)
    reader, key = late  # key finished after its reader, so it was still open: an ancestor of the reader
    path = [reader]
    while path[-1] != key:
        path.append(parents[path[-1]])
    return Ordering(None, path[::-1])


def _find(following: list[int], at: int) -> int:
    """The first unvisited position >= at, halving the path on the way."""
    while following[at] != at:
        following[at] = following[following[at]]
        at = following[at]
    return at


def _postorder(bound: Neighborhoods) -> tuple[np.ndarray, list[int]]:
    n = bound.queries
    indptr, starts, stops = bound.indptr.tolist(), bound.starts.tolist(), bound.stops.tolist()
    following, parents, cursor = list(range(n + 1)), [-1] * n, indptr[:-1].copy()
    order: list[int] = []
    for root in range(n):
        if following[root] != root:
            continue
        following[root] = root + 1
        stack = [root]
        while stack:
            at = stack[-1]
            run, end = cursor[at], indptr[at + 1]
            while run < end:
                key = _find(following, starts[run])
                if key < stops[run]:
                    following[key] = key + 1
                    parents[key] = at
                    stack.append(key)
                    break
                run += 1
            else:
                order.append(stack.pop())
            cursor[at] = run
    return np.array(order, np.int64), parents


class Forest(NamedTuple):
    """A spanning forest of the undirected graph: parents (-1 at a root) and depths."""

    parents: np.ndarray
    depths: np.ndarray


@remembered
def forest(bound: Neighborhoods) -> Forest:
    """A spanning forest of the graph in which i and j are joined when (i, j) or (j, i) is in the relation.

    >>> forest(Neighborhoods.from_edges(3, 3, [(1, 0)])).parents.tolist()
    [-1, 0, -1]
    """
    n = bound.queries
    at = np.arange(n, dtype=np.int64)
    if n and (bound.contains(at[1:], at[:-1]) | bound.contains(at[:-1], at[1:])).all():
        return Forest(at - 1, at)
    sides = [(b.indptr.tolist(), b.starts.tolist(), b.stops.tolist()) for b in (bound, bound.T)]
    following, parents, depths = list(range(n + 1)), [-1] * n, [0] * n
    for root in range(n):
        if following[root] != root:
            continue
        following[root] = root + 1
        waiting = [root]
        for here in waiting:
            for indptr, starts, stops in sides:
                for run in range(indptr[here], indptr[here + 1]):
                    while (other := _find(following, starts[run])) < stops[run]:
                        following[other] = other + 1
                        parents[other], depths[other] = here, depths[here] + 1
                        waiting.append(other)
    return Forest(np.array(parents, np.int64), np.array(depths, np.int64))

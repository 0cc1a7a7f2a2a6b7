"""The ten properties of a relation on n positions, decided exactly on runs, each with its evidence.

Every function returns a `Certificate`, or None where the answer would cost more than memory allows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from erlangen.relations import Neighborhoods
from erlangen.taxonomy.certificates import Certificate, encode
from erlangen.taxonomy.orders_and_forests import (
    Forest,
    forest,
    latest_key,
    mutual,
    ranks,
    remembered,
    topological,
    transposable,
)
from erlangen.taxonomy.ranges import first_beyond, first_edge, first_missing, positions_read

MAX_STEPS = 60_000_000
"""Transitivity is left open (None) when composing the relation with itself would touch more runs."""


@remembered
def reflexive(bound: Neighborhoods) -> Certificate:
    """(i, i) in R for all i. Counterexample: an i that does not read itself.

    >>> reflexive(Neighborhoods.from_edges(2, 2, [(0, 0)])).data
    {'missing': 1}
    """
    at = np.arange(bound.queries, dtype=np.int64)
    missing = np.flatnonzero(~bound.contains(at, at))
    return _verdict(bound, "reflexive", {"missing": int(missing[0])} if missing.size else {})


def symmetric(bound: Neighborhoods) -> Certificate | None:
    """(i, j) in R implies (j, i) in R. Counterexample: a pair that is present with its mirror missing.

    >>> symmetric(Neighborhoods.from_edges(2, 2, [(0, 1)])).data
    {'present': [0, 1]}
    """
    if not transposable(bound):
        return None
    edge = None if bound == bound.T else first_beyond(bound, bound.T)
    return _verdict(bound, "symmetric", {} if edge is None else {"present": list(edge)})


@remembered
def antisymmetric(bound: Neighborhoods) -> Certificate | None:
    """(i, j) and (j, i) in R only for i = j. Counterexample: two positions that read each other.

    >>> antisymmetric(Neighborhoods.from_edges(2, 2, [(0, 1), (1, 0)])).data
    {'pair': [0, 1]}
    """
    if not transposable(bound):
        return None
    pair = mutual(bound)
    return _verdict(bound, "antisymmetric", {} if pair is None else {"pair": list(pair)})


@remembered
def total(bound: Neighborhoods) -> Certificate | None:
    """(i, j) or (j, i) in R for all i and j, i = j included. Counterexample: a pair with neither.

    >>> total(Neighborhoods.from_dense(np.eye(2) > 0)).data
    {'pair': [0, 1]}
    """
    if not transposable(bound):
        return None
    either = bound | bound.T
    full = either.num_edges == bound.queries**2
    return _verdict(bound, "total", {} if full else {"pair": list(first_missing(either))})


@remembered
def transitive(bound: Neighborhoods) -> Certificate | None:
    """(i, j) and (j, k) in R imply (i, k) in R. Counterexample: such a triple with (i, k) missing.

    A total order is proven transitive by the order itself; anything else by R @ R <= R.

    >>> transitive(Neighborhoods.from_edges(3, 3, [(2, 1), (1, 0)])).data
    {'triple': [2, 1, 0]}
    """
    order = total_order(bound)
    if order is not None:
        return Certificate("transitive", True, {"order": encode(order, bound.queries)}, bound.queries)
    two_steps = (positions_read(bound) & (bound.degrees > 0)).any()
    if not two_steps or bound.num_edges == bound.queries**2:
        return Certificate("transitive", True, {}, bound.queries)
    rows = bound.run_rows
    for keys in (bound.starts, bound.stops - 1):  # a witness is usually at the end of a run
        triple = _beyond(bound, rows, keys)
        if triple is not None:
            return Certificate("transitive", False, {"triple": triple}, bound.queries)
    counts = np.diff(bound.indptr)
    if int((counts[bound.starts] + counts[bound.stops - 1]).sum()) > MAX_STEPS:
        return None
    missing = bound.compose(bound) - bound
    if missing.num_edges == 0:
        return Certificate("transitive", True, {}, bound.queries)
    i, k = first_edge(missing)
    keys = np.concatenate([np.arange(start, stop) for start, stop in bound.row(i)])
    j = int(keys[bound.contains(keys, k)][0])
    return Certificate("transitive", False, {"triple": [i, j, k]}, bound.queries)


def _beyond(bound: Neighborhoods, rows: np.ndarray, keys: np.ndarray) -> list[int] | None:
    """A triple (i, j, k) with i = rows[r], j = keys[r], k in N_j but not in N_i."""
    most = max(1, MAX_STEPS // 16 // max(1, int(np.diff(bound.indptr).max(initial=1))))
    first, block = 0, 64  # few runs first: most relations that fail do so at once
    while first < rows.size:
        part = slice(first, first + min(block, most))
        beyond = bound.restrict(keys[part]) - bound.restrict(rows[part])
        if beyond.starts.size:
            r, k = first_edge(beyond)
            return [int(rows[first + r]), int(keys[first + r]), k]
        first, block = part.stop, block * 4
    return None


@remembered
def total_order(bound: Neighborhoods) -> np.ndarray | None:
    """The order, least first, in which each reads exactly everything up to itself; None if there is none.

    In a total order the element at place t reads t + 1 elements, so the degrees give the only candidate.

    >>> total_order(Neighborhoods.from_edges(2, 2, [(0, 0), (0, 1), (1, 1)])).tolist()
    [1, 0]
    """
    n = bound.queries
    if bound.num_edges != n * (n + 1) // 2:
        return None
    order = np.argsort(bound.degrees, kind="stable").astype(np.int64)
    place = ranks(order)
    # Contained in the order and equally large, hence equal.
    return order if latest_key(bound, place) is None else None


def acyclic(bound: Neighborhoods) -> Certificate:
    """No cycle but loops. Proof: an order with keys before readers. Counterexample: v0 reads v1 ... reads v0.

    >>> acyclic(Neighborhoods.from_edges(2, 2, [(0, 1), (1, 0)])).data
    {'cycle': [0, 1]}
    """
    order, cycle = topological(bound)
    if order is None:
        return Certificate("acyclic", False, {"cycle": cycle}, bound.queries)
    return Certificate("acyclic", True, {"order": encode(order, bound.queries)}, bound.queries)


def unique_topological_order(bound: Neighborhoods) -> Certificate:
    """Exactly one order has all keys before their readers. Proof: it, each element reading the one before.

    Counterexample: a cycle (no order), or an order and a place t whose neighbours t and t + 1 may be swapped.

    >>> unique_topological_order(Neighborhoods.from_dense(np.eye(2) > 0)).data
    {'order': 'ascending', 'at': 0}
    """
    order, cycle = topological(bound)
    claim = "unique_topological_order"
    if order is None:
        return Certificate(claim, False, {"cycle": cycle}, bound.queries)
    free = np.flatnonzero(~bound.contains(order[1:], order[:-1]))
    if free.size == 0:
        return Certificate(claim, True, {"order": encode(order, bound.queries)}, bound.queries)
    return _verdict(bound, claim, {"order": encode(order, bound.queries), "at": int(free[0])})


def toeplitz(bound: Neighborhoods) -> Certificate:
    """R[i + 1, j + 1] = R[i, j] wherever both exist. Counterexample: a pair (i, j) where they differ.

    >>> toeplitz(Neighborhoods.from_edges(2, 2, [(0, 0)])).data
    {'pair': [0, 0]}
    """
    n = bound.queries - 1
    if n < 1:
        return _verdict(bound, "toeplitz", {})
    here, there = (bound.restrict(np.arange(s, s + n), keys=np.arange(s, s + n)) for s in (0, 1))
    pair = None if here == there else first_beyond(here, there) or first_beyond(there, here)
    return _verdict(bound, "toeplitz", {} if pair is None else {"pair": list(pair)})


def bipartition(bound: Neighborhoods) -> Certificate | None:
    """The positions split into two sides and every edge joins different sides (its direction aside).

    Proof: the side of each position. Counterexample: an odd cycle of the undirected graph; a loop is one.

    >>> bipartition(Neighborhoods.from_edges(2, 2, [(1, 0)])).data
    {'sides': 'ascending'}
    """
    at = np.arange(bound.queries, dtype=np.int64)
    looped = np.flatnonzero(bound.contains(at, at))
    if looped.size:
        return Certificate("bipartition", False, {"odd_cycle": [int(looped[0])]}, bound.queries)
    if not transposable(bound):
        return None
    parents, depths = forest(bound)
    sides = depths % 2
    edge = _inside_one_side(bound, sides)
    if edge is None:
        return Certificate("bipartition", True, {"sides": encode(sides, bound.queries)}, bound.queries)
    return _verdict(bound, "bipartition", {"odd_cycle": _odd_cycle(Forest(parents, depths), *edge)})


def _inside_one_side(bound: Neighborhoods, sides: np.ndarray) -> tuple[int, int] | None:
    ones = np.concatenate([[0], np.cumsum(sides)])
    rows = bound.run_rows
    on_side_one = ones[bound.stops] - ones[bound.starts]
    same = np.where(sides[rows] == 1, on_side_one, bound.stops - bound.starts - on_side_one)
    bad = np.flatnonzero(same)
    if bad.size == 0:
        return None
    run = int(bad[0])
    i, first = int(rows[run]), int(bound.starts[run])
    return i, first + int((sides[first : int(bound.stops[run])] == sides[i]).argmax())


def _odd_cycle(tree: Forest, i: int, j: int) -> list[int]:
    """The tree paths from i and from j up to where they meet."""
    left, right = [i], [j]
    while left[-1] != right[-1]:
        longer = left if tree.depths[left[-1]] >= tree.depths[right[-1]] else right
        longer.append(int(tree.parents[longer[-1]]))
    return left + right[-2::-1]


def connected(bound: Neighborhoods) -> Certificate | None:
    """Any two positions are joined by a path, directions aside. Proof: the parents of a spanning tree.

    Counterexample: a part of the positions that no edge enters or leaves.

    >>> connected(Neighborhoods.from_dense(np.eye(3) > 0)).data
    {'part': [0]}
    """
    n = bound.queries
    if not transposable(bound):
        return None
    parents = forest(bound).parents
    roots = np.flatnonzero(parents < 0)
    if roots.size <= 1:
        return Certificate("connected", True, {"parents": encode(parents, n)}, n)
    component = np.where(parents < 0, np.arange(n), parents)
    while not np.array_equal(further := component[component], component):
        component = further
    part = np.flatnonzero(component == roots[0])
    return Certificate("connected", False, {"part": encode(part, n)}, n)


def _verdict(bound: Neighborhoods, claim: str, counterexample: dict[str, object]) -> Certificate:
    return Certificate(claim, not counterexample, counterexample, bound.queries)


PROPERTIES: dict[str, Callable[[Neighborhoods], Certificate | None]] = {
    "reflexive": reflexive,
    "symmetric": symmetric,
    "antisymmetric": antisymmetric,
    "transitive": transitive,
    "total": total,
    "acyclic": acyclic,
    "unique_topological_order": unique_topological_order,
    "toeplitz": toeplitz,
    "bipartition": bipartition,
    "connected": connected,
}
"""Every property by its name."""

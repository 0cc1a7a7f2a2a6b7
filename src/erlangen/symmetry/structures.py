"""What has the symmetries of a relation: binary relations on coloured points, whatever the relation is.

The search knows only these. Each kind of relation has one function here that makes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np

from erlangen.errors import ParameterError, SizeError
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.protocol import AnyRelation
from erlangen.relations.relation import Relation
from erlangen.relations.ternary import TernaryRelation, Triples
from erlangen.relations.weighted import WeightedRelation
from erlangen.symmetry.group import Group, Oracle
from erlangen.symmetry.group_shapes import TRIVIAL, Unnamed
from erlangen.symmetry.moves import Move, keeps

TOLERANCE = {8: 1e-9, 4: 1e-5, 2: 1e-2}
"""By bytes per number: floats this close, relative to the largest, count as equal where they are not."""


MAX_EDGES = 5_000_000
"""Weights of more edges than this are not compared one by one."""


@dataclass(frozen=True, eq=False)
class Structure:
    """Relations on points, of which the positions are the first: what keeps them all is the group.

    `colors` tells points apart that are not alike, where there are more points than positions; `oracle`
    then decides by definition which permutations of positions belong. `numeric` says that floats which
    differ by rounding were taken as equal.
    """

    relations: tuple[Neighborhoods, ...]
    numeric: bool = False
    colors: np.ndarray | None = None
    oracle: Oracle | None = None


@singledispatch
def structure(member: AnyRelation, queries: int, keys: int) -> Structure:
    """The structure of one relation at a size."""
    raise NotImplementedError(f"no structure is known that has the symmetries of {member!r}")


@structure.register
def _pairs(member: Relation | Neighborhoods, queries: int, keys: int) -> Structure:
    """Pairs are a structure as they are."""
    return Structure((member.on(queries, keys),))


@structure.register
def _weights(member: WeightedRelation, queries: int, keys: int) -> Structure:
    """The row-normalised weights: relation t holds the edges whose class has bit t.

    Scaling a row is a gauge, so each row is divided by its largest weight; edges are in one class when what
    remains is equal in every head. Integers and fractions are compared exactly, and so are floats, unless
    some differ by no more than rounding: these count as equal, and `numeric` says so.

    >>> from erlangen.relations import ALiBi, Full
    >>> [bits.edges().tolist() for bits in structure(ALiBi(1, relation=Full()), 2, 2).relations]
    [[[0, 1], [1, 0]], [[0, 0], [1, 1]]]
    """
    listed = heads_of(member)
    numeric = False
    relations: list[Neighborhoods] = []
    for support in dict.fromkeys(listed):
        heads = [h for h, other in enumerate(listed) if other == support]
        if len(listed) == 1:
            heads = list(range(member.heads))
        elif member.heads == 1:
            heads = [0]
        bound = support.on(queries, keys)
        edges = bound.edges()
        units = member._units(edges[:, 0] + (keys - queries), edges[:, 1])
        code = np.zeros(len(edges), np.int64)
        for head in heads:
            classes, rounded = weight_classes(units[head], bound.degrees)
            numeric |= rounded
            code = np.unique(code * (int(classes.max(initial=0)) + 1) + classes, return_inverse=True)[1]
        code += 1  # pairs that are not read have code 0
        for bit in range(int(code.max(initial=1)).bit_length()):
            chosen = edges[(code >> bit) & 1 == 1]
            relations.append(Neighborhoods.from_edges(queries, keys, chosen))
    return Structure(tuple(dict.fromkeys(relations)), numeric)


@structure.register
def _triples(member: TernaryRelation, queries: int, keys: int) -> Structure:
    """Points, and a vertex for each shadow pair, in another colour.

    The vertex of the pair (i, j) has an arc to the point i and one from the point j, so it goes where its
    points go; the triple (i, j, l) is the arc from the vertex of (i, j) to that of (i, l). An automorphism
    that keeps points apart from pairs therefore is a permutation of points that keeps T, and the other way
    round: n + |shadow| vertices, 2 |shadow| + |T| arcs.

    >>> found = structure(Triples(3, [(0, 1, 2)]), 3, 3)
    >>> found.relations[0].edges().tolist(), found.colors.tolist()
    ([[1, 3], [2, 4], [3, 0], [3, 4], [4, 0]], [0, 0, 0, 1, 1])
    """
    bound = member.on(queries)
    n, pairs = bound.n, bound.shadow().edges()
    codes = pairs[:, 0] * n + pairs[:, 1]
    vertex = n + np.arange(codes.size)
    row = np.repeat(np.arange(n), bound.degrees)
    sources, targets = (n + np.searchsorted(codes, row * n + key) for key in (bound.first, bound.second))
    arcs = [(vertex, pairs[:, 0]), (pairs[:, 1], vertex), (sources, targets)]
    size = n + codes.size
    graph = Neighborhoods.from_edges(size, size, np.concatenate([np.stack(arc, axis=1) for arc in arcs]))
    return Structure(
        (graph,), colors=(np.arange(size) >= n).astype(np.int64), oracle=Oracle(keeps_triples, (bound,))
    )


def keeps_triples(bound: Triples, image: np.ndarray) -> bool:
    """Whether a permutation keeps a ternary relation, by definition.

    >>> keeps_triples(Triples(3, [(0, 1, 2), (1, 2, 0), (2, 0, 1)]), np.array([1, 2, 0]))
    True
    """
    return bound.permute(image) == bound


def heads_of(member: AnyRelation) -> tuple[Any, ...]:
    """The relations that heads read by: one for all, or one per head."""
    if "item" in member.axes:
        raise ParameterError(f"{member} holds one relation per batch item: ask for the symmetry of each")
    (heads,) = member.grid()
    weighted = member.weights
    if weighted is not None and weighted.axes and weighted.heads not in (1, len(heads)):
        raise ParameterError(f"{weighted} has {weighted.heads} biases for {len(heads)} heads")
    return heads


def unexplored(members: Sequence[AnyRelation], queries: int, keys: int, joint: bool) -> Group | None:
    """The lower bound "at least 1" when weighted members have too many edges to list, otherwise None.

    Membership is still decided, edge by edge, when it is asked.

    >>> from erlangen.relations import Full, RelativeBias
    >>> unexplored([RelativeBias([0, 1, 2, 3])], 10_000, 10_000, joint=True)
    <Group order at least 1; degree 10000; at least>
    """
    weighted = [member for member in members if member.weights is not None]
    found = {support for member in weighted for support in heads_of(member)}
    if sum(support.on(queries, keys).num_edges for support in found) <= MAX_EDGES:
        return None
    if not joint:
        raise SizeError(f"{weighted[0]} has more than {MAX_EDGES} edges: too many to compare their weights")
    oracle = Oracle(_keeps_weights, (tuple(members), queries, keys))
    return Group(keys, Unnamed(1, TRIVIAL, at_least=True), (), "at least", oracle)


def _keeps_weights(members: tuple[AnyRelation, ...], queries: int, keys: int, image: np.ndarray) -> bool:
    move = Move.of(image)
    bound = [layer for member in members for layer in structure(member, queries, keys).relations]
    return all(keeps(relation, move) for relation in bound)


def weight_classes(log_weights: np.ndarray, degrees: np.ndarray) -> tuple[np.ndarray, bool]:
    """A number per edge, equal exactly when the row-normalised weights are; and whether floats were rounded.

    `log_weights` lists the edges row by row, row i having `degrees[i]` of them. Rows are compared by their
    differences from the row's largest log-weight.

    >>> weight_classes(np.array([5, 6, 0, 1]), np.array([2, 2]))
    (array([0, 1, 0, 1]), False)
    >>> weight_classes(np.array([0.3, 0.1, 0.2, 0.0]), np.array([2, 2]))
    (array([1, 0, 1, 0]), True)
    """
    filled = degrees[degrees > 0]
    if filled.size == 0:
        return np.zeros(0, np.int64), False
    starts = np.cumsum(filled) - filled
    largest = np.repeat(np.maximum.reduceat(log_weights, starts), filled)
    if log_weights.dtype.kind != "f":
        return np.unique(log_weights - largest, return_inverse=True)[1], False
    tolerance = TOLERANCE[min(log_weights.dtype.itemsize, 8)] * max(1.0, float(np.abs(log_weights).max()))
    wide, largest = log_weights.astype(np.float64), largest.astype(np.float64)
    difference = wide - largest
    # What rounding lost in `difference`, exactly (Knuth): the pair is the exact difference.
    part = difference - wide
    lost = (wide - (difference - part)) + (-largest - part)
    exact = np.unique(np.stack([difference, lost]), axis=1, return_inverse=True)[1].reshape(-1)
    order = np.argsort(difference, kind="stable")
    close = np.empty(difference.size, np.int64)
    close[order] = np.cumsum(np.diff(difference[order], prepend=difference[order[0]]) > tolerance)
    return close, int(close.max()) < int(exact.max())

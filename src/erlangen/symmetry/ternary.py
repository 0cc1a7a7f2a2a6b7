"""The symmetry group of a ternary relation, exactly, through its incidence structure."""

from __future__ import annotations

from typing import Any

import numpy as np

from erlangen.errors import ErlangenError
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.ternary import TernaryRelation, Triples
from erlangen.symmetry.automorphisms import automorphisms
from erlangen.symmetry.closed_forms import closed_form
from erlangen.symmetry.group import Group, Oracle
from erlangen.symmetry.moves import Move


def ternary_symmetry(relation: TernaryRelation, n: Any, budget: float) -> Group:
    """Aut(T) = {pi : (i, j, l) in T iff (pi i, pi j, pi l) in T}, as a group of permutations of positions.

    A window squared, like any product T_i = N_i x N_i, has the group of its shadow at every size, since each
    determines the other. Any other relation is searched through `incidence`.

    >>> from erlangen.relations import Fano, WindowSquared
    >>> ternary_symmetry(Fano(), None, budget=10.0)
    <Group order 168; degree 7; exact at n>
    >>> ternary_symmetry(WindowSquared(1, 1), 1_000_000, budget=10.0)
    <Group Z2, order 2; degree 1000000; symbolic>
    """
    shadow = relation.shadow() if relation.product and n is not None else None
    if shadow is not None and (group := closed_form(shadow, n, n, joint=True)) is not None:
        return group
    bound = relation.on(n)
    graph, colors = incidence(bound)
    found = automorphisms([graph], colors, budget)
    moves = tuple(_on_points(move, bound.n) for move in found.moves)
    if not all(keeps(bound, move.array(bound.n)) for move in moves):
        raise ErlangenError("a computed generator is not an automorphism; this is a defect of erlangen")
    return Group(bound.n, found.shape, moves, found.evidence, Oracle(keeps, (bound,)))


def incidence(bound: Triples) -> tuple[Neighborhoods, np.ndarray]:
    """A coloured directed graph with the same automorphisms: points, and a vertex for each shadow pair.

    The vertex of the pair (i, j) has an arc to the point i and one from the point j, so it goes where its
    points go; the triple (i, j, l) is the arc from the vertex of (i, j) to that of (i, l). An automorphism
    that keeps points apart from pairs therefore is a permutation of points that keeps T, and the other way
    round: n + |shadow| vertices, 2 |shadow| + |T| arcs.

    >>> graph, colors = incidence(Triples(3, [(0, 1, 2)]))
    >>> graph.edges().tolist(), colors.tolist()
    ([[1, 3], [2, 4], [3, 0], [3, 4], [4, 0]], [0, 0, 0, 1, 1])
    """
    n = bound.n
    pairs = bound.shadow().edges()
    codes = pairs[:, 0] * n + pairs[:, 1]
    vertex = n + np.arange(codes.size)
    row = np.repeat(np.arange(n), bound.degrees)
    sources, targets = (n + np.searchsorted(codes, row * n + key) for key in (bound.first, bound.second))
    arcs = np.concatenate(
        [
            np.stack([vertex, pairs[:, 0]], axis=1),
            np.stack([pairs[:, 1], vertex], axis=1),
            np.stack([sources, targets], axis=1),
        ]
    )
    size = n + codes.size
    return Neighborhoods.from_edges(size, size, arcs), (np.arange(size) >= n).astype(np.int64)


def keeps(bound: Triples, image: np.ndarray) -> bool:
    """Whether a permutation keeps a ternary relation, by definition.

    >>> keeps(Triples(3, [(0, 1, 2), (1, 2, 0), (2, 0, 1)]), np.array([1, 2, 0]))
    True
    """
    return bound.permute(image) == bound


def _on_points(move: Move, n: int) -> Move:
    inside = move.points < n
    return Move(move.points[inside], move.images[inside])

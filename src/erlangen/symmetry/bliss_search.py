"""The search that remains after reduction: bliss on coloured directed graphs, within a time budget."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pybliss

from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.symmetry.components import components

_EDGES_PER_SECOND = 500_000
"""A graph with more edges than this for each second left is not begun: bliss looks at the clock only between
nodes of its search tree, and each node may take a pass over all edges."""
_BATCH = 100_000


@dataclass(frozen=True, eq=False)
class Component:
    """Isomorphic connected components: `copies` are their aligned vertices, one row for each.

    `generators` permute the places of one row, and `order` is the order of the group they generate; when the
    search did not finish, `complete` is False and `order` is 1. The whole part has the group (this group) wr
    S_(number of copies).
    """

    copies: np.ndarray
    generators: list[np.ndarray]
    order: int
    complete: bool


def search(relations: Sequence[Neighborhoods], colors: np.ndarray, deadline: float) -> list[Component]:
    """All colour-preserving permutations that are automorphisms of every relation, until the deadline.

    A relation with more than half of all pairs is replaced by its complement. Each connected component is
    searched once; components of equal canonical form are copies of one another. `deadline` is a time of
    `time.monotonic()`; bliss asks at every node of its search tree whether to go on.

    >>> two_rings = Neighborhoods.from_edges(6, 6, [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)])
    >>> (part,) = search([two_rings], np.zeros(6, np.int64), time.monotonic() + 10)
    >>> part.order, len(part.copies)
    (3, 2)
    """
    n = colors.size
    sparse = [~relation if relation.density > 0.5 else relation for relation in relations]
    affordable = _EDGES_PER_SECOND * (deadline - time.monotonic())
    if sum(relation.num_edges for relation in sparse) + (len(relations) - 1) * n > affordable:
        return [Component(np.arange(n)[None, :], [], 1, complete=False)]
    edges = np.concatenate(
        [np.insert(relation.edges(), 0, index, axis=1) for index, relation in enumerate(sparse)]
    )
    label = components(n, edges[:, 1], edges[:, 2])
    order = np.argsort(label, kind="stable")
    place = np.empty(n, np.int64)
    vertex_cuts = np.flatnonzero(np.diff(label[order])) + 1
    place[order] = np.arange(n) - np.repeat(np.concatenate([[0], vertex_cuts]), _lengths(vertex_cuts, n))
    edge_order = np.argsort(label[edges[:, 1]], kind="stable")
    edges = edges[edge_order]
    owner = label[edges[:, 1]]
    local = np.stack([edges[:, 0], place[edges[:, 1]], place[edges[:, 2]]], axis=1)
    found: dict[tuple[bytes, bytes], list[tuple[np.ndarray, list[np.ndarray], int]]] = {}
    parts: list[Component] = []
    several = int((_lengths(vertex_cuts, n) > 1).sum()) > 1
    for vertices in np.split(order, vertex_cuts):
        if vertices.size == 1:
            continue  # alone with its colour: others like it were merged as twins
        low, high = np.searchsorted(owner, [label[vertices[0]], label[vertices[0]] + 1])
        searched = _component(local[low:high], colors[vertices], len(relations), deadline, several=several)
        if searched is None:
            parts.append(Component(vertices[None, :], [], 1, complete=False))
        elif searched.stopped:
            parts.append(Component(vertices[None, :], searched.generators, 1, complete=False))
        else:
            aligned = vertices[np.argsort(searched.canonical)]
            inverse = searched.canonical
            generators = [inverse[g[np.argsort(inverse)]] for g in searched.generators]
            found.setdefault(searched.form, []).append((aligned, generators, searched.order))
    for copies in found.values():
        _, generators, size = copies[0]
        aligned = np.stack([vertices for vertices, _, _ in copies])
        parts.append(Component(aligned, generators, size, complete=True))
    return sorted(parts, key=lambda part: int(part.copies.min()))


def _lengths(cuts: np.ndarray, total: int) -> np.ndarray:
    return np.diff(np.concatenate([[0], cuts, [total]]))


@dataclass(frozen=True, eq=False)
class _Searched:
    generators: list[np.ndarray]
    order: int
    canonical: np.ndarray
    form: tuple[bytes, bytes]
    stopped: bool


def _component(
    edges: np.ndarray, colors: np.ndarray, copies: int, deadline: float, *, several: bool
) -> _Searched | None:
    """bliss on one component with rows (relation, query, key); None when the time was over before it began.

    Several relations are one graph: a copy of the vertices for each, coloured by its relation, and an arc
    from each vertex to its next copy.
    """
    n, span = colors.size, int(colors.max(initial=0)) + 1
    graph = pybliss.Digraph()
    for copy in range(copies):
        for color in colors.tolist():
            graph.add_vertex(color + copy * span)
    for copy in range(copies - 1):
        for vertex in range(n):
            graph.add_edge(vertex + copy * n, vertex + (copy + 1) * n)
    for at in range(0, len(edges), _BATCH):
        if time.monotonic() > deadline:
            return None
        for copy, source, target in edges[at : at + _BATCH].tolist():
            graph.add_edge(source + copy * n, target + copy * n)
    generators: list[np.ndarray] = []
    stopped = False

    def report(_: int, image: np.ndarray) -> None:
        generators.append(image[:n].astype(np.int64))

    def terminate() -> bool:
        nonlocal stopped
        stopped = stopped or time.monotonic() > deadline
        return stopped

    stats = pybliss.Stats()
    labelling = np.arange(copies * n)
    if several:
        labelling = np.asarray(graph.get_permutation_to_canonical_form(stats, report, terminate)).astype(
            np.int64
        )
    else:  # nothing to compare with: a canonical form would be wasted work
        graph.find_automorphisms(stats, report, terminate)
    if stopped:
        return _Searched(generators, 1, np.arange(n), (b"", b""), stopped=True)
    # Copies carry increasing colours, so the first n canonical places are those of the first copy.
    canonical = np.argsort(np.argsort(labelling[:n]))
    relabelled = np.stack([edges[:, 0], canonical[edges[:, 1]], canonical[edges[:, 2]]], axis=1)
    relabelled = relabelled[np.lexsort(relabelled.T[::-1])]
    form = (relabelled.astype(np.int64).tobytes(), colors[np.argsort(canonical)].tobytes())
    return _Searched(generators, int(stats.group_size), canonical, form, stopped=False)

"""The search that remains after reduction: bliss on a coloured directed graph, within a time budget."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pybliss

from erlangen.relations.neighborhoods import Neighborhoods

_MAX_EDGES = 20_000_000
"""Beyond this many edges the graph would not fit comfortably into memory."""
_BATCH = 100_000


@dataclass(frozen=True, eq=False)
class Found:
    """Generators of the automorphism group of a coloured graph, its order, and whether the search finished."""

    generators: list[np.ndarray]
    order: int
    complete: bool


def search(relations: Sequence[Neighborhoods], colors: np.ndarray, deadline: float) -> Found:
    """All colour-preserving permutations that are automorphisms of every relation, until the deadline.

    Several relations are one graph: a copy of the points for each, coloured by its relation, and an arc from
    each point to its next copy. A relation with more than half of all pairs is replaced by its complement.
    `deadline` is a time of `time.monotonic()`; bliss asks at every node of its search tree whether to go on.

    >>> ring = Neighborhoods.from_edges(4, 4, [(0, 1), (1, 2), (2, 3), (3, 0)])
    >>> search([ring], np.zeros(4, np.int64), time.monotonic() + 10).order
    4
    """
    n, copies = colors.size, len(relations)
    sparse = [~relation if relation.density > 0.5 else relation for relation in relations]
    if sum(relation.num_edges for relation in sparse) + (copies - 1) * n > _MAX_EDGES:
        return Found([], 1, complete=False)
    graph = pybliss.Digraph()
    span = int(colors.max(initial=0)) + 1
    for copy in range(copies):
        for color in colors.tolist():
            graph.add_vertex(color + copy * span)
    chunks = [relation.edges() + copy * n for copy, relation in enumerate(sparse)]
    below = np.arange(n, dtype=np.int64)
    chunks += [np.stack([below + copy * n, below + (copy + 1) * n], axis=1) for copy in range(copies - 1)]
    for chunk in chunks:
        for at in range(0, len(chunk), _BATCH):
            if time.monotonic() > deadline:
                return Found([], 1, complete=False)
            for source, target in chunk[at : at + _BATCH].tolist():
                graph.add_edge(source, target)
    generators: list[np.ndarray] = []
    stopped = False

    def report(_: int, image: np.ndarray) -> None:
        generators.append(image[:n].astype(np.int64))

    def terminate() -> bool:
        nonlocal stopped
        stopped = stopped or time.monotonic() > deadline
        return stopped

    stats = pybliss.Stats()
    graph.find_automorphisms(stats, report, terminate)
    return Found(generators, 1 if stopped else int(stats.group_size), complete=not stopped)

"""Where the nodes of a small relation's graph are drawn: the arrangement that shows its structure."""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, pi, sin

from erlangen.relations import Causal, Relation
from erlangen.relations.neighborhoods import Neighborhoods

Point = tuple[float, float]


@dataclass(frozen=True)
class Layout:
    """Places of the keys and of the queries (the same list when they are the same positions)."""

    kind: str
    keys: tuple[Point, ...]
    queries: tuple[Point, ...]

    @property
    def joint(self) -> bool:
        """Whether query i and key i are one node."""
        return self.keys is self.queries


def arrange(relation: Relation, bound: Neighborhoods) -> Layout:
    """The layout of a relation's graph.

    "sides": readers and read are apart. "line": everybody reads one way only. "grid": the cells of a 2-D
    grid. "circle": everything else.

    >>> from erlangen.relations import Bipartite, Full, Grid, Window
    >>> [arrange(r, r.on(3)).kind for r in (Bipartite(1, 2), Window(1), Full(), Grid((1, 3), 1))]
    ['sides', 'line', 'circle', 'grid']
    >>> arrange(Full(), Full().on(2, 3)).joint
    False
    """
    if bound.queries != bound.keys:
        return Layout("sides", _column(0.0, bound.keys), _column(1.0, bound.queries))
    n = bound.keys
    if relation.cells is not None and len(relation.cells) == 2:
        _, width = relation.cells
        return _joint("grid", tuple((float(p % width), -float(p // width)) for p in range(n)))
    edges = bound.edges()
    readers, read = set(edges[:, 0].tolist()), set(edges[:, 1].tolist())
    if edges.size and readers.isdisjoint(read) and len(readers) + len(read) == n:
        places: dict[int, Point] = {}
        for side, positions in ((0.0, sorted(read)), (1.0, sorted(readers))):
            places.update(zip(positions, _column(side, len(positions)), strict=True))
        return _joint("sides", tuple(places[p] for p in range(n)))
    past = Causal().on(n)
    if edges.size and (edges[:, 0] != edges[:, 1]).any() and (bound <= past or past >= bound.T):
        return _joint("line", tuple((float(p), 0.0) for p in range(n)))
    return _joint("circle", tuple((sin(2 * pi * p / n), cos(2 * pi * p / n)) for p in range(n)))


def _joint(kind: str, places: tuple[Point, ...]) -> Layout:
    return Layout(kind, places, places)


def _column(side: float, count: int) -> tuple[Point, ...]:
    """`count` places one below the other, centred around zero, spread over a height of 1.4."""
    step = 1.4 / max(count, 2)
    return tuple((1.4 * side, step * ((count - 1) / 2 - p)) for p in range(count))

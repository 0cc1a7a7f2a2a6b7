"""Distance: a bias for each shortest-path distance in a graph, as in Graphormer."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from erlangen.errors import ParameterError, SizeError
from erlangen.relations.catalogue import written
from erlangen.relations.families import Bindable
from erlangen.relations.lookup import indices, to_numpy
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.orders import Full
from erlangen.relations.protocol import Draw
from erlangen.relations.relation import Relation
from erlangen.relations.sparse_graph import Graph
from erlangen.relations.weighted import tables
from erlangen.relations.weighted.weighted_relation import WeightedRelation

_FULL = Full()


@written
@final
class Distance(WeightedRelation):
    """A bias by shortest paths: b_ij = table[h, d(i, j)], d the least number of edges of a path from i to j.

    `graph` is a relation with a size of its own (or whatever `Graph` takes): i reads j is a step from i to
    j. `table` has shape (distances,) or (heads, distances): entry t is the bias at distance t; its last
    entry also serves every greater distance and pairs with no path. Its symmetries are those of the graph:

    >>> square = Graph([(0, 1), (1, 2), (2, 3), (3, 0), (1, 0), (2, 1), (3, 2), (0, 3)], nodes=4)
    >>> Distance(square, [0, -1, -2]).on(4).dense()[0].tolist()
    [[0.0, -1.0, -2.0, -1.0], [-1.0, 0.0, -1.0, -2.0], [-2.0, -1.0, 0.0, -1.0], [-1.0, -2.0, -1.0, 0.0]]
    """

    __slots__ = ("_within", "graph", "table")
    graph: Relation
    table: Any
    _within: tuple[Neighborhoods, ...]
    structured = False
    _default, _named, _table, _dimensions = _FULL, ("graph", "table"), "table", 2

    def __init__(self, graph: Any, table: Any, *, relation: Bindable = _FULL) -> None:
        graph = graph if isinstance(graph, Relation) else Graph(graph)
        values = self._read(table)
        if values.shape[-1] == 0:
            raise ParameterError("Distance(table) needs at least the bias at distance 0")
        sizes = graph.own_sizes
        if sizes is None or sizes[0] != sizes[1]:
            raise ParameterError(
                f"Distance(graph) needs a graph with a number of nodes, got {graph!r}; "
                "Graph(edges, nodes=n) has one"
            )
        within = _within(graph.on(*sizes), values.shape[-1] - 1)
        super().__init__(relation, graph=graph, table=values, _within=within)

    @classmethod
    def example(cls, n: int, draw: Draw) -> Distance:
        graph = Graph.from_pairs(Graph.example(n, draw).edges(), nodes=n)
        return cls(graph, draw.integers(-3, 3, 1, 4), relation=draw.relation(n))

    @property
    def own_sizes(self) -> tuple[int, int] | None:
        return self.graph.own_sizes

    def distances(self, i: Any, j: Any) -> np.ndarray:
        """d(i, j), elementwise, cut to the last entry of the table; no path counts as the last, too.

        >>> line = Graph([(0, 1), (1, 2)], nodes=3)
        >>> Distance(line, [0, -1, -2, -9]).distances([0, 0, 2], [1, 2, 0]).tolist()
        [1, 2, 3]
        """
        i, j = np.broadcast_arrays(*indices(to_numpy(i), to_numpy(j)))
        result = np.zeros(i.shape, np.int64)
        for near in self._within[: self.table.shape[-1] - 1]:
            result += ~near.contains(i, j)
        return result

    def _by_pair(self, i: np.ndarray, j: np.ndarray) -> Any:
        return tables.take(tables.floats(self._numbers), self._checked(i, j))

    def _units(self, i: np.ndarray, j: np.ndarray) -> list[np.ndarray]:
        return list(tables.exact(self._numbers)[:, self._checked(i, j)])

    def _checked(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        nodes = self._within[0].queries
        highest = max(i.max(initial=-1), j.max(initial=-1))
        if highest >= nodes:
            raise SizeError(f"{self} has no distance for position {highest}: its graph has {nodes} nodes")
        return self.distances(i, j)


def _within(step: Neighborhoods, farthest: int) -> tuple[Neighborhoods, ...]:
    """The pairs at distance <= t, for t = 0 .. farthest - 1 (at least for t = 0).

    A pair's distance is then the number of these sets it is not in.
    """
    sets = [Neighborhoods.loops(step.queries)]
    one_more = sets[0] | step
    while len(sets) < farthest:
        sets.append(sets[-1].compose(one_more))
    return tuple(sets)

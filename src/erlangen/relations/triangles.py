"""Ternary relations made from pairwise ones: triangles of a graph, and a window squared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from erlangen.errors import ParameterError, SizeError
from erlangen.relations import intervals, sizes
from erlangen.relations.catalogue import written
from erlangen.relations.protocol import Draw
from erlangen.relations.relation import Relation
from erlangen.relations.sparse_graph import Graph
from erlangen.relations.ternary import TernaryRelation, Triples, affordable
from erlangen.relations.windows import Window

_CHUNK = 1 << 22
"""Candidates looked at together."""


@written
@final
@dataclass(frozen=True)
class Triangles(TernaryRelation):
    """The triangles of a relation R: (i, j, l) distinct with (i, j), (i, l) and (j, l) in R.

    Of a symmetric relation these are the ordered triangles of its graph; of a directed one those in which
    i reads j and l, and j reads l. A triangle-free graph leaves every query without a pair.

    >>> from erlangen.relations import Graph
    >>> square = Graph([(0, 1), (1, 0), (1, 2), (2, 1), (0, 2), (2, 0), (2, 3), (3, 2)])
    >>> [Triangles(square).on(4).row(i) for i in range(4)]
    [[(1, 2), (2, 1)], [(0, 2), (2, 0)], [(0, 1), (1, 0)], []]
    """

    graph: Relation

    def __post_init__(self) -> None:
        if not isinstance(self.graph, Relation) or self.graph.data_dependent:
            raise ParameterError(
                f"Triangles(graph) takes a relation given by sizes alone, got {self.graph!r}"
            )
        own = self.graph.own_sizes
        if own is not None and own[0] != own[1]:
            raise SizeError(
                f"Triangles needs as many queries as keys; {self.graph!r} has {own[0]} and {own[1]}"
            )

    @classmethod
    def example(cls, n: int, draw: Draw) -> Triangles:
        return cls(Graph.example(n, draw) | Window.example(n, draw))

    @property
    def size(self) -> int | None:
        own = self.graph.own_sizes
        return None if own is None else own[0]

    def _bind(self, n: int) -> Triples:
        bound = self.graph.on(n)
        affordable(self, n, bound.num_edges)
        edges = bound.edges()
        edges = edges[edges[:, 0] != edges[:, 1]]
        degrees = bound.degrees[edges[:, 1]]
        affordable(self, n, int(degrees.sum()))
        total = np.concatenate([[0], np.cumsum(degrees)])
        found = [np.empty(0, np.int64)]
        at = 0
        while at < len(edges):
            upto = max(at + 1, int(np.searchsorted(total, total[at] + _CHUNK, side="right")) - 1)
            i, j = edges[at:upto].T
            rows = bound.restrict(j)  # for each edge (i, j) all that j reads
            lengths = rows.stops - rows.starts
            edge = np.repeat(rows.run_rows, lengths)
            last = intervals.expand(rows.starts, lengths)
            i, j = i[edge], j[edge]
            kept = bound.contains(i, last) & (last != i) & (last != j)
            found.append(((i * n + j) * n + last)[kept])
            at = upto
        return Triples.of_codes(n, np.concatenate(found))


@written
@final
@dataclass(frozen=True, repr=False)
class WindowSquared(TernaryRelation):
    """All pairs within a window: (i, j, l) with both j and l in {i - lookback, ..., i + lookahead}.

    T_i = N_i x N_i, so T and the window determine each other and have the same symmetries; at most
    (lookback + lookahead + 1)^2 pairs a query. j = l, and j or l = i, are included.

    >>> WindowSquared(lookback=1).on(3).row(2)
    [(1, 1), (1, 2), (2, 1), (2, 2)]
    """

    lookback: int
    lookahead: int = 0
    product = True

    _counts = ("lookback", "lookahead")

    def shadow(self, n: int | None = None) -> Window:
        """The window itself, at every size."""
        return Window(self.lookback, self.lookahead)

    def _bind(self, n: int) -> Triples:
        i = np.arange(n, dtype=np.int64)
        low = np.maximum(i - sizes.clamp(self.lookback), 0)
        width = np.minimum(i + sizes.clamp(self.lookahead) + 1, n) - low
        affordable(self, n, int((width**2).sum()))
        row = np.repeat(i, width**2)
        place = np.arange(row.size) - np.repeat(np.cumsum(width**2) - width**2, width**2)
        j, last = np.divmod(place, width[row])
        return Triples.of_codes(n, (row * n + low[row] + j) * n + low[row] + last)

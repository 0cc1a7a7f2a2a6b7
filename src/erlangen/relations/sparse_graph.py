"""Graphs: relations given edge by edge, in any of the forms in which libraries keep them."""

from __future__ import annotations

import reprlib
import warnings
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from erlangen.errors import ParameterError, SizeError
from erlangen.relations import sizes
from erlangen.relations.catalogue import written
from erlangen.relations.lookup import edge_array, is_torch, to_numpy
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.protocol import Draw
from erlangen.relations.relation import Relation, Site

PRINTED = 64
"""Edge sets and masks up to this many entries print in full; larger ones print abbreviated."""


@written
@final
@dataclass(frozen=True, init=False, repr=False)
class Graph(Relation):
    """Any sparse relation, by its edges (query, key): the query reads the key (Definition 9).

    `edges` is one of

    - a list or NumPy array of pairs (query, key), shape (edges, 2);
    - a torch tensor, which is read as PyG's `edge_index` of shape (2, edges): row 0 the source (key), row 1
      the target (query). An array of shape (2, 2) could be either: unless both readings agree it is refused,
      and `from_pairs` and `from_edge_index` say which is meant;
    - a networkx graph: an arc u -> v lets v read u, an undirected edge both. Integer labels are the positions
      and must be 0 .. n - 1, in whatever order they were added; other labels are numbered in that order;
    - a scipy sparse matrix: i reads j where it stores an entry (i, j) other than 0.

    A graph has no weights: a matrix or networkx graph that has some is read with a warning. `Weighted` keeps
    them. With `nodes` the graph has exactly that many positions; without, it may be bound to any size that
    holds its edges.

    >>> Graph([(0, 1), (2, 0)]).on(3).dense().astype(int).tolist()
    [[0, 1, 0], [0, 0, 0], [1, 0, 0]]
    >>> Graph([(0, 5)]).on(3)
    Traceback (most recent call last):
    ...
    erlangen.errors.SizeError: Graph([(0, 5)]) has an edge at position 5, but was bound to 3 queries x 3 keys
    """

    _bound: Neighborhoods
    nodes: int | None

    def __init__(self, edges: Any, nodes: int | None = None) -> None:
        pairs, counted = _pairs(edges)
        self._set(pairs, nodes, counted)

    def _set(self, pairs: np.ndarray, nodes: int | None, counted: int | None = None) -> None:
        if pairs.size and pairs.min() < 0:
            raise ParameterError(f"Graph(edges) has the negative position {pairs.min()}")
        if pairs.size and pairs.max() > sizes.MAX_SIZE - 1:
            raise SizeError(
                f"Graph(edges) has position {pairs.max()}, beyond the largest size {sizes.MAX_SIZE}"
            )
        nodes = counted if nodes is None else sizes.size(nodes, "Graph(nodes)")
        least = int(pairs.max(initial=-1)) + 1
        if nodes is not None and nodes < least:
            raise SizeError(f"Graph(nodes={nodes}) has an edge at position {least - 1}")
        self._fill(_bound=Neighborhoods.from_edges(least, least, pairs), nodes=nodes)

    @classmethod
    def example(cls, n: int, draw: Draw) -> Graph:
        codes = draw.integers(0, n * n - 1, 0, 3 * n) if n else []
        return cls([divmod(code, n) for code in codes])

    @classmethod
    def from_edge_index(cls, edge_index: Any, num_nodes: int | None = None) -> Graph:
        """A PyG `edge_index`, shape (2, edges): row 0 is the source (key), row 1 the target (query).

        >>> Graph.from_edge_index([[1, 0], [0, 2]], num_nodes=3)
        Graph([(0, 1), (2, 0)], nodes=3)
        """
        array = to_numpy(edge_index)
        if array.ndim != 2 or array.shape[0] != 2:
            raise ParameterError(f"edge_index must have shape (2, edges), got {array.shape}")
        return cls.from_pairs(array[::-1].T, nodes=num_nodes)

    @classmethod
    def from_pairs(cls, pairs: Any, nodes: int | None = None) -> Graph:
        """Pairs (query, key) in a list, array or tensor of shape (edges, 2).

        >>> Graph.from_pairs(np.array([[0, 1], [2, 0]]))
        Graph([(0, 1), (2, 0)])
        """
        graph = cls.__new__(cls)
        graph._set(edge_array(pairs), nodes)
        return graph

    def edges(self) -> np.ndarray:
        """All pairs (query, key), sorted, shape (edges, 2)."""
        return self._bound.edges()

    def __repr__(self) -> str:
        nodes = "" if self.nodes is None else f", nodes={self.nodes}"
        if self._bound.num_edges > PRINTED:
            return f"Graph(<{self._bound.num_edges} edges>{nodes})"
        return f"Graph({[tuple(edge) for edge in self.edges().tolist()]}{nodes})"

    @property
    def own_sizes(self) -> tuple[int, int] | None:
        return None if self.nodes is None else (self.nodes, self.nodes)

    def _require(self, site: Site) -> None:
        bound = f"was bound to {site.positions.size} queries x {site.keys} keys"
        if self.nodes is not None and site.keys != self.nodes:
            raise SizeError(f"{self} has {self.nodes} positions, but {bound}")
        if site.keys < self._bound.keys:
            raise SizeError(f"{self} has an edge at position {self._bound.keys - 1}, but {bound}")

    def _bind(self, site: Site) -> Neighborhoods:
        known = self._bound
        # One empty row at the end stands for every position that has no edges.
        indptr = np.append(known.indptr, known.indptr[-1])
        extended = Neighborhoods(known.queries + 1, site.keys, indptr, known.starts, known.stops)
        inside = (site.positions >= 0) & (site.positions < known.queries)
        return extended.restrict(np.where(inside, site.positions, known.queries))

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        return self._bound._contains(i, j)

    def _transposed(self) -> Graph:
        return Graph.from_pairs(self.edges()[:, ::-1], nodes=self.nodes)


def _pairs(edges: Any) -> tuple[np.ndarray, int | None]:
    """(query, key) pairs of any accepted kind of graph, and its number of nodes where it has one."""
    if isinstance(edges, Graph):
        return edges.edges(), edges.nodes
    if hasattr(edges, "tocoo"):  # scipy sparse
        matrix = edges.tocoo(copy=True)
        if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ParameterError(f"Graph takes a square sparse matrix, got shape {matrix.shape}")
        # Entries of one place are not added up: in a narrow type the sum may wrap to 0.
        kept = matrix.data != 0
        pairs = np.stack([matrix.row[kept], matrix.col[kept]], axis=1).astype(np.int64)
        if matrix.dtype != bool:
            if np.unique(pairs[:, 0] * matrix.shape[1] + pairs[:, 1]).size < len(pairs):
                _say_weights("store one entry for each edge")
            elif (matrix.data[kept] != 1).any():
                _say_weights("write matrix != 0")
        return pairs, matrix.shape[0]
    if hasattr(edges, "nodes") and hasattr(edges, "is_directed"):  # networkx
        return _networkx(edges)
    if is_torch(edges):
        array = to_numpy(edges)
        if array.ndim != 2 or array.shape[0] != 2:
            raise ParameterError(
                f"a torch tensor is read as PyG's edge_index of shape (2, edges), got {tuple(array.shape)}"
            )
        return edge_array(array[::-1].T), None
    pairs = edge_array(edges)
    if isinstance(edges, np.ndarray) and pairs.shape == (2, 2):
        turned = {(query, key) for key, query in pairs.T.tolist()}
        if turned != set(map(tuple, pairs.tolist())):
            raise ParameterError(
                f"Graph({pairs.tolist()}) as an array of shape (2, 2) may be two pairs (query, key) or PyG's "
                "edge_index, which are different graphs: write Graph.from_pairs(array) or "
                "Graph.from_edge_index(array)"
            )
    return pairs, None


def _networkx(graph: Any) -> tuple[np.ndarray, int]:
    labels = list(graph.nodes)
    number = {label: index for index, label in enumerate(labels)}
    if any(isinstance(label, (int, np.integer)) for label in labels):
        # Rows of features go by these numbers, not by the order in which nodes happened to be added.
        if any(isinstance(label, (bool, np.bool_)) for label in labels) or set(labels) != set(
            range(len(labels))
        ):
            raise ParameterError(
                f"Graph(networkx graph) takes integer labels as positions, so they must be 0 .. "
                f"{len(labels) - 1}; got {reprlib.repr(labels)}. networkx.convert_node_labels_to_integers "
                "numbers them anew"
            )
        number = {label: int(label) for label in labels}
    arcs = [(number[target], number[source]) for source, target in graph.edges()]
    if not graph.is_directed():
        arcs += [(key, query) for query, key in arcs]
    for source, target, weight in graph.edges(data="weight", default=1):
        try:
            plain = bool(weight == 1)
        except (TypeError, ValueError, RuntimeError):  # an array is neither equal nor unequal
            raise ParameterError(
                f"Graph(networkx graph) takes weights that are numbers, got {reprlib.repr(weight)} on the "
                f"edge {reprlib.repr((source, target))}; remove the attribute weight of its edges"
            ) from None
        if not plain:
            _say_weights("remove the attribute weight of its edges")
            break
    return edge_array(arcs), len(labels)


def _say_weights(instead: str) -> None:
    warnings.warn(
        f"a Graph has no weights: those given are not read. To say so {instead}; to keep them, "
        "Weighted(graph, edges=numbers)",
        stacklevel=4,
    )

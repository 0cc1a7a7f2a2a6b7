"""Relations given edge by edge: graphs, masks, random keys, nearest keys."""

from __future__ import annotations

import reprlib
import warnings
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from erlangen.errors import ParameterError, SizeError
from erlangen.relations import nearest, sizes
from erlangen.relations.lookup import booleans, is_torch, to_numpy
from erlangen.relations.neighborhoods import Neighborhoods, edge_array
from erlangen.relations.registry import written
from erlangen.relations.relation import Relation, Site, need_joint, need_keys, need_vectors

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
        object.__setattr__(self, "_bound", Neighborhoods.from_edges(least, least, pairs))
        object.__setattr__(self, "nodes", nodes)

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


@written
@final
@dataclass(frozen=True, init=False, repr=False)
class FromMask(Relation):
    """The relation of a dense mask of booleans or 0/1 integers, shape (queries, keys), True = may read.

    Bound to exactly its number of keys. Its rows are the last positions, so fewer queries give its last rows.

    >>> FromMask([[True, False], [True, True]]).on(2).num_edges
    3
    """

    _bound: Neighborhoods

    def __init__(self, mask: Any) -> None:
        array = to_numpy(mask)
        if array.ndim in (3, 4):
            families = "Batch.from_mask(mask) for (batch, queries, keys)"
            raise ParameterError(
                f"FromMask(mask) takes one mask (queries, keys), got shape {array.shape}: write "
                + (
                    f"PerHead.from_mask(mask) for (heads, queries, keys), {families}"
                    if array.ndim == 3
                    else "Batch.from_mask(mask) for (batch, heads, queries, keys)"
                )
            )
        object.__setattr__(self, "_bound", Neighborhoods.from_dense(booleans(array, "FromMask(mask)")))

    @classmethod
    def _of(cls, bound: Neighborhoods) -> FromMask:
        relation = cls.__new__(cls)
        object.__setattr__(relation, "_bound", bound)
        return relation

    def __repr__(self) -> str:
        q, k = self._bound.queries, self._bound.keys
        if q * k > PRINTED or q * k == 0:
            return f"FromMask(<{q} x {k}, {self._bound.num_edges} edges>)"
        return f"FromMask({self._bound.dense().astype(int).tolist()})"

    @property
    def own_sizes(self) -> tuple[int, int] | None:
        return self._bound.queries, self._bound.keys

    def _require(self, site: Site) -> None:
        q, k = self._bound.queries, self._bound.keys
        positions = site.positions
        low, high = (positions.min(), positions.max()) if positions.size else (k, k - 1)
        if site.keys != k or low < k - q or high > k - 1:
            raise SizeError(
                f"{self} has {q} queries and {k} keys, but was bound to "
                f"{positions.size} queries and {site.keys} keys"
            )

    def _bind(self, site: Site) -> Neighborhoods:
        return self._bound.restrict(site.positions + (self._bound.queries - self._bound.keys))

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        return self._bound._contains(i + (self._bound.queries - self._bound.keys), j)

    def _transposed(self) -> FromMask:
        return FromMask._of(self._bound.T)


@written
@final
@dataclass(frozen=True)
class Random(Relation):
    """Each query reads `keys_per_query` distinct keys, drawn pseudo-randomly from the seed (BigBird).

    The draw of a row depends on seed, position and number of keys alone (Floyd's sampling over a counter
    hash), so single rows can be bound. With no more keys than asked for, all are read.

    >>> Random(2, seed=0).on(8).degrees.tolist()
    [2, 2, 2, 2, 2, 2, 2, 2]
    >>> Random(2, seed=0).on(3, 8) == Random(2, seed=0).on(8).restrict(range(5, 8))
    True
    """

    keys_per_query: int
    seed: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys_per_query", sizes.count(self.keys_per_query, "Random(keys_per_query)"))
        object.__setattr__(self, "seed", sizes.count(self.seed, "Random(seed)"))

    def _require(self, site: Site) -> None:
        need_joint(self, site)

    def runs_needed(self, queries: int, keys: int) -> int:
        drawn = min(self.keys_per_query, keys)
        return queries * max(drawn, drawn * drawn // 256)  # each key drawn is compared with those before

    def _bind(self, site: Site) -> Neighborhoods:
        rows, n, k = site.positions.size, site.keys, min(self.keys_per_query, site.keys)
        chosen = np.empty((rows, k), np.int64)
        for t in range(k):
            last = n - k + t
            draw = (_hash(self.seed, site.positions, t) % np.uint64(last + 1)).astype(np.int64)
            taken = (chosen[:, :t] == draw[:, None]).any(axis=1)
            chosen[:, t] = np.where(taken, last, draw)
        starts = chosen.ravel()
        return Neighborhoods.from_runs(rows, n, np.repeat(np.arange(rows), k), starts, starts + 1)

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        return self.on(need_keys(self, keys))._contains(i, j)


@written
@final
@dataclass(frozen=True)
class Nearest(Relation):
    """The k keys with the largest inner product with the query: data-dependent (Unlimiformer).

    Bound by vectors, `Nearest(k).on(queries, keys)` with shapes (length, dim); ties go to the earlier key.
    `index` says how they are looked for, "exact" or by "faiss" where that is installed (in float32, ties as
    it likes); it is no part of what the relation is.

    >>> Nearest(1).on(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0], [2.0, 0.0]])).row(0)
    [(1, 2)]
    >>> Nearest(1).on(4)
    Traceback (most recent call last):
    ...
    erlangen.errors.DataError: Nearest(k=1) depends on the data: bind it to vectors, on(queries, keys) with
    shapes (length, dim)
    """

    k: int
    index: str = field(default="exact", compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", sizes.count(self.k, "Nearest(k)"))
        if self.index not in nearest.INDICES:
            raise ParameterError(
                f"Nearest(index) must be one of {', '.join(nearest.INDICES)}, got {self.index!r}"
            )

    def __repr__(self) -> str:
        return f"Nearest(k={self.k}{'' if self.index == 'exact' else f', index={self.index!r}'})"

    @property
    def data_dependent(self) -> bool:
        return True

    def _require(self, site: Site) -> None:
        queries, keys = need_vectors(self, site)
        if queries.shape[1] != keys.shape[1]:
            raise SizeError(f"{self}: queries have dimension {queries.shape[1]}, keys {keys.shape[1]}")

    def _bind(self, site: Site) -> Neighborhoods:
        rows = site.positions.size
        if self.k >= site.keys:  # all of them, whatever the vectors
            return Neighborhoods.from_bands(site.keys, np.zeros(rows, np.int64), np.full(rows, site.keys))
        queries, keys = nearest.vectors(site.query_vectors, site.key_vectors)
        starts = nearest.INDICES[self.index](queries, keys, self.k).ravel()
        return Neighborhoods.from_runs(
            rows, site.keys, np.repeat(np.arange(rows), self.k), starts, starts + 1
        )

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        need_vectors(self, Site(np.empty(0, np.int64), 0))


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


def _hash(seed: int, position: np.ndarray, draw: int) -> np.ndarray:
    """splitmix64 of (seed, position, draw): well-mixed and the same on every machine."""
    x = position.astype(np.uint64)
    for salt in (seed % 2**64, draw):
        x = x * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return x

"""A relation bound to sizes: for each query the exact set of keys it reads."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from erlangen.errors import ParameterError, SizeError
from erlangen.relations import bitrows, intervals, sizes, tiling
from erlangen.relations.lookup import (
    booleans,
    edge_array,
    index_array,
    indices,
    integer_columns,
    like,
    outside,
    permutation,
    search,
    to_numpy,
    where,
)
from erlangen.relations.protocol import AnyRelation

MANY_RUNS = 1 << 22
"""A product that would list more runs than this is made of bits instead, where these fit."""
MOST_RUNS = 1 << 28
"""Most runs a product may list: several gigabytes."""


class Neighborhoods(AnyRelation):
    """The sets N_i = {j : (i, j) in R} for queries i in [0, queries) and keys j in [0, keys).

    Query i's keys are the runs [starts[r], stops[r]) for r in indptr[i]:indptr[i + 1], sorted, disjoint and
    maximal. The form is canonical, so `==` is exact equality of the sets, and a structured relation needs
    O(queries) runs however many edges it has. All set operations work on runs.

    Made by `Relation.on`, or by `from_runs`, `from_edges`, `from_dense`, `from_bands`.

    >>> a = Neighborhoods.from_edges(3, 3, [(0, 0), (1, 0), (1, 1), (2, 2)])
    >>> a
    Neighborhoods(queries=3, keys=3, num_edges=4)
    >>> a.dense().astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [0, 0, 1]]
    >>> (a | a.T).num_edges, a <= a | a.T
    (5, True)
    """

    def __init__(
        self, queries: int, keys: int, indptr: np.ndarray, starts: np.ndarray, stops: np.ndarray
    ) -> None:
        self.queries = queries
        self.keys = keys
        self.indptr = indptr
        self.starts = starts
        self.stops = stops
        for array in (indptr, starts, stops):
            array.flags.writeable = False

    # ------------------------------------------------------------------ making

    @classmethod
    def from_runs(
        cls, queries: int, keys: int, rows: np.ndarray, starts: np.ndarray, stops: np.ndarray
    ) -> Neighborhoods:
        """The union of the runs [start, stop) of the given rows; they may overlap and come in any order.

        >>> Neighborhoods.from_runs(1, 9, np.array([0, 0]), np.array([2, 0]), np.array([4, 2])).stops
        array([4])
        """
        queries, keys = sizes.size(queries, "queries"), sizes.size(keys, "keys")
        rows, starts, stops = integer_columns("from_runs", rows=rows, starts=starts, stops=stops)
        if rows.size and (rows.min() < 0 or rows.max() >= queries):
            raise SizeError(f"runs name query {outside(rows, queries)}, but there are {queries} queries")
        # A start beyond the keys is of an empty run, unless it is so far beyond that it would wrap around.
        if starts.size and (starts.min() < 0 or stops.max() > keys or starts.max() >= sizes.MAX_POSITION):
            raise SizeError(f"runs reach outside the {keys} keys")
        offset = rows * (keys + 1)
        return cls._from_bounds(queries, keys, intervals.merge(offset + starts, offset + stops))

    @classmethod
    def from_bands(cls, keys: int, starts: np.ndarray, stops: np.ndarray) -> Neighborhoods:
        """One run per query, row i reading [starts[i], stops[i]) cut to the keys; an inverted run is empty.

        >>> Neighborhoods.from_bands(3, np.array([-5, 2]), np.array([1, 1])).edges().tolist()
        [[0, 0]]
        """
        keys = sizes.size(keys, "keys")
        starts, stops = integer_columns("from_bands", starts=starts, stops=stops)
        starts, stops = np.maximum(starts, 0), np.minimum(stops, keys)
        full = stops > starts
        if full.all():
            return cls(starts.size, keys, np.arange(starts.size + 1, dtype=np.int64), starts, stops)
        indptr = np.zeros(starts.size + 1, np.int64)
        np.cumsum(full, out=indptr[1:])
        return cls(starts.size, keys, indptr, starts[full], stops[full])

    @classmethod
    def loops(cls, n: int) -> Neighborhoods:
        """The identity on n positions.

        >>> Neighborhoods.loops(2).edges().tolist()
        [[0, 0], [1, 1]]
        """
        at = np.arange(n, dtype=np.int64)
        return cls.from_bands(n, at, at + 1)

    @classmethod
    def from_edges(cls, queries: int, keys: int, edges: Any) -> Neighborhoods:
        """The pairs (query, key) of an (edges, 2) array or list.

        >>> Neighborhoods.from_edges(2, 2, [(5, 0)])
        Traceback (most recent call last):
        ...
        erlangen.errors.SizeError: edge (5, 0) lies outside 2 queries x 2 keys
        """
        queries, keys = sizes.size(queries, "queries"), sizes.size(keys, "keys")
        pairs = edge_array(edges)
        rows, columns = pairs[:, 0], pairs[:, 1]
        if pairs.size and (pairs.min() < 0 or rows.max() >= queries or columns.max() >= keys):
            bad = (rows < 0) | (columns < 0) | (rows >= queries) | (columns >= keys)
            i, j = pairs[bad.argmax()].tolist()
            raise SizeError(f"edge ({i}, {j}) lies outside {queries} queries x {keys} keys")
        # All rows on one line, as `_bounds` has them; sorted in place, so that millions of edges need little
        # more than their result. Neighbours on that line are one run, equal ones the same edge.
        line = np.multiply(rows, keys + 1, dtype=np.int64)
        line += columns
        if (line[1:] < line[:-1]).any():
            line.sort()
        ends = np.ones(line.size, bool)
        np.greater(line[1:] - line[:-1], 1, out=ends[:-1])
        stops = line[ends]
        starts = line[np.roll(ends, 1)]  # a run begins where the one before has ended
        del line, ends
        offset = starts // (keys + 1)
        indptr = np.zeros(queries + 1, np.int64)
        np.cumsum(np.bincount(offset, minlength=queries), out=indptr[1:])
        offset *= keys + 1
        starts -= offset
        stops -= offset
        stops += 1
        return cls(queries, keys, indptr, starts, stops)

    @classmethod
    def from_dense(cls, mask: Any) -> Neighborhoods:
        """The True entries of a (queries, keys) mask of booleans, or of the integers 0 and 1.

        >>> Neighborhoods.from_dense([[True, True], [False, True]]).edges().tolist()
        [[0, 0], [0, 1], [1, 1]]
        >>> Neighborhoods.from_dense([[0.0, -np.inf], [0.0, 0.0]])
        Traceback (most recent call last):
        ...
        erlangen.errors.ParameterError: from_dense(mask) takes booleans or 0/1 integers, 1 = may be read, got
        float64; for an additive mask pass mask == 0, for one of 1.0 and 0.0 pass mask != 0
        """
        dense = to_numpy(mask)
        if dense.ndim != 2:
            raise ParameterError(f"a mask must have shape (queries, keys), got shape {dense.shape}")
        padded = np.zeros((dense.shape[0], dense.shape[1] + 2), np.int8)
        padded[:, 1:-1] = booleans(dense, "from_dense(mask)")
        change = np.diff(padded, axis=1)
        rows, starts = np.nonzero(change == 1)
        stops = np.nonzero(change == -1)[1]
        indptr = np.searchsorted(rows, np.arange(dense.shape[0] + 1)).astype(np.int64)
        return cls(dense.shape[0], dense.shape[1], indptr, starts.astype(np.int64), stops.astype(np.int64))

    @classmethod
    def _from_bounds(cls, queries: int, keys: int, bounds: np.ndarray) -> Neighborhoods:
        rows, starts = np.divmod(bounds[::2], keys + 1)
        indptr = np.searchsorted(rows, np.arange(queries + 1)).astype(np.int64)
        return cls(queries, keys, indptr, starts, bounds[1::2] - rows * (keys + 1))

    @property
    def _bounds(self) -> np.ndarray:
        """All rows on one line, keys + 1 apart so that rows never touch, as `intervals` boundaries."""
        offset = self.run_rows * (self.keys + 1)
        bounds = np.empty(2 * self.starts.size, np.int64)
        np.add(self.starts, offset, out=bounds[::2])
        np.add(self.stops, offset, out=bounds[1::2])
        return bounds

    @property
    def run_rows(self) -> np.ndarray:
        """The query of each run.

        >>> Neighborhoods.from_edges(2, 3, [(0, 0), (0, 2), (1, 1)]).run_rows
        array([0, 0, 1])
        """
        return np.repeat(np.arange(self.queries, dtype=np.int64), np.diff(self.indptr))

    # ----------------------------------------------------------------- reading

    is_bound = True

    @property
    def own_sizes(self) -> tuple[int, int]:
        """(queries, keys)."""
        return self.queries, self.keys

    def on(self, queries: Any = None, keys: Any = None) -> Neighborhoods:
        """These neighborhoods, which are bound already; other sizes are refused.

        >>> from erlangen.relations import Causal
        >>> Causal().on(2).on(2, 3)
        Traceback (most recent call last):
        ...
        erlangen.errors.SizeError: Neighborhoods(queries=2, keys=2, num_edges=3) is bound already, and does
        not fit 2 queries and 3 keys
        """
        queries = self.queries if queries is None else sizes.size_or_vectors(queries, "queries")[0]
        keys = queries if keys is None else sizes.size_or_vectors(keys, "keys")[0]
        if (queries, keys) != self.own_sizes:
            raise SizeError(f"{self} is bound already, and does not fit {queries} queries and {keys} keys")
        return self

    def __repr__(self) -> str:
        return f"Neighborhoods(queries={self.queries}, keys={self.keys}, num_edges={self.num_edges})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Neighborhoods):
            return NotImplemented
        return (self.queries, self.keys) == (other.queries, other.keys) and all(
            np.array_equal(a, b)
            for a, b in (
                (self.indptr, other.indptr),
                (self.starts, other.starts),
                (self.stops, other.stops),
            )
        )

    @cached_property
    def _hash(self) -> int:
        return hash((self.queries, self.keys, self._bounds.tobytes()))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def num_edges(self) -> int:
        """How many pairs (i, j) are related: the sum of |N_i|."""
        return int((self.stops - self.starts).sum())

    @cached_property
    def degrees(self) -> np.ndarray:
        """|N_i| for each query, int64."""
        total = np.concatenate([[0], np.cumsum(self.stops - self.starts)])
        return total[self.indptr[1:]] - total[self.indptr[:-1]]

    @property
    def density(self) -> float:
        """num_edges / (queries * keys), 0.0 when there are no pairs."""
        pairs = self.queries * self.keys
        return self.num_edges / pairs if pairs else 0.0

    def empty_queries(self) -> np.ndarray:
        """The queries that read nothing: their output and gradient are zero.

        >>> Neighborhoods.from_edges(3, 3, [(1, 1)]).empty_queries()
        array([0, 2])
        """
        return np.flatnonzero(np.diff(self.indptr) == 0)

    def edges(self) -> np.ndarray:
        """All pairs (query, key), sorted, as an int64 array of shape (num_edges, 2)."""
        lengths = self.stops - self.starts
        return np.stack([np.repeat(self.run_rows, lengths), intervals.expand(self.starts, lengths)], axis=1)

    def dense(self) -> np.ndarray:
        """The boolean matrix of shape (queries, keys); the only method that costs queries * keys."""
        change = np.zeros((self.queries, self.keys + 1), np.int8)
        rows = self.run_rows
        change[rows, self.starts] = 1
        change[rows, self.stops] = -1
        return np.cumsum(change, axis=1, dtype=np.int8)[:, :-1].astype(bool)

    def row(self, query: int) -> list[tuple[int, int]]:
        """The runs [start, stop) of one query.

        >>> Neighborhoods.from_edges(1, 5, [(0, 0), (0, 1), (0, 4)]).row(0)
        [(0, 2), (4, 5)]
        """
        query = sizes.index(query, self.queries, "query")
        span = slice(self.indptr[query], self.indptr[query + 1])
        return list(zip(self.starts[span].tolist(), self.stops[span].tolist(), strict=True))

    def contains(self, i: Any, j: Any) -> Any:
        """Elementwise: does query i read key j? Indices outside the sizes give False. NumPy or torch.

        >>> Neighborhoods.from_edges(2, 2, [(0, 1)]).contains(0, np.array([0, 1, 7]))
        array([False,  True, False])
        """
        return self._contains(*indices(i, j))

    def _contains(self, i: Any, j: Any) -> Any:
        """`contains` for positions that `indices` has widened already."""
        within = (i >= 0) & (i < self.queries) & (j >= 0) & (j < self.keys)
        if self.starts.size == 0:
            return within & (j < 0)
        indptr, starts, stops = like(self.indptr, i), like(self.starts, i), like(self.stops, i)
        return within & search(indptr, starts, stops, self.search_steps, where(within, i, i * 0), j)

    @property
    def search_steps(self) -> int:
        """How many halvings find a run among those of any one query."""
        return int(np.diff(self.indptr).max(initial=0)).bit_length()

    # ---------------------------------------------------------- set operations

    def _with(self, other: Neighborhoods, operation: Any) -> Neighborhoods:
        if not isinstance(other, Neighborhoods):
            return NotImplemented  # the other side then says why not
        self._same_sizes(other)
        return self._from_bounds(self.queries, self.keys, operation(self._bounds, other._bounds))

    def _same_sizes(self, other: Neighborhoods) -> None:
        if (self.queries, self.keys) != (other.queries, other.keys):
            raise SizeError(
                f"neighborhoods of {self.queries} queries x {self.keys} keys and of "
                f"{other.queries} queries x {other.keys} keys cannot be combined"
            )

    def __and__(self, other: Neighborhoods) -> Neighborhoods:
        return self._with(other, intervals.intersection)

    def __or__(self, other: Neighborhoods) -> Neighborhoods:
        return self._with(other, intervals.union)

    def __sub__(self, other: Neighborhoods) -> Neighborhoods:
        return self._with(other, intervals.difference)

    def __xor__(self, other: Neighborhoods) -> Neighborhoods:
        return self._with(other, intervals.symmetric_difference)

    def __invert__(self) -> Neighborhoods:
        rows = np.arange(self.queries, dtype=np.int64)
        everything = Neighborhoods.from_bands(self.keys, rows * 0, rows * 0 + self.keys)
        return everything - self

    def __le__(self, other: Any) -> bool:
        """Inclusion: every edge of self is an edge of other."""
        if not isinstance(other, Neighborhoods):
            return super().__le__(other)
        return (self - other).starts.size == 0

    def __lt__(self, other: Any) -> bool:
        return self <= other and self != other

    def __ge__(self, other: Any) -> bool:
        return other <= self if isinstance(other, Neighborhoods) else super().__ge__(other)

    def __gt__(self, other: Any) -> bool:
        return other < self if isinstance(other, Neighborhoods) else super().__gt__(other)

    # --------------------------------------------------- reshaping and products

    @cached_property
    def T(self) -> Neighborhoods:
        """The transpose {(j, i) : (i, j) in R}, at a cost proportional to its own runs.

        Column j changes between rows i - 1 and i exactly where row i differs from row i - 1.
        """
        shift = self.keys + 1
        bounds = self._bounds
        change = intervals.symmetric_difference(bounds, bounds + shift)
        lengths = change[1::2] - change[::2]
        rows, columns = np.divmod(intervals.expand(change[::2], lengths), shift)
        order = np.argsort(columns, kind="stable")
        rows, columns = rows[order], columns[order]
        indptr = np.searchsorted(columns[::2], np.arange(self.keys + 1)).astype(np.int64)
        return Neighborhoods(self.keys, self.queries, indptr, rows[::2].copy(), rows[1::2].copy())

    def restrict(self, queries: Any = None, keys: Any = None) -> Neighborhoods:
        """The rows `queries` (any indices, any order) and the columns `keys` (increasing), renumbered.

        >>> a = Neighborhoods.from_edges(3, 3, [(0, 0), (1, 0), (1, 1), (2, 2)])
        >>> a.restrict(queries=[2, 1], keys=[1, 2]).edges().tolist()
        [[0, 1], [1, 0]]
        """
        result = self
        if queries is not None:
            rows = index_array(queries, self.queries, "queries")
            first = self.indptr[rows]
            counts = self.indptr[rows + 1] - first
            runs = intervals.expand(first, counts)
            indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
            result = Neighborhoods(rows.size, self.keys, indptr, self.starts[runs], self.stops[runs])
        if keys is not None:
            kept = index_array(keys, self.keys, "keys")
            if (kept[1:] <= kept[:-1]).any():
                raise ParameterError(
                    "restrict(keys=...) takes strictly increasing keys; use permute to reorder"
                )
            starts, stops = (np.searchsorted(kept, ends) for ends in (result.starts, result.stops))
            result = Neighborhoods.from_runs(result.queries, kept.size, result.run_rows, starts, stops)
        return result

    def permute(self, queries: Any, keys: Any = None) -> Neighborhoods:
        """Relabel: query i becomes queries[i], key j becomes keys[j] (the same permutation if not given).

        (pi R) = {(pi i, pi j) : (i, j) in R}, so `a.permute(pi) == a` iff pi is an automorphism.

        >>> Neighborhoods.from_edges(2, 2, [(0, 1)]).permute([1, 0]).edges().tolist()
        [[1, 0]]
        """
        tau = permutation(queries, self.queries, "permute(queries=...)")
        sigma = permutation(queries if keys is None else keys, self.keys, "permute(keys=...)")
        edges = self.edges()
        return Neighborhoods.from_edges(
            self.queries, self.keys, np.stack([tau[edges[:, 0]], sigma[edges[:, 1]]], axis=1)
        )

    def compose(self, other: Neighborhoods) -> Neighborhoods:
        """Two steps: {(i, k) : (i, j) in self and (j, k) in other for some j}.

        Every run of self is covered by two blocks of 2^t rows of other; unions of 2^t consecutive rows are
        built by doubling, so a window composed with a window never expands into edges.

        >>> one_back = Neighborhoods.from_edges(4, 4, [(1, 0), (2, 1), (3, 2)])
        >>> one_back.compose(one_back).edges().tolist()
        [[2, 0], [3, 1]]
        """
        if self.keys != other.queries:
            raise SizeError(
                f"cannot compose: the first has {self.keys} keys, the second {other.queries} queries"
            )
        lengths = self.stops - self.starts
        rows = self.run_rows
        levels = np.frexp(lengths.astype(np.float64))[1] - 1  # floor(log2(length)), exact below 2^53
        block, span = other, 1
        pieces: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        listed = 0
        for level in range(int(levels.max(initial=-1)) + 1):
            here = levels == level
            if here.any():
                first = np.concatenate([self.starts[here], self.stops[here] - span])
                counts = np.diff(block.indptr)[first]
                listed += int(counts.sum())
                if listed > MANY_RUNS and bitrows.fits(max(self.queries, other.queries), other.keys):
                    return bitrows.compose(self, other)
                if listed > MOST_RUNS:
                    raise SizeError(f"composing {self} with {other} would list more than {MOST_RUNS:,} runs")
                runs = intervals.expand(block.indptr[first], counts)
                pieces.append(
                    (np.repeat(np.tile(rows[here], 2), counts), block.starts[runs], block.stops[runs])
                )
            if level < levels.max():
                tail = np.arange(span, block.queries)
                block = block.restrict(np.arange(block.queries - span)) | block.restrict(tail)
                span *= 2
        none = np.empty(0, np.int64)
        pieces.append((none, none, none))
        into, starts, stops = (np.concatenate(column) for column in zip(*pieces, strict=True))
        return Neighborhoods.from_runs(self.queries, other.keys, into, starts, stops)

    def tiles(self, size: int = 64) -> tiling.Tiles:
        """The size x size tiles that are not empty: full, or partial with their bits. See `Tiles`."""
        return tiling.tile(self, size)

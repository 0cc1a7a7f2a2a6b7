"""A weighted relation bound to sizes: for each query the keys it reads, and their weights."""

from __future__ import annotations

from typing import final

import numpy as np

from erlangen.errors import ParameterError
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.protocol import Undecided


@final
class WeightedNeighborhoods(Undecided):
    """The sets N_i with a log-weight b_ij for every edge and head. Made by `WeightedRelation.on`.

    A bias that depends on j - i alone stays a vector (`toeplitz`), so that a million positions need no more
    than their runs and two million numbers. `==` is exact equality of sets and log-weights.

    >>> from erlangen.relations import ALiBi
    >>> bound = ALiBi([1]).on(3)
    >>> bound
    WeightedNeighborhoods(queries=3, keys=3, num_edges=6, heads=1, Toeplitz)
    >>> bound.dense()[0]
    array([[  0., -inf, -inf],
           [ -1.,   0., -inf],
           [ -2.,  -1.,   0.]])
    >>> bound.weights(1).round(3).tolist()
    [[0.269, 0.731]]
    """

    def __init__(
        self,
        neighborhoods: Neighborhoods,
        *,
        toeplitz: np.ndarray | None = None,
        per_edge: np.ndarray | None = None,
    ) -> None:
        values = toeplitz if per_edge is None else per_edge
        expected = (
            max(neighborhoods.queries + neighborhoods.keys - 1, 0)
            if per_edge is None
            else neighborhoods.num_edges
        )
        if values is None or (toeplitz is not None and per_edge is not None):
            raise ParameterError("WeightedNeighborhoods takes either toeplitz= or per_edge=")
        if values.ndim != 2 or values.shape[1] != expected:
            raise ParameterError(
                f"the log-weights of {neighborhoods} have shape (heads, {expected}), got {values.shape}"
            )
        self.neighborhoods = neighborhoods
        self.queries, self.keys = neighborhoods.own_sizes
        self.toeplitz = toeplitz
        """The log-weight of j - i = p - (queries - 1), shape (heads, queries + keys - 1), or None."""
        self._per_edge = per_edge

    @property
    def num_edges(self) -> int:
        """How many pairs are related."""
        return self.neighborhoods.num_edges

    @property
    def heads(self) -> int:
        """How many heads are told apart."""
        return (self._per_edge if self.toeplitz is None else self.toeplitz).shape[0]  # type: ignore[union-attr]

    def per_edge(self) -> np.ndarray:
        """The log-weight of every edge, shape (heads, num_edges), in the order of `neighborhoods.edges()`."""
        if self._per_edge is not None:
            return self._per_edge
        edges = self.neighborhoods.edges()
        assert self.toeplitz is not None
        return self.toeplitz[:, edges[:, 1] - edges[:, 0] + self.queries - 1]

    def log_weights(self, query: int) -> np.ndarray:
        """The log-weights of one row, shape (heads, |N_i|), in the order of its keys.

        Costs what the row costs.

        >>> from erlangen.relations import ALiBi
        >>> ALiBi(1).on(1_000_000).log_weights(2)
        array([[-2., -1.,  0.]])
        """
        runs = self.neighborhoods.row(query)
        if self.toeplitz is not None:
            shift = self.queries - 1 - query
            pieces = [self.toeplitz[:, start + shift : stop + shift] for start, stop in runs]
            return np.concatenate(pieces, axis=1) if pieces else np.empty((self.heads, 0))
        begin = int(self.neighborhoods.degrees[:query].sum())
        return self.per_edge()[:, begin : begin + int(self.neighborhoods.degrees[query])]

    def weights(self, query: int) -> np.ndarray:
        """The weights of one row, divided by their sum: shape (heads, |N_i|), each row of which sums to 1.

        This is the attention of the layer where all scores are equal.
        """
        row = self.log_weights(query)
        if row.shape[1] == 0:
            return row
        scaled = np.exp(row - row.max(axis=1, keepdims=True))
        return scaled / scaled.sum(axis=1, keepdims=True)

    def normalised(self) -> np.ndarray:
        """The row-normalised weight of every edge, shape (heads, num_edges): the same for W and diag(c) W.

        >>> from erlangen.relations import Causal, Weighted
        >>> a = Weighted(Causal(), [[0, 9], [1, 2]]).on(2).normalised()
        >>> b = Weighted(Causal(), [[7, 9], [4, 5]]).on(2).normalised()
        >>> bool(np.allclose(a, b)), a.round(3).tolist()
        (True, [[1.0, 0.269, 0.731]])
        """
        values = self.per_edge()
        degrees = self.neighborhoods.degrees
        filled = degrees > 0
        starts = (np.cumsum(degrees) - degrees)[filled]
        if starts.size == 0:
            return values
        repeat = degrees[filled]
        largest = np.repeat(np.maximum.reduceat(values, starts, axis=1), repeat, axis=1)
        scaled = np.exp(values - largest)
        return scaled / np.repeat(np.add.reduceat(scaled, starts, axis=1), repeat, axis=1)

    def dense(self) -> np.ndarray:
        """All log-weights, shape (heads, queries, keys), -inf where nothing is read; for small sizes."""
        result = np.full((self.heads, self.queries, self.keys), -np.inf)
        edges = self.neighborhoods.edges()
        result[:, edges[:, 0], edges[:, 1]] = self.per_edge()
        return result

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WeightedNeighborhoods):
            return NotImplemented
        if self.neighborhoods != other.neighborhoods:
            return False
        if self.toeplitz is not None and other.toeplitz is not None:
            used = self.used_offsets()  # elsewhere nothing is read, and the vectors may differ
            return np.array_equal(self.toeplitz[:, used], other.toeplitz[:, used])
        return np.array_equal(self.per_edge(), other.per_edge())

    def used_offsets(self) -> np.ndarray:
        """Which entries of a Toeplitz vector some edge reads."""
        bound = self.neighborhoods
        shift = self.queries - 1 - bound.run_rows
        change = np.zeros(max(self.queries + self.keys, 1), np.int64)
        np.add.at(change, bound.starts + shift, 1)
        np.add.at(change, bound.stops + shift, -1)
        return np.cumsum(change)[:-1] > 0

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        form = "one bias per edge" if self.toeplitz is None else "Toeplitz"
        return (
            f"WeightedNeighborhoods(queries={self.queries}, keys={self.keys}, "
            f"num_edges={self.num_edges}, heads={self.heads}, {form})"
        )

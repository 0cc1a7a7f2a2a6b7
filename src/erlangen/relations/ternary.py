"""Ternary relations: which pairs of keys a query reads together; symbolic, and bound as exact `Triples`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np

from erlangen.errors import ParameterError, SizeError
from erlangen.relations import lookup, sizes
from erlangen.relations.catalogue import written
from erlangen.relations.lookup import indices, to_numpy
from erlangen.relations.protocol import AnyRelation, Draw
from erlangen.relations.relation import Relation
from erlangen.relations.sparse_graph import PRINTED, Graph

MAX_POINTS = 2_000_000
"""Most positions of a ternary relation: a triple of positions then fits into 64 bits."""
MAX_TRIPLES = 100_000_000
"""Most triples that are ever listed."""


class TernaryRelation(AnyRelation, ABC):
    """A ternary relation T within [n]^3: (i, j, l) in T means that query i reads the keys j and l together.

    The neighbourhood of i is a set of *pairs*, T_i = {(j, l) : (i, j, l) in T}, and the order within a pair
    counts. A value: frozen, hashable, `eval(repr(t)) == t`. `a & b`, `a | b` and `a - b` are the set
    operations; `on(n)` binds to n positions and gives the exact `Triples`.

    >>> from erlangen.relations import Fano, WindowSquared
    >>> WindowSquared(lookback=1).on(2).triples().tolist()
    [[0, 0, 0], [1, 0, 0], [1, 0, 1], [1, 1, 0], [1, 1, 1]]
    >>> Fano().on(7).num_triples, Fano().shadow().on(7).num_edges
    (42, 42)
    >>> (WindowSquared(lookback=2) - WindowSquared(lookback=1)).on(3).row(2)
    [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0)]
    """

    arity = 3
    product: ClassVar[bool] = False
    """Whether T_i = N_i x N_i on every n, with N the shadow: then T has the symmetries of its shadow."""

    @property
    def size(self) -> int | None:
        """The only number of positions this relation fits, or None when it fits any."""
        return None

    @property
    def own_sizes(self) -> tuple[int, int] | None:
        """`size`, as queries and keys."""
        return None if self.size is None else (self.size, self.size)

    @abstractmethod
    def _bind(self, n: int) -> Triples:
        """The triples on n positions; n fits `size`."""

    def on(self, n: Any = None) -> Triples:  # type: ignore[override]
        """Bind to n positions; n may be left out where the relation has a size of its own.

        >>> from erlangen.relations import Fano, WindowSquared
        >>> Fano().on()
        Triples(7, <42 triples>)
        >>> WindowSquared(lookback=1).on()
        Traceback (most recent call last):
        ...
        erlangen.errors.SizeError: WindowSquared(lookback=1) has no size of its own: say on how many positions
        >>> Fano().on(8)
        Traceback (most recent call last):
        ...
        erlangen.errors.SizeError: Lines(ProjectivePlane(order=2)) has 7 positions, but was bound to 8
        """
        own = self.size
        if n is None:
            if own is None:
                raise SizeError(f"{self} has no size of its own: say on how many positions")
            n = own
        n = points(n, "n")
        if own is not None and n != own:
            raise SizeError(f"{self} has {own} positions, but was bound to {n}")
        return self._bind(n)

    def shadow(self, n: Any = None) -> Relation:
        """The pairwise relation {(i, j) : j occurs in a pair of T_i}: all that pairwise attention can see.

        `n` is needed where neither the relation nor its shadow has a size.

        >>> from erlangen.relations import WindowSquared
        >>> WindowSquared(lookback=3).shadow()
        Window(lookback=3)
        >>> Triples(3, [(0, 1, 2)]).shadow()
        Graph([(0, 1), (0, 2)], nodes=3)
        """
        return self.on(n).shadow()

    def __and__(self, other: TernaryRelation) -> TernaryRelation:
        return Combination.of("&", self, other)

    def __or__(self, other: TernaryRelation) -> TernaryRelation:
        return Combination.of("|", self, other)

    def __sub__(self, other: TernaryRelation) -> TernaryRelation:
        return Combination.of("-", self, other)


@final
@dataclass(frozen=True)
class Combination(TernaryRelation):
    """left & right, left | right or left - right, where at least one of the two is not bound yet."""

    symbol: str
    left: TernaryRelation
    right: TernaryRelation

    @staticmethod
    def of(symbol: str, left: TernaryRelation, right: Any) -> TernaryRelation:
        """The combination: computed when both are bound, kept as an expression otherwise."""
        if not isinstance(right, TernaryRelation):
            return NotImplemented
        if isinstance(left, Triples) and isinstance(right, Triples):
            return left._with(symbol, right)
        if None not in (left.size, right.size) and left.size != right.size:
            raise SizeError(f"{left} has {left.size} positions and {right} has {right.size}")
        return Combination(symbol, left, right)

    @property
    def size(self) -> int | None:
        return self.left.size if self.left.size is not None else self.right.size

    def _bind(self, n: int) -> Triples:
        return self.left.on(n)._with(self.symbol, self.right.on(n))

    def __repr__(self) -> str:
        left, right = (
            f"({part!r})" if isinstance(part, Combination) else repr(part) for part in (self.left, self.right)
        )
        return f"{left} {self.symbol} {right}"


@written
@final
class Triples(TernaryRelation):
    """A ternary relation on n positions by its triples (query, key, key): exact, canonical, comparable.

    Stored as rows: the pairs of query i are `first[t], second[t]` for indptr[i] <= t < indptr[i + 1], sorted
    and without repetition, so that equality of relations is equality of arrays.

    >>> a = Triples(3, [(2, 0, 1), (0, 1, 2), (0, 1, 2)])
    >>> a
    Triples(3, [(0, 1, 2), (2, 0, 1)])
    >>> a.row(0), a.num_triples, a == Triples(3, [(0, 1, 2), (2, 0, 1)])
    ([(1, 2)], 2, True)
    >>> a - Triples(3, [(2, 0, 1)])
    Triples(3, [(0, 1, 2)])
    >>> Triples(2, [(0, 1, 2)])
    Traceback (most recent call last):
    ...
    erlangen.errors.SizeError: triple (0, 1, 2) lies outside 2 positions
    """

    n: int
    indptr: np.ndarray
    first: np.ndarray
    second: np.ndarray

    def __init__(self, n: int, triples: Any) -> None:
        n = points(n, "Triples(n)")
        array = _triple_array(triples)
        outside = (array < 0).any(1) | (array >= n).any(1)
        if outside.any():
            worst = tuple(array[outside.argmax()].tolist())
            raise SizeError(f"triple {worst} lies outside {n} positions")
        self._set(n, np.unique((array[:, 0] * n + array[:, 1]) * n + array[:, 2]))

    @classmethod
    def of_codes(cls, n: int, codes: np.ndarray) -> Triples:
        """The triples with codes (i n + j) n + l, sorted and without repetition."""
        made = cls.__new__(cls)
        made._set(n, codes)
        return made

    def _set(self, n: int, codes: np.ndarray) -> None:
        row, second = np.divmod(codes, max(n, 1))
        row, first = np.divmod(row, max(n, 1))
        indptr = np.searchsorted(row, np.arange(n + 1)).astype(np.int64)
        for name, value in (("n", n), ("indptr", indptr), ("first", first), ("second", second)):
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("Triples is frozen")

    def __reduce__(self) -> Any:
        return Triples, (self.n, self.triples())

    # ----------------------------------------------------------------- reading

    @classmethod
    def example(cls, n: int, draw: Draw) -> Triples:
        codes = draw.integers(0, n**3 - 1, 0, 12) if n else []
        return cls(n, [(code // n**2, code // n % n, code % n) for code in codes])

    @property
    def size(self) -> int:
        return self.n

    def _bind(self, n: int) -> Triples:
        return self

    def __repr__(self) -> str:
        if 3 * self.num_triples > PRINTED:
            return f"Triples({self.n}, <{self.num_triples} triples>)"
        return f"Triples({self.n}, {[tuple(triple) for triple in self.triples().tolist()]})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Triples):
            return NotImplemented
        return self.n == other.n and np.array_equal(self._codes, other._codes)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.n, self._codes.tobytes()))

    @cached_property
    def _codes(self) -> np.ndarray:
        return (self._rows * self.n + self.first) * self.n + self.second

    @property
    def _rows(self) -> np.ndarray:
        return np.repeat(np.arange(self.n, dtype=np.int64), np.diff(self.indptr))

    @property
    def num_triples(self) -> int:
        """How many triples there are: the sum of |T_i|."""
        return int(self.first.size)

    @property
    def density(self) -> float:
        """num_triples / n^3, 0.0 when there are no positions."""
        return self.num_triples / self.n**3 if self.n else 0.0

    @property
    def degrees(self) -> np.ndarray:
        """|T_i| for each query."""
        return np.diff(self.indptr)

    def empty_queries(self) -> np.ndarray:
        """The queries that read no pair: their output and gradient are zero."""
        return np.flatnonzero(self.degrees == 0)

    def triples(self) -> np.ndarray:
        """All triples (i, j, l), sorted, as an int64 array of shape (num_triples, 3)."""
        return np.stack([self._rows, self.first, self.second], axis=1)

    def row(self, query: int) -> list[tuple[int, int]]:
        """The pairs T_i of one query, sorted."""
        query = sizes.index(query, self.n, "query")
        span = slice(self.indptr[query], self.indptr[query + 1])
        return list(zip(self.first[span].tolist(), self.second[span].tolist(), strict=True))

    def contains(self, i: Any, j: Any, last: Any) -> Any:
        """Elementwise: does query i read the pair (j, last)? Indices outside the positions give False.

        >>> Triples(3, [(0, 1, 2)]).contains(0, 1, np.array([1, 2, 7]))
        array([False,  True, False])
        """
        i, j, last = np.broadcast_arrays(*indices(*map(to_numpy, (i, j, last))))
        within = np.ones(i.shape, bool)
        for index in (i, j, last):
            within &= (index >= 0) & (index < self.n)
        wanted = (i * self.n + j) * self.n + last
        place = np.searchsorted(self._codes, wanted)
        found = np.append(self._codes, -1)[place] == wanted
        return within & found

    # ------------------------------------------------------- changing and seeing

    def _with(self, symbol: str, other: Triples) -> Triples:
        if self.n != other.n:
            raise SizeError(f"{self} has {self.n} positions and {other} has {other.n}")
        combine = {"&": np.intersect1d, "|": np.union1d, "-": np.setdiff1d}[symbol]
        return Triples.of_codes(self.n, combine(self._codes, other._codes))

    def permute(self, permutation: Any) -> Triples:
        """Relabel: {(pi i, pi j, pi l) : (i, j, l) in T}, so `t.permute(pi) == t` iff pi is an automorphism.

        >>> Triples(3, [(0, 1, 2)]).permute([1, 2, 0])
        Triples(3, [(1, 2, 0)])
        """
        i, j, last = lookup.permutation(permutation, self.n, "permute(permutation)")[self.triples()].T
        return Triples.of_codes(self.n, np.sort((i * self.n + j) * self.n + last))

    def shadow(self, n: Any = None) -> Graph:
        """The pairwise relation of these triples, as a graph on the same positions."""
        if n is not None and n != self.n:
            raise SizeError(f"{self} has {self.n} positions, but was bound to {n}")
        rows = np.concatenate([self._rows, self._rows])
        pairs = np.unique(rows * self.n + np.concatenate([self.first, self.second]))
        return Graph.from_pairs(np.stack(np.divmod(pairs, max(self.n, 1)), axis=1), nodes=self.n)


def points(value: Any, what: str) -> int:
    """`value` as a number of positions of a ternary relation.

    >>> points(10_000_000, "n")
    Traceback (most recent call last):
    ...
    erlangen.errors.SizeError: n = 10000000 is beyond the 2000000 positions of a ternary relation
    """
    number = sizes.count(value, what)
    if number > MAX_POINTS:
        raise SizeError(f"{what} = {number} is beyond the {MAX_POINTS} positions of a ternary relation")
    return number


def affordable(relation: TernaryRelation, n: int, triples: int) -> None:
    """Raise before listing more triples than memory should hold."""
    if triples > MAX_TRIPLES:
        raise SizeError(
            f"{relation} on {n:,} positions needs about {triples:,} triples, "
            f"more than the {MAX_TRIPLES:,} that are listed"
        )


def _triple_array(triples: Any) -> np.ndarray:
    try:
        array = to_numpy(triples if hasattr(triples, "__array__") else list(triples))
    except (TypeError, ValueError):
        raise ParameterError(f"triples must be a list of (query, key, key), got {triples!r}") from None
    if array.size == 0:
        return np.empty((0, 3), np.int64)
    if array.ndim != 2 or array.shape[1] != 3 or not np.issubdtype(array.dtype, np.integer):
        raise ParameterError(
            f"triples must be integers (query, key, key), shape (triples, 3); got {array.dtype} of shape "
            f"{array.shape}"
        )
    return array.astype(np.int64)

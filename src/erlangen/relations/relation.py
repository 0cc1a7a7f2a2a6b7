"""The relation: a symbolic, size-free value that says which keys each query reads."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from erlangen.errors import DataError, ParameterError, SizeError
from erlangen.relations import sizes
from erlangen.relations.lookup import indices, to_numpy
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.protocol import AnyRelation
from erlangen.relations.shown import Shown

_SAMPLED_BELOW = 20_000_000
"""With more queries than this every relation has too many runs, and no row of it is looked at."""

PREORDER = frozenset({"reflexive", "transitive"})
"""Composing such a relation with itself changes nothing."""
EQUIVALENCE = PREORDER | {"symmetric"}


OPERATIONS: dict[str, Callable[..., Relation]] = {}
"""The operators of the algebra by name. `algebra`, which builds on relations, enters them."""


@dataclass(frozen=True, eq=False)
class Site:
    """Where a relation is bound: the positions of the queries, the number of keys, their vectors if any."""

    positions: np.ndarray
    keys: int
    query_vectors: Any = None
    key_vectors: Any = None

    def everywhere(self) -> Site:
        """The same keys, with a query at every key's position."""
        return Site(np.arange(self.keys, dtype=np.int64), self.keys)


class Relation(Shown, AnyRelation, ABC):
    """Which keys a query may read: (i, j) in R means that query i reads key j.

    A relation is a value: frozen, hashable, and `eval(repr(r)) == r`. Relations combine by

    ============== ==========================================================================
    `a & b`        both: the intersection
    `a | b`        either: the union
    `~a`           the complement
    `a - b`        a without b
    `a @ b`        two steps: i reads k when i reads some j by a, and j reads k by b
    `a ** p`       p steps
    `a.T`          the transpose: j reads i when i reads j
    `a.reach(L)`   what L layers with residuals read: (a | Identity()) ** L
    `a.closure()`  any number of steps, at least one: the transitive closure
    ============== ==========================================================================

    Results are simplified, and `==` compares the simplified structure. Whether two relations are the same
    *set of pairs* is a question at a size: `a.on(n) == b.on(n)`, and inclusion is `a.on(n) <= b.on(n)`.

    **Positions.** Keys sit at positions 0 .. keys - 1, and the queries at the *last* positions: query i of
    `on(queries, keys)` is at position keys - queries + i. With fewer queries than keys this is decoding
    behind a cache. Libraries disagree here (`is_causal` in SDPA puts query 0 at position 0).

    >>> from erlangen.relations import Causal, Global, Window
    >>> relation = Causal() & Window(lookback=2, lookahead=1) | Global(keys=[0])
    >>> relation
    Window(lookback=2) | Global(keys=range(0, 1))
    >>> relation.on(5).dense().astype(int).tolist()
    [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 0, 1, 1, 1]]
    >>> Causal().on(queries=1, keys=4).num_edges
    4
    """

    # ------------------------------------------------- what each relation says

    @abstractmethod
    def _bind(self, site: Site) -> Neighborhoods:
        """The neighborhoods at a site; `_require` has passed."""

    @abstractmethod
    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        """Whether position i reads position j, elementwise; index arrays are NumPy or torch."""

    def _require(self, site: Site) -> None:
        """Raise `SizeError` or `DataError` when the relation cannot be bound at this site."""

    # ----------------------------------------------------------------- binding

    def on(self, queries: Any, keys: Any = None) -> Neighborhoods:
        """Bind to a number of queries and keys (as many keys as queries if not given).

        Either may be an array of vectors, shape (length, dim), instead of a number: a data-dependent
        relation such as `Nearest` needs them; for the others only their length counts.

        >>> from erlangen.relations import Identity
        >>> Identity().on(3)
        Neighborhoods(queries=3, keys=3, num_edges=3)
        """
        queries, query_vectors = sizes.size_or_vectors(queries, "queries")
        keys, key_vectors = (queries, query_vectors) if keys is None else sizes.size_or_vectors(keys, "keys")
        site = Site(np.arange(keys - queries, keys, dtype=np.int64), keys, query_vectors, key_vectors)
        self._require(site)
        return self._bind(site)

    def rows(self, positions: Any, keys: int) -> Neighborhoods:
        """The neighborhoods of the queries at the given positions only, among `keys` keys.

        Costs what these rows cost: one row of a window over a million keys is one run.

        >>> from erlangen.relations import Window
        >>> Window(lookback=2).rows([7], keys=1_000_000).row(0)
        [(5, 8)]
        """
        array = to_numpy(positions)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise ParameterError(f"positions must be a list of integers, got {positions!r}")
        (array,) = indices(array)
        site = Site(array, sizes.size(keys, "keys"))
        self._require(site)
        return self._bind(site)

    def run(self, position: int, keys: int) -> range | None:
        """The keys that the query at a position reads, where they are one run known without any array.

        None leaves the question to `rows`, which answers it for every relation. A decoding step asks for one
        row at a length it has not seen before, and would wait longer for arrays than for attention.

        >>> from erlangen.relations import Global, Window
        >>> Window(lookback=2).run(7, keys=1_000_000), Global([0]).run(7, keys=9)
        (range(5, 8), None)
        """
        band = self.band
        if band is None:
            return None
        back, ahead = band
        position, keys = operator.index(position), operator.index(keys)  # NumPy's may wrap
        first = int(max(0, min(position - back, keys)))
        return range(first, int(max(first, min(position + ahead + 1, keys))))

    def holds(self, i: Any, j: Any, keys: int | None = None) -> Any:
        """Does the query at position i read key j? Elementwise on integers, NumPy arrays or torch tensors.

        `keys` is needed only where the number of keys matters (a ring, a composition). A `mask_mod` of
        FlexAttention is `lambda b, h, i, j: relation.holds(i, j)`.

        >>> from erlangen.relations import Causal
        >>> Causal().holds(np.array([[0], [1]]), np.array([0, 1])).tolist()
        [[True, False], [True, True]]
        """
        i, j = indices(i, j)
        return self._holds(i, j, None if keys is None else sizes.size(keys, "keys"))

    # -------------------------------------- facts, which a relation answers if its default is not its own

    @property
    def laws(self) -> frozenset[str]:
        """Properties that the relation has on every n it can be bound to; others may hold too, or not.

        >>> from erlangen.relations import Causal, Dilated, Window
        >>> sorted((Causal() & Dilated(2)).laws)
        ['antisymmetric', 'reflexive', 'toeplitz', 'transitive']
        >>> sorted((~Window(lookback=1, lookahead=1)).laws)
        ['symmetric', 'toeplitz']
        """
        return self._laws

    _laws: ClassVar[frozenset[str]] = frozenset()

    @property
    def pointwise(self) -> bool:
        """Whether its pairs never depend on the number of positions: R on k is then R on n, restricted."""
        return self._pointwise

    _pointwise: ClassVar[bool] = False

    @property
    def arithmetic(self) -> bool:
        """Whether `holds` is arithmetic on i and j alone, and looks nothing up."""
        return self._arithmetic

    _arithmetic: ClassVar[bool] = False

    @property
    def band(self) -> tuple[float, float] | None:
        """(back, ahead) where i reads exactly the keys from i - back to i + ahead; `math.inf` is no limit.

        None where R is no such band on every n, or not known to be one.

        >>> from erlangen.relations import Causal, Dilated, Window
        >>> Window(lookback=3).band, Causal().band, Causal().T.band, Dilated(2).band
        ((3, 0), (inf, 0), (0, inf), None)
        """
        return self._band

    _band: ClassVar[tuple[float, float] | None] = None

    @property
    def cells(self) -> tuple[int, ...] | None:
        """The shape of the grid whose cells, in row-major order, the positions are; None without a grid."""
        return None

    def classes(self, n: int) -> list[np.ndarray] | None:
        """Disjoint classes of positions such that Aut(R) permutes each freely and fixes every other position.

        None where the group is not of this form, or not known to be.

        >>> from erlangen.relations import Bipartite, Causal, Window
        >>> Bipartite(encoder=2, decoder=1).classes(3), Causal().classes(3), Window(1).classes(3)
        ([array([0, 1]), array([2])], [], None)
        """
        return None

    def parts(self, n: int) -> dict[int, np.ndarray] | None:
        """The parts of n positions, by length, as an array (parts, length), where R is "in the same part".

        None where R is no equivalence, or not known to be one.

        >>> from erlangen.relations import Blocks, Causal
        >>> Blocks(2).parts(5), Causal().parts(5)
        ({2: array([[0, 1], [2, 3]]), 1: array([[4]])}, None)
        """
        return None

    def runs_needed(self, queries: int, keys: int) -> int:
        """About how many runs binding forms on its way, from a few rows: what it costs, before it is done."""
        if queries == 0 or queries > _SAMPLED_BELOW:
            return queries
        sample = np.arange(keys - queries, keys, -(-queries // 16), dtype=np.int64)
        return max(queries, self.rows(sample, keys).starts.size * queries // sample.size)

    def _transposed(self) -> Relation:
        """The transpose, where the relation knows a simpler one than the node `a.T`."""
        return self if "symmetric" in self.laws else OPERATIONS["transpose"](self)

    # --------------------------------------------------------------- operators

    def __and__(self, other: Relation) -> Relation:
        return OPERATIONS["intersection"](self, other) if isinstance(other, Relation) else NotImplemented

    def __or__(self, other: Relation) -> Relation:
        return OPERATIONS["union"](self, other) if isinstance(other, Relation) else NotImplemented

    def __invert__(self) -> Relation:
        return OPERATIONS["complement"](self)

    def __sub__(self, other: Relation) -> Relation:
        return self & ~other if isinstance(other, Relation) else NotImplemented

    def __matmul__(self, other: Relation) -> Relation:
        return OPERATIONS["composition"](self, other) if isinstance(other, Relation) else NotImplemented

    def __pow__(self, exponent: int) -> Relation:
        return OPERATIONS["power"](self, exponent)

    @property
    def T(self) -> Relation:
        """The transpose {(j, i) : (i, j) in R}, pushed down to the leaves, where most know their own.

        >>> from erlangen.relations import Causal, Dilated, Window
        >>> Window(lookback=3, lookahead=1).T, (Causal() @ Dilated(2)).T, Causal().T.T
        (Window(lookback=1, lookahead=3), Dilated(step=2) @ Causal().T, Causal())
        """
        return self._transposed()

    def reach(self, layers: int) -> Relation:
        """The receptive field of `layers` layers with residuals: (R | Identity()) ** layers.

        A receptive field is not a symmetry: a stack keeps the intersection of its layers' groups, which may
        be smaller than the group of what it reaches.

        >>> from erlangen.relations import Window
        >>> Window(lookback=3).reach(4)
        Window(lookback=12)
        """
        return OPERATIONS["reach"](self, layers)

    def closure(self) -> Relation:
        """Everything reachable in one or more steps: the transitive closure.

        >>> from erlangen.relations import Causal
        >>> Causal().closure()
        Causal()
        """
        return OPERATIONS["closure"](self)


def need_keys(relation: Relation, keys: int | None) -> int:
    """`keys`, or a clear error when a relation's `holds` depends on their number."""
    if keys is None:
        raise SizeError(f"{relation} depends on the number of keys: pass holds(i, j, keys=...)")
    return keys


def need_joint(relation: Relation, site: Site) -> None:
    """Raise unless every query sits at the position of a key, as compositions and transposes require."""
    positions = site.positions
    if positions.size and (positions.min() < 0 or positions.max() >= site.keys):
        raise SizeError(
            f"{relation} relates positions of one sequence, so it needs at most as many queries as keys; "
            f"it was bound to {positions.size} queries and {site.keys} keys"
        )


def need_vectors(relation: Relation, site: Site) -> tuple[Any, Any]:
    """The vectors of a site, or a clear error when a data-dependent relation is bound without them."""
    if site.query_vectors is None or site.key_vectors is None:
        raise DataError(
            f"{relation} depends on the data: bind it to vectors, on(queries, keys) with shapes (length, dim)"
        )
    return site.query_vectors, site.key_vectors

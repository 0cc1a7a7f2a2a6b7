"""The weighted relation: a relation with a log-weight for every pair, as a value."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from erlangen.errors import ParameterError
from erlangen.relations import sizes
from erlangen.relations.families import Bindable
from erlangen.relations.lookup import is_torch, to_numpy
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.protocol import AnyRelation, expect
from erlangen.relations.relation import Relation
from erlangen.relations.shown import Shown
from erlangen.relations.weighted import tables
from erlangen.relations.weighted.bound import WeightedNeighborhoods
from erlangen.relations.weighted.tables import with_heads


class WeightedRelation(Shown, AnyRelation):
    """A relation with weights: query i reads key j in N_i with alpha_ij ~ W_ij e^{s_ij}, W_ij > 0.

    The log-weights b = log W are a bias added to the scores. **Scaling a row is a gauge**: W and diag(c) W
    give the same layer, so what counts is W with every row divided by its sum.

    - `support`: the relation {(i, j) : W_ij > 0}, or a `PerHead` or `Batch` of them.
    - `heads`: how many heads the bias tells apart; 1 serves any number of heads.
    - `structured`: whether b_ij depends on j - i alone. Then `toeplitz(queries, keys)` is the bias as one
      vector per head, and n^2 numbers are never formed; otherwise `per_edge(neighborhoods)` is the bias, one
      number per edge and head.
    - `weighted & relation` reads less, with the same weights.

    Numbers given as integers, fractions or floats give NumPy arrays; a torch tensor stays one, so that
    gradients reach it. Weighted relations are frozen, and `==` compares support and numbers. Positions are
    those of `Relation`: fewer queries than keys are the last positions.
    """

    __slots__ = ("support",)  # type: ignore[override]
    support: Bindable | Neighborhoods  # type: ignore[override]

    def __init__(self, support: Bindable, **values: Any) -> None:
        taken = f"{type(self).__name__}(relation=...) takes a Relation, PerHead or Batch"
        expect(support, taken, axes=("item", "head"))
        self._fill(support=support, **values)

    # ------------------------------------------- what each weighted relation says

    structured: bool
    _of_distance: ClassVar[bool] = False
    """Whether the log-weights of every head are a multiple of |i - j|."""
    _default: ClassVar[Relation | None] = None
    """The support when none is given; None when one must be given."""
    _named: ClassVar[tuple[str, ...]] = ()
    """The arguments of the constructor besides `relation`."""
    _table: ClassVar[str]
    """Which of them is the table of numbers, with a row per head or one for all."""
    _dimensions: ClassVar[int]
    """How many dimensions the table has with that of heads."""

    @classmethod
    def _read(cls, numbers: Any) -> Any:
        """The table as it is kept: tensors as they were given, since a view would be no parameter."""
        what, dimensions = f"{cls.__name__}({cls._table})", (cls._dimensions - 1, cls._dimensions)
        values = tables.table(numbers, what, dimensions)
        return values if is_torch(values) else with_heads(values, cls._dimensions)

    @property
    def _numbers(self) -> Any:
        """The table with its dimension of heads."""
        return with_heads(getattr(self, self._table), self._dimensions)

    @property
    def heads(self) -> int:
        """How many heads the bias tells apart; 1 serves any number."""
        return self._numbers.shape[0]

    def _arguments(self) -> dict[str, Any]:
        """The arguments of the constructor besides `relation`, by name; tables as tables."""
        return {name: getattr(self, name) for name in self._named}

    def _by_offset(self, offsets: np.ndarray) -> Any:
        """Structured: the biases (heads, m) of the differences j - i, an int64 array of m."""
        raise NotImplementedError

    def _by_pair(self, i: np.ndarray, j: np.ndarray) -> Any:
        """The biases (heads, m) of the pairs of positions (i, j), int64 arrays of m."""
        return self._by_offset(j - i)

    def _units(self, i: np.ndarray, j: np.ndarray) -> list[np.ndarray]:
        """For each head the biases of the pairs (i, j) up to a positive factor, in numbers as exact as known.

        Integers and fractions are exact; a float array says that only floats are known.
        """
        return list(to_numpy(self._by_pair(i, j)))

    @property
    def monotone(self) -> bool:
        """Whether in some head the log-weights are known to fall, or to grow, with every step of |i - j|."""
        return self._of_distance and any(unit.any() for unit in self._units(np.array([0]), np.array([1])))

    # ------------------------------------------------------------------- biases

    def toeplitz(self, queries: int, keys: int, offset: int | None = None) -> Any:
        """The bias of a rectangle as one vector per head, shape (heads, queries + keys - 1).

        Row i (local) and key j (local) have the bias `[:, j - i + queries - 1]`. `offset` is the position of
        row 0 minus that of key 0: keys - queries unless given, that is, the rows are the last positions.

        >>> from erlangen.relations import ALiBi
        >>> ALiBi([1, 2]).toeplitz(2, 3)
        array([[-2., -1.,  0., -1.],
               [-4., -2.,  0., -2.]])
        """
        if not self.structured:
            raise ParameterError(f"{self}: the bias is no function of j - i; use per_edge(neighborhoods)")
        queries, keys = sizes.size(queries, "queries"), sizes.size(keys, "keys")
        offset = keys - queries if offset is None else offset
        return self._by_offset(np.arange(1 - queries, max(keys, 1 - queries), dtype=np.int64) - offset)

    def per_edge(self, neighborhoods: Neighborhoods) -> Any:
        """The bias of every edge, shape (heads, num_edges), in the order of `neighborhoods.edges()`.

        >>> from erlangen.relations import Causal, Decay
        >>> Decay(0.5).per_edge(Causal().on(2)).round(3).tolist()
        [[0.0, -0.693, 0.0]]
        """
        edges = neighborhoods.edges()
        return self._by_pair(edges[:, 0] + (neighborhoods.keys - neighborhoods.queries), edges[:, 1])

    # ------------------------------------------------------------------ binding

    def on(self, queries: Any, keys: Any = None) -> WeightedNeighborhoods:
        """Bind to sizes: the neighborhoods and the log-weight of every edge.

        >>> from erlangen.relations import ALiBi
        >>> ALiBi(1).on(1_000_000)
        WeightedNeighborhoods(queries=1000000, keys=1000000, num_edges=500000500000, heads=1, Toeplitz)
        """
        if self.axes:
            raise ParameterError(f"{self} holds several relations: bind each with the weights of its own")
        bound: Any = self.support.on(queries, keys)
        if self.structured:
            return WeightedNeighborhoods(bound, toeplitz=to_numpy(self.toeplitz(bound.queries, bound.keys)))
        return WeightedNeighborhoods(bound, per_edge=to_numpy(self.per_edge(bound)))

    @property
    def weights(self) -> Self:
        return self

    # -------------------------------------------------------------------- value

    def with_support(self, relation: Bindable) -> Self:
        """The same weights on other pairs.

        >>> from erlangen.relations import ALiBi, Full
        >>> ALiBi(0.5).with_support(Full())
        ALiBi(slopes=[0.5], relation=Full())
        """
        return type(self)(**self._arguments(), relation=relation)

    def __and__(self, other: Any) -> Self:
        if not isinstance(other, Bindable):
            return NotImplemented
        return self.with_support(self.support & other)  # type: ignore[operator]

    def __rand__(self, other: Any) -> Self:
        return self & other if isinstance(other, Bindable) else super().__rand__(other)

    def __repr__(self) -> str:
        listed = [f"{name}={tables.written(value)}" for name, value in self._arguments().items()]
        if self.support != self._default:
            listed.append(f"relation={self.support!r}")
        return f"{type(self).__name__}({', '.join(listed)})"

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not isinstance(other, WeightedRelation):
            return False
        if self.support != other.support:
            return False
        mine, theirs = self._arguments(), other._arguments()
        return mine.keys() == theirs.keys() and all(tables.same(mine[name], theirs[name]) for name in mine)

    def __hash__(self) -> int:
        # Learned numbers may change in place, so they take no part.
        return hash((type(self).__name__, self.support, self.heads))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __reduce__(self) -> Any:
        """Copies and pickles are built anew: a frozen object cannot be filled in afterwards."""
        return partial(type(self), **self._arguments(), relation=self.support), ()

"""Relative position bias: one number per bucket of distances, as in T5."""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np

from erlangen.errors import ParameterError
from erlangen.relations import sizes
from erlangen.relations.catalogue import written
from erlangen.relations.families import Bindable
from erlangen.relations.lookup import indices, to_numpy
from erlangen.relations.orders import Full
from erlangen.relations.protocol import Draw
from erlangen.relations.weighted import tables
from erlangen.relations.weighted.weighted_relation import WeightedRelation

_FULL = Full()


@written
@final
class RelativeBias(WeightedRelation):
    """T5's relative position bias: b_ij = table[h, bucket(j - i)].

    `table` has shape (heads, buckets) or (buckets,); as a torch tensor or parameter it is learned (see
    `nn.RelativeBias`). Small distances have a bucket each, larger ones share logarithmically wider buckets,
    and from `max_distance` on all share the last. With `bidirectional` one half of the buckets is for keys
    before the query and one for keys after; without, all keys after the query share bucket 0 with it.

    >>> bias = RelativeBias([[0, -1, -2, -3, 5, 6, 7, 8]], max_distance=8)
    >>> bias.on(4).dense()[0].tolist()
    [[0.0, 6.0, 7.0, 7.0], [-1.0, 0.0, 6.0, 7.0], [-2.0, -1.0, 0.0, 6.0], [-2.0, -2.0, -1.0, 0.0]]
    """

    __slots__ = ("bidirectional", "max_distance", "table")
    table: Any
    bidirectional: bool
    max_distance: int
    structured = True
    _default, _named = _FULL, ("table", "bidirectional", "max_distance")
    _table, _dimensions = "table", 2

    def __init__(
        self,
        table: Any,
        *,
        relation: Bindable = _FULL,
        bidirectional: bool = True,
        max_distance: int = 128,
    ) -> None:
        values = self._read(table)
        check_buckets(values.shape[-1], max_distance, bidirectional)
        super().__init__(
            relation, table=values, bidirectional=bool(bidirectional), max_distance=int(max_distance)
        )

    @classmethod
    def example(cls, n: int, draw: Draw) -> RelativeBias:
        table, two_sided = draw.integers(-3, 3, 8, 8), draw.choice([True, False])
        return cls(
            table, relation=draw.relation(n), bidirectional=two_sided, max_distance=draw.integer(5, 16)
        )

    def buckets_of(self, offsets: Any) -> np.ndarray:
        """The bucket of each difference j - i. See `buckets_of`."""
        return buckets_of(offsets, self.table.shape[-1], self.max_distance, self.bidirectional)

    def _by_offset(self, offsets: np.ndarray) -> Any:
        return tables.take(tables.floats(self._numbers), self.buckets_of(offsets))

    def _units(self, i: np.ndarray, j: np.ndarray) -> list[np.ndarray]:
        return list(tables.exact(self._numbers)[:, self.buckets_of(j - i)])


def buckets_of(offsets: Any, buckets: int, max_distance: int = 128, bidirectional: bool = True) -> np.ndarray:
    """T5's bucket of each difference j - i (key minus query).

    The logarithm is taken in single precision, as in T5's own code, so that distances on the border between
    two buckets fall on the same side.

    >>> buckets_of([-200, -2, -1, 0, 1, 2, 9, 200], 32).tolist()
    [15, 2, 1, 0, 17, 18, 24, 31]
    >>> buckets_of([-200, -2, 0, 5], 32, bidirectional=False).tolist()
    [31, 2, 0, 0]
    """
    (difference,) = indices(to_numpy(offsets))
    first = np.zeros_like(difference)
    if bidirectional:
        buckets //= 2
        first = np.where(difference > 0, buckets, 0)
        distance = np.abs(difference)
    else:
        distance = np.maximum(-difference, 0)
    exact = buckets // 2
    ratio = np.maximum(distance, exact).astype(np.float32) / np.float32(exact)
    share = np.log(ratio) / np.float32(math.log(max_distance / exact)) * np.float32(buckets - exact)
    far = np.minimum(exact + share.astype(np.int64), buckets - 1)
    return first + np.where(distance < exact, distance, far)


def check_buckets(buckets: int, max_distance: Any, bidirectional: bool) -> None:
    """Raise unless the numbers of a bucketing make sense.

    >>> check_buckets(1, 128, False)
    Traceback (most recent call last):
    ...
    erlangen.errors.ParameterError: RelativeBias needs at least 2 buckets, got 1
    """
    least = 4 if bidirectional else 2
    if buckets < least:
        raise ParameterError(f"RelativeBias needs at least {least} buckets, got {buckets}")
    if bidirectional and buckets % 2:
        raise ParameterError(f"a bidirectional RelativeBias needs an even number of buckets, got {buckets}")
    exact = (buckets // 2 if bidirectional else buckets) // 2
    if sizes.count(max_distance, "RelativeBias(max_distance)") <= exact:
        raise ParameterError(
            f"RelativeBias(max_distance) must be beyond the {exact} distances with a bucket of their own, "
            f"got {max_distance}"
        )

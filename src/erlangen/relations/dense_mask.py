"""The relation of a dense mask, and the relation that every query reads the same keys by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from erlangen.errors import ParameterError, SizeError
from erlangen.relations.catalogue import written
from erlangen.relations.lookup import booleans, to_numpy
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.orders import Empty
from erlangen.relations.protocol import Draw
from erlangen.relations.relation import Relation, Site
from erlangen.relations.sparse_graph import PRINTED


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
    def example(cls, n: int, draw: Draw) -> Relation:
        if n == 0:
            return Empty()  # a mask of no entries has no text that reads back
        return cls(np.array(draw.integers(0, 1, n * n, n * n)).reshape(n, n))

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

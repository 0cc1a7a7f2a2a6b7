"""Some rows of a weighted relation, and some of their keys: a step of decoding."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from erlangen.errors import ParameterError
from erlangen.relations.families import Bindable
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.weighted.weighted_relation import WeightedRelation


@final
class WeightedRows(WeightedRelation):
    """The weights of a rectangle: row 0 is the query at position `query`, column 0 the key at `key`.

    `support` says which of these keys the rows read, in numbers of the rectangle. The weights are those the
    pairs have in the whole relation, wherever the rectangle was cut out.

    >>> from erlangen.relations import ALiBi, Causal
    >>> rows = WeightedRows(ALiBi(1), Causal().on(1, 3), query=7, key=5)
    >>> rows.toeplitz(1, 3), rows.per_edge(Causal().on(1, 3))
    (array([[-2., -1.,  0.]]), array([[-2., -1.,  0.]]))
    """

    __slots__ = ("key", "query", "structured", "whole")
    whole: WeightedRelation
    query: int
    key: int

    def __init__(
        self, whole: WeightedRelation, support: Bindable | Neighborhoods, query: int, key: int
    ) -> None:
        self._fill(support=support, whole=whole, query=query, key=key, structured=whole.structured)

    @property
    def heads(self) -> int:
        return self.whole.heads

    def toeplitz(self, queries: int, keys: int, offset: int | None = None) -> Any:
        return self.whole.toeplitz(queries, keys, self.query - self.key if offset is None else offset)

    def per_edge(self, neighborhoods: Neighborhoods) -> Any:
        edges = neighborhoods.edges()
        return self.whole._by_pair(edges[:, 0] + self.query, edges[:, 1] + self.key)

    def _arguments(self) -> dict[str, Any]:
        return {"whole": self.whole, "query": self.query, "key": self.key}

    def _by_offset(self, offsets: np.ndarray) -> Any:
        return self.whole._by_offset(offsets)

    def _units(self, i: np.ndarray, j: np.ndarray) -> list[np.ndarray]:
        raise ParameterError(f"{self} is a part of {self.whole!r} and has no symmetry of its own")

    def with_support(self, relation: Bindable) -> WeightedRows:
        raise ParameterError(f"{self} is cut out already: narrow {self.whole} instead")

    def __repr__(self) -> str:
        return f"WeightedRows({self.whole!r}, {self.support!r}, query={self.query}, key={self.key})"

    def __reduce__(self) -> Any:
        return WeightedRows, (self.whole, self.support, self.query, self.key)

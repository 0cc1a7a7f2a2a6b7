"""Relations of order and sameness: full, empty, identity, causal, prefix."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, final

import numpy as np

from erlangen.relations import sizes
from erlangen.relations.catalogue import written
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.relation import EQUIVALENCE, PREORDER, Relation, Site


@written
@final
@dataclass(frozen=True)
class Full(Relation):
    """Every query reads every key: R = [q] x [n]. Self-attention (Definition 5, Theorem 1).

    >>> Full().on(3).density
    1.0
    """

    _laws = EQUIVALENCE | {"total", "toeplitz"}
    _pointwise = _arithmetic = True
    _band = inf, inf

    def classes(self, n: int) -> list[np.ndarray] | None:
        return [np.arange(n)]

    def _bind(self, site: Site) -> Neighborhoods:
        zero = np.zeros_like(site.positions)
        return Neighborhoods.from_bands(site.keys, zero, zero + site.keys)

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        return (i == i) & (j == j)


@written
@final
@dataclass(frozen=True)
class Empty(Relation):
    """No query reads anything: R = {}. Its layer is zero.

    >>> Empty().on(3).empty_queries()
    array([0, 1, 2])
    """

    _laws = frozenset({"symmetric", "antisymmetric", "transitive", "toeplitz"})
    _pointwise = _arithmetic = True

    def classes(self, n: int) -> list[np.ndarray] | None:
        return [np.arange(n)]

    def _bind(self, site: Site) -> Neighborhoods:
        zero = np.zeros_like(site.positions)
        return Neighborhoods.from_bands(site.keys, zero, zero)

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        return (i != i) & (j != j)


@written
@final
@dataclass(frozen=True)
class Identity(Relation):
    """Each position reads itself alone: i = j.

    >>> Identity().on(3).edges().tolist()
    [[0, 0], [1, 1], [2, 2]]
    """

    _laws = EQUIVALENCE | {"antisymmetric", "toeplitz"}
    _pointwise = _arithmetic = True
    _band = 0, 0

    def classes(self, n: int) -> list[np.ndarray] | None:
        return [np.arange(n)]

    def _bind(self, site: Site) -> Neighborhoods:
        return Neighborhoods.from_bands(site.keys, site.positions, site.positions + 1)

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        return i == j


@written
@final
@dataclass(frozen=True)
class Causal(Relation):
    """Each position reads itself and everything before: j <= i. Masked attention (Definition 7).

    A total order: reflexive, antisymmetric, transitive and total (Theorem 3).

    >>> Causal().on(3).dense().astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """

    _laws = PREORDER | {"antisymmetric", "total", "toeplitz"}
    _pointwise = _arithmetic = True
    _band = inf, 0

    def classes(self, n: int) -> list[np.ndarray] | None:
        return []

    def _bind(self, site: Site) -> Neighborhoods:
        return Neighborhoods.from_bands(site.keys, np.zeros_like(site.positions), site.positions + 1)

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        return j <= i


@written
@final
@dataclass(frozen=True)
class Prefix(Relation):
    """Prefix language model: everybody reads the prefix, and beyond it only the past. j <= i or j < length.

    >>> Prefix(2).on(4).dense().astype(int).tolist()
    [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    """

    length: int

    _counts = ("length",)
    _laws = PREORDER | {"total"}
    _pointwise = _arithmetic = True

    def classes(self, n: int) -> list[np.ndarray] | None:
        return [np.arange(min(self.length, n))]

    def _bind(self, site: Site) -> Neighborhoods:
        stops = np.maximum(site.positions + 1, sizes.clamp(self.length))
        return Neighborhoods.from_bands(site.keys, np.zeros_like(site.positions), stops)

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        return (j <= i) | (j < sizes.clamp(self.length))

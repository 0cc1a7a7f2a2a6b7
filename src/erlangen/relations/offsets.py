"""One key at a fixed distance: the relations that convolutions are made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any, final

import numpy as np

from erlangen.errors import ParameterError, SizeError
from erlangen.relations import sizes
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.registry import written
from erlangen.relations.relation import EQUIVALENCE, Relation, Site


@written
@final
@dataclass(frozen=True)
class Offset(Relation):
    """The key at one distance, and no other: j = i + by. Positions without such a key read nothing.

    Attention over it copies: its weight is 1, whatever the scores. |Delta| heads over the offsets in Delta
    are exactly a convolution, and zero padding is the rule that an empty row gives zero.

    >>> Offset(-1).on(3).dense().astype(int).tolist()
    [[0, 0, 0], [1, 0, 0], [0, 1, 0]]
    >>> Offset(-1) @ Offset(-2), Offset(3).T
    (Offset(by=-3), Offset(by=-3))
    """

    by: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "by", sizes.integer(self.by, "Offset(by)"))

    _pointwise = _arithmetic = True

    def _transposed(self) -> Relation:
        return Offset(-self.by)

    @property
    def laws(self) -> frozenset[str]:
        antisymmetric = frozenset({"antisymmetric", "toeplitz"})
        return antisymmetric if self.by else antisymmetric | EQUIVALENCE

    def _bind(self, site: Site) -> Neighborhoods:
        keys = site.positions + sizes.clamp(self.by)
        return Neighborhoods.from_bands(site.keys, keys, keys + 1)

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        return j - i == sizes.clamp(self.by)


@written
@final
@dataclass(frozen=True, repr=False)
class GridOffset(Relation):
    """The cell at one displacement on a 2-D or 3-D grid: query cell c reads the key cell c + by, if there.

    Cells are numbered in row-major order. The queries may lie on a grid of another shape, `queries`, as the
    output of a convolution does that pads less than its kernel reaches; positions before its first cell
    (queries are the last positions) read nothing.

    >>> GridOffset((2, 3), (1, -1)).on(6).edges().tolist()
    [[1, 3], [2, 4]]
    >>> GridOffset((2, 3), (0, 1), queries=(2, 2)).on(4, 6).edges().tolist()
    [[0, 1], [1, 2], [2, 4], [3, 5]]
    """

    shape: tuple[int, ...]
    by: tuple[int, ...]
    queries: tuple[int, ...]

    def __init__(self, shape: Iterable[int], by: Iterable[int], queries: Iterable[int] | None = None) -> None:
        lengths = _lengths(shape, "GridOffset(shape)")
        cells = lengths if queries is None else _lengths(queries, "GridOffset(queries)")
        if isinstance(by, (str, bytes)) or not isinstance(by, Iterable):
            raise ParameterError(f"GridOffset(by) takes one distance for each axis, got {by!r}")
        distances = tuple(sizes.integer(distance, "GridOffset(by)") for distance in by)
        if not len(lengths) == len(distances) == len(cells):
            raise ParameterError(
                f"GridOffset takes as many distances as axes, got shape {lengths}, by {distances}, "
                f"queries {cells}"
            )
        object.__setattr__(self, "shape", lengths)
        object.__setattr__(self, "by", distances)
        object.__setattr__(self, "queries", cells)

    def __repr__(self) -> str:
        apart = f", queries={self.queries}" if self.queries != self.shape else ""
        return f"GridOffset(shape={self.shape}, by={self.by}{apart})"

    _arithmetic = True

    @property
    def own_sizes(self) -> tuple[int, int] | None:
        return prod(self.queries), prod(self.shape)

    @property
    def laws(self) -> frozenset[str]:
        return frozenset({"antisymmetric"}) if self.queries == self.shape else frozenset()

    def _transposed(self) -> Relation:
        if self.queries != self.shape:
            return super()._transposed()
        return GridOffset(self.shape, [-distance for distance in self.by])

    def _require(self, site: Site) -> None:
        if site.keys != prod(self.shape):
            raise SizeError(f"{self} has {prod(self.shape)} cells, but was bound to {site.keys} keys")

    def _bind(self, site: Site) -> Neighborhoods:
        read, key = self._key_of(site.positions)
        return Neighborhoods.from_bands(site.keys, np.where(read, key, 0), np.where(read, key + 1, 0))

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        read, key = self._key_of(i)
        return read & (key == j)

    def _key_of(self, position: Any) -> tuple[Any, Any]:
        """Whether the query at a position reads a key, and which."""
        cell = position - (prod(self.shape) - prod(self.queries))
        read = (cell >= 0) & (cell < prod(self.queries))
        key, stride = cell - cell, 1
        axes = zip(reversed(self.shape), reversed(self.by), reversed(self.queries), strict=True)
        for length, distance, width in axes:
            at = cell % width + sizes.clamp(distance)
            read = read & (at >= 0) & (at < length)
            key = key + at.clip(0, length - 1) * stride
            cell, stride = cell // width, stride * length
        return read, key


def _lengths(shape: Iterable[int], what: str) -> tuple[int, ...]:
    if isinstance(shape, (str, bytes)) or not isinstance(shape, Iterable):
        raise ParameterError(f"{what} takes two or three lengths, got {shape!r}")
    lengths = tuple(sizes.count(length, what, least=1) for length in shape)
    if len(lengths) not in (2, 3):
        raise ParameterError(f"{what} takes two or three lengths, got {lengths}")
    sizes.size(prod(lengths), f"the number of cells of {what}")
    return lengths

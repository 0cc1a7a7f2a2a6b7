"""Neighbourhoods on a grid of pixels or voxels, and the cell at one displacement."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any, final

import numpy as np

from erlangen.errors import ParameterError, SizeError
from erlangen.relations import sizes
from erlangen.relations.catalogue import written
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.orders import Empty
from erlangen.relations.protocol import Draw
from erlangen.relations.relation import Relation, Site, need_joint


@written
@final
@dataclass(frozen=True)
class Grid(Relation):
    """Neighbours on a 2-D or 3-D grid, cells in row-major order: coordinates within the radius.

    (i, j) is related when along every axis a the coordinates differ by at most radius[a]; one radius serves
    all axes. Grid((h, w), r) is the receptive field of a (2r+1) x (2r+1) convolution with zero padding.

    >>> Grid((2, 3), 1).on(6).degrees.tolist()
    [4, 6, 4, 4, 6, 4]
    """

    shape: tuple[int, ...]
    radius: tuple[int, ...]

    def __init__(self, shape: Iterable[int], radius: int | Iterable[int]) -> None:
        lengths = _lengths(shape, "Grid(shape)")
        radii = tuple(radius) if isinstance(radius, Iterable) else (radius,) * len(lengths)
        radii = tuple(sizes.count(r, "Grid(radius)") for r in radii)
        if len(radii) != len(lengths):
            raise ParameterError(f"Grid(radius) takes one radius or {len(lengths)}, got {radii}")
        self._fill(shape=lengths, radius=radii)

    @classmethod
    def example(cls, n: int, draw: Draw) -> Relation:
        return cls(draw.choice(_shapes(n)), draw.integer(0, 3)) if n else Empty()  # no grid has no cells

    _laws = frozenset({"reflexive", "symmetric"})
    _arithmetic = True

    @property
    def cells(self) -> tuple[int, ...]:
        return self.shape

    @property
    def own_sizes(self) -> tuple[int, int] | None:
        return prod(self.shape), prod(self.shape)

    def _require(self, site: Site) -> None:
        if site.keys != prod(self.shape):
            raise SizeError(f"{self} has {prod(self.shape)} cells, but was bound to {site.keys} keys")
        need_joint(self, site)

    def _bind(self, site: Site) -> Neighborhoods:
        *outer, width = self.shape
        *outer_radius, radius = self.radius
        radius = min(radius, width)
        line, x = np.divmod(site.positions, width)
        # Along the last axis a neighbourhood is one run; over the other axes it repeats at every offset.
        at = [line] if len(outer) == 1 else list(np.divmod(line, outer[1]))
        starts, stops = np.maximum(x - radius, 0), np.minimum(x + radius + 1, width)
        rows = np.arange(site.positions.size, dtype=np.int64)
        spans = [np.arange(-min(r, n), min(r, n) + 1) for r, n in zip(outer_radius, outer, strict=True)]
        offsets = np.stack(np.meshgrid(*spans, indexing="ij"), axis=-1).reshape(-1, len(outer))
        target = [coordinate[:, None] + offsets[:, a] for a, coordinate in enumerate(at)]
        inside = np.logical_and.reduce([(t >= 0) & (t < n) for t, n in zip(target, outer, strict=True)])
        base = (target[0] if len(outer) == 1 else target[0] * outer[1] + target[1]) * width
        which = np.broadcast_to(rows[:, None], inside.shape)[inside]
        return Neighborhoods.from_runs(
            rows.size, site.keys, which, (base + starts[:, None])[inside], (base + stops[:, None])[inside]
        )

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        related = (i >= 0) & (i < prod(self.shape)) & (j >= 0) & (j < prod(self.shape))
        for length, radius in zip(reversed(self.shape), reversed(self.radius), strict=True):
            difference = i % length - j % length
            reach = min(radius, length)
            related = related & (difference <= reach) & (difference >= -reach)
            i, j = i // length, j // length
        return related


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
        self._fill(shape=lengths, by=distances, queries=cells)

    @classmethod
    def example(cls, n: int, draw: Draw) -> Relation:
        if n == 0:
            return Empty()  # no grid has no cells
        shape = draw.choice(_shapes(n))
        axes = len(shape)
        cells = draw.choice([None, draw.integers(1, 4, axes, axes)])
        return cls(shape, draw.integers(-2, 2, axes, axes), cells)

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


def _shapes(cells: int) -> list[tuple[int, ...]]:
    """The shapes of all grids of so many cells, in two and three dimensions."""
    lengths = [length for length in range(1, cells + 1) if cells % length == 0]
    flat = [(a, cells // a) for a in lengths]
    return flat + [(a, b, cells // (a * b)) for a in lengths for b in lengths if cells % (a * b) == 0]

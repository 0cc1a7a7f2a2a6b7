"""Neighbourhoods on a grid of pixels or voxels."""

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
from erlangen.relations.relation import Relation, Site, need_joint


@written
@final
@dataclass(frozen=True)
class Grid(Relation):
    """A local neighbourhood on a 2-D or 3-D grid whose cells are numbered in row-major order.

    (i, j) is related when along every axis a the coordinates differ by at most radius[a]; one radius serves
    all axes. Grid((h, w), r) is the receptive field of a (2r+1) x (2r+1) convolution with zero padding.

    >>> Grid((2, 3), 1).on(6).degrees.tolist()
    [4, 6, 4, 4, 6, 4]
    """

    shape: tuple[int, ...]
    radius: tuple[int, ...]

    def __init__(self, shape: Iterable[int], radius: int | Iterable[int]) -> None:
        if isinstance(shape, (str, bytes)) or not isinstance(shape, Iterable):
            raise ParameterError(f"Grid(shape) takes two or three lengths, got {shape!r}")
        lengths = tuple(sizes.count(length, "Grid(shape)", least=1) for length in shape)
        if len(lengths) not in (2, 3):
            raise ParameterError(f"Grid(shape) takes two or three lengths, got {lengths}")
        sizes.size(prod(lengths), "the number of cells of Grid(shape)")
        radii = tuple(radius) if isinstance(radius, Iterable) else (radius,) * len(lengths)
        radii = tuple(sizes.count(r, "Grid(radius)") for r in radii)
        if len(radii) != len(lengths):
            raise ParameterError(f"Grid(radius) takes one radius or {len(lengths)}, got {radii}")
        object.__setattr__(self, "shape", lengths)
        object.__setattr__(self, "radius", radii)

    _laws = frozenset({"reflexive", "symmetric"})
    _arithmetic = True

    def _transposed(self) -> Relation:
        return self

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

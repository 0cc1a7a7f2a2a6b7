"""Relations of chosen keys: the real ones beside padding, and global positions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, final

import numpy as np

from erlangen.errors import ParameterError, SizeError
from erlangen.relations import intervals, sizes
from erlangen.relations.catalogue import written
from erlangen.relations.lookup import to_numpy
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.orders import Full
from erlangen.relations.protocol import Draw
from erlangen.relations.relation import Relation, Site, need_keys


@written
@final
@dataclass(frozen=True, repr=False)
class Padding(Relation):
    """Every query reads the `length` real keys only; the rest is padding, on the given side.

    side = "right": j < length. side = "left": j >= keys - length. For a batch of sequences of different
    lengths use `Batch([Padding(length) for length in lengths])`.

    >>> Padding(2).on(3).dense().astype(int).tolist()
    [[1, 1, 0], [1, 1, 0], [1, 1, 0]]
    >>> Padding(2, side="left").on(1, 3).dense().astype(int).tolist()
    [[0, 1, 1]]
    """

    length: int
    side: str = "right"
    _counts = ("length",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.side not in ("left", "right"):
            raise ParameterError(f'Padding(side) must be "left" or "right", got {self.side!r}')

    @classmethod
    def example(cls, n: int, draw: Draw) -> Padding:
        return cls(draw.integer(0, n), draw.choice(["left", "right"]))

    def __repr__(self) -> str:
        return f"Padding({self.length})" if self.side == "right" else f'Padding({self.length}, side="left")'

    _arithmetic = True

    def classes(self, n: int) -> list[np.ndarray] | None:
        cut = self.length if self.side == "right" else n - self.length
        return [np.arange(cut), np.arange(cut, n)]

    def _require(self, site: Site) -> None:
        if self.length > site.keys:
            raise SizeError(f"{self} has {self.length} real keys, but was bound to {site.keys} keys")

    def _bind(self, site: Site) -> Neighborhoods:
        zero = np.zeros_like(site.positions)
        if self.side == "right":
            return Neighborhoods.from_bands(site.keys, zero, zero + self.length)
        return Neighborhoods.from_bands(site.keys, zero + (site.keys - self.length), zero + site.keys)

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        if self.side == "right":
            return (i == i) & (j < sizes.clamp(self.length))
        return (i == i) & (j >= sizes.clamp(need_keys(self, keys) - self.length))


@written
@final
@dataclass(frozen=True, repr=False)
class Global(Relation):
    """Global positions: everybody reads the keys in `keys`, and the queries in `queries` read everything.

    j in keys or i in queries. Positions beyond the size are ignored, so that a growing sequence keeps its
    rows. Contiguous positions are kept as a range.

    >>> Global(keys=[0], queries=[0]).on(3).dense().astype(int).tolist()
    [[1, 1, 1], [1, 0, 0], [1, 0, 0]]
    >>> Global(keys=[2, 1, 0])
    Global(keys=range(0, 3))
    """

    keys: range | tuple[int, ...] = ()
    queries: range | tuple[int, ...] = ()

    def __init__(self, keys: Iterable[int] = (), queries: Iterable[int] = ()) -> None:
        self._fill(keys=_positions(keys, "Global(keys)"), queries=_positions(queries, "Global(queries)"))

    @classmethod
    def example(cls, n: int, draw: Draw) -> Global:
        return cls(draw.integers(0, 9, 0, 3), draw.integers(0, 9, 0, 3))

    _pointwise = _arithmetic = True

    def _transposed(self) -> Relation:
        return Global(keys=self.queries, queries=self.keys)

    def classes(self, n: int) -> list[np.ndarray] | None:
        # Four of them: read by all, reading all, both, neither; if one side is everything, R is full.
        read, reads = np.zeros(n, bool), np.zeros(n, bool)
        for flags, positions in ((read, self.keys), (reads, self.queries)):
            listed = np.array(positions, np.int64)
            flags[listed[listed < n]] = True
        if read.all() or reads.all():
            return [np.arange(n)]
        found = [np.flatnonzero((read == a) & (reads == b)) for a in (0, 1) for b in (0, 1)]
        return sorted(filter(len, found), key=lambda points: points[0])

    def _bind(self, site: Site) -> Neighborhoods:
        n, rows = site.keys, site.positions.size
        bounds = self._boundaries(self.keys, n)
        starts, stops = bounds[::2].clip(max=n), bounds[1::2].clip(max=n)
        starts, stops = starts[stops > starts], stops[stops > starts]
        reads_all = intervals.inside(
            self._boundaries(self.queries, site.positions.max(initial=-1) + 1), site.positions
        )
        some = np.flatnonzero(~reads_all)
        every = np.flatnonzero(reads_all)
        return Neighborhoods.from_runs(
            rows,
            n,
            np.concatenate([np.repeat(some, starts.size), every]),
            np.concatenate([np.tile(starts, some.size), np.zeros_like(every)]),
            np.concatenate([np.tile(stops, some.size), np.full_like(every, n)]),
        )

    @staticmethod
    def _boundaries(positions: range | tuple[int, ...], end: int) -> np.ndarray:
        """The positions before `end`, as intervals; a long range is cut before it is listed."""
        if isinstance(positions, range) and positions.step == 1:
            return np.array([positions.start, positions.stop], np.int64)
        if isinstance(positions, range):
            positions = range(positions.start, min(positions.stop, int(end)), positions.step)
        array = np.array(positions, np.int64)
        return intervals.merge(array, array + 1)

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        return self._among(j, self.keys) & (i == i) | self._among(i, self.queries) & (j == j)

    @staticmethod
    def _among(index: Any, positions: range | tuple[int, ...]) -> Any:
        if isinstance(positions, range):
            inside = (index >= positions.start) & (index < positions.stop)
            return inside & ((index - positions.start) % positions.step == 0)
        found = index != index
        for position in positions:
            found = found | (index == position)
        return found


def keys_read(real: np.ndarray) -> Relation:
    """Every query reads the keys that are real (True): `Padding` where the others are on one side.

    >>> keys_read(np.array([True, True, False])), keys_read(np.array([True, False, True]))
    (Padding(2), Global(keys=(0, 2)))
    """
    count = int(real.sum())
    if count == real.size:
        return Full()
    if real[:count].all():
        return Padding(count)
    if real[real.size - count :].all():
        return Padding(count, side="left")
    return Global(keys=np.flatnonzero(real).tolist())


def _positions(values: Iterable[int], what: str) -> range | tuple[int, ...]:
    """Sorted distinct positions, as a range where they are one (so that equal sets compare equal)."""
    if isinstance(values, range) and len(values) > 2:
        ordered = values if values.step > 0 else values[::-1]
        for end in (ordered[0], ordered[-1]):
            sizes.size(end, what)
        return range(ordered.start, ordered[-1] + 1, ordered.step)
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise ParameterError(f"{what} takes a list of positions, got {values!r}")
    listed = to_numpy(values).tolist() if hasattr(values, "__array__") else values
    ordered = sorted({sizes.size(value, what) for value in listed})
    if not ordered:
        return ()
    steps = {b - a for a, b in pairwise(ordered)}
    if not steps or steps == {1} or (len(steps) == 1 and len(ordered) > 2):
        return range(ordered[0], ordered[-1] + 1, steps.pop() if steps else 1)
    return tuple(ordered)

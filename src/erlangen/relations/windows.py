"""Relations of distance: windows, rings, dilation, single offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from erlangen.errors import SizeError
from erlangen.relations import sizes
from erlangen.relations.catalogue import written
from erlangen.relations.neighborhoods import MOST_RUNS, Neighborhoods
from erlangen.relations.protocol import Draw
from erlangen.relations.relation import EQUIVALENCE, Relation, Site, need_keys


@written
@final
@dataclass(frozen=True, repr=False)
class Window(Relation):
    """A band around the diagonal: -lookahead <= i - j <= lookback.

    `Window(lookback=p)` reads p previous positions and itself, min(i, p) + 1 keys: strided attention with
    k = p (Definition 8). The paper's code counts keys instead: its `stride` is `lookback + 1`.

    >>> Window(lookback=1).on(3).dense().astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    >>> Window(lookback=2, lookahead=1) & Window(lookback=1, lookahead=5)
    Window(lookback=1, lookahead=1)
    """

    lookback: int
    lookahead: int = 0

    _counts = ("lookback", "lookahead")
    _pointwise = _arithmetic = True

    def _transposed(self) -> Relation:
        return Window(self.lookahead, self.lookback)

    @property
    def band(self) -> tuple[int, int]:
        return self.lookback, self.lookahead

    @property
    def laws(self) -> frozenset[str]:
        found = {"reflexive", "toeplitz"}
        if self.lookback == self.lookahead:
            found.add("symmetric")
        if 0 in (self.lookback, self.lookahead):
            found.add("antisymmetric")
        return frozenset(found)

    def _bind(self, site: Site) -> Neighborhoods:
        back, ahead = sizes.clamp(self.lookback), sizes.clamp(self.lookahead)
        return Neighborhoods.from_bands(site.keys, site.positions - back, site.positions + (ahead + 1))

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        return (i - j <= sizes.clamp(self.lookback)) & (j - i <= sizes.clamp(self.lookahead))


@written
@final
@dataclass(frozen=True)
class Ring(Relation):
    """A window on a circle of n positions: (i - j) mod n <= lookback or (j - i) mod n <= lookahead.

    >>> Ring(lookback=1, lookahead=0).on(4).dense().astype(int).tolist()
    [[1, 0, 0, 1], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    """

    lookback: int
    lookahead: int

    _counts = ("lookback", "lookahead")
    _arithmetic = True

    def _transposed(self) -> Relation:
        return Ring(self.lookahead, self.lookback)

    @property
    def laws(self) -> frozenset[str]:
        band = frozenset({"reflexive", "toeplitz"})
        return band | {"symmetric"} if self.lookback == self.lookahead else band

    def _bind(self, site: Site) -> Neighborhoods:
        n, count = site.keys, site.positions.size
        if n == 0 or self.lookback + self.lookahead + 1 >= n:
            return Neighborhoods.from_bands(n, np.zeros(count, np.int64), np.full(count, n))
        center = site.positions % n
        low, high = center - self.lookback, center + self.lookahead + 1
        # Once around and shifted a whole circle both ways: of the three copies, those inside [0, n) remain.
        rows = np.tile(np.arange(count, dtype=np.int64), 3)
        starts = np.concatenate([low - n, low, low + n]).clip(0, n)
        stops = np.concatenate([high - n, high, high + n]).clip(0, n)
        return Neighborhoods.from_runs(count, n, rows, starts, np.maximum(starts, stops))

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        n = max(need_keys(self, keys), 1)
        return ((i - j) % n <= sizes.clamp(self.lookback)) | ((j - i) % n <= sizes.clamp(self.lookahead))


@written
@final
@dataclass(frozen=True)
class Dilated(Relation):
    """Every step-th position, both ways: (i - j) mod step = 0. The second head of Sparse Transformers.

    `Causal() & Dilated(step)` reads i, i - step, i - 2 step, ...

    >>> (Dilated(2)).on(4).dense().astype(int).tolist()
    [[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1]]
    """

    step: int

    _counts = ("step",)
    _least = 1
    _laws = EQUIVALENCE | {"toeplitz"}
    _pointwise = _arithmetic = True

    def runs_needed(self, queries: int, keys: int) -> int:
        return max(queries, queries * keys // self.step)  # single keys, before they are joined to runs

    def parts(self, n: int) -> dict[int, np.ndarray] | None:
        step = min(self.step, n)
        longer, length = (n % step, n // step) if n else (0, 0)
        grid = np.arange(step * length, dtype=np.int64).reshape(length, step).T
        extra = np.arange(step * length, n, dtype=np.int64)[:, None]
        return {length + 1: np.concatenate([grid[:longer], extra], axis=1), length: grid[longer:]}

    def _bind(self, site: Site) -> Neighborhoods:
        step, n, rows = sizes.clamp(self.step), site.keys, site.positions.size
        if step == 1:
            return Neighborhoods.from_bands(n, np.zeros(rows, np.int64), np.full(rows, n))
        first = site.positions % step
        counts = np.maximum(-((first - n) // step), 0)
        if (listed := int(counts.sum())) > MOST_RUNS:
            raise SizeError(
                f"{self} on {rows:,} queries and {n:,} keys lists {listed:,} single keys, too many"
            )
        which = np.repeat(np.arange(rows, dtype=np.int64), counts)
        before = np.cumsum(counts) - counts
        starts = first[which] + step * (np.arange(which.size, dtype=np.int64) - before[which])
        return Neighborhoods.from_runs(rows, n, which, starts, starts + 1)

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        return (i - j) % sizes.clamp(self.step) == 0


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

    @classmethod
    def example(cls, n: int, draw: Draw) -> Offset:
        return cls(draw.integer(-6, 6))

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

"""Random keys: as many for each query, drawn by a hash of its position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from erlangen.relations.catalogue import written
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.relation import Relation, Site, need_joint, need_keys


@written
@final
@dataclass(frozen=True)
class Random(Relation):
    """Each query reads `keys_per_query` distinct keys, drawn pseudo-randomly from the seed (BigBird).

    The draw of a row depends on seed, position and number of keys alone (Floyd's sampling over a counter
    hash), so single rows can be bound. With no more keys than asked for, all are read.

    >>> Random(2, seed=0).on(8).degrees.tolist()
    [2, 2, 2, 2, 2, 2, 2, 2]
    >>> Random(2, seed=0).on(3, 8) == Random(2, seed=0).on(8).restrict(range(5, 8))
    True
    """

    keys_per_query: int
    seed: int

    _counts = ("keys_per_query", "seed")

    def _require(self, site: Site) -> None:
        need_joint(self, site)

    def runs_needed(self, queries: int, keys: int) -> int:
        drawn = min(self.keys_per_query, keys)
        return queries * max(drawn, drawn * drawn // 256)  # each key drawn is compared with those before

    def _bind(self, site: Site) -> Neighborhoods:
        rows, n, k = site.positions.size, site.keys, min(self.keys_per_query, site.keys)
        chosen = np.empty((rows, k), np.int64)
        for t in range(k):
            last = n - k + t
            draw = (_hash(self.seed, site.positions, t) % np.uint64(last + 1)).astype(np.int64)
            taken = (chosen[:, :t] == draw[:, None]).any(axis=1)
            chosen[:, t] = np.where(taken, last, draw)
        starts = chosen.ravel()
        return Neighborhoods.from_runs(rows, n, np.repeat(np.arange(rows), k), starts, starts + 1)

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        return self.on(need_keys(self, keys))._contains(i, j)


def _hash(seed: int, position: np.ndarray, draw: int) -> np.ndarray:
    """splitmix64 of (seed, position, draw): well-mixed and the same on every machine."""
    x = position.astype(np.uint64)
    for salt in (seed % 2**64, draw):
        x = x * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return x

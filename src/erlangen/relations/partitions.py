"""Relations of parts: encoder and decoder, blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from erlangen.errors import SizeError
from erlangen.relations import sizes
from erlangen.relations.catalogue import written
from erlangen.relations.examples import Draw
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.relation import EQUIVALENCE, Relation, Site


@written
@final
@dataclass(frozen=True)
class Bipartite(Relation):
    """Encoder-decoder attention on the joint index set, encoder first: i >= encoder and j < encoder.

    The decoder positions read all encoder positions; encoder rows are empty. The non-zero block is the lower
    left one (Theorem 2). For attention from separate decoder queries to encoder keys use `Full()`.

    >>> Bipartite(encoder=2, decoder=1).on(3).dense().astype(int).tolist()
    [[0, 0, 0], [0, 0, 0], [1, 1, 0]]
    """

    encoder: int
    decoder: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "encoder", sizes.size(self.encoder, "Bipartite(encoder)"))
        object.__setattr__(self, "decoder", sizes.size(self.decoder, "Bipartite(decoder)"))

    @classmethod
    def example(cls, n: int, draw: Draw) -> Bipartite:
        encoder = draw.integer(0, n)
        return cls(encoder, n - encoder)

    _arithmetic = True

    @property
    def own_sizes(self) -> tuple[int, int] | None:
        return self.encoder + self.decoder, self.encoder + self.decoder

    def classes(self, n: int) -> list[np.ndarray] | None:
        halves = [np.arange(self.encoder), np.arange(self.encoder, n)]
        return halves if all(half.size for half in halves) else [np.arange(n)]

    def _require(self, site: Site) -> None:
        if site.keys != self.encoder + self.decoder:
            raise SizeError(
                f"{self} is a relation on {self.encoder + self.decoder} joint positions, "
                f"but was bound to {site.keys} keys"
            )

    def _bind(self, site: Site) -> Neighborhoods:
        stops = np.where(site.positions >= self.encoder, self.encoder, 0)
        return Neighborhoods.from_bands(site.keys, np.zeros_like(stops), stops)

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        return (i >= self.encoder) & (j < self.encoder)


@written
@final
@dataclass(frozen=True)
class Blocks(Relation):
    """Block-diagonal: i and j lie in the same block of `size` positions, floor(i / size) = floor(j / size).

    >>> Blocks(2).on(3).dense().astype(int).tolist()
    [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    """

    size: int

    def __post_init__(self) -> None:
        self._count("size", least=1)

    @classmethod
    def example(cls, n: int, draw: Draw) -> Blocks:
        return cls(draw.integer(1, 6))

    _laws = EQUIVALENCE
    _pointwise = _arithmetic = True

    def parts(self, n: int) -> dict[int, np.ndarray] | None:
        size = min(self.size, n) or 1
        whole = n // size * size
        found = {size: np.arange(whole, dtype=np.int64).reshape(-1, size)}
        return found | ({n - whole: np.arange(whole, n, dtype=np.int64)[None, :]} if n > whole else {})

    def _bind(self, site: Site) -> Neighborhoods:
        size = sizes.clamp(self.size)
        starts = site.positions // size * size
        return Neighborhoods.from_bands(site.keys, starts, starts + size)

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        size = sizes.clamp(self.size)
        return i // size == j // size

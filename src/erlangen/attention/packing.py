"""A bound relation as the native kernels read it: packed once, checked there, kept with the binding."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from threading import RLock
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from erlangen.errors import BackendError

if TYPE_CHECKING:
    from erlangen.attention.binding import Bound
    from erlangen.relations.neighborhoods import Neighborhoods

TILE = 64
"""Queries and keys of a native tile."""

try:
    from erlangen import _native as native  # pyright: ignore[reportAttributeAccessIssue, reportMissingImports]

    missing: str | None = None
except ImportError as error:  # built without a compiler: attention then runs through PyTorch
    native: Any = None
    missing = str(error)


class PackedTiles:
    """The tiles of a binding, in the extension's memory."""

    def __init__(self, bound: Bound) -> None:
        self.pairs = _pairs(bound)
        tiled = [near.tiles(TILE) for near in bound.distinct]
        tiles_before = np.cumsum([0] + [tiles.columns.size for tiles in tiled])
        patterns_before = np.cumsum([0] + [len(tiles.patterns) for tiles in tiled])
        pattern = [
            np.where(tiles.pattern < 0, -1, tiles.pattern + before)
            for tiles, before in zip(tiled, patterns_before, strict=False)
        ]
        self.forward = native.Tiles(
            bound.queries,
            bound.keys,
            len(tiled),
            _join([t.indptr + before for t, before in zip(tiled, tiles_before, strict=False)]),
            _join([tiles.columns for tiles in tiled]),
            _join(pattern),
            _join([tiles.patterns.reshape(-1) for tiles in tiled], np.uint64),
            np.ascontiguousarray(bound.index, np.int64),
        )

    def backward(self) -> tuple[Any, ...]:
        """The indices the backward kernel wants."""
        return (self.forward,)


class PackedRuns:
    """The runs of a binding; those of the transposed relation are made when a gradient first needs them."""

    def __init__(self, bound: Bound) -> None:
        self._distinct = bound.distinct
        self._index = bound.index
        self.forward = _runs(bound.distinct, bound.index)
        self.pairs = _pairs(bound)
        self._transposed: Any = None
        self._order: Tensor | None = None

    def backward(self) -> tuple[Any, ...]:
        """The index and the transposed index."""
        if self._transposed is None:
            with _lock:
                if self._transposed is None:
                    self._transposed = _runs(tuple(near.T for near in self._distinct), self._index)
        return (self.forward, self._transposed)

    def order(self) -> Tensor:
        """The number of each edge in the order of the transposed relation, of which there is only one."""
        if self._order is None:
            self._order = torch.from_numpy(np.argsort(self._distinct[0].edges()[:, 1], kind="stable"))
        return self._order


def _pairs(bound: Bound) -> float:
    """Related pairs of one head of one batch item, on average over the distinct relations."""
    return sum(near.num_edges for near in bound.distinct) / len(bound.distinct)


def _runs(distinct: Sequence[Neighborhoods], index: np.ndarray) -> Any:
    before = np.cumsum([0] + [near.starts.size for near in distinct])
    return native.Runs(
        distinct[0].queries,
        distinct[0].keys,
        len(distinct),
        _join([near.indptr + b for near, b in zip(distinct, before, strict=False)]),
        _join([near.starts for near in distinct]),
        _join([near.stops for near in distinct]),
        np.ascontiguousarray(index, np.int64),
    )


def _join(arrays: Sequence[np.ndarray], dtype: Any = np.int64) -> np.ndarray:
    return np.ascontiguousarray(np.concatenate(arrays), dtype)


# A torch operator takes tensors and numbers, so an index travels as a number. A binding owns its indices; the
# number is forgotten with it.
_lock = RLock()
_numbers = itertools.count(1)
_alive: WeakValueDictionary[int, PackedTiles | PackedRuns] = WeakValueDictionary()


def number_of(bound: Bound, kind: type[PackedTiles] | type[PackedRuns]) -> int:
    """The number under which `packed` finds the index of a binding; packs it at the first call."""
    kept: dict[str, Any] = vars(bound)
    slot = f"_{kind.__name__}"
    found = kept.get(slot)
    if found is None:
        if native is None:
            raise BackendError(f"the native extension is missing ({missing}); use the sdpa backend")
        with _lock:
            found = kept.get(slot)
            if found is None:
                index = kind(bound)
                found = (next(_numbers), index)
                _alive[found[0]] = index
                kept[slot] = found
    return found[0]


def packed(number: int) -> PackedTiles | PackedRuns:
    """The index behind a number."""
    found = _alive.get(number)
    if found is None:
        raise BackendError(f"no packed relation has the number {number}: its binding is gone")
    return found

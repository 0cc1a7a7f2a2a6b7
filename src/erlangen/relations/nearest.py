"""The k keys with the largest inner products, found without ever holding all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from erlangen.errors import DataError, ParameterError, SizeError
from erlangen.relations.catalogue import written
from erlangen.relations.lookup import to_numpy
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.relation import Relation, Site, need_vectors

SCORES = 1 << 20
"""How many inner products are held at a time."""
WIDTH = 4096
"""How many keys are looked at together."""


def vectors(queries: Any, keys: Any) -> tuple[np.ndarray, np.ndarray]:
    """Both sides as floats in which no inner product overflows that does not do so in double precision.

    Integers of any kind and booleans become doubles, half types singles: in their own type inner products
    would wrap around or saturate.

    >>> [array.dtype.name for array in vectors(np.array([[200]], np.uint8), np.array([[1e30]], np.float32))]
    ['float64', 'float64']
    """
    found = [to_numpy(array) for array in (queries, keys)]
    for array in found:
        if array.dtype.kind not in "biuf":
            raise ParameterError(f"Nearest takes vectors of real numbers, got numbers of type {array.dtype}")
    largest = [max(float(array.max(initial=0)), -float(array.min(initial=0))) for array in found]
    single = all(array.dtype == np.float32 for array in found)
    if single and found[0].shape[1] * largest[0] * largest[1] < float(np.finfo(np.float32).max):
        return found[0], found[1]
    wide = [array if array.dtype.itemsize > 8 else array.astype(np.float64, copy=False) for array in found]
    return wide[0], wide[1]


def exact(queries: np.ndarray, keys: np.ndarray, k: int) -> np.ndarray:
    """For each query the k keys of the largest inner product, ascending; ties go to the earlier key.

    The keys are passed in pieces and the k best so far are kept, so that the memory needed beyond the result
    does not grow with the number of keys. A product that is no number counts as the least.

    >>> exact(np.array([[1.0]]), np.array([[2.0], [3.0], [3.0], [3.0]]), 2)
    array([[1, 2]])
    """
    chosen = np.empty((len(queries), k), np.int64)
    width = max(WIDTH, k)
    height = max(1, SCORES // width)
    for first in range(0, len(queries), height):
        rows = queries[first : first + height]
        best, names = np.empty((len(rows), 0), rows.dtype), np.empty((len(rows), 0), np.int64)
        for start in range(0, len(keys), width):
            scores = rows @ keys[start : start + width].T
            if np.isnan(scores).any():
                scores[np.isnan(scores)] = -np.inf
            numbers = np.broadcast_to(np.arange(start, start + scores.shape[1]), scores.shape)
            best, names = np.concatenate([best, scores], 1), np.concatenate([names, numbers], 1)
            if best.shape[1] > k:
                kept = _largest(best, k)
                best, names = (array[kept].reshape(len(rows), k) for array in (best, names))
        chosen[first : first + height] = names
    return chosen


def _largest(scores: np.ndarray, k: int) -> np.ndarray:
    """Marks exactly k entries in every row, none smaller than one left out, the earlier ones among equals."""
    if k == 0:
        return np.zeros(scores.shape, bool)
    least = np.partition(scores, -k, axis=1)[:, -k, None]
    above, equal = scores > least, scores == least
    room = k - above.sum(1, keepdims=True)
    return above | (equal & (equal.cumsum(1) <= room))


def faiss(queries: np.ndarray, keys: np.ndarray, k: int) -> np.ndarray:
    """The same from faiss, in float32; which of equal keys it takes is its own choice."""
    try:
        import faiss as library
    except ImportError:
        raise DataError(
            "Nearest(index='faiss') needs faiss, which is not installed: pip install 'erlangen[faiss]', or "
            "leave the index 'exact'"
        ) from None
    q, x = (np.ascontiguousarray(array, np.float32) for array in (queries, keys))
    return library.knn(q, x, k, metric=library.METRIC_INNER_PRODUCT)[1]


INDICES = {"exact": exact, "faiss": faiss}


@written
@final
@dataclass(frozen=True, repr=False)
class Nearest(Relation):
    """The k keys with the largest inner product with the query: data-dependent (Unlimiformer).

    Bound by vectors, `Nearest(k).on(queries, keys)` with shapes (length, dim); ties go to the earlier key.
    `index` says how they are looked for, "exact" or by "faiss" where that is installed (in float32, ties as
    it likes); it is no part of what the relation is.

    >>> Nearest(1).on(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0], [2.0, 0.0]])).row(0)
    [(1, 2)]
    >>> Nearest(1).on(4)
    Traceback (most recent call last):
    ...
    erlangen.errors.DataError: Nearest(k=1) depends on the data: bind it to vectors, on(queries, keys) with
    shapes (length, dim)
    """

    k: int
    index: str = field(default="exact", compare=False)
    _counts = ("k",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.index not in INDICES:
            raise ParameterError(f"Nearest(index) must be one of {', '.join(INDICES)}, got {self.index!r}")

    data_dependent = True  # type: ignore[assignment]

    def _require(self, site: Site) -> None:
        queries, keys = need_vectors(self, site)
        if queries.shape[1] != keys.shape[1]:
            raise SizeError(f"{self}: queries have dimension {queries.shape[1]}, keys {keys.shape[1]}")

    def _bind(self, site: Site) -> Neighborhoods:
        rows = site.positions.size
        if self.k >= site.keys:  # all of them, whatever the vectors
            return Neighborhoods.from_bands(site.keys, np.zeros(rows, np.int64), np.full(rows, site.keys))
        queries, keys = vectors(site.query_vectors, site.key_vectors)
        starts = INDICES[self.index](queries, keys, self.k).ravel()
        return Neighborhoods.from_runs(
            rows, site.keys, np.repeat(np.arange(rows), self.k), starts, starts + 1
        )

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        need_vectors(self, Site(np.empty(0, np.int64), 0))

"""Lists of edges, of indices and of integers as users give them: int64 arrays, or an error in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from erlangen.errors import ParameterError, SizeError
from erlangen.relations.lookup import indices, to_numpy


def edge_array(edges: Any) -> np.ndarray:
    """Pairs (query, key) as an int64 array of shape (edges, 2), with a clear error for anything else."""
    try:
        pairs = to_numpy(edges if hasattr(edges, "__array__") else list(edges))
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(
            f"edges must be pairs (query, key) of integers, got {type(edges).__name__} of something else"
        ) from None
    if pairs.size == 0:
        return np.empty((0, 2), np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ParameterError(
            f"edges must be pairs (query, key), shape (edges, 2); got an array of shape {pairs.shape}"
        )
    if not np.issubdtype(pairs.dtype, np.integer):
        raise ParameterError(f"edges must be integers, got {pairs.dtype}")
    if pairs.dtype == np.uint64 and pairs.max() > np.iinfo(np.int64).max:
        raise ParameterError(f"edge index {pairs.max()} does not fit into 64 bits")
    return pairs.astype(np.int64, copy=False)


def integer_columns(maker: str, **given: Any) -> tuple[np.ndarray, ...]:
    """Equally long lists of integers as int64 arrays."""
    found = [to_numpy(values) for values in given.values()]
    for name, array in zip(given, found, strict=True):
        if array.ndim != 1 or array.shape != found[0].shape:
            shapes = ", ".join(f"{n} of shape {a.shape}" for n, a in zip(given, found, strict=True))
            raise ParameterError(f"{maker} takes lists of integers, all equally long; got {shapes}")
        if array.size and array.dtype.kind not in "iu":
            raise ParameterError(f"{maker}({name}=...) takes integers, got numbers of type {array.dtype}")
    return tuple(array if array.dtype == np.int64 else indices(array)[0] for array in found)


def outside(values: np.ndarray, bound: int) -> int:
    """The first of the values that is none of 0 .. bound - 1."""
    return int(values[(values < 0) | (values >= bound)][0])


def index_array(values: Any, bound: int, what: str) -> np.ndarray:
    """Indices below `bound` in any order, or a slice, as int64."""
    if isinstance(values, slice):
        values = np.arange(*values.indices(bound))
    array = to_numpy(values)
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.dtype == bool or not np.issubdtype(array.dtype, np.integer) or array.ndim != 1:
        raise ParameterError(f"restrict({what}=...) takes a list of indices, got {values!r}")
    array = array.astype(np.int64)
    if array.min() < 0 or array.max() >= bound:
        raise SizeError(f"restrict({what}=...) names index {outside(array, bound)} of {bound} {what}")
    return array

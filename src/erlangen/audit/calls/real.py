"""Which positions are real and which are padding: of an input, of a call's queries and keys, of an item."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from erlangen.audit.observed import Measured
from erlangen.audit.support import of_item
from erlangen.relations import Neighborhoods

Real = Mapping[str, np.ndarray | None]
"""Name of an input -> its real positions, None where nothing marks padding."""


def kept(bound: Neighborhoods, real: np.ndarray | None, item: int) -> Neighborhoods:
    """The edges of real rows."""
    if real is None or real.shape[-1] != bound.queries:
        return bound
    return Neighborhoods.from_dense(bound.dense() & of_item(real, item)[:, None])


def resampled(real: np.ndarray, size: int) -> np.ndarray | None:
    """Which of `size` rows are real, where positions are: a row of several positions is if any of them is.

    >>> resampled(np.array([[True, True, True, False, False, False]]), 3).tolist()
    [[True, True, False]]
    >>> resampled(np.array([[True, True, True, False, False]]), 2).tolist()
    [[True, False]]
    """
    batch, n = real.shape
    if n and size > n:
        return real.repeat(size // n, axis=-1) if size % n == 0 else None
    for rate in (-(-n // size), n // size) if size else ():  # what is left over has a row, or none
        if (size - 1) * rate < n < (size + 1) * rate:
            whole = np.pad(real, ((0, 0), (0, max(0, size * rate - n))))[:, : size * rate]
            return np.asarray(whole.reshape(batch, size, rate).any(axis=-1))
    return None


def has_places(call: Measured, side: int, name: str, length: int) -> bool:
    """Whether the positions of an input may stand among more queries (side 0) or keys (side 1)."""
    return (call.queries, call.keys)[side] > length and name in (call.query_inputs, call.key_inputs)[side]


def real_rows(call: Measured, side: int, real: Real) -> np.ndarray | None:
    """Which queries (side 0) or keys (side 1) of a call are real: those that an input with padding put there
    are as its positions are, and what was joined to it is."""
    size = (call.queries, call.keys)[side]
    owner = (call.query_owner, call.key_owner)[side]
    placed = [(rows, real.get(name)) for name, rows in call.places[side].items()]
    marked = [(rows, mask) for rows, mask in placed if mask is not None and mask.ndim == 2]
    if not marked:
        return real_of(owner, size, real)
    found = np.ones((len(marked[0][1]), size), bool)
    for rows, mask in marked:
        found[:, rows] = mask
    return found


def real_of(owner: str | None, size: int, real: Real) -> np.ndarray | None:
    """The real positions of the input that a call's queries or keys are the positions of."""
    mask = None if owner is None else real.get(owner)
    if mask is None or mask.ndim == 2:
        return None if mask is None else resampled(mask, size)
    found = resampled(mask.reshape(-1, mask.shape[-1]), size)
    return None if found is None else found.reshape(*mask.shape[:2], size)


def of_items(real: np.ndarray | None) -> np.ndarray | None:
    return real if real is None or real.ndim == 2 else np.asarray(real.any(axis=1))

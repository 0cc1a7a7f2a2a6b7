"""The four properties of a ternary relation on n positions, each with a triple that shows where it fails."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import numpy as np

from erlangen.relations.ternary import Triples

Witness = tuple[int, int, int] | None
"""A triple at which a property fails; None when it holds."""


def _missing(bound: Triples, triples: np.ndarray) -> Witness:
    """The first of the triples that does not belong."""
    outside = ~bound.contains(*triples.T)
    if not outside.any():
        return None
    i, j, last = triples[outside.argmax()].tolist()
    return i, j, last


def _symmetric(bound: Triples) -> Witness:
    return _missing(bound, bound.triples()[:, [0, 2, 1]])


def _fully_symmetric(bound: Triples) -> Witness:
    orders = [bound.triples()[:, list(order)] for order in permutations(range(3))]
    return _missing(bound, np.concatenate(orders))


def _distinct(bound: Triples) -> Witness:
    i, j, last = bound.triples().T
    repeats = (i == j) | (i == last) | (j == last)
    if not repeats.any():
        return None
    at = int(repeats.argmax())
    return int(i[at]), int(j[at]), int(last[at])


def _product(bound: Triples) -> Witness:
    shadow = bound.shadow().on(bound.n)
    for i in np.flatnonzero(shadow.degrees**2 != bound.degrees).tolist():
        near = [key for start, stop in shadow.row(i) for key in range(start, stop)]
        pairs = set(bound.row(i))
        return next((i, j, last) for j in near for last in near if (j, last) not in pairs)
    return None


TRIPLE_PROPERTIES: dict[str, Callable[[Triples], Witness]] = {
    "symmetric": _symmetric,
    "fully_symmetric": _fully_symmetric,
    "distinct": _distinct,
    "product": _product,
}
"""Every property by its name."""
